"""After NATS lost data, a document is brought back before it is served (docs/decisions/0021)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.journal.recovery import (
    RecoveryAnswer,
    RecoveryRequest,
    decode_answer,
    decode_ask,
    encode,
)
from lorogo_protocol.messages.calls import Refused
from lorogo_server import Server, ServerSettings
from lorogo_server.compaction import compaction
from lorogo_server.compaction.compaction import CompactionFailed
from lorogo_server.document import startup
from lorogo_server.document.host import Host
from lorogo_server.document.loading import DocumentLoadFailed
from lorogo_server.ownership.acquisition import NotAcquired
from lorogo_server.recovery.reconcile import Reconciler
from lorogo_testing.memory_nats import MemoryTransport
from lorogo_transport.errors import RequestTimeout
from lorogo_transport.ports import Message
from tests.server.recovery.test_reconcile import SNAPSHOTS, STATUS, WAL, World, no_passes
from tests.server.support import QUICK, Writer, until

RARELY = replace(QUICK, reconcile_every_seconds=3600.0)
SOON = replace(RARELY, recover_seconds_max=2.0)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        made = World(stack, tmp_path)
        await made.begin()
        yield made


async def elsewhere(world: World, name: str, settings: ServerSettings = RARELY) -> Server:
    """A server with a disk of its own."""
    line = world.nats.connect(name)
    made = Server(line, settings, clock=world.clock, data=world.data / name / "worker-0")
    return await world._stack.enter_async_context(made)


async def test_a_document_is_whole_when_it_is_first_served(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner's own journals are merged before UP, though no pass has reached the document."""
    await world.written(20)
    world.lose(WAL, SNAPSHOTS, STATUS)
    monkeypatch.setattr(Reconciler, "run", no_passes)
    second = await world.server()
    await world.is_whole()
    assert second.stats()["republished"] == 20
    assert second.stats()["documents_incomplete"] == 0


async def test_journals_of_another_server_are_merged_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner has nothing of the document: the server that has it brings it back before UP."""
    writer = await elsewhere(world, "writer")
    await world.probe.start("doc")
    await world.write(20)
    await writer.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    monkeypatch.setattr(Reconciler, "run", no_passes)
    again = await elsewhere(world, "writer")
    owner = await elsewhere(world, "owner")
    await owner.take("doc")
    assert await world.probe.value("doc") == {"body": world.writer.text}
    assert (again.stats()["republished"], owner.stats()["republished"]) == (20, 0)


async def test_a_lost_tombstone_is_stored_before_the_document_is_served(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deleted document does not begin a new life because NATS lost its tombstone."""
    first = await world.server()
    await world.probe.start("doc")
    await world.write(3)
    await world.probe.call("delete", "doc")
    await first.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    monkeypatch.setattr(Reconciler, "run", no_passes)
    await world.server()
    await world.probe.start("doc")
    with pytest.raises(Refused, match="deleted"):
        await world.probe.value("doc")


