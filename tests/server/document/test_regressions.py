"""Faults that were found once, each with the sentence that was broken."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import nanoid
import pytest

from lorogo_protocol.errors import InvalidUpdate
from lorogo_protocol.lease import Reclaim, StatusEntry
from lorogo_protocol.loro.crdt import Applied, CrdtPanic, Replica, Unready
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack, Nack
from lorogo_protocol.status import Down, Starting
from lorogo_server import Server
from lorogo_server.compaction import compaction, deletion
from lorogo_server.document import startup, wal_reader
from lorogo_server.document.ack_queue import AckQueue
from lorogo_server.document.document_journal import DocumentJournal
from lorogo_server.document.host import Host
from lorogo_server.document.quarantine import DocumentQuarantine
from lorogo_server.document.wal_bounds import covered_through, first_needed
from lorogo_server.intake.decisions import (
    RefusedUpdate,
)
from lorogo_server.intake.intake import (
    Intake,
)
from lorogo_server.ownership.lease import LeaseLost
from lorogo_server.sandbox.child_process import Fork
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_testing.stream import MemoryStream
from lorogo_transport.clock import SystemClock
from lorogo_transport.errors import OutcomeUnknown, StorageFull
from lorogo_transport.ports import StoredMessage
from lorogo_transport.stores.snapshots import SnapshotHead, SnapshotStore
from tests.server.slow_writes import before_a_trim, from_the_past, writing_slowly
from tests.server.support import QUICK, Probe, Serve, Writer, so, until
from tests.server.worlds import PATIENCE, ShiftedClock, World, lease_of
from tests.transport.support import Connect


async def when_settled(probe: Probe, verb: str) -> dict[str, object]:
    """The answer of an owner that is not busy with another load."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await probe.call(verb, "doc")
            except Refused as no:
                if no.reason is not Reason.BUSY:
                    raise
                await asyncio.sleep(0.01)


# --- where answers go -------------------------------------------------------------------------------


async def test_no_client_makes_the_server_publish_where_it_may_not(
    dial: Connect, serve: Serve, unique: str
) -> None:
    """A ping, a call, a chunk or an init with a reply to NATS's API or to the WAL is answered nowhere."""
    await serve()
    line = await dial()
    async with Probe(line) as probe:
        await probe.start(unique)
        await probe.accept(unique, Writer().type("kept"))
        places = ("$JS.API.INFO", subjects.wal(unique))
        received = [await probe.hear(place) for place in places]
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
        assert [queue.qsize() for queue in received] == [0, 0]
        assert await probe.wal.count(subjects.wal(unique)) == 1


# --- owners before us -------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [compaction.compact, deletion.delete])
async def test_what_an_owner_stores_after_a_takeover_does_not_count(
    memory: World, monkeypatch: pytest.MonkeyPatch, write: Callable[[Host], Awaitable[object]]
) -> None:
    """The new owner's token is on the stored snapshot before it is UP: an older one's swap then fails."""
    first, line = await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    await probe.accept("doc", writer.type("before "))
    async with writing_slowly(first, monkeypatch, write) as late:
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
    assert SnapshotMetadata.parse(head.facts).lease == taken.token
    assert not SnapshotMetadata.parse(head.facts).deleted
    await second.stop()
    await first.stop()
    await memory.server()
    await probe.start("doc")
    assert await probe.value("doc") == {"body": "before after "}


@pytest.mark.parametrize("put_down", [False, True], ids=["owned by the other", "then put DOWN by a person"])
async def test_a_load_that_comes_late_takes_nothing_from_a_newer_owner(
    memory: World, monkeypatch: pytest.MonkeyPatch, put_down: bool
) -> None:
    """A server that does not know its successor does not put its older token on the snapshot."""
    server, _ = await memory.server()
    probe, snapshots = memory.probe, server.context.snapshots
    await probe.start("doc")
    host = server.hosts["doc"]
    monkeypatch.setattr(host.lease, "on_status", lambda _: None)  # the messages were lost
    operation_id = await probe.move("doc")
    token = await probe.statuses.write(
        "doc",
        Starting(operation_id, 0, 0),
        expected_revision=(await probe.status("doc")).revision,
        server="other",
    )
    facts = replace(host.loaded.facts, lease=token)
    taken = await snapshots.put_facts(host.loaded.snapshot, "doc", facts.render())
    if put_down:
        await probe.statuses.write("doc", Down(0), expected_revision=token)
    last = await probe.status("doc")
    with pytest.raises(LeaseLost):
        await startup._load(host)
    assert await snapshots.head("doc") == taken
    assert await probe.status("doc") == last


