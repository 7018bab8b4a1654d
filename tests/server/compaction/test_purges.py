"""A server that takes documents unasked, and purges that were put off."""

from collections.abc import Awaitable, Callable

import pytest

from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Down
from lorogo_server import Server
from lorogo_server.compaction import compaction
from lorogo_server.compaction.purges import PurgeCandidate, PurgeRefused, purge_one, purge_prefix
from lorogo_server.ownership.acquisition import NotAcquired
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.errors import NoResponders
from tests.journals import in_memory
from tests.server.support import QUICK, Probe, Serve, Writer, until


@pytest.fixture
def memory() -> MemoryNats:
    """A world of the test's own: everything below a sequence goes."""
    return MemoryNats()


async def test_a_server_that_takes_no_inits_takes_documents_itself(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """No init reaches it; it serves the documents that it takes, and closes them on request."""
    server = await serve(QUICK, takes_inits=False)
    operation_id = await probe.move(unique)
    with pytest.raises(NoResponders):
        await probe.init(unique, operation_id.encode())
    other = f"{unique}-own"
    host = await server.take(other)
    assert host.state.is_up
    writer = Writer()
    await probe.accept(other, writer.type("hello"))
    assert await probe.value(other) == {"body": "hello"}
    with pytest.raises(NotAcquired, match="serves the document"):
        await server.take(other)
    host.stop("the test")
    await host.closed.wait()

    async def down() -> bool:
        return isinstance((await probe.status(other)).status, Down)

    assert await until(down)


async def test_what_another_server_owns_is_not_taken(serve: Serve, probe: Probe, unique: str) -> None:
    """An owner that answers keeps its document; one that is starting is asked again later."""
    await serve()
    entry = await probe.start(unique)
    job = await serve(QUICK, takes_inits=False)
    with pytest.raises(NotAcquired, match="the document is up") as refused:
        await job.take(unique)
    assert refused.value.again_seconds == 0
    assert (await probe.status(unique)).token == entry.token
    starting = f"{unique}-starting"
    await probe.move(starting)
    with pytest.raises(NotAcquired, match="the document is starting") as refused:
        await job.take(starting)
    assert 0 < refused.value.again_seconds <= QUICK.stale_seconds


async def test_a_purge_waits_for_its_word(serve: Serve, probe: Probe, unique: str) -> None:
    """A covered document keeps its messages until it is purged, and its newest then."""
    server = await serve(QUICK, takes_inits=False)
    host = await server.take(unique)
    writer = Writer()
    for word in "abc":
        await probe.accept(unique, writer.type(word))
    held = PurgeCandidate(host, await compaction.cover(host))
    assert await probe.wal.count(subjects.wal(unique)) == 3
    assert host.wal_messages == 3
    await probe.accept(unique, writer.type("d"))
    assert await purge_one(held) == 3
    assert host.wal_messages == 1
    assert await purge_one(held) == 0


async def test_a_snapshot_in_doubt_makes_the_plan_void(serve: Serve, probe: Probe, unique: str) -> None:
    """NATS was away, or lost what we hold: what was stored then may not be there any more."""
    server = await serve(QUICK, takes_inits=False)
    host = await server.take(unique)
    await probe.accept(unique, Writer().type("x"))
    held = PurgeCandidate(host, await compaction.cover(host))
    assert held.unneeded_before() > 0
    for doubts, must in ((True, False), (False, True)):
        host.state.snapshot_unverified, host.state.memory_is_only_copy = doubts, must
        assert held.unneeded_before() == 0
        assert await purge_one(held) == 0
    host.state.snapshot_unverified = host.state.memory_is_only_copy = False
    assert held.unneeded_before() > 0


async def test_a_newer_snapshot_makes_the_plan_void(serve: Serve, probe: Probe, unique: str) -> None:
    """A compaction, a deletion or a takeover since then prevents the purge."""
    server = await serve(QUICK, takes_inits=False)
    names = [f"{unique}-{number}" for number in range(3)]
    held: dict[str, PurgeCandidate] = {}
    for name in names:
        host = await server.take(name)
        await probe.accept(name, Writer().type("x"))
        held[name] = PurgeCandidate(host, await compaction.cover(host))
        assert held[name].unneeded_before() > 0
    await probe.call("compact", names[0])
    await probe.call("delete", names[1])
    await probe.move(names[2])  # another client starts it
    await until(_ended(held[names[2]]))
    before = max(one.covering.before for one in held.values())
    for name in names:
        assert held[name].unneeded_before() == 0
        with pytest.raises(PurgeRefused) as refused:
            await purge_prefix(server.context, held, before=before, removed={name: 1})
        assert refused.value.documents == {name}
        assert await probe.wal.count(subjects.wal(name)) == 1


def _ended(held: PurgeCandidate) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return held.host.lease.ended and held.host.closed.is_set()

    return look


async def test_one_purge_for_many(memory: MemoryNats) -> None:
    """Everything below the sequence goes, and each owner knows how many of its messages went."""
    async with (
        memory.connect() as transport,
        Probe(memory.connect()) as probe,
        Server(transport, QUICK, takes_inits=False, **in_memory()) as server,
    ):
        writers = {name: Writer() for name in ("a", "b")}
        hosts = {name: await server.take(name) for name in writers}
        for word in "xyz":
            for name, writer in writers.items():
                await probe.accept(name, writer.type(word))
        held = {name: PurgeCandidate(host, await compaction.cover(host)) for name, host in hosts.items()}
        assert await purge_prefix(server.context, held, before=5, removed={"a": 2, "b": 2}) == 4
        assert [hosts[name].wal_messages for name in "ab"] == [1, 1]
        assert await probe.wal.subjects(subjects.wal("*")) == {subjects.wal("a"): 1, subjects.wal("b"): 1}
        for name, writer in writers.items():
            await probe.accept(name, writer.type("!"))
            assert await probe.value(name) == {"body": "xyz!"}


async def test_a_lease_that_cannot_be_confirmed_purges_nothing(memory: MemoryNats) -> None:
    """One document of many that is not ours any more is enough."""
    async with (
        memory.connect() as transport,
        Probe(memory.connect()) as probe,
        Server(transport, QUICK, takes_inits=False, **in_memory()) as server,
    ):
        held: dict[str, PurgeCandidate] = {}
        for name in ("a", "b"):
            host = await server.take(name)
            writer = Writer()
            await probe.accept(name, writer.type("x"))
            await probe.accept(name, writer.type("y"))
            held[name] = PurgeCandidate(host, await compaction.cover(host))
        held["b"].host.lease.lose("the test")
        with pytest.raises(PurgeRefused) as refused:
            await purge_prefix(server.context, held, before=4, removed={"a": 2, "b": 1})
        assert refused.value.documents == {"b"}
        assert await probe.wal.count(subjects.wal("*")) == 4