async def test_a_document_without_an_absent_journal_is_served_late_and_marked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays STARTING for `recover_seconds_max`, then it is UP and incomplete until that server is back."""
    settings = replace(RARELY, recover_seconds_max=1.0)
    owner = await elsewhere(world, "owner", settings)
    writer = await elsewhere(world, "writer", settings)
    known = owner.recovery
    assert known is not None

    async def knows() -> bool:
        return len(known._known) == 1

    await until(knows)  # before it has a record: nothing says when it gets the first one
    await writer.take("doc")
    await world.write(5)
    await writer.stop()
    await owner.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    monkeypatch.setattr(Reconciler, "run", no_passes)
    owner = await elsewhere(world, "owner", settings)
    statuses = await world.probe.hear("loro.status.doc")
    taking = asyncio.ensure_future(owner.take("doc"))

    async def waits() -> bool:
        return owner.stats()["recovering"] == 1

    await until(waits)
    assert owner.stats()["recovery_doubt"]
    await taking
    assert owner.stats()["servers_absent"]
    assert owner.stats()["recovering"] == 0
    starting = [message for message in _all(statuses) if b"STARTING" in message.data]
    assert len(starting) > 1, "the lease is renewed while the document waits"
    assert owner.hosts["doc"].lease.retry_count == 0
    assert owner.stats()["load_failures"] == 0
    assert owner.stats()["documents_incomplete"] == 1
    assert (await world.probe.call("sync", "doc"))["incomplete"] is True
    await elsewhere(world, "writer", settings)

    async def whole() -> bool:
        value = await world.probe.value("doc")
        return owner.stats()["documents_incomplete"] == 0 and value == {"body": world.writer.text}

    await until(whole)


async def test_the_server_that_had_a_document_is_waited_for_although_it_was_never_met(world: World) -> None:
    """Its id in the status stands for its journals: the document is served late, and marked."""
    writer, line = await writer_and_line(world)
    await writer.take("doc")
    await world.write(5)
    line.partition(60.0)  # it does not notice, and answers no ask
    world.lose(WAL, SNAPSHOTS)
    owner = await elsewhere(world, "owner", SOON)
    assert owner.recovery is not None
    assert not owner.recovery._known
    await taken(owner)
    assert owner.stats()["servers_absent"] == [writer.server_id]
    assert owner.stats()["documents_incomplete"] == 1
    line.end_partition()
    await unmarked(world, owner)


@pytest.mark.parametrize(
    "error", [DocumentLoadFailed("it is broken"), RequestTimeout("NATS is silent")], ids=repr
)
async def test_the_server_that_had_a_document_is_waited_for_after_a_failed_load(
    world: World, monkeypatch: pytest.MonkeyPatch, error: LorogoError
) -> None:
    """A retry finds in the status which server had the document, though a failed load wrote it since."""
    writer, line = await writer_and_line(world)
    await writer.take("doc")
    await world.write(5)
    line.partition(60.0)
    world.lose(WAL, SNAPSHOTS)
    owner = await elsewhere(world, "owner", SOON)
    load, failed = startup._load_in_turn, 0

    async def fail_first(host: Host, *args: Any) -> Any:
        nonlocal failed
        if not failed:
            failed += 1
            raise error
        return await load(host, *args)

    monkeypatch.setattr(startup, "_load_in_turn", fail_first)
    await taken(owner)
    assert failed == 1
    assert owner.stats()["servers_absent"] == [writer.server_id]
    line.end_partition()
    await unmarked(world, owner)


async def test_the_server_that_had_a_document_is_waited_for_after_another_began_to_load_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status names it while another server renews its STARTING, and after that server is gone as well."""
    writer, line = await writer_and_line(world)
    await writer.take("doc")
    await world.write(5)
    line.partition(60.0)
    world.lose(WAL, SNAPSHOTS)
    second = world.nats.connect("second")
    settings = replace(SOON, recover_seconds_max=0.1)
    between = Server(second, settings, clock=world.clock, data=world.data / "second" / "worker-0")
    await world._stack.enter_async_context(between)
    load = startup._load_in_turn

    async def never(host: Host, *args: Any) -> Any:
        if host.context.server_id == between.server_id:
            await asyncio.sleep(3600.0)
        return await load(host, *args)

    monkeypatch.setattr(startup, "_load_in_turn", never)
    statuses = await world.probe.hear("loro.status.doc")
    taking = asyncio.ensure_future(taken(between))

    starting: list[Message] = []

    async def renewed() -> bool:
        starting.extend(one for one in _all(statuses) if b"STARTING" in one.data)
        return len(starting) > 3

    await until(renewed)
    second.partition(60.0)
    taking.cancel()
    owner = await elsewhere(world, "owner", SOON)
    await taken(owner)
    assert owner.stats()["servers_absent"] == [writer.server_id]
    line.end_partition()
    second.end_partition()
    await unmarked(world, owner)