@pytest.mark.parametrize(
    ("renewed", "cut_off", "overruled"),
    [(True, False, True), (False, False, False), (True, True, False)],
    ids=["received all", "subscribed late", "was cut off"],
)
async def test_only_an_owner_without_gaps_overrules_a_down(
    memory: World, renewed: bool, cut_off: bool, overruled: bool
) -> None:
    """An unsigned DOWN may hide a newer owner from one that did not receive the entry before it."""
    server, _ = await memory.server()
    await memory.probe.start("doc")
    lease = lease_of(server, token=50)
    if renewed:
        assert (
            lease.on_status(StatusEntry(Starting("op", 0, 0), 51, server=server.server_id, lease=50)) is None
        )
    if cut_off:
        lease.connection_lost()
    assert lease.on_status(StatusEntry(Down(0), 60)) == (Reclaim(60) if overruled else None)
    assert lease.ended is not overruled


async def test_a_tombstone_that_is_found_need_not_be_stored(memory: World) -> None:
    """An owner that was about to store its memory, and finds the document deleted, no longer does so."""
    server, _ = await memory.server()
    probe, snapshots = memory.probe, server.context.snapshots
    await probe.start("doc")
    await probe.accept("doc", Writer().type("gone"))
    host = server.hosts["doc"]
    host.state.memory_is_only_copy = True  # the stream lost what it holds
    facts = replace(host.loaded.facts, deleted_ns=1)  # a journal knew of a deletion
    await snapshots.put_facts(host.loaded.snapshot, "doc", facts.render())
    with pytest.raises(compaction.CompactionFailed):
        await compaction.compact(host)
    assert host.loaded.intake.deleted
    assert not host.state.memory_is_only_copy


