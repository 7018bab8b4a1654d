"""What the stream lost is brought back from the journals, and nothing else is (docs/JOURNAL.md)."""

import asyncio
import itertools
import logging
import random
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loro import ExportMode, LoroDoc

from lorogo_log import LogError
from lorogo_protocol.journal.records import BaseRecord, ErasedRecord, UpdateRecord
from lorogo_protocol.limits import UPDATE_PEERS_MAX
from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import Applied, CrdtPanic, Replica, UnclearPanic, Unready
from lorogo_protocol.messages import chunks, subjects
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.calls import Refused as CallRefused
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack
from lorogo_server import Server, ServerSettings
from lorogo_server.compaction import compaction
from lorogo_server.document import startup
from lorogo_server.document.host import Host
from lorogo_server.document.loading import DocumentLoadFailed
from lorogo_server.journal import journal_scan
from lorogo_server.journal.disk_journal import DiskJournal
from lorogo_server.journal.journal_scan import ScannedRecord
from lorogo_server.recovery import base_merge, reconcile
from lorogo_server.recovery.document_comparison import Completeness, DocumentComparison
from lorogo_server.recovery.incarnation_store import IncarnationStore
from lorogo_server.recovery.journal_table import JournalledDocument
from lorogo_server.recovery.reconcile import Reconciler
from lorogo_server.recovery.reconcile_publish import Publisher
from lorogo_server.recovery.reconcile_repair import Repair, RepairOutcome
from lorogo_server.recovery.recovery import DocumentRecovery
from lorogo_server.sandbox.decode_sandbox import FORGED, SUSPECTED
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from lorogo_testing.stream import MemoryStream
from lorogo_transport.errors import RequestTimeout, TransportError
from lorogo_transport.ports import StoredMessage
from lorogo_transport.stores import topology
from tests.server.support import QUICK, Probe, Writer, so, until
from tests.server.suspicion import Suspicious
from tests.server.worlds import ShiftedClock

WAL, SNAPSHOTS, STATUS = subjects.WAL_STREAM, subjects.SNAPSHOT_STREAM, subjects.STATUS_STREAM


class World:
    """The in-memory NATS, servers with journals on the disk, and somebody who writes."""

    def __init__(self, stack: AsyncExitStack, data: Path) -> None:
        self.clock = ShiftedClock()
        self.nats = MemoryNats(now_ns=self.clock.wall_ns)
        self.data = data
        self.writer = Writer()
        self._stack = stack
        self._probe: Probe | None = None

    @property
    def probe(self) -> Probe:
        assert self._probe is not None
        return self._probe

    async def begin(self) -> None:
        self._probe = await self._stack.enter_async_context(Probe(self.nats.connect("probe")))

    async def server(self, worker: int = 0, settings: ServerSettings = QUICK) -> Server:
        return (await self.server_and_line(worker, settings))[0]

    async def server_and_line(
        self, worker: int = 0, settings: ServerSettings = QUICK
    ) -> tuple[Server, MemoryTransport]:
        line = self.nats.connect("server")
        made = Server(line, settings, clock=self.clock, data=self.data / f"worker-{worker}")
        return await self._stack.enter_async_context(made), line

    async def write(self, words: int, document_id: str = "doc") -> None:
        """So many ACKed updates."""
        for number in range(words):
            await self.probe.accept(document_id, self.writer.type(f"{number} "))

    async def written(self, words: int) -> None:
        """So many ACKed updates of `doc`, by a server that is gone now."""
        server = await self.server()
        await self.probe.start("doc")
        await self.write(words)
        await server.stop()

    def lose(self, *streams: str) -> None:
        """NATS forgets whole streams; servers make them anew when they start."""
        for stream in streams:
            del self.nats.stores[stream]

    def count(self, document_id: str = "doc") -> int:
        return self.nats.store(WAL).count(subjects.wal(document_id), self.clock.wall_ns())

    async def is_whole(self, document_id: str = "doc") -> None:
        """Have it served, and see that nothing is missing."""
        await self.probe.start(document_id)
        assert await self.probe.value(document_id) == {"body": self.writer.text}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        made = World(stack, tmp_path)
        await made.begin()
        yield made


async def reconciled(server: Server) -> Server:
    """After a pass that sees everything that is so now."""
    assert server.reconciler is not None
    await server.reconciler.reconcile()
    return server


async def journalled(folder: Path, *payloads: bytes) -> None:
    """A journal with these updates of `doc` in it, and nothing else."""
    journal = DiskJournal(folder)
    await journal.open()
    for number, payload in enumerate(payloads):
        spans = () if payload.startswith(b"not") else crdt.spans(payload)
        record = UpdateRecord(1, number + 1, f"log-{digest(payload)}", digest(payload), 1, 0, spans, payload)
        await (await journal.put("doc", record, time.time_ns()))
    await journal.close()


def figures(server: Server, *names: str) -> tuple[object, ...]:
    stats = server.stats()
    return tuple(stats[name] for name in names)


async def test_a_gap_is_filled_with_what_was_in_it(world: World) -> None:
    """Messages missing in the middle are published again, those behind them are not, order is kept."""
    await world.written(10)
    for sequence in (4, 5, 6):
        world.nats.store(WAL).remove(sequence)
    second = await reconciled(await world.server())
    assert figures(second, "reconciled_documents", "republished", "reconcile_waiting") == (1, 3, 0)
    assert world.count() == 10
    await world.is_whole()


async def test_a_stream_that_went_back_is_filled_up(world: World) -> None:
    """Sequences used again by others do not hide the loss."""
    await world.written(10)
    world.nats.rewind(WAL, 5)
    other = Writer()
    await world.probe.put("other", world.probe.split(other.type("in the same sequences")))
    second = await reconciled(await world.server())
    assert figures(second, "republished", "epoch") == (5, 2)
    await world.is_whole()


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize(
    "streams", [(WAL,), (SNAPSHOTS,), (WAL, SNAPSHOTS), (WAL, SNAPSHOTS, STATUS)], ids=len
)
async def test_streams_and_buckets_that_are_gone(
    world: World, streams: tuple[str, ...], compacted: bool
) -> None:
    """Whatever of NATS is made anew and empty, the document is whole again."""
    first = await world.server()
    await world.probe.start("doc")
    await world.write(10)
    if compacted:
        await world.probe.call("compact", "doc")
        await world.write(3)
    await first.stop()
    world.lose(*streams)
    await reconciled(await world.server())
    await world.is_whole()


async def test_a_document_is_compared_while_it_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that is stored during a comparison is no sign of a replica that lags."""
    server = await world.server(settings=replace(QUICK, reconcile_every_seconds=3600.0))
    await world.probe.start("doc")
    await world.write(3)
    last = MemoryStream.last

    async def written(self: MemoryStream, subject: str, *, timeout: float = 5.0) -> StoredMessage | None:
        if subject == subjects.wal("doc"):
            await world.probe.put("doc", world.probe.split(world.writer.type("x")))
        return await last(self, subject, timeout=timeout)

    monkeypatch.setattr(MemoryStream, "last", written)
    assert server.reconciler is not None
    loaded = await server.reconciler._repair.load("doc")
    assert loaded.follower.taken == 3


async def test_a_document_is_not_compared_by_what_a_lagging_replica_shows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that are purged count as lost, though a replica shows them and others are written."""
    server = await world.server(settings=replace(QUICK, reconcile_every_seconds=3600.0))
    await world.probe.start("doc")
    await world.write(5)
    purged = [stored async for stored in world.probe.wal.read(subjects.wal("doc"))][:2]
    await world.probe.wal.purge(subjects.wal("doc"), before=purged[-1].sequence + 1)
    read = MemoryStream.read

    async def behind(
        self: MemoryStream, subject: str, *, first: int = 1, last: int | None = None
    ) -> AsyncIterator[StoredMessage]:
        await world.probe.put("doc", world.probe.split(world.writer.type("x")))
        for stored in purged:
            if stored.sequence >= first:
                yield stored
        async for stored in read(self, subject, first=first, last=last):
            yield stored

    monkeypatch.setattr(MemoryStream, "read", behind)
    assert server.reconciler is not None
    with pytest.raises(DocumentLoadFailed, match="changed during each"):
        await server.reconciler._repair.load("doc")


async def test_the_epoch_outlives_its_record(world: World) -> None:
    """When NATS lost everything, the journal's positions are not taken for those of the new stream."""
    first = await world.server()
    await world.probe.start("doc")
    await world.write(3)
    await reconciled(first)
    await first.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    second = await world.server()
    assert figures(second, "epoch") == (2,)
    await reconciled(second)
    await world.is_whole()