async def test_a_server_without_a_journal_is_not_waited_for(world: World) -> None:
    """Nothing of a document is in a journal that is not there: no doubt, and no mark."""
    line = world.nats.connect("stream")
    settings = replace(SOON, durability="stream")
    stream = await world._stack.enter_async_context(Server(line, settings, clock=world.clock))
    await stream.take("doc")
    await world.write(5)
    line.partition(60.0)
    owner = await elsewhere(world, "owner", SOON)

    async def settled() -> bool:
        return owner.stats()["recovery_doubt"] == ""

    await until(settled)
    await taken(owner)
    assert (owner.stats()["recovery_doubt"], owner.stats()["documents_incomplete"]) == ("", 0)
    assert owner.stats()["takeovers"] == 1
    assert await world.probe.value("doc") == {"body": world.writer.text}


async def writer_and_line(world: World) -> tuple[Server, MemoryTransport]:
    """A server with a disk of its own, and its connection."""
    line = world.nats.connect("writer")
    made = Server(line, SOON, clock=world.clock, data=world.data / "writer" / "worker-0")
    return await world._stack.enter_async_context(made), line


async def taken(server: Server) -> None:
    """The server has the document: when the lease of the one before is stale, and after failed loads."""

    async def is_taken() -> bool:
        with suppress(NotAcquired):
            await server.take("doc")
            return True
        return False

    await until(is_taken)


async def unmarked(world: World, server: Server) -> None:
    """The absent server is back, and the document is whole."""

    async def is_unmarked() -> bool:
        return server.stats()["documents_incomplete"] == 0

    await until(is_unmarked)
    assert await world.probe.value("doc") == {"body": world.writer.text}


async def test_a_worker_beside_this_one_is_met(world: World) -> None:
    """Its journal is read here as well: taking its document raises no doubt, and no mark."""
    beside, line = await world.server_and_line(1, RARELY)
    server = await world.server(0, RARELY)

    async def settled() -> bool:
        return not (beside.stats()["recovery_doubt"] or server.stats()["recovery_doubt"])

    await until(settled)
    await beside.take("doc")
    await world.write(5)
    line.partition(60.0)
    await taken(server)
    assert (server.stats()["recovery_doubt"], server.stats()["documents_incomplete"]) == ("", 0)
    assert await world.probe.value("doc") == {"body": world.writer.text}


async def test_what_is_lost_between_the_comparison_and_the_load_is_brought_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document is loaded again if NATS lost data since its journals were compared."""
    await world.written(5)
    monkeypatch.setattr(Reconciler, "run", no_passes)
    lost = losing_before_a_load(world, await world.server(), monkeypatch)
    await world.is_whole()
    assert lost() == 1


@pytest.mark.parametrize("status", [(), (STATUS,)], ids=["status kept", "no status"])
async def test_a_tombstone_lost_between_the_comparison_and_the_load_is_stored_again(
    world: World, monkeypatch: pytest.MonkeyPatch, status: tuple[str, ...]
) -> None:
    """A load claims nothing before the streams are known to be those that the journals were compared with."""
    first = await world.server()
    await world.probe.start("doc")
    await world.write(3)
    await world.probe.call("delete", "doc")
    await first.stop()
    world.lose(*status)
    monkeypatch.setattr(Reconciler, "run", no_passes)
    lost = losing_before_a_load(world, await world.server(), monkeypatch)
    await world.probe.start("doc")
    assert lost() == 1
    with pytest.raises(Refused, match="deleted"):
        await world.probe.value("doc")


def losing_before_a_load(world: World, server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """NATS loses the WAL and the snapshots before the first load of that server; counts the losses."""
    load, losses = startup._load_in_turn, 0

    async def lose_first(host: Host, *args: Any) -> Any:
        nonlocal losses
        if not losses:
            losses += 1
            await world.probe.bus.barrier()  # the reply to the init arrives before the connection is lost
            world.lose(WAL, SNAPSHOTS)
            world.nats.restart(0.01)

            async def back() -> bool:
                return server.context.transport.bus.connected and world.probe.bus.connected

            await until(back)
            await server._ensure_streams()
        return await load(host, *args)

    monkeypatch.setattr(startup, "_load_in_turn", lose_first)
    return lambda: losses


async def test_a_server_keeps_its_id_in_its_folder(world: World) -> None:
    """Others that wait for it after it was restarted wait for the same id."""
    first = await elsewhere(world, "owner")
    await first.stop()
    assert (await elsewhere(world, "owner")).server_id == first.server_id


async def test_without_a_doubt_nobody_is_asked(world: World) -> None:
    """Opening a document on a healthy NATS costs no message to other servers."""
    servers = [await elsewhere(world, "owner"), await elsewhere(world, "other")]

    async def settled() -> bool:
        return all(server.stats()["recovery_doubt"] == "" for server in servers)

    await until(settled)
    asks = await world.probe.hear("loro.server.recover")
    await world.probe.start("doc")
    await world.probe.accept("doc", Writer().type("x"))
    assert not [ask for message in _all(asks) if (ask := decode_ask(message.data)).document]


async def test_a_document_that_was_up_stays_whole_when_nats_loses_everything(world: World) -> None:
    """Its owner's memory holds all that was ACKed; it is stored again, and served on."""
    server = await world.server(settings=RARELY)
    await world.probe.start("doc")
    await world.write(5)
    world.lose(WAL, SNAPSHOTS, STATUS)
    world.nats.restart(0.01)

    async def back() -> bool:
        return server.ready and world.probe.bus.connected and server.hosts["doc"].lease.valid()

    await until(back)
    assert await world.probe.value("doc") == {"body": world.writer.text}
    assert server.stats()["documents_incomplete"] == 0