async def test_what_was_refused_before_a_restore_stays_out_though_a_replica_lags(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was purged, and a replica of the stream is read that does not know: it is of another life."""
    first, _ = await memory.server()
    probe, writer, wal = memory.probe, Writer(), memory.probe.wal
    await probe.start("doc")
    await probe.accept("doc", writer.type("precious"))
    await probe.call("delete", "doc")
    assert (await probe.refuse("doc", writer.type(" LOST"))).reason is Reason.DELETED
    before = [stored async for stored in wal.read(subjects.wal("doc"))]
    read = MemoryStream.read

    async def lagging(
        stream: MemoryStream, subject: str, *, first: int = 1, last: int | None = None
    ) -> AsyncIterator[StoredMessage]:
        old = {one.sequence: one for one in before} if subject == subjects.wal("doc") else {}
        for sequence, stored in old.items():
            if first <= sequence:
                yield stored
        async for stored in read(stream, subject, first=first, last=last):
            if stored.sequence not in old:
                yield stored

    monkeypatch.setattr(MemoryStream, "read", lagging)
    await probe.call("restore", "doc")
    assert await probe.value("doc") == {"body": "precious"}
    await probe.accept("doc", Writer().type("new "))
    value = await probe.value("doc")
    assert value in ({"body": "new precious"}, {"body": "preciousnew "})  # both are typed at the beginning
    await first.stop()
    await memory.server()
    await probe.start("doc")
    assert await probe.value("doc") == value


async def test_what_a_load_read_is_a_witness_of_the_epoch(memory: World) -> None:
    """A stream that was lost after a load, and gives out the same sequences, is not taken for the old one."""
    await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.put("doc", probe.split(writer.type("before ")))  # no server owns it yet: a load reads it
    await probe.start("doc")
    memory.nats.rewind(subjects.WAL_STREAM, 0)
    await probe.accept("doc", writer.type("after "))
    assert await probe.value("doc") == {"body": "before after "}


async def test_no_update_is_refused_for_a_trim_line_that_is_not_stored(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next owner may load a snapshot without it and take the update: it is refused for good only then."""
    server, host, stale = await before_a_trim(memory)
    probe = memory.probe
    async with writing_slowly(server, monkeypatch, compaction.compact) as storing:
        assert (await probe.refuse("doc", stale)).reason is Reason.NOT_OWNER
        assert not host.refused.to_move
        # a load may accept it yet: no coverage record counts it as journalled
        assert covered_through(host.loaded, host.refused).sequence == 2
    await storing
    assert (await probe.refuse("doc", stale)).reason is Reason.HISTORY_TRIMMED


async def test_what_was_left_in_the_wal_is_kept_before_it_is_purged(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused for a trim line that was not stored yet, it was forgotten: the next compaction purged it."""
    server, host, stale = await before_a_trim(memory)
    probe = memory.probe
    async with writing_slowly(server, monkeypatch, compaction.compact) as storing:
        assert (await probe.refuse("doc", stale)).reason is Reason.NOT_OWNER
        left = await probe.wal.last(subjects.wal("doc"))
        assert left is not None
        assert first_needed(host.loaded, host.refused) == left.sequence
    await storing
    await until(lambda: so(not host.refused.to_move))
    kept = [stored async for stored in probe.rejected.read(subjects.rejected("doc"))]
    assert [(stored.data, stored.headers[h.SEQUENCE]) for stored in kept] == [(stale, str(left.sequence))]
    assert await probe.wal.get(left.sequence) is None


async def test_anothers_snapshot_does_not_store_our_trim_line(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work left while our own attempt meets another's snapshot is still there for the second one."""
    server, host, stale = await before_a_trim(memory)
    probe, begun = memory.probe, list[bool]()
    mark = compaction._mark

    async def marked(of: Host, fork: Fork | None) -> compaction._Mark:
        begun.append(of.refused.trim_unstored)
        return await mark(of, fork)

    monkeypatch.setattr(compaction, "_mark", marked)
    facts = host.loaded.facts
    async with writing_slowly(server, monkeypatch, compaction.compact) as storing:
        assert (await probe.refuse("doc", stale)).reason is Reason.NOT_OWNER
        old = host.loaded.intake.replica.snapshot()
        others = SnapshotStore(
            probe.transport.stream(subjects.SNAPSHOT_STREAM),
            max_payload=probe.bus.max_payload,
            clock=SystemClock(),
            new_id=nanoid.generate,
        )
        await others.put("doc", old, facts.render(), expected_revision=host.snapshot_revision)
    await storing
    assert begun == [False, True]
    await until(lambda: so(not host.refused.to_move))
    kept = [stored async for stored in probe.rejected.read(subjects.rejected("doc"))]
    assert [stored.data for stored in kept] == [stale]


async def test_a_trim_line_that_could_not_be_stored_is_given_up(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stored state decides: the document is loaded from it, and accepts what fits to it."""
    server, host, stale = await before_a_trim(memory)
    probe, store = memory.probe, server.context.snapshots

    async def full(_document_id: str, _nuid: str, _data: bytes) -> int:
        raise StorageFull("no room")

    monkeypatch.setattr(store, "_put_chunks", full)
    with pytest.raises(StorageFull):
        await compaction.compact(host)
    await when_settled(probe, "version")
    await until(lambda: so(not host.refused.trim_unstored))
    await probe.accept("doc", stale)


@pytest.mark.parametrize("lost", [False, True], ids=["", "and the WAL is lost"])
async def test_a_clock_that_is_ahead_trims_nothing(memory: World, lost: bool) -> None:
    """Versions are dated by the stream: an owner whose own clock is wrong keeps as much history as others."""
    ahead = ShiftedClock(3600.0)
    server, _ = await memory.server(replace(QUICK, history_seconds=600.0), clock=ahead)
    probe = memory.probe
    late = await from_the_past(probe)
    if lost:
        follower = server.hosts["doc"].loaded.follower
        follower.position = replace(follower.position, time_ns=0)  # no message tells the stream's time
    await probe.call("compact", "doc")
    await probe.accept("doc", late)


async def test_chunks_are_not_late_because_clocks_are_apart(memory: World) -> None:
    """The rest of an update comes while its owner, whose clock is half an hour ahead of NATS's, loads it."""
    probe, update = memory.probe, Writer().type("in two parts")
    first, *others = probe.split(update, size=len(update) // 2 + 1)
    await memory.server(clock=ShiftedClock(1800.0))
    await probe.put("doc", [first])
    await probe.start("doc")
    await probe.put("doc", others)
    assert isinstance(await probe.answer(), Ack)


async def test_what_was_stored_before_a_restore_stays_refused(memory: World) -> None:
    """The owner may have read it already or not: a copy of it may have been refused before."""
    server, _ = await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    await probe.accept("doc", writer.type("kept"))
    await probe.call("delete", "doc")
    async with server.hosts["doc"].busy:
        restoring = asyncio.create_task(probe.call("restore", "doc"))
        await asyncio.sleep(0.05)  # it waits for its turn, before the update that comes now
        await probe.put("doc", probe.split(writer.type(" not")))
    await restoring
    answer = await probe.answer()
    assert isinstance(answer, Nack)
    assert answer.reason is Reason.DELETED
    assert await probe.value("doc") == {"body": "kept"}


async def test_a_restore_that_outlives_its_lease_purges_nothing(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner stalls while it reads; another restores the document meanwhile, and ACKs an edit."""
    probe, (former, _) = memory.probe, await memory.server()
    await probe.start("doc")
    await probe.accept("doc", Writer().type("kept"))
    await probe.call("delete", "doc")
    host = former.hosts["doc"]
    reads, may_read, read = asyncio.Event(), asyncio.Event(), wal_reader.read_to_the_end

    async def slow(one: Host) -> None:
        if one is host:
            reads.set()
            await may_read.wait()
        await read(one)

    monkeypatch.setattr(wal_reader, "read_to_the_end", slow)
    restoring = asyncio.create_task(probe.call("restore", "doc"))
    await reads.wait()
    await probe.put("doc", probe.split(Writer().type("while deleted")))
    await asyncio.sleep(0.05)  # now its follower waits for its turn, and cannot end the restore
    for listening in host._subscriptions[2:]:
        await listening.close()  # who is stopped answers nothing
    other, _ = await memory.server()
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = await probe.init("doc", (await probe.move("doc")).encode())
            if h.REASON not in answer.headers and answer.headers[h.SERVER] == other.server_id:
                break
    await probe.until_up("doc")
    await probe.call("restore", "doc")
    await probe.accept("doc", Writer().type("ACKED "))
    may_read.set()
    with pytest.raises(Refused, match="was released"):
        await restoring
    assert await probe.wal.count(subjects.wal("doc")) == 1


async def test_a_copy_that_follows_what_is_nowhere_is_asked_about(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were lost, or a client made it up: it is looked for twice, and not for ever."""
    await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    copies = await probe.hear(subjects.committed("doc"))
    await probe.accept("doc", writer.type("one"))
    copy = await copies.get()
    asked, last = 0, MemoryStream.last

    async def counted(self: MemoryStream, subject: str, *, timeout: float = 5.0) -> StoredMessage | None:
        nonlocal asked
        asked += 1
        return await last(self, subject, timeout=timeout)

    monkeypatch.setattr(MemoryStream, "last", counted)
    await probe.bus.publish(
        copy.subject, copy.data, headers={**copy.headers, "Nats-Sequence": "9", "Nats-Last-Sequence": "8"}
    )
    await probe.accept("doc", writer.type(" two"))
    assert 1 <= asked <= 4
    assert await probe.value("doc") == {"body": "one two"}


async def test_a_long_upload_is_not_swapped_in_by_who_may_have_lost_the_document(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The revision alone is no fence: a bucket that was created again gives out the same ones."""
    server, _ = await memory.server()
    probe = memory.probe
    await probe.start("doc")
    await probe.accept("doc", Writer().type("text"))
    host, store = server.hosts["doc"], server.context.snapshots
    put_chunks, before = store._put_chunks, host.snapshot_revision

    async def long(document_id: str, nuid: str, data: bytes) -> int:
        chunks = await put_chunks(document_id, nuid, data)
        host.lease.connection_lost()
        return chunks

    monkeypatch.setattr(store, "_put_chunks", long)
    with pytest.raises(compaction.CompactionFailed, match="lease"):
        await compaction.compact(host)
    head = await store.head("doc")
    assert head is not None
    assert head.revision == before


async def test_a_down_names_the_last_update_of_the_owner(memory: World) -> None:
    """A client that missed it before a graceful stop learns of it from DOWN alone."""
    server, _ = await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    ack = await probe.accept("doc", writer.type("last"))
    token = server.hosts["doc"].lease.token
    await server.stop()
    entry = await probe.status("doc")
    assert isinstance(entry.status, Down)
    assert (entry.token, entry.head) == (token, ack.sequence)


async def test_who_has_lost_the_document_is_silent(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current owner gets each call, too: a client refused by another repeats it, and it is done twice."""
    server, _ = await memory.server()
    probe, accepted = memory.probe, DocumentJournal.accepted
    reached, go = asyncio.Event(), asyncio.Event()

    async def slow(self: DocumentJournal, *arguments: Any) -> object:
        reached.set()
        await go.wait()
        return await accepted(self, *arguments)

    monkeypatch.setattr(DocumentJournal, "accepted", slow)
    await probe.start("doc")
    host = server.hosts["doc"]
    await probe.put("doc", probe.split(Writer().type("late")))
    async with asyncio.timeout(PATIENCE):
        await reached.wait()
    host.lease.lose("another has it")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await probe.call("version", "doc")
    assert not host.closed.is_set()
    go.set()
    async with asyncio.timeout(PATIENCE):
        await host.closed.wait()


@pytest.mark.parametrize(
    "within", [(Intake, "take"), (DocumentJournal, "accepted")], ids=["taken", "journalled"]
)
async def test_who_has_lost_the_document_shows_nothing_more(
    memory: World, monkeypatch: pytest.MonkeyPatch, within: tuple[type, str]
) -> None:
    """It learns that in the middle of a turn: the current owner may refuse updates that it takes then."""
    server, _ = await memory.server()
    probe = memory.probe
    await probe.start("doc")
    shown, host = await probe.hear(subjects.accepted("doc")), server.hosts["doc"]
    real = getattr(*within)

    def overtaken(*arguments: object, **named: object) -> object:
        host.lease.lose("another has it")
        return real(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(*within, overtaken)
        await probe.put("doc", probe.split(Writer().type("late")))
        async with asyncio.timeout(PATIENCE):
            await host.closed.wait()
    await probe.bus.barrier()
    assert shown.empty()


@pytest.mark.parametrize("deleted", [True, False])
async def test_what_could_not_be_moved_out_of_the_wal_is_tried_again(
    memory: World, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    """Not only by a compaction, which may be a day away: reconciliation would check it for ever."""
    server, _ = await memory.server()
    probe = memory.probe
    await probe.start("doc")
    await probe.accept("doc", Writer().type("text"))
    host, moved = server.hosts["doc"], asyncio.Event()
    move = DocumentQuarantine.move

    async def interrupted(*_: object) -> None:
        moved.set()

    monkeypatch.setattr(DocumentQuarantine, "move", interrupted)
    await probe.refuse("doc", b"no update")
    async with asyncio.timeout(PATIENCE):
        await moved.wait()
    if deleted:
        await probe.call("delete", "doc")
    assert host.refused.to_move
    monkeypatch.setattr(DocumentQuarantine, "move", move)
    await until(lambda: so(not host.refused.to_move))


async def test_a_deleted_document_is_unloaded_whatever_the_wal_has_of_it(memory: World) -> None:
    """Nothing of it is compacted: it does not stay in memory to be tried every second."""
    server, _ = await memory.server(replace(QUICK, idle_seconds=0.2, compact_idle_bytes=1))
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    await probe.accept("doc", writer.type("text"))
    await probe.call("delete", "doc")
    host = server.hosts["doc"]
    host.loaded.intake.wal_bytes = 1000
    await until(lambda: so("doc" not in server.hosts))


# --- unknown outcomes ---------------------------------------------------------------------


def unknown_swap(server: Server, monkeypatch: pytest.MonkeyPatch, *, stored: bool) -> None:
    """The outcome of the next write of metadata is unknown: stored or not."""
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


async def test_what_was_refused_stays_out_if_the_stream_goes_back_before_a_restore(
    memory: World,
) -> None:
    """Its sequence means nothing in the stream that is there now: it was not purged, and came back."""
    server, _ = await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    await probe.accept("doc", writer.type("kept "))
    await probe.call("delete", "doc")
    refused = await probe.refuse("doc", writer.type("REFUSED "))
    assert refused.reason is Reason.DELETED
    late = await probe.wal.last(subjects.wal("doc"))
    assert late is not None
    await probe.start("other")
    await probe.accept("other", Writer().type("lost"))
    memory.nats.rewind(subjects.WAL_STREAM, late.sequence)
    assert await probe.call("restore", "doc") == {"generation": 1}
    assert server.context.epochs.current == 2
    assert await probe.value("doc") == {"body": "kept "}


async def test_nothing_is_restored_while_the_stream_goes_back(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the stream went back within the call itself, the client repeats the call."""
    await memory.server()
    probe = memory.probe
    await probe.start("doc")
    await probe.call("delete", "doc")

    async def gone_back(host: Host) -> None:
        follower = host.loaded.follower
        follower.position = replace(follower.position, epoch=host.epoch - 1)

    with monkeypatch.context() as patch:
        patch.setattr(wal_reader, "settle_epoch", gone_back)
        with pytest.raises(Refused) as busy:
            await probe.call("restore", "doc")
    assert busy.value.reason is Reason.BUSY
    await when_settled(probe, "restore")


async def test_a_refusal_that_comes_before_a_lost_confirmation_is_no_complaint(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's own update is in the WAL and refused; that it is stored is never confirmed."""
    server, _ = await memory.server()
    probe, complaints = memory.probe, list[dict[str, object]]()
    await probe.start("doc")
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    acks, append, refused = server.hosts["doc"].acks, MemoryStream.append, asyncio.Event()
    nack = AckQueue.nack

    async def unconfirmed(*arguments: object, **named: object) -> int:
        await append(*arguments, **named)  # type: ignore[arg-type]  # whatever it takes
        await refused.wait()
        raise OutcomeUnknown("no confirmation")

    async def signal(queue: AckQueue, no: RefusedUpdate, *, final: bool) -> None:
        await nack(queue, no, final=final)
        refused.set()

    monkeypatch.setattr(MemoryStream, "append", unconfirmed)
    monkeypatch.setattr(AckQueue, "nack", signal)
    with pytest.raises(OutcomeUnknown):
        await acks.submit(b"no update", PATIENCE)
    gc.collect()
    assert complaints == []


# --- updates ----------------------------------------------------------------------------------------


async def test_updates_behind_one_that_breaks_loro_are_not_blamed(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the forged one is refused and moved; the others are judged by a document loaded again."""
    forged, apply = Writer().type("forged"), Replica.apply
    broken: list[Replica] = []  # as Loro does it: after a panic, every call panics

    def panics(self: Replica, update: bytes, origin: str = "", **options: bool) -> Applied | Unready:
        if update == forged or any(self is one for one in broken):
            broken.append(self)
            raise CrdtPanic("poisoned")
        return apply(self, update, origin, **options)

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
    """A refusal from before the fresh load moves nothing: a good update is ACKed and stays."""
    forged, innocent, apply = Writer().type("forged"), Writer().type("innocent"), Replica.apply
    first: list[Replica] = []  # breaks, and returns odd results before it panics

    def confused(self: Replica, update: bytes, origin: str = "", **options: bool) -> Applied | Unready:
        if update == innocent and (not first or self is first[0]):
            first.append(self)
            raise InvalidUpdate("confused")
        if update == forged:
            raise CrdtPanic("poisoned")
        return apply(self, update, origin, **options)

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
    """Content accepted by another server is loaded whatever its size; new updates must fit."""
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
    received = await probe.hear(subjects.accepted("doc"))
    acks = [await probe.accept("doc", writer.type("y")) for _ in range(2)]
    assert acks[-1].sequence <= last.sequence
    chain = [(await received.get()).headers for _ in acks]
    assert [int(one[h.SEQUENCE]) for one in chain] == [ack.sequence for ack in acks]
    assert int(chain[0][h.PREVIOUS]) == up.head
    assert int(chain[1][h.PREVIOUS]) == acks[0].sequence
    assert (await probe.call("version", "doc"))["sequence"] == acks[1].sequence


async def test_who_may_have_lost_the_document_refuses_nothing_for_good(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its refusal may be wrong for the current owner: the sender gets `not-owner`."""
    first, _ = await memory.server()
    probe = memory.probe
    await probe.start("doc")
    await probe.accept("doc", Writer().type("one"))
    with monkeypatch.context() as doubt:
        doubt.setattr(first.hosts["doc"].lease, "valid", lambda: False)
        assert (await probe.refuse("doc", b"garbage")).reason is Reason.NOT_OWNER
    assert (await probe.refuse("doc", b"rubbish")).reason is Reason.INVALID_UPDATE


async def test_a_document_that_was_deleted_meanwhile_need_not_be_stored(memory: World) -> None:
    """After a loss an owner stores what it holds; not if it finds that the document is deleted."""
    server, _ = await memory.server()
    probe, snapshots = memory.probe, server.context.snapshots
    await probe.start("doc")
    await probe.accept("doc", Writer().type("one"))
    host = server.hosts["doc"]
    head = await snapshots.head("doc")
    assert head is not None
    facts = replace(SnapshotMetadata.parse(head.facts), deleted_ns=1)
    await snapshots.put_facts(head, "doc", facts.render())
    host.state.memory_is_only_copy = True
    host.request_reload()

    async def reloaded() -> bool:
        return host.loaded.intake.deleted

    await until(reloaded)
    assert not host.state.memory_is_only_copy