async def test_a_stream_made_anew_and_grown_is_another(world: World) -> None:
    """A recreated stream that is longer than the old one is told by when it was made."""
    first = await world.server()
    await world.probe.start("doc")
    await world.write(3)
    await reconciled(first)
    await first.stop()
    world.lose(WAL)
    second = await world.server(worker=1, settings=replace(QUICK, durability="stream"))
    for number in range(20):
        await world.probe.put("other", world.probe.split(Writer().type(f"{number}")))
    world.nats.store(WAL).purge(subjects.wal("other"), 15)  # the known sequence is not there to be asked
    await second.stop()
    third = await reconciled(await world.server())
    assert figures(third, "epoch", "republished") == (2, 3)
    await world.is_whole()


async def test_an_update_of_which_a_chunk_is_lost(world: World) -> None:
    """It is sent whole again, although it may have been cut in another way the first time."""
    first = await world.server()
    await world.probe.start("doc")
    payload = world.writer.type("x" * 3000)
    parts = world.probe.split(payload, size=1000)
    assert len(parts) > 2
    await world.probe.put("doc", parts)
    assert isinstance(await world.probe.answer(), Ack)
    await first.stop()
    world.nats.store(WAL).remove(2)
    second = await reconciled(await world.server())
    assert figures(second, "republished", "lost_for_good") == (1, 0)
    assert world.count() == len(parts)  # one is lost, one is new
    await world.is_whole()


async def test_the_journal_of_the_last_owner_is_enough(world: World) -> None:
    """Its base holds what an owner before it accepted, whose disk is gone with all of NATS."""
    first = await world.server(worker=0)
    await world.probe.start("doc")
    await world.write(5)
    await world.probe.call("compact", "doc")
    await first.stop()
    second = await world.server(worker=1)
    await world.probe.start("doc")
    await world.write(5)
    await second.stop()
    shutil.rmtree(world.data / "worker-0")
    world.lose(WAL, SNAPSHOTS, STATUS)
    third = await reconciled(await world.server(worker=1))
    assert figures(third, "snapshots_restored") == (1,)
    await world.is_whole()


async def test_a_lost_base_of_a_document_that_is_open_again(world: World) -> None:
    """Who opened it before reconciliation came by sees what it had before, without opening it again."""
    first = await world.server(worker=0)
    await world.probe.start("doc")
    await world.write(5)
    await world.probe.call("compact", "doc")
    await first.stop()
    second = await world.server(worker=1)
    await world.probe.start("doc")
    await second.stop()
    shutil.rmtree(world.data / "worker-0")
    world.lose(WAL, SNAPSHOTS, STATUS)
    elsewhere = await world.server(worker=9, settings=replace(QUICK, durability="stream"))
    await world.probe.start("doc")
    await reconciled(await world.server(worker=1, settings=replace(QUICK, documents_max=1)))

    async def whole() -> bool:
        return await world.probe.value("doc") == {"body": world.writer.text}

    await until(whole)
    assert "doc" in elsewhere.hosts


async def long_base(world: World, settings: ServerSettings) -> None:
    """The journal of worker 1 has a base that is longer than the servers' limit; everything else is gone."""
    first = await world.server(worker=0, settings=settings)
    await world.probe.start("doc")
    for number in range(8):
        await world.probe.accept("doc", world.writer.type(random.Random(number).randbytes(2_000).hex()))
    await world.probe.call("compact", "doc")
    await first.stop()
    second = await world.server(worker=1, settings=settings)
    await world.probe.start("doc")
    await world.write(2)
    await second.stop()
    shutil.rmtree(world.data / "worker-0")
    world.lose(WAL, SNAPSHOTS, STATUS)


async def test_a_base_above_the_limit_of_an_owner(world: World) -> None:
    """A snapshot may be longer than one update of a server: it comes back, also where it is open."""
    short = replace(QUICK, update_bytes_max=5_000, unfinished_bytes_max=5_000)
    await long_base(world, short)
    await world.server(worker=9, settings=replace(short, durability="stream"))
    await world.probe.start("doc")
    second = await reconciled(await world.server(worker=1, settings=replace(short, documents_max=1)))
    assert figures(second, "lost_for_good", "reconcile_waiting") == (0, 0)

    async def whole() -> bool:
        return await world.probe.value("doc") == {"body": world.writer.text}

    await until(whole)
    assert await world.probe.rejected.count(subjects.rejected("doc")) == 0


