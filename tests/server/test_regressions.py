"""Faults that were found once, each with the sentence that was broken."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from lorogo_protocol import headers as h
from lorogo_protocol import subjects
from lorogo_protocol.calls import Refused
from lorogo_protocol.crdt import Applied, CrdtPanic, Replica, Unready
from lorogo_protocol.errors import InvalidUpdate
from lorogo_protocol.reasons import Reason
from lorogo_protocol.replies import Ack, Nack
from lorogo_server import Server, compaction, deletion
from lorogo_server.facts import SnapshotFacts
from lorogo_server.host import Host
from lorogo_server.lease import LeaseLost
from lorogo_transport.errors import OutcomeUnknown
from lorogo_transport.snapshots import SnapshotHead
from tests.server.support import QUICK, Probe, Serve, Writer, until
from tests.server.worlds import PATIENCE, ShiftedClock, World, memory_world
from tests.transport.support import Connect


@pytest.fixture
async def memory() -> AsyncIterator[World]:
    async with memory_world() as made:
        yield made


async def when_settled(probe: Probe, verb: str) -> dict[str, object]:
    """The answer of an owner that is not busy loading afresh."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await probe.call(verb, "doc")
            except Refused as no:
                if no.reason is not Reason.BUSY:
                    raise
                await asyncio.sleep(0.01)


# --- where answers go -------------------------------------------------------------------------------


async def test_nobody_makes_the_server_publish_where_he_may_not(
    dial: Connect, serve: Serve, unique: str
) -> None:
    """A ping, a call, a chunk or an init with a reply to NATS's API or to the WAL is answered nowhere."""
    await serve()
    line = await dial()
    async with Probe(line) as probe:
        await probe.start(unique)
        await probe.accept(unique, Writer().type("kept"))
        places = ("$JS.API.INFO", subjects.wal(unique))
        heard = [await probe.hear(place) for place in places]
        chunk = probe.split(b"xx", size=1)[0]
        for place in places:
            await line.bus.publish(subjects.ping(unique), reply=place)
            await line.bus.publish(subjects.call("version", unique), reply=place)
            await line.bus.publish(subjects.call("nonsense", unique), reply=place)
            await line.bus.publish(
                subjects.call("get", unique), chunk.data, headers=chunk.headers(), reply=place
            )
            await line.bus.publish(subjects.init(unique), b"\xff", reply=place)
        # The same again, with inboxes: what went astray was published before these answers.
        await line.bus.request(subjects.ping(unique), timeout=PATIENCE)
        await probe.call("version", unique)
        with pytest.raises(Refused):
            await probe.call("nonsense", unique)
        assert h.REASON in (await probe.init(unique, b"\xff")).headers
        await line.bus.barrier()
        assert [queue.qsize() for queue in heard] == [0, 0]
        assert await probe.wal.count(subjects.wal(unique)) == 1


# --- owners before us -------------------------------------------------------------------------------