async def test_a_mark_stays_when_another_absent_server_returns(world: World) -> None:
    """One server named the journals that it has; the server that had the document is still away."""
    owner = await elsewhere(world, "owner", SOON)
    other = await elsewhere(world, "other", SOON)

    async def knows_other() -> bool:
        assert owner.recovery is not None
        return len(owner.recovery._known) == 1

    await until(knows_other)
    await other.stop()
    await owner.stop()
    writer, line = await writer_and_line(world)
    await writer.take("doc")
    await world.write(5)
    line.partition(60.0)
    world.lose(WAL, SNAPSHOTS)
    owner = await elsewhere(world, "owner", SOON)
    await taken(owner)
    host = owner.hosts["doc"]
    both = host.incomplete
    assert len(both) == 2
    await elsewhere(world, "other", SOON)

    async def other_is_compared() -> bool:
        return len(host.incomplete) < 2

    await until(other_is_compared)
    assert list(host.incomplete) == [writer.server_id]
    line.end_partition()
    await unmarked(world, owner)


async def test_a_server_that_could_not_store_a_document_is_named_in_its_down(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NATS lost updates, and no snapshot has them when the owner stops: the next one marks the document."""

    async def fails(_host: Host) -> None:
        raise CompactionFailed("no room")

    writer, _ = await writer_and_line(world)
    await writer.take("doc")
    await world.write(5)
    for sequence in range(1, 6):
        world.nats.store(WAL).remove(sequence)
    writer.hosts["doc"].state.memory_is_only_copy = True
    monkeypatch.setattr(compaction, "compact", fails)
    await writer.stop()
    owner = await elsewhere(world, "owner", SOON)
    await taken(owner)
    assert owner.hosts["doc"].incomplete == (writer.server_id,)


def test_messages_of_servers_are_checked() -> None:
    """What is not an ask or an answer is refused as malformed."""
    ask = RecoveryRequest("s1", ("aa",), "d1", "doc", 2)
    answer = RecoveryAnswer("s1", ("aa",), "d1", "doc", 2, done=True, whole=True)
    assert decode_ask(encode(ask)) == ask
    assert decode_answer(encode(answer)) == answer
    for wrong in (
        b"",
        b"\xc1",
        b"\x90",
        encode(replace(ask, server="a b")),
        encode(replace(ask, document="a/b")),
    ):
        with pytest.raises(MalformedMessage):
            decode_ask(wrong)


def _all(queue: asyncio.Queue[Message]) -> list[Message]:
    found: list[Message] = []
    while not queue.empty():
        found.append(queue.get_nowait())
    return found