async def test_a_base_above_the_wires_limit(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored in place of a snapshot without content, and its owner takes it in one of its passes."""
    await long_base(world, QUICK)
    monkeypatch.setattr(base_merge, "UPDATE_BYTES_MAX", 5_000)
    line = world.nats.connect("elsewhere")
    async with Server(line, QUICK, clock=world.clock, data=tmp_path / "far" / "worker-0") as elsewhere:
        await world.probe.start("doc")
        second = await reconciled(await world.server(worker=1, settings=replace(QUICK, documents_max=1)))
        assert figures(second, "snapshots_restored", "lost_for_good", "reconcile_waiting") == (1, 0, 0)

        async def whole() -> bool:
            await reconciled(elsewhere)  # on a slow machine its lease may be in doubt in the first
            return await world.probe.value("doc") == {"body": world.writer.text}

        await until(whole)


async def test_a_base_of_too_many_peers_for_an_update(world: World, tmp_path: Path) -> None:
    """It is put together with what was written since, and stored as a snapshot."""
    old = LoroDoc()
    for peer in range(1, UPDATE_PEERS_MAX + 2):
        old.peer_id = 10**9 + peer  # nobody's who writes in these tests
        old.get_map("m").insert("by", peer)
        old.commit()
    first = await world.server(worker=0)
    await world.probe.start("doc")
    await world.probe.call("import", "doc", payload=old.export(ExportMode.Snapshot()))
    await world.probe.call("compact", "doc")
    await first.stop()
    second = await world.server(worker=1)
    await world.probe.start("doc")
    await second.stop()
    shutil.rmtree(world.data / "worker-0")
    world.lose(WAL, SNAPSHOTS, STATUS)
    line = world.nats.connect("elsewhere")
    async with Server(line, QUICK, clock=world.clock, data=tmp_path / "far" / "worker-0") as elsewhere:
        await world.probe.start("doc")
        await world.probe.accept("doc", world.writer.type("since"))
        await world.probe.call("compact", "doc")
        third = await reconciled(await world.server(worker=1, settings=replace(QUICK, documents_max=1)))
        assert figures(third, "snapshots_restored", "lost_for_good") == (1, 0)
        await reconciled(elsewhere)

        async def whole() -> bool:
            return await world.probe.value("doc") == {"m": {"by": UPDATE_PEERS_MAX + 1}, "body": "since"}

        await until(whole)


async def test_an_update_above_a_limit_that_was_lowered(world: World) -> None:
    """What was accepted once is accepted again: here only the wire's limit counts."""
    first = await world.server()
    await world.probe.start("doc")
    await world.probe.accept("doc", world.writer.type("long " * 4_000))
    await first.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    short = replace(QUICK, update_bytes_max=100, unfinished_bytes_max=100)
    second = await world.server(settings=short)
    await world.probe.start("doc")
    await reconciled(second)

    async def whole() -> bool:
        return await world.probe.value("doc") == {"body": world.writer.text}

    await until(whole)
    assert figures(second, "republished", "lost_for_good") == (1, 0)


async def test_a_refusal_for_its_size_is_not_for_ever(world: World) -> None:
    """An owner that took less may have moved it out of the WAL: it comes back nevertheless."""
    update = world.writer.type("long")
    await journalled(world.data / "worker-5" / "journal", update)
    first = await world.server()
    (part,) = world.probe.split(update, f"log-{digest(update)}")
    headers = {**part.headers(), h.REASON: "too-large"}
    await world.probe.rejected.append(subjects.rejected("doc"), part.data, headers=headers)
    await reconciled(first)
    await world.is_whole()


async def trimmed_base(world: World) -> None:
    """The journal of worker 1 begins with a trimmed snapshot; everything else of the document is gone."""
    first = await world.server(worker=0, settings=replace(QUICK, history_seconds=0))
    await world.probe.start("doc")
    await world.write(5)
    world.clock.ahead += 3600
    await until(lambda: world.probe.call("version", "doc"))
    await world.write(1)
    await world.probe.call("compact", "doc")
    await first.stop()
    second = await world.server(worker=1)
    await world.probe.start("doc")
    await world.write(2)
    await second.stop()
    shutil.rmtree(world.data / "worker-0")
    world.lose(WAL, SNAPSHOTS, STATUS)


async def test_a_trimmed_base_is_stored_again(world: World) -> None:
    """History that was trimmed stays so; what came after it is on top."""
    await trimmed_base(world)
    second = await reconciled(await world.server(worker=1))
    assert figures(second, "snapshots_restored", "republished", "lost_for_good") == (1, 2, 0)
    await world.is_whole()


async def test_a_trimmed_base_of_a_document_that_is_open_again(world: World) -> None:
    """It takes the place of nothing; whoever has the document open learns of it at the next compaction."""
    await trimmed_base(world)
    await world.server(worker=9, settings=replace(QUICK, durability="stream"))
    await world.probe.start("doc")
    second = await reconciled(await world.server(worker=1))
    assert figures(second, "snapshots_restored", "lost_for_good") == (1, 0)
    await world.probe.call("compact", "doc")
    assert await world.probe.value("doc") == {"body": world.writer.text}


async def test_a_trimmed_base_does_not_push_out_what_was_written_since(world: World) -> None:
    """Loro cannot put an edit of an empty document on top of trimmed history: what is ACKed stays."""
    await trimmed_base(world)
    await world.server(worker=9, settings=replace(QUICK, durability="stream"))
    await world.probe.start("doc")
    await world.probe.accept("doc", Writer().type("anew"))
    second = await reconciled(await world.server(worker=1))
    assert figures(second, "snapshots_restored", "reconcile_waiting") == (0, 1)
    await world.probe.call("compact", "doc")
    assert await world.probe.value("doc") == {"body": "anew"}
    await world.probe.call("delete", "doc")
    await reconciled(second)
    assert figures(second, "reconcile_waiting") == (0,), "nothing waits for what is gone"


async def later_trimmed_base(world: World) -> None:
    """Worker 1 has a trimmed base of a future that NATS forgot; the snapshot alone has what was ACKed."""
    await world.write(4)
    front, writer = world.writer.doc.oplog_frontiers, Writer(world.writer.everything())
    writer.type("forgotten ")
    content = writer.doc.export(ExportMode.ShallowSnapshot(front))
    replica = crdt.Replica.from_snapshot(content, lazy=True)
    assert replica.shallow
    await world.write(3)
    await world.probe.call("compact", "doc")
    version, journal = replica.version(), DiskJournal(world.data / "worker-1" / "journal")
    await journal.open()
    base = BaseRecord(1, 0, 1, 0, digest(content), version.vector, version.frontiers, content)
    await (await journal.put("doc", base, time.time_ns()))
    await journal.close()


def both(value: object) -> bool:
    """Whether what was ACKed and what a journal brought back are in the document."""
    body = str(value)
    return "0 1 2 3 0 1 2 " in body and "forgotten" in body


async def test_a_trimmed_base_destroys_nothing_that_is_stored(world: World) -> None:
    """What only the stored snapshot holds is still there when a base of another past was brought back."""
    first = await world.server(worker=0)
    await world.probe.start("doc")
    await later_trimmed_base(world)
    await first.stop()
    shutil.rmtree(world.data / "worker-0")  # NATS alone has what was ACKed
    second = await reconciled(await world.server(worker=1))
    assert figures(second, "lost_for_good", "reconcile_waiting") == (0, 0)
    await world.probe.start("doc")
    assert both(await world.probe.value("doc"))


async def test_a_trimmed_base_is_merged_into_what_is_open(world: World, tmp_path: Path) -> None:
    """A live owner elsewhere keeps what it ACKed, before and after its next compaction."""
    elsewhere = Server(
        world.nats.connect("elsewhere"), QUICK, clock=world.clock, data=tmp_path / "far" / "worker-0"
    )
    async with elsewhere:
        await world.probe.start("doc")
        await later_trimmed_base(world)
        await reconciled(await world.server(worker=1, settings=replace(QUICK, documents_max=1)))

        async def merged() -> bool:
            return both(await world.probe.value("doc"))

        await until(merged)
        await world.probe.call("compact", "doc")
        assert both(await world.probe.value("doc"))


async def test_a_trimmed_snapshot_of_another_hand_is_merged_by_the_owner(world: World) -> None:
    """Somebody stored a trimmed snapshot: the owner takes what it adds, and puts nothing away."""
    first = await world.server()
    await world.probe.start("doc")
    await later_trimmed_base(world)
    place = journal_scan.JournalFolder("01", world.data / "worker-1" / "journal" / "00")
    (entry,) = journal_scan.entries(place)
    assert isinstance(entry.record, BaseRecord)
    head = await first.context.snapshots.head("doc")
    assert head is not None
    await first.context.snapshots.put(
        "doc", entry.record.content, head.facts, expected_revision=head.revision
    )
    await world.probe.call("compact", "doc")
    assert both(await world.probe.value("doc"))


async def test_journals_of_workers_that_are_gone(world: World) -> None:
    """What lies beside a worker's own folder is compared, too: nobody else would."""
    first = await world.server(worker=3)
    await world.probe.start("doc")
    await world.write(5)
    await first.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    second = await reconciled(await world.server(worker=0))
    assert figures(second, "republished") == (5,)
    await world.is_whole()


async def test_updates_of_several_owners_find_their_order(world: World) -> None:
    """What builds on another journal's updates waits for them; the order of the folders is no matter."""
    first = await world.server(worker=1)
    await world.probe.start("doc")
    await world.write(5)
    await first.stop()
    second = await world.server(worker=0)
    await world.probe.start("doc")
    await world.write(5)
    await second.stop()
    shutil.rmtree(world.data / "worker-0" / "journal")  # as if it had not journalled what it loaded
    third = await world.server(worker=0)
    await world.probe.start("doc")
    await world.write(5)
    await third.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    await reconciled(await world.server(worker=0))
    await world.is_whole()


@pytest.mark.parametrize("documents", [3, 12], ids=["by key", "in one reading"])
async def test_many_documents_in_small_portions(
    world: World, documents: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the journal is cut into portions, each document is put together in order."""
    monkeypatch.setattr(journal_scan, "WINDOW_RECORDS", 7)
    first = await world.server()
    writers = {f"doc-{number}": Writer() for number in range(documents)}
    for name in writers:
        await world.probe.start(name)
    for number in range(5):
        for name, writer in writers.items():
            await world.probe.accept(name, writer.type(f"{number} "))
    await first.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    second = await reconciled(await world.server())
    assert figures(second, "reconciled_documents", "republished") == (documents, documents * 5)
    for name, writer in writers.items():
        await world.probe.start(name)
        assert await world.probe.value(name) == {"body": writer.text}


@pytest.mark.parametrize("trouble", ["document", "journal"])
async def test_what_could_not_be_tried_is_still_missed(
    world: World, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """A document or a journal that cannot be read for a moment is tried again by the next pass."""
    monkeypatch.setattr(journal_scan, "WINDOW_RECORDS", 4)  # the first portion: the term, three updates
    first = await world.server()
    await world.probe.start("doc")
    await world.write(9)
    first.hosts["doc"].stop("idle")
    await until(closed(first))
    for _ in range(4):  # it has run for a while: what the table knows of the journal is not read again
        await reconciled(first)
        world.clock.ahead += 700
    await first.stop()
    monkeypatch.setattr(Reconciler, "run", no_passes)
    world.lose(WAL, SNAPSHOTS, STATUS)
    second = await world.server(settings=replace(QUICK, documents_max=1))
    with monkeypatch.context() as patch:
        if trouble == "document":
            fail_second_repair(patch)
        else:
            fail_second_window(patch)
        await reconciled(second)
    assert figures(second, "republished") == (3,)
    await reconciled(second)
    assert figures(second, "republished", "lost_for_good") == (9, 0)

    async def loads_nothing() -> bool:
        return all(host.state.is_up for host in second.hosts.values())

    await until(loads_nothing)  # the pass had it loaded: a start would take that lease away
    if "doc" not in second.hosts:
        await world.probe.start("doc")
    assert await world.probe.value("doc") == {"body": world.writer.text}


def cannot_read(patch: pytest.MonkeyPatch, trouble: Exception, *patterns: str) -> None:
    """Reading those subjects of the WAL fails."""
    real = MemoryStream.read

    async def read(
        self: MemoryStream, subject: str, *, first: int = 1, last: int | None = None
    ) -> AsyncIterator[StoredMessage]:
        if subject in patterns:
            raise trouble
        async for stored in real(self, subject, first=first, last=last):
            yield stored

    patch.setattr(MemoryStream, "read", read)


async def two_that_lost_something(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[Server, Writer]:
    """A server that makes no passes of its own; `bad`, which comes first, and `doc` lost a message each."""
    first, other = await world.server(), Writer()
    await world.probe.start("bad")
    for number in range(3):
        await world.probe.accept("bad", other.type(f"{number} "))
    await world.probe.start("doc")
    await world.write(3)
    await first.stop()
    monkeypatch.setattr(Reconciler, "run", no_passes)
    for sequence in (2, 5):
        world.nats.store(WAL).remove(sequence)
    return await world.server(), other


@pytest.mark.parametrize(
    "trouble",
    [TransportError("nobody knows what it says"), RequestTimeout("it stopped answering"), KeyError("x")],
    ids=lambda trouble: type(trouble).__name__,
)
async def test_a_document_that_cannot_be_read_keeps_nobody_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trouble: Exception
) -> None:
    """It is told once, counted, left as it is, and made whole when it can be read; the others at once."""
    second, other = await two_that_lost_something(world, monkeypatch)
    with monkeypatch.context() as patch:
        cannot_read(patch, trouble, subjects.wal("bad"))
        await reconciled(second)
        await reconciled(second)
    assert figures(second, "republished", "reconcile_unread", "lost_for_good") == (1, 1, 0)
    assert (world.count("bad"), world.count("doc")) == (2, 3)
    assert sum("left out until it can be read" in record.getMessage() for record in caplog.records) == 1
    await reconciled(second)
    assert figures(second, "republished", "reconcile_unread") == (2, 0)
    await world.is_whole()
    await world.probe.start("bad")
    assert await world.probe.value("bad") == {"body": other.text}


async def test_a_nats_that_answers_nobody_postpones_the_pass(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then nothing can be said of any document: none is left out."""
    second, _ = await two_that_lost_something(world, monkeypatch)
    with monkeypatch.context() as patch:
        everything = [subjects.wal(name) for name in ("bad", "doc", "*")]
        cannot_read(patch, RequestTimeout("it stopped answering"), *everything)
        with pytest.raises(RequestTimeout):
            await reconciled(second)
    assert figures(second, "republished", "reconcile_unread") == (0, 0)
    await reconciled(second)
    assert figures(second, "republished", "reconcile_unread") == (2, 0)


async def test_a_tombstone_that_cannot_be_stored_keeps_nobody_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored by a later pass; the others are made whole at once."""
    first = await world.server()
    await world.probe.start("gone")
    await world.probe.accept("gone", Writer().type("x"))
    await world.probe.call("delete", "gone")
    await world.probe.start("doc")
    await world.write(3)
    await first.stop()
    monkeypatch.setattr(Reconciler, "run", no_passes)
    world.lose(WAL, SNAPSHOTS, STATUS)
    second = await world.server()

    async def bury(*_: object) -> bool:
        raise TransportError("nobody knows what it says")

    with monkeypatch.context() as patch:
        patch.setattr(IncarnationStore, "_bury", bury)
        await reconciled(second)
    assert figures(second, "republished", "reconcile_unread", "tombstones_restored") == (3, 1, 0)
    await reconciled(second)
    assert figures(second, "reconcile_unread", "tombstones_restored") == (0, 1)
    await world.is_whole()


async def test_what_could_not_be_read_in_doubt_stays_in_doubt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an open document, too, what the stream holds is read and not counted, once it can be."""
    first = await world.server()
    await world.probe.start("doc")
    await world.write(5)
    await reconciled(first)
    monkeypatch.setattr(Reconciler, "run", no_passes)
    store = world.nats.store(WAL)
    store.remove(3)
    store.store(subjects.wal("doc"), b"unreadable", {}, world.clock.wall_ns())
    world.nats.broker_id = "another life"
    with monkeypatch.context() as patch:
        cannot_read(patch, TransportError("nobody knows what it says"), subjects.wal("doc"))
        await reconciled(first)
    assert figures(first, "republished", "reconcile_unread") == (0, 1)
    await reconciled(first)
    assert figures(first, "republished", "reconcile_unread") == (1, 0)


def found_whole(server: Server) -> Callable[[], Awaitable[bool]]:
    """Whether one more pass leaves nothing to mend."""

    async def after_a_pass() -> bool:
        return figures(await reconciled(server), "reconcile_unsettled") == (0,)

    return after_a_pass


async def test_what_memory_lacks_is_brought_back_after_memory_was_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that is stored from memory is mended until the journals were compared with it."""
    await world.written(5)
    monkeypatch.setattr(Reconciler, "run", no_passes)
    world.lose(WAL, SNAPSHOTS, STATUS)
    second = await world.server()
    with monkeypatch.context() as patch:
        patch.setattr(DocumentRecovery, "recover", served_at_once)
        await world.probe.start("doc")  # empty: nothing was reconciled yet
    world.nats.store(SNAPSHOTS).purge(">", 1 << 60)
    await reconciled(second)
    assert figures(second, "republished", "reconcile_unsettled") == (0, 1)

    async def stored() -> bool:
        return second.hosts["doc"].snapshot_revision > 0 and not second.hosts["doc"].state.memory_is_only_copy

    await until(stored)
    await until(found_whole(second))
    assert figures(second, "republished") == (5,)
    await world.is_whole()


async def test_what_an_owner_removes_meanwhile_is_brought_back_by_the_next_pass(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates that waited in the WAL for a lost one may be given up while that is published again."""
    await world.written(3)
    monkeypatch.setattr(Reconciler, "run", no_passes)
    store = world.nats.store(WAL)
    store.remove(1)
    second = await world.server()
    real = Publisher._send

    async def send(self: Publisher, parts: Sequence[chunks.Chunk]) -> None:
        for sequence in (2, 3):
            store.remove(sequence)
        await real(self, parts)

    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "_send", send)
        await reconciled(second)
    assert figures(second, "republished", "reconcile_unsettled") == (1, 1)
    await until(found_whole(second))
    assert figures(second, "republished") == (3,)
    await world.is_whole()


async def test_what_was_mended_is_looked_at_again_soon(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass after one that brought something back does not wait for the timer."""
    monkeypatch.setattr(reconcile, "_RETRY_SECONDS", 0.01)
    await world.written(3)
    world.nats.store(WAL).remove(2)
    second = await world.server()

    async def seen_whole() -> bool:
        twice = second.reconciler is not None and second.reconciler._passes > 1
        return twice and figures(second, "republished", "reconcile_unsettled") == (1, 0)

    await until(seen_whole)
    await world.is_whole()


async def test_an_owner_that_was_busy_is_asked_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that lags may still have what is lost: only the owner knows what it took."""
    monkeypatch.setattr(Reconciler, "run", no_passes)
    server = await world.server()
    await world.probe.start("doc")
    await world.write(5)
    await world.probe.call("compact", "doc")
    host = server.hosts["doc"]
    world.nats.store(SNAPSHOTS).purge(">", 1 << 60)

    async def lagging(*_: object) -> Completeness:
        return Completeness.COMPLETE

    async with host.compacting:
        with monkeypatch.context() as patch:
            patch.setattr(DocumentComparison, "load_and_compare", lagging)
            await reconciled(server)
    assert figures(server, "reconcile_unsettled") == (1,)
    await until(found_whole(server))
    await server.stop()
    assert await server.context.snapshots.head("doc") is not None
    await world.server()
    await world.is_whole()


async def test_who_unloaded_what_was_mended_serves_it_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been without what came back, and those who have it open hear of that only from an owner."""
    monkeypatch.setattr(Reconciler, "run", no_passes)
    server = await world.server()
    await world.probe.start("doc")
    await world.write(3)
    assert server.reconciler is not None
    server.reconciler._documents.postpone("doc")
    server.reconciler._documents.end()
    server.hosts["doc"].stop("idle")
    await until(closed(server))
    await reconciled(server)

    async def served() -> bool:
        return "doc" in server.hosts and server.hosts["doc"].state.is_up

    await until(served)
    server.hosts["doc"].stop("idle")
    await until(closed(server))
    await reconciled(server)
    await server.context.transport.bus.barrier()
    assert not server.hosts  # once


def closed(server: Server) -> Callable[[], Awaitable[bool]]:
    async def no_hosts() -> bool:
        return not server.hosts

    return no_hosts


async def no_passes(_: Reconciler) -> None:
    """Only those that the test asks for."""
    await asyncio.Event().wait()


async def served_at_once(_: DocumentRecovery, _document_id: str, _journal_of: str = "") -> tuple[str, ...]:
    """As by a server that has none of the journals, and reaches no server that has."""
    return ()


def fail_second_repair(patch: pytest.MonkeyPatch) -> None:
    real, calls = Repair.repair, itertools.count()

    async def repair(
        self: Repair, document_id: str, entries: Sequence[ScannedRecord], row: JournalledDocument
    ) -> RepairOutcome:
        if next(calls):
            raise DocumentLoadFailed("others keep storing snapshots of it")
        return await real(self, document_id, entries, row)

    patch.setattr(Repair, "repair", repair)


def fail_second_window(patch: pytest.MonkeyPatch) -> None:
    real = journal_scan.entries

    def entries(place: journal_scan.JournalFolder, *, key: str = "", **rest: int) -> Iterator[ScannedRecord]:
        found = real(place, key=key, from_sequence=rest.get("from_sequence", 0))
        if not key:
            yield from found
            return
        yield from itertools.islice(found, 4)  # the term, three updates
        raise LogError("the disk did not answer")

    patch.setattr(journal_scan, "entries", entries)


async def test_a_journal_that_was_away_is_read_again(world: World) -> None:
    """What is missed and in no journal is forgotten; a journal that returns is read from its beginning."""
    first = await world.server(worker=3)
    await world.probe.start("doc")
    await world.write(5)
    await first.stop()
    second = await world.server(worker=0)
    for _ in range(4):
        await reconciled(second)
        world.clock.ahead += 700
    await second.stop()
    (world.data / "worker-3").rename(world.data / "away")
    world.lose(WAL, SNAPSHOTS, STATUS)
    third = await reconciled(await reconciled(await world.server(worker=0)))
    assert figures(third, "republished") == (0,)
    (world.data / "away").rename(world.data / "worker-3")
    await reconciled(third)
    assert figures(third, "republished") == (5,)
    await world.is_whole()


async def test_a_document_that_is_opened_before_its_turn(world: World) -> None:
    """Who is quicker than reconciliation sees a part, edits it, and gets the rest while it is open."""
    await world.written(10)
    for sequence in (4, 5, 6):
        world.nats.store(WAL).remove(sequence)
    second = await world.server()
    assert second.reconciler is not None
    async with second.reconciler._passing:  # a pass that is slow elsewhere
        await world.probe.start("doc")
        assert await world.probe.value("doc") != {"body": world.writer.text}
        other = Writer()
        await world.probe.accept("doc", other.type("meanwhile "))
    await reconciled(second)
    world.writer.doc.import_(other.everything())

    async def whole() -> bool:
        return await world.probe.value("doc") == {"body": world.writer.text}

    await until(whole)


async def test_a_second_look_costs_nothing(world: World) -> None:
    """A document that was found complete is not loaded again while nothing of it changed, not even later."""
    await world.written(5)
    second = await reconciled(await reconciled(await world.server()))
    assert figures(second, "reconcile_compared", "republished") == (1, 0)
    await second.stop()
    third = await reconciled(await world.server())
    assert figures(third, "reconcile_compared", "republished") == (0, 0)
    world.clock.ahead += 25 * 3600
    await reconciled(third)
    assert figures(third, "reconcile_compared") == (1,)


async def test_a_damaged_checkpoint_is_no_checkpoint(world: World) -> None:
    """The journals are read from their beginning."""
    first = await world.server()
    await world.probe.start("doc")
    await world.write(5)
    await reconciled(first)
    await first.stop()
    path = world.data / "worker-0" / "journal" / "reconciled"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    world.nats.store(WAL).remove(3)
    second = await reconciled(await world.server())
    assert figures(second, "republished") == (1,)
    await world.is_whole()


async def test_a_nats_server_that_was_started_anew_is_not_believed(world: World) -> None:
    """It may count messages that it cannot read any more: what it holds is read, not counted."""
    await world.written(5)
    second = await reconciled(await world.server())
    store = world.nats.store(WAL)
    store.remove(3)
    store.store(subjects.wal("doc"), b"unreadable", {}, world.clock.wall_ns())
    await reconciled(second)
    assert figures(second, "republished") == (0,)
    world.nats.broker_id = "another life"
    await reconciled(second)
    assert figures(second, "republished") == (1,)
    await world.is_whole()


# --- what must not come back --------------------------------------------------------------------------


async def test_purged_history_is_not_published_again(world: World) -> None:
    """A server that returns finds its old updates in another owner's snapshot, and adds nothing."""
    first = await world.server(worker=0)
    await world.probe.start("doc")
    await world.write(20)
    await first.stop()
    (world.data / "worker-0" / "journal" / "reconciled").unlink(missing_ok=True)
    second = await world.server(worker=1, settings=replace(QUICK, history_seconds=0))
    await world.probe.start("doc")
    await world.write(2)
    world.clock.ahead += 3600
    await until(lambda: world.probe.call("version", "doc"))
    await world.probe.call("compact", "doc")
    await second.stop()
    left = world.count()
    assert left <= 1
    third = await reconciled(await world.server(worker=0))
    assert figures(third, "republished", "lost_for_good") == (0, 0)
    assert world.count() == left


async def test_a_deleted_document_stays_deleted(world: World) -> None:
    """Neither its owner nor a server that slept through the deletion brings anything back."""
    first = await world.server(worker=0)
    await world.probe.start("doc")
    await world.write(5)
    await first.stop()
    second = await world.server(worker=1)
    await world.probe.start("doc")
    await world.probe.call("delete", "doc")
    await second.stop()
    shutil.rmtree(world.data / "worker-1")
    left = world.count()
    third = await reconciled(await world.server(worker=0))
    assert figures(third, "republished", "tombstones_restored") == (0, 0)
    assert world.count() == left


async def test_what_a_lagging_replica_shows_is_not_taken_for_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that has not seen a purge yet shows messages that NATS does not hold any more."""
    first = await world.server()
    await world.probe.start("doc")
    await world.write(5)
    purged = list(world.nats.store(WAL)._messages.values())
    await world.probe.call("compact", "doc")
    await first.stop()
    world.lose(SNAPSHOTS)
    lagging, read = 3, MemoryStream.read

    async def lag(
        self: MemoryStream, subject: str, *, first: int = 1, last: int | None = None
    ) -> AsyncIterator[StoredMessage]:
        nonlocal lagging
        if self._name == WAL and lagging:
            lagging -= 1
            for message in purged:
                yield message
        async for message in read(self, subject, first=first, last=last):
            yield message

    await world.probe.put("doc", world.probe.split(world.writer.type("not accepted yet")))
    monkeypatch.setattr(MemoryStream, "read", lag)
    await reconciled(await world.server())
    assert lagging == 0
    await world.is_whole()


async def test_a_tombstone_is_stored_again_with_what_the_wal_holds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NATS went back to before a deletion: a restore brings back what was ACKed until then."""
    first = await world.server()
    await world.probe.start("doc")
    await world.write(5)
    kept = {name: list(world.nats.store(name)._messages.values()) for name in (WAL, SNAPSHOTS)}
    await world.probe.call("delete", "doc")
    await first.stop()
    world.lose(SNAPSHOTS, STATUS)
    rarely = replace(QUICK, reconcile_every_seconds=3600.0)
    monkeypatch.setattr(Reconciler, "run", no_passes)
    second = await world.server(settings=rarely)
    for name, messages in kept.items():
        store = world.nats.store(name)
        for message in messages:
            store.store(message.subject, message.data, message.headers, message.time_ns)
    await reconciled(second)
    assert figures(second, "tombstones_restored") == (1,)
    await world.probe.start("doc")
    await world.probe.call("restore", "doc")
    assert await world.probe.value("doc") == {"body": world.writer.text}


async def test_a_tombstone_is_stored_again_although_the_content_cannot_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of the snapshot before the deletion are lost, its head is not: the deletion holds."""
    first = await world.server()
    await world.probe.start("doc")
    await world.write(5)
    await world.probe.call("compact", "doc")
    kept = list(world.nats.store(SNAPSHOTS)._messages.values())
    await world.probe.call("delete", "doc")
    await first.stop()
    world.lose(SNAPSHOTS, STATUS)
    monkeypatch.setattr(Reconciler, "run", no_passes)
    second = await world.server()
    store = world.nats.store(SNAPSHOTS)
    for message in kept:
        if not message.data.startswith(b"loro"):
            store.store(message.subject, message.data, message.headers, message.time_ns)
    await reconciled(second)
    assert figures(second, "tombstones_restored", "reconcile_unread") == (1, 0)


async def test_a_lost_tombstone_is_stored_again(world: World) -> None:
    """Where nothing stands any more, or what stood there before the deletion."""
    first = await world.server()
    await world.probe.start("doc")
    await world.write(5)
    await world.probe.call("compact", "doc")
    before = dict(world.nats.store(SNAPSHOTS)._messages)
    await world.probe.call("delete", "doc")
    await first.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    second = await reconciled(await world.server())
    assert figures(second, "republished", "tombstones_restored", "tombstones_contradicted") == (0, 1, 0)
    head = await second.context.snapshots.head("doc")
    assert head is not None
    assert SnapshotMetadata.parse(head.facts).deleted
    await second.stop()

    world.lose(SNAPSHOTS)  # and comes back as it was before the deletion
    third = await world.server()
    store = world.nats.store(SNAPSHOTS)
    for message in store.newest_of(store.subjects("$O.>", 0), 0):
        store.remove(message.sequence)
    for message in before.values():
        store.store(message.subject, message.data, message.headers, message.time_ns)
    await reconciled(third)
    head = await third.context.snapshots.head("doc")
    assert head is not None
    assert SnapshotMetadata.parse(head.facts).deleted
    assert world.count() == 0


async def test_an_owner_that_knows_of_a_deletion_does_not_forget_it_with_nats(world: World) -> None:
    """The tombstone is lost, and it looks at what is stored: it waits until a journal has brought it back."""
    server = await reconciled(await world.server())
    await world.probe.start("doc")
    await world.write(5)
    await world.probe.call("delete", "doc")
    host = server.hosts["doc"]
    world.lose(SNAPSHOTS)
    for spec in topology.specs():
        await server.context.transport.ensure(spec)
    await startup.reload(host)
    with pytest.raises(CallRefused) as refused:
        await world.probe.call("sync", "doc")
    assert refused.value.reason is Reason.DELETED
    await reconciled(server)
    assert host.loaded.intake.deleted
    head = await server.context.snapshots.head("doc")
    assert head is not None
    assert SnapshotMetadata.parse(head.facts).deleted


async def test_a_restore_holds_though_nats_loses_it_before_it_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal knows of it: what was ACKed before comes back, and is not refused as deleted."""
    server = await reconciled(await world.server())
    await world.probe.start("doc")
    await world.write(5)
    await world.probe.call("delete", "doc")
    reload = startup.reload

    async def lost(host: Host) -> None:
        world.lose(SNAPSHOTS)
        for spec in topology.specs():
            await server.context.transport.ensure(spec)
        await reload(host)

    monkeypatch.setattr(startup, "reload", lost)
    await world.probe.call("restore", "doc")
    monkeypatch.undo()
    await reconciled(server)

    async def whole() -> bool:
        return await world.probe.value("doc") == {"body": world.writer.text}

    await until(whole)


async def test_what_was_erased_does_not_come_back(world: World) -> None:
    """A server that slept through the erasure, and a NATS that lost its tombstone, bring nothing back."""
    first = await world.server(worker=0)
    await world.probe.start("doc")
    await world.write(5)
    await first.stop()
    second = await world.server(worker=1)
    await world.probe.start("doc")
    await world.probe.call("delete", "doc", purge=True)
    await second.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    third = await reconciled(await world.server(worker=0))
    assert figures(third, "republished", "tombstones_restored") == (0, 1)
    head = await third.context.snapshots.head("doc")
    assert head is not None
    assert SnapshotMetadata.parse(head.facts).erased_ns
    assert world.count() == 0


def stored_again(world: World, before: dict[int, StoredMessage]) -> None:
    """The bucket is as it was at an earlier time, and nothing of now is in it."""
    store = world.nats.store(SNAPSHOTS)
    for message in store.newest_of(store.subjects("$O.>", 0), 0):
        store.remove(message.sequence)
    for message in before.values():
        store.store(message.subject, message.data, message.headers, message.time_ns)


def secrets(world: World) -> int:
    """How many messages of NATS hold what was erased."""
    stores = (world.nats.store(name) for name in (WAL, SNAPSHOTS))
    return sum(b"SECRET" in message.data for store in stores for message in store._messages.values())


@pytest.mark.parametrize("past", ["never deleted", "deleted", "restored"])
async def test_an_old_snapshot_of_what_was_erased_is_buried_without_content(world: World, past: str) -> None:
    """It came back from before the erasure: nobody reads it, and nothing of it stays."""
    first = await world.server()
    await world.probe.start("doc")
    await world.probe.accept("doc", world.writer.type("SECRET"))
    if past == "restored":
        await world.probe.call("delete", "doc")
        await world.probe.call("restore", "doc")
    await world.probe.call("compact", "doc")
    before = dict(world.nats.store(SNAPSHOTS)._messages)
    if past == "deleted":
        await world.probe.call("delete", "doc")
        before = dict(world.nats.store(SNAPSHOTS)._messages)
    await world.probe.call("delete", "doc", purge=True)
    journal = journal_scan.JournalFolder("00", world.data / "worker-0" / "journal" / "00")

    async def clean() -> bool:
        return all(isinstance(entry.record, ErasedRecord) for entry in journal_scan.entries(journal))

    await until(clean)
    await first.stop()
    (world.data / "worker-0" / "journal" / "reconciled").unlink(missing_ok=True)
    world.lose(SNAPSHOTS, STATUS)
    second = await world.server()
    stored_again(world, before)
    lost = Writer().type("SECRET of a WAL that went back")
    await world.probe.put("doc", world.probe.split(lost))
    assert secrets(world) > 1
    await reconciled(second)
    assert figures(second, "tombstones_contradicted") == (0,)
    head = await second.context.snapshots.head("doc")
    assert head is not None
    facts = SnapshotMetadata.parse(head.facts)
    assert facts.deleted
    assert facts.erased_ns
    assert facts.generation == (past == "restored")
    for seconds in (0, 700):  # snapshots before the last one are swept, as always
        await second.context.snapshots.sweep(world.clock.now() + seconds)
    assert (head.size, secrets(world)) == (0, 0)
    await world.probe.start("doc")
    with pytest.raises(CallRefused):
        await world.probe.value("doc")


async def test_erasing_twice_removes_what_came_back(world: World) -> None:
    """A tombstone that says erased and has content is emptied by the next `delete --purge`."""
    first = await world.server()
    await world.probe.start("doc")
    await world.probe.accept("doc", world.writer.type("SECRET"))
    await world.probe.call("delete", "doc")
    head = await first.context.snapshots.head("doc")
    assert head is not None
    first.hosts["doc"].stop("idle")
    await until(closed(first))
    head = await first.context.snapshots.head("doc")
    assert head is not None
    assert head.size
    facts = replace(SnapshotMetadata.parse(head.facts), erased_ns=7)
    await first.context.snapshots.put_facts(head, "doc", facts.render())
    await world.probe.start("doc")
    assert await world.probe.call("delete", "doc", purge=True) == {"erased_ns": 7}
    assert secrets(world) == 0


async def deleted_and_forgotten(world: World, *, purge: bool = False) -> Server:
    """`doc` was deleted, and NATS forgot it: a server that never knew of it."""
    first = await world.server()
    await world.probe.start("doc")
    await world.write(5)
    await world.probe.call("delete", "doc", purge=purge)
    await first.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    return await world.server(worker=9, settings=replace(QUICK, durability="stream"))


async def test_a_tombstone_of_a_later_life_keeps_its_content(world: World) -> None:
    """An erasure whose tombstone was lost does not reach what was made and deleted after it."""
    elsewhere = await deleted_and_forgotten(world, purge=True)
    await world.probe.start("doc")
    await world.probe.accept("doc", Writer().type("anew"))
    await world.probe.call("delete", "doc")
    await reconciled(await world.server(settings=replace(QUICK, documents_max=1)))
    head = await elsewhere.context.snapshots.head("doc")
    assert head is not None
    assert head.size
    await world.probe.call("restore", "doc")
    assert await world.probe.value("doc") == {"body": "anew"}


async def test_a_fork_is_not_taken_for_what_was_deleted_before(world: World) -> None:
    """Its id was deleted once, and NATS forgot: the answered fork lives, and that is told."""
    await deleted_and_forgotten(world)
    await world.probe.start("source")
    await world.probe.accept("source", Writer().type("precious"))
    await world.probe.call("fork", "source", to="doc")
    second = await reconciled(await world.server(settings=replace(QUICK, documents_max=1)))
    assert figures(second, "tombstones_restored", "tombstones_contradicted") == (0, 1)
    await world.probe.start("doc")
    assert await world.probe.value("doc") == {"body": "precious"}


async def test_a_new_life_after_a_lost_tombstone_is_told_and_left(world: World) -> None:
    """Who opened it since may have written: it is not deleted, and gets nothing of its past."""
    await deleted_and_forgotten(world)
    await world.probe.start("doc")
    anew = Writer()
    await world.probe.accept("doc", anew.type("anew"))
    second = await reconciled(await reconciled(await world.server()))
    assert figures(second, "republished", "tombstones_contradicted") == (0, 1)
    assert await world.probe.value("doc") == {"body": "anew"}


async def test_what_was_acked_in_a_new_life_comes_back_and_nothing_of_the_life_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NATS lost the tombstone and then all that was written since: one journal holds both lives."""
    first = await world.server()
    await world.probe.start("doc")
    await world.write(5)
    await world.probe.call("compact", "doc")
    await world.probe.call("delete", "doc")
    await first.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    second = await world.server(settings=replace(QUICK, reconcile_every_seconds=3600.0))
    with monkeypatch.context() as patch:
        patch.setattr(DocumentRecovery, "recover", served_at_once)
        await world.probe.start("doc")
    anew = Writer()
    await world.probe.accept("doc", anew.type("anew "))
    await world.probe.call("compact", "doc")
    await world.probe.accept("doc", anew.type("and more"))
    await second.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    third = await reconciled(await reconciled(await world.server()))
    assert figures(third, "tombstones_restored", "tombstones_contradicted") == (0, 1)
    await world.probe.start("doc")
    assert await world.probe.value("doc") == {"body": "anew and more"}


async def test_a_new_life_whose_snapshot_is_lost_is_not_ended(world: World) -> None:
    """What its owner ACKed since is worth more than a tombstone of before: the owner is waited for."""
    await deleted_and_forgotten(world)
    await world.probe.start("doc")
    await world.probe.accept("doc", Writer().type("anew"))
    world.lose(SNAPSHOTS)
    second = await reconciled(await reconciled(await world.server()))
    assert figures(second, "republished", "tombstones_restored") == (0, 0)
    await world.probe.call("compact", "doc")
    await reconciled(second)
    assert figures(second, "tombstones_restored", "tombstones_contradicted") == (0, 1)
    assert await world.probe.value("doc") == {"body": "anew"}


async def test_a_restored_document_lives(world: World) -> None:
    """The generation decides: what was deleted before it was restored is no tombstone."""
    first = await world.server()
    await world.probe.start("doc")
    await world.write(5)
    await world.probe.call("delete", "doc")
    await world.probe.call("restore", "doc")
    await world.write(5)
    await first.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    second = await reconciled(await world.server())
    assert figures(second, "republished", "snapshots_restored", "tombstones_restored") == (5, 1, 0)
    await world.is_whole()
    head = await second.context.snapshots.head("doc")
    assert head is not None
    assert SnapshotMetadata.parse(head.facts).generation == 1


async def bury(server: Server, generation: int) -> None:
    """Put a tombstone of that life over what is stored, as somebody else may do."""
    snapshots = server.context.snapshots
    head = await snapshots.head("doc")
    assert head is not None
    facts = replace(SnapshotMetadata.parse(head.facts), generation=generation, deleted_ns=time.time_ns())
    await snapshots.put_facts(head, "doc", facts.render())


async def test_a_tombstone_of_an_earlier_life_does_not_end_a_restored_document(world: World) -> None:
    """Its owner knows of the restore, and the journal that brought the tombstone back does not."""
    server = await world.server()
    await world.probe.start("doc")
    await world.write(5)
    await world.probe.call("delete", "doc")
    await world.probe.call("restore", "doc")
    await world.write(5)
    await bury(server, generation=0)
    await world.probe.call("compact", "doc")
    head = await server.context.snapshots.head("doc")
    assert head is not None
    facts = SnapshotMetadata.parse(head.facts)
    assert (facts.generation, facts.deleted) == (1, False)
    assert await world.probe.value("doc") == {"body": world.writer.text}


async def test_the_revision_of_a_bucket_that_was_made_anew_is_not_believed(world: World) -> None:
    """After a lost connection the stored snapshot is looked at: a tombstone may have its revision."""
    server = await world.server()
    await world.probe.start("doc")
    await world.write(5)
    await world.probe.call("compact", "doc")
    host = server.hosts["doc"]
    known = host.loaded.snapshot
    assert known is not None
    store = world.nats.store(SNAPSHOTS)
    for message in store.newest_of(store.subjects("$O.>", 0), 0):
        store.remove(message.sequence)  # lost; and counted from 1 again:
    store.rewind(0)
    snapshots = server.context.snapshots
    facts = replace(host.loaded.facts, generation=1, deleted_ns=time.time_ns())
    head = await snapshots.put("doc", b"", facts.render(), expected_revision=0)
    while head.revision < known.revision:
        head = await snapshots.put_facts(head, "doc", facts.render())
    assert head.revision == known.revision
    host.state.snapshot_unverified = True  # as after every lost connection
    with pytest.raises(compaction.CompactionFailed):
        await compaction.compact(host)
    assert host.loaded.intake.deleted
    kept = await snapshots.head("doc")
    assert kept is not None
    assert SnapshotMetadata.parse(kept.facts).deleted


async def test_an_owner_that_finds_a_tombstone_has_nothing_to_store(world: World) -> None:
    """What it wanted to store after a loss is deleted: it does not try for ever, and can be unloaded."""
    server = await world.server()
    await world.probe.start("doc")
    await world.write(5)
    await world.probe.call("compact", "doc")
    host = server.hosts["doc"]
    await bury(server, generation=0)
    host.rewind()

    async def deleted() -> bool:
        return host.loaded.intake.deleted

    await until(deleted)
    assert not host.state.memory_is_only_copy


async def test_an_update_before_the_trim_line_is_kept_aside(world: World) -> None:
    """It can never be accepted again: a copy in `loro-rejected`, told once, and nothing else stops."""
    first = await world.server(worker=0)
    await world.probe.start("doc")
    await world.write(1)
    lonely = Writer(world.writer.everything())
    late = lonely.type("late")
    await world.probe.accept("doc", late)  # builds on the first word
    await first.stop()
    world.nats.store(WAL).remove(2)
    (world.data / "worker-0").rename(world.data / "away")
    second = await world.server(worker=1, settings=replace(QUICK, history_seconds=0))
    await world.probe.start("doc")
    await world.write(5)
    world.clock.ahead += 3600
    await until(lambda: world.probe.call("version", "doc"))
    await world.write(1)
    await world.probe.call("compact", "doc")
    await second.stop()
    (world.data / "away").rename(world.data / "worker-0")
    third = await reconciled(await reconciled(await world.server(worker=0)))
    assert figures(third, "republished", "lost_for_good") == (0, 1)
    rejected = [stored async for stored in world.probe.rejected.read(subjects.rejected("doc"))]
    assert [(stored.data, stored.headers[h.REASON]) for stored in rejected] == [(late, "history-trimmed")]
    await world.is_whole()


async def test_what_an_owner_moved_out_of_the_wal_stays_out(world: World) -> None:
    """A forged update is journalled before it is found out: it is not brought back again and again."""
    good, forged = world.writer.type("good"), Writer().type("forged")
    await journalled(world.data / "worker-5" / "journal", good, forged)
    first = await world.server()
    (part,) = world.probe.split(forged, f"log-{digest(forged)}")
    reason = {h.REASON: "invalid-update"}
    await world.probe.rejected.append(
        subjects.rejected("doc"), part.data, headers={**part.headers(), **reason}
    )
    await reconciled(await reconciled(first))
    assert figures(first, "republished", "lost_for_good", "reconcile_skipped") == (1, 0, 1)
    await world.is_whole()


@pytest.mark.parametrize("panic", [CrdtPanic, UnclearPanic])
async def test_what_waits_for_another_journal_is_not_forgotten_over_a_forged_update(
    world: World, monkeypatch: pytest.MonkeyPatch, panic: type[CrdtPanic]
) -> None:
    """The document is loaded again without the forged update, and what waits still counts as waiting."""
    world.writer.type("first, in another journal ")
    waiting, forged, apply = world.writer.type("second"), Writer().type("forged"), Replica.apply

    def panics(replica: Replica, update: bytes, *arguments: Any, **options: Any) -> Applied | Unready:
        if update == forged:
            raise (panic if replica.lazy else CrdtPanic)("poisoned")
        return apply(replica, update, *arguments, **options)

    monkeypatch.setattr(Replica, "apply", panics)
    server = await reconciled(await world.server())
    assert server.reconciler is not None
    entries = [
        ScannedRecord(
            "doc", UpdateRecord(1, n, f"log-{n}", digest(data), 1, 0, crdt.spans(data), data), n, n, 0
        )
        for n, data in enumerate((waiting, forged), start=1)
    ]
    outcome = await server.reconciler._repair.repair("doc", entries, JournalledDocument())
    assert (outcome.published, outcome.rejected, outcome.waiting) == (0, 1, 1)


async def test_what_was_moved_out_on_a_suspicion_is_tried_once_more(world: World) -> None:
    """A process that ends over an update may be at fault itself, and a journal says that it was accepted."""
    update = world.writer.type("good")
    await journalled(world.data / "worker-5" / "journal", update)
    first = await world.server()
    (part,) = world.probe.split(update, f"log-{digest(update)}")
    headers = {**part.headers(), h.REASON: "invalid-update", h.MESSAGE: SUSPECTED}
    await world.probe.rejected.append(subjects.rejected("doc"), part.data, headers=headers)
    await reconciled(first)
    assert figures(first, "republished", "reconcile_skipped") == (1, 0)
    await world.is_whole()
    assert first.reconciler is not None
    retries = first.reconciler._repair._retries
    record = UpdateRecord(1, 1, part.log_id, digest(update), 1, 0, (), update)
    assert not retries("doc", record, SUSPECTED)  # else an owner that refuses it and we would go on for ever
    assert not retries("other", record, FORGED)
    assert retries("other", record, SUSPECTED)


async def test_a_suspicion_keeps_nothing_of_a_journal_out(world: World) -> None:
    """What is brought back was imported once: only a proof counts against it."""
    update = world.writer.type("good")
    await journalled(world.data / "worker-5" / "journal", update)
    sandbox = Suspicious(suspects=True)
    line = world.nats.connect("server")
    data = world.data / "worker-0"
    async with Server(  # it has no owner: an owner would refuse it on the suspicion
        line, QUICK, clock=world.clock, data=data, sandbox=sandbox, takes_inits=False
    ) as server:
        await reconciled(server)
        assert figures(server, "republished", "lost_for_good") == (1, 0)
    assert (update, True) in sandbox.validated


async def test_a_refused_update_in_pieces_stays_out(world: World) -> None:
    """A copy in several messages, one of them too full for its headers, is the update that it was."""
    good, forged = world.writer.type("good"), Writer().type("forged" * 100)
    await journalled(world.data / "worker-5" / "journal", good, forged)
    first = await world.server()
    size = len(forged) // 2 + 1
    for part in chunks.split(forged, f"log-{digest(forged)}", chunk_bytes_max=size):
        headers = {**part.headers(), h.REASON: "invalid-update"}
        if part.final:
            await world.probe.rejected.append(subjects.rejected("doc"), b"", headers=headers)
            await world.probe.rejected.append(subjects.rejected("doc"), part.data)
        else:
            await world.probe.rejected.append(subjects.rejected("doc"), part.data, headers=headers)
    await reconciled(first)
    assert figures(first, "republished", "reconcile_skipped") == (1, 1)
    await world.is_whole()


@pytest.mark.parametrize("index", ["x", "0"])
async def test_a_refusal_is_believed_by_its_bytes(world: World, index: str) -> None:
    """A bad message that names the id and digest of an accepted update takes nothing from it."""
    first = await world.server()
    await world.probe.start("doc")
    await world.write(1)
    (part,) = world.probe.split(world.writer.type("precious"))
    await world.probe.put("doc", [part])
    assert isinstance(await world.probe.answer(), Ack)
    forged = {h.LOG_ID: part.log_id, h.CHUNK_INDEX: index, h.FINAL: "true", h.DIGEST: part.digest}
    if index == "x":
        await world.probe.wal.append(subjects.wal("doc"), b"", headers=forged)
    else:
        forged[h.REASON] = "invalid-update"
        await world.probe.rejected.append(subjects.rejected("doc"), b"other bytes", headers=forged)

    async def refused() -> bool:
        return await world.probe.rejected.count(subjects.rejected("doc")) == 1

    await until(refused)
    await first.stop()
    for sequence in (1, 2, 3):
        world.nats.store(WAL).remove(sequence)
    world.nats.broker_id = "started anew"
    second = await reconciled(await world.server())
    assert figures(second, "republished", "lost_for_good", "reconcile_skipped") == (2, 0, 0)
    await world.is_whole()


async def test_what_builds_on_something_lost_everywhere_waits(world: World) -> None:
    """It is not published, is counted, and comes when a journal with what it needs is found."""
    needed, late = world.writer.type("one "), world.writer.type("two")
    await journalled(world.data / "worker-5" / "journal", late)
    first = await reconciled(await world.server())
    assert figures(first, "republished", "reconcile_waiting") == (0, 1)
    assert world.count() == 0
    await journalled(world.data / "worker-7" / "journal", needed)
    await reconciled(first)
    assert figures(first, "republished", "reconcile_waiting") == (2, 0)
    await world.is_whole()


async def test_bytes_that_are_no_update_stop_nothing(world: World) -> None:
    """A record that Loro cannot read is kept aside; the others come back."""
    update = world.writer.type("one")
    await journalled(world.data / "worker-5" / "journal", b"not an update", update)
    first = await reconciled(await world.server())
    assert figures(first, "republished", "lost_for_good") == (1, 1)
    await world.is_whole()


# --- the owner that is still there --------------------------------------------------------------------


async def test_an_open_document_of_which_messages_vanish(world: World) -> None:
    """After a reconnect the owner sees that the stream holds fewer than it took, and stores what it has."""
    first, line = await world.server_and_line()
    await world.probe.start("doc")
    await world.write(10)
    line.cut()
    for sequence in (4, 5, 6):
        world.nats.store(WAL).remove(sequence)
    line.heal()

    async def stored() -> bool:
        head = await first.context.snapshots.head("doc")
        return head is not None and head.size > 0

    await until(stored)
    assert figures(first, "epoch", "reconciled_documents") == (1, 1)
    await first.stop()
    shutil.rmtree(world.data / "worker-0")
    await world.server()
    await world.is_whole()


async def test_an_open_document_whose_snapshot_vanishes(world: World) -> None:
    """The bucket is gone and the owner is alive: it stores the document again."""
    first, line = await world.server_and_line()
    await world.probe.start("doc")
    await world.write(10)
    await world.probe.call("compact", "doc")
    line.cut()
    world.lose(SNAPSHOTS)
    line.heal()

    async def stored() -> bool:
        head = await first.context.snapshots.head("doc")
        return head is not None and head.size > 0

    await until(stored)
    await first.stop()
    shutil.rmtree(world.data / "worker-0")
    await world.server()
    await world.is_whole()


@pytest.mark.parametrize(
    ("loss", "missing"), [("snapshot", "the snapshot"), ("messages", "3 of 10 messages")]
)
async def test_a_loss_is_told_and_counted_once(
    world: World, caplog: pytest.LogCaptureFixture, loss: str, missing: str
) -> None:
    """However many passes see it before it is mended, and with what was missing."""
    first, line = await world.server_and_line()
    names = ("one", "two", "three")
    for name in names:
        await world.probe.start(name)
        writer = Writer()
        for word in range(10):
            await world.probe.accept(name, writer.type(f"{word} "))
    await reconciled(first)
    with caplog.at_level(logging.WARNING, logger="lorogo_server"):
        line.cut()
        if loss == "snapshot":
            world.lose(SNAPSHOTS)
        else:
            for sequence in (1, 2, 3, 11, 12, 13, 21, 22, 23):
                world.nats.store(WAL).remove(sequence)
        line.heal()

        async def stored() -> bool:
            await reconciled(first)
            heads = [await first.context.snapshots.head(name) for name in names]
            return all(head is not None and head.size for head in heads)

        await until(stored)
        await reconciled(await reconciled(first))
    assert figures(first, "reconciled_documents") == (3,)
    told = [record.getMessage() for record in caplog.records if "open document" in record.getMessage()]
    assert len(told) == 3
    assert all(f"missing='{missing}'" in one for one in told)


@pytest.mark.parametrize("witness", [False, True])
async def test_a_change_of_epoch_alarms_only_those_who_knew_another(
    world: World, caplog: pytest.LogCaptureFixture, witness: bool
) -> None:
    """A server that is new here has lost nothing: it hears of the epoch, and that is all."""
    first = await world.server(worker=0)
    await world.probe.start("doc")
    await world.write(5)
    await first.stop()
    world.nats.rewind(WAL, 2)
    shutil.copytree(world.data / "worker-0", world.data / "away")
    second = await world.server(worker=0)
    assert figures(second, "epoch") == (2,)
    await second.stop()
    shutil.rmtree(world.data / "worker-0")
    if witness:
        (world.data / "away").rename(world.data / "worker-0")
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="lorogo_server.ownership.epoch"):
        third = await world.server(worker=0)
    assert figures(third, "epoch") == (2,)
    said = [record.levelname for record in caplog.records if "epoch changed" in record.getMessage()]
    assert said == ["WARNING" if witness else "INFO"]


async def test_an_owner_is_not_alarmed_by_what_it_removed_itself(world: World) -> None:
    """Compaction and quarantine take messages out of the WAL: nothing is lost by that."""
    first, line = await world.server_and_line()
    await world.probe.start("doc")
    await world.write(10)
    await world.probe.call("compact", "doc")
    await world.probe.refuse("doc", b"not an update")
    await world.write(2)

    async def moved() -> bool:
        return await world.probe.rejected.count(subjects.rejected("doc")) == 1

    await until(moved)
    await reconciled(first)
    line.cut()
    line.heal()

    async def passed() -> bool:
        return int(str(first.stats()["reconcile_passes"])) > 1

    await until(passed)
    assert figures(first, "reconciled_documents", "republished") == (0, 0)
    assert not first.hosts["doc"].state.memory_is_only_copy


async def test_what_was_heard_is_a_witness_before_its_turn(world: World) -> None:
    """NATS loses all while a copy waits: it is not taken in the place of what the new WAL holds there."""
    server, line = await world.server_and_line()
    await world.probe.start("doc")
    host = server.hosts["doc"]
    async with host.busy:
        await world.probe.put("doc", world.probe.split(Writer().type("lost and never ACKed ")))
        await until(lambda: so(len(host.backlog) == 1))
        line.cut()
        world.lose(WAL, SNAPSHOTS, STATUS)
        line.heal()
        await until(lambda: so(server.context.epochs.current == 2))
    await world.write(3)
    assert await world.probe.value("doc") == {"body": world.writer.text}