@asynccontextmanager
async def held_swap(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[asyncio.Event]:
    """The server's next write of metadata waits until the block ends; the event says that it waits."""
    store, reached, go = server.context.snapshots, asyncio.Event(), asyncio.Event()
    swap = store._swap

    async def late(head: SnapshotHead, expected_revision: int) -> SnapshotHead:
        reached.set()
        await go.wait()
        return await swap(head, expected_revision)

    monkeypatch.setattr(store, "_swap", late)
    try:
        yield reached
    finally:
        go.set()


@pytest.mark.parametrize("write", [compaction.compact, deletion.delete])
async def test_what_an_owner_stores_after_a_takeover_does_not_count(
    memory: World, monkeypatch: pytest.MonkeyPatch, write: Callable[[Host], Awaitable[object]]
) -> None:
    """The new owner's token is on the stored snapshot before it is UP: an older one's swap then fails."""
    first, line = await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    await probe.accept("doc", writer.type("before "))
    async with held_swap(first, monkeypatch) as reached:
        late = asyncio.ensure_future(write(first.hosts["doc"]))
        async with asyncio.timeout(PATIENCE):
            await reached.wait()
        line.cut()
        second, _ = await memory.server()
        taken = await probe.start("doc")
        assert taken.server == second.server_id
        await probe.accept("doc", writer.type("after "))
        line.heal()
    with pytest.raises((LeaseLost, Refused)):
        await late
    head = await second.context.snapshots.head("doc")
    assert head is not None
    assert SnapshotFacts.parse(head.facts).lease == taken.token
    assert not SnapshotFacts.parse(head.facts).deleted
    await second.stop()
    await first.stop()
    await memory.server()
    await probe.start("doc")
    assert await probe.value("doc") == {"body": "before after "}


# --- outcomes that nobody knows ---------------------------------------------------------------------


def unknown_swap(server: Server, monkeypatch: pytest.MonkeyPatch, *, stored: bool) -> None:
    """The next write of metadata is stored or not, and nobody can tell."""
    store = server.context.snapshots
    swap = store._swap

    async def once(head: SnapshotHead, expected_revision: int) -> SnapshotHead:
        monkeypatch.setattr(store, "_swap", swap)
        if stored:
            await swap(head, expected_revision)
        raise OutcomeUnknown("the connection was lost")

    monkeypatch.setattr(store, "_swap", once)


@pytest.mark.parametrize("stored", [True, False])
async def test_a_deletion_with_unknown_outcome(
    memory: World, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    """The owner loads what is stored before it takes another update; to delete again settles it."""
    server, _ = await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    await probe.accept("doc", writer.type("kept "))
    unknown_swap(server, monkeypatch, stored=stored)
    with pytest.raises(Refused) as refused:
        await probe.call("delete", "doc")
    assert refused.value.reason is Reason.BUSY
    reply = await probe.send("doc", writer.type("more "))
    if stored:
        assert isinstance(reply, Nack)
        assert reply.reason is Reason.DELETED
    else:
        assert isinstance(reply, Ack)
    await when_settled(probe, "delete")
    with pytest.raises(Refused) as refused:
        await probe.value("doc")
    assert refused.value.reason is Reason.DELETED
    assert await probe.call("restore", "doc") == {"generation": 1}
    assert await probe.value("doc") == {"body": "kept " if stored else "kept more "}


@pytest.mark.parametrize("stored", [True, False])
async def test_a_restoration_with_unknown_outcome(
    memory: World, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    """The owner loads what is stored: the document is back, or to restore it again brings it back."""
    server, _ = await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    await probe.accept("doc", writer.type("kept "))
    await probe.call("delete", "doc")
    unknown_swap(server, monkeypatch, stored=stored)
    with pytest.raises(Refused) as refused:
        await probe.call("restore", "doc")
    assert refused.value.reason is Reason.BUSY
    if stored:
        with pytest.raises(Refused) as refused:
            await when_settled(probe, "restore")
        assert refused.value.reason is Reason.CONFLICT  # it is not deleted
    else:
        await when_settled(probe, "restore")
    assert (await probe.call("status", "doc"))["generation"] == 1
    await probe.accept("doc", writer.type("more "))
    await server.stop()
    await memory.server()
    await probe.start("doc")
    assert await probe.value("doc") == {"body": "kept more "}


# --- updates ----------------------------------------------------------------------------------------


async def test_updates_behind_one_that_breaks_loro_are_not_blamed(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the forged one is refused and moved; the others are judged by a document loaded afresh."""
    forged, apply = Writer().type("forged"), Replica.apply
    broken: list[Replica] = []  # as Loro does it: after a panic, every call panics

    def panics(self: Replica, update: bytes, origin: str = "", *, foreign: bool = False) -> Applied | Unready:
        if update == forged or any(self is one for one in broken):
            broken.append(self)
            raise CrdtPanic("poisoned")
        return apply(self, update, origin, foreign=foreign)

    monkeypatch.setattr(Replica, "apply", panics)
    server, _ = await memory.server()
    probe = memory.probe
    await probe.start("doc")
    bad = probe.split(forged)
    good = [chunk for number in range(3) for chunk in probe.split(Writer().type(f"{number} "))]
    async with server.hosts["doc"].busy:  # so that all are queued together
        await probe.put("doc", [*bad, *good])
    answered: dict[str, set[type]] = {}
    while {chunk.log_id for chunk in [*bad, *good]} - answered.keys():
        reply = await probe.answer()
        answered.setdefault(reply.log_id, set()).add(type(reply))
    assert answered == {bad[0].log_id: {Nack}, **{chunk.log_id: {Ack} for chunk in good}}

    async def moved() -> bool:
        return await probe.wal.count(subjects.wal("doc")) == len(good)

    await until(moved)
    async for kept in probe.rejected.read(subjects.rejected("doc")):
        assert kept.headers[h.LOG_ID] == bad[0].log_id
    value = await probe.value("doc")
    assert isinstance(value, dict)
    assert sorted(value["body"].split()) == ["0", "1", "2"]
    await server.stop()
    await memory.server()
    await probe.start("doc")
    assert await probe.value("doc") == value


async def test_what_a_broken_document_refused_is_judged_again(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal of before the fresh load moves nothing: what is good after all is ACKed and stays."""
    forged, innocent, apply = Writer().type("forged"), Writer().type("innocent"), Replica.apply
    first: list[Replica] = []  # breaks, and says odd things before it panics

    def confused(
        self: Replica, update: bytes, origin: str = "", *, foreign: bool = False
    ) -> Applied | Unready:
        if update == innocent and (not first or self is first[0]):
            first.append(self)
            raise InvalidUpdate("confused")
        if update == forged:
            raise CrdtPanic("poisoned")
        return apply(self, update, origin, foreign=foreign)

    monkeypatch.setattr(Replica, "apply", confused)
    server, _ = await memory.server()
    probe = memory.probe
    await probe.start("doc")
    good, bad = probe.split(innocent), probe.split(forged)
    async with server.hosts["doc"].busy:  # so that both are queued together
        await probe.put("doc", [*good, *bad])
    while not isinstance(await probe.answer(), Ack):
        pass

    async def moved() -> bool:
        return await probe.wal.get(2) is None

    await until(moved)
    await server.stop()
    await memory.server()
    await probe.start("doc")
    assert await probe.value("doc") == {"body": "innocent"}


async def test_a_lower_limit_counts_for_new_updates_only(memory: World) -> None:
    """What another server accepted is loaded whatever its size; what comes now must fit."""
    first, _ = await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    large = writer.type("x" * 5000)
    assert len(large) > 2000
    await probe.accept("doc", large)
    await probe.put("doc", probe.split(writer.type("y" * 5000), size=1000))
    assert isinstance(await probe.answer(), Ack)
    await first.stop()
    await memory.server(replace(QUICK, update_bytes_max=2000))
    await probe.start("doc")
    assert await probe.value("doc") == {"body": writer.text}
    assert await probe.rejected.count(subjects.rejected("doc")) == 0
    assert (await probe.refuse("doc", Writer().type("z" * 5000))).reason is Reason.TOO_LARGE


@pytest.mark.parametrize("wrong", [0.0, -7200.0, 7200.0])
async def test_a_log_id_may_be_used_again_once_it_is_forgotten(memory: World, wrong: float) -> None:
    """A fresh load goes by the times at which the stream stored, however wrong its own clock is."""
    first, _ = await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    assert isinstance(await probe.send("doc", writer.type("one "), "same"), Ack)
    await memory.pass_time(601)
    assert isinstance(await probe.send("doc", writer.type("two "), "same"), Ack)
    await first.stop()
    await memory.server(clock=ShiftedClock(memory.clock.ahead + wrong))
    await probe.start("doc")
    assert await probe.value("doc") == {"body": "one two "}


async def test_chunks_that_the_stream_lost_do_not_count(memory: World) -> None:
    """An update is ACKed only if all of it is in the stream: after a loss it must come whole again."""
    first, _ = await memory.server(replace(QUICK, unfinished_seconds=30.0))
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    await probe.accept("doc", writer.type("one "))
    parts = probe.split(Writer().type("BIG" * 50), size=100)
    await probe.put("doc", parts[:1])

    async def begun() -> bool:
        return first.hosts["doc"].loaded.intake.unfinished == 1

    await until(begun)
    memory.nats.rewind(subjects.WAL_STREAM, 1)
    await probe.accept("doc", writer.type("two "))
    assert first.context.epochs.current == 2
    await probe.put("doc", parts[1:])
    while (reply := await probe.answer()).log_id != parts[0].log_id:
        pass
    assert isinstance(reply, Nack)
    assert reply.reason is Reason.CHUNK_MISSING
    assert await probe.value("doc") == {"body": "one two "}


async def test_waiting_updates_that_the_stream_lost_do_not_count(memory: World) -> None:
    """One that waited for its dependencies is not accepted when they come, if the stream lost it."""
    first, _ = await memory.server(replace(QUICK, pending_seconds=30.0))
    probe, other, late = memory.probe, Writer(), Writer()
    await probe.start("doc")
    await probe.accept("doc", other.type("one "))
    needed, waits = late.type("two "), late.type("LOST ")
    assert (await probe.refuse("doc", waits)).reason is Reason.MISSING_DEPENDENCIES
    memory.nats.rewind(subjects.WAL_STREAM, 1)
    await probe.accept("doc", other.type("three "))
    assert first.context.epochs.current == 2
    await probe.accept("doc", needed)
    await probe.accept("doc", other.type("four "))  # behind whatever the last one woke
    value = await probe.value("doc")
    assert isinstance(value, dict)
    assert sorted(value["body"].split()) == ["four", "one", "three", "two"]


async def test_the_head_is_one_of_the_stream_that_is_there(memory: World) -> None:
    """A snapshot's sequence counts in its own epoch only: readers see no gap, and no head from the past."""
    first, _ = await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    *_, last = [await probe.accept("doc", writer.type("x")) for _ in range(5)]
    await probe.call("compact", "doc")
    await first.stop()
    memory.nats.rewind(subjects.WAL_STREAM, 2)
    await memory.server()
    up = await probe.start("doc")
    assert up.head <= 2
    heard = await probe.hear(subjects.accepted("doc"))
    acks = [await probe.accept("doc", writer.type("y")) for _ in range(2)]
    assert acks[-1].sequence <= last.sequence
    chain = [(await heard.get()).headers for _ in acks]
    assert [int(one[h.SEQUENCE]) for one in chain] == [ack.sequence for ack in acks]
    assert int(chain[0][h.PREVIOUS]) == up.head
    assert int(chain[1][h.PREVIOUS]) == acks[0].sequence
    assert (await probe.call("version", "doc"))["sequence"] == acks[1].sequence
