"""Answers in the journal: written without delay of others, and skipped by readers of documents."""

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgpack
import nanoid
import pytest

from lorogo_log import FileStorage, Reader
from lorogo_protocol.journal import pages, records
from lorogo_protocol.journal.records import ANSWERS_KEY, AnswersRecord, ErasedRecord, UpdateRecord
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack, Nack
from lorogo_server import Server, ServerSettings, scheduler
from lorogo_server.document.ack_queue import AckQueue
from lorogo_server.journal import journal_scan
from lorogo_server.journal.disk_journal import DiskJournal
from lorogo_server.recovery.restore_run import RestoreReport, RestoreRequest, restore
from lorogo_server.recovery.restore_sources import find
from lorogo_server.settings import InvalidSettings
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.clock import SystemClock
from lorogo_transport.rpc.calls import Caller
from tests.journals import TestDisk
from tests.server.support import QUICK, WAIT, Probe, Writer, services_of, until

DATA = Path("data")


class World:
    """A NATS in memory, one server after another with its journal in one folder, and a writer."""

    def __init__(self, folder: Path, probe: Probe, nats: MemoryNats) -> None:
        self.folder = folder
        self.probe = probe
        self.nats = nats
        self.writer = Writer()

    @asynccontextmanager
    async def serving(self, settings: ServerSettings = QUICK, worker: int = 0) -> AsyncIterator[Server]:
        settings = replace(settings, server_id=f"server-{worker}")
        data = self.folder / f"worker-{worker}"
        async with Server(self.nats.connect("server"), settings, data=data) as server:
            yield server

    async def write(self, *words: str, document_id: str = "doc") -> None:
        for word in words:
            await self.probe.accept(document_id, self.writer.type(word))

    def answers(self, worker: int = 0) -> list[AnswersRecord]:
        return answers_in(Reader.open(self.folder / f"worker-{worker}" / "journal" / "00"))


def answers_in(reader: Reader) -> list[AnswersRecord]:
    """Every one of them, found by their key; nothing else has it."""
    found = []
    for batch in reader.cursor(key=ANSWERS_KEY):
        for one in batch.records():
            record = records.decode(one.value)
            assert isinstance(record, AnswersRecord)
            assert one.time == record.until_ns
            found.append(record)
    return found


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    nats = MemoryNats()
    async with Probe(nats.connect("probe")) as probe:
        yield World(tmp_path, probe, nats)


async def answers_recorded(server: Server) -> None:
    """The minute is over, and what was answered in it on the disk."""
    await services_of(server).record_answers()
    assert server.journal is not None
    await server.journal.logs[0].flush()


# --- written --------------------------------------------------------------------------------------


async def test_a_graceful_stop_leaves_what_was_answered(world: World) -> None:
    """ACKs with their latencies, NACKs with the wire's reason, of the server that sent them."""
    before = SystemClock().wall_ns()
    async with world.serving() as server:
        await world.probe.start("doc")
        await world.write("a", "b", "c")
        await world.probe.refuse("doc", b"not an update")
        assert server.stats()["acked"] == 3
        assert server.stats()["nacked"] == {"invalid-update": 1}
        p50, p99 = server.stats()["ack_us_p50"], server.stats()["ack_us_p99"]
        assert isinstance(p50, int)
        assert isinstance(p99, int)
        assert 0 < p50 <= p99
        assert world.answers() == []
    (record,) = world.answers()
    assert (record.server, record.acked, record.reasons) == ("server-0", 3, {"invalid-update": 1})
    assert sum(record.latency_counts) == 3
    assert before <= record.since_ns <= record.until_ns <= SystemClock().wall_ns()


async def test_the_time_comes_by_itself(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `answers_every_seconds`, one record after another; none where nothing was answered."""
    monkeypatch.setattr(scheduler, "_TURN_SECONDS", 0.01)
    async with world.serving(replace(QUICK, answers_every_seconds=0.01)):
        await world.probe.start("doc")

        async def has(count: int) -> bool:
            return sum(one.acked for one in world.answers()) == count

        await world.write("a")
        await until(lambda: has(1))
        await world.write("b", "c")
        await until(lambda: has(3))
    found = world.answers()
    assert len(found) >= 2
    assert all(one.acked for one in found)
    for one, other in itertools.pairwise(found):
        assert one.since_ns <= one.until_ns <= other.since_ns


async def test_who_is_answered_again_counts_again_and_who_does_not_ask_not_at_all(world: World) -> None:
    """An update that came twice has two ACKs; an update without an inbox has none, accepted or refused."""
    async with world.serving() as server:
        await world.probe.start("doc")
        parts = world.probe.split(world.writer.type("a"))
        for _ in range(2):
            await world.probe.put("doc", parts)
            assert isinstance(await world.probe.answer(), Ack)
        silent = world.probe.bus
        world.probe.inbox = ""
        await world.probe.put("doc", world.probe.split(world.writer.type("b")))
        await world.probe.put("doc", world.probe.split(b"not an update"))
        world.probe.inbox = silent.new_inbox()
        await silent.subscribe(world.probe.inbox, world.probe._on_reply)
        await world.write("c")
        assert (server.stats()["acked"], server.stats()["nacked"]) == (3, {})
        assert (server.stats()["accepted"], server.stats()["refused"]) == (3, 1)


async def test_a_change_that_the_server_makes_counts_as_answered(world: World) -> None:
    """A `patch` waits for the same disk as an update."""
    async with world.serving() as server:
        await world.probe.start("doc")
        await world.probe.call("patch", "doc", operations=[{"op": "add", "path": "/map", "value": {"a": 1}}])
        assert server.stats()["acked"] == 1


async def test_a_latency_holds_the_wait_for_the_disk() -> None:
    """While a sync is under way the time of the ACK runs, by the server's own clock."""

    class Clock(SystemClock):
        ahead = 0.0

        def now(self) -> float:
            return super().now() + self.ahead

    disk, clock, nats = TestDisk(), Clock(), MemoryNats()
    settings = replace(QUICK, lease_seconds=5000.0, stale_seconds=6000.0)
    async with (
        Server(nats.connect(), settings, data=DATA, storage=disk, clock=clock) as server,
        Probe(nats.connect()) as probe,
    ):
        await probe.start("doc")
        disk.hold()
        try:
            await probe.put("doc", probe.split(Writer().type("a")))

            async def applied() -> bool:
                return await probe.value("doc") == {"body": "a"}

            await until(applied)
            clock.ahead = 2000.0
        finally:
            disk.let_go()
        assert isinstance(await probe.answer(), Ack)
        p50 = server.stats()["ack_us_p50"]
    assert p50 == 2**30  # at least 18 minutes: the last count
    (record,) = answers_in(Reader.open(DATA / "journal" / "00", storage=disk))
    assert record.latency_counts == (*[0] * 31, 1)


async def test_a_lease_in_doubt_is_a_reason_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A NACK in the place of an ACK is counted as the NACK that the sender got."""
    async with world.serving():
        await world.probe.start("doc")

        async def no(_: AckQueue) -> bool:
            return False

        monkeypatch.setattr(AckQueue, "_may_ack", no)
        reply = await world.probe.refuse("doc", world.writer.type("a"))
        assert isinstance(reply, Nack)
        assert reply.reason is Reason.NOT_OWNER
    (record,) = world.answers()
    assert (record.acked, record.latency_counts, record.reasons) == (0, (), {"not-owner": 1})


# --- without delay of others ------------------------------------------------------------------------------


async def test_without_a_journal_nothing_is_written() -> None:
    """Durability `stream`: counted in the statistics, and that is all."""
    nats = MemoryNats()
    settings = replace(QUICK, durability="stream")
    async with Server(nats.connect(), settings) as server, Probe(nats.connect()) as probe:
        await probe.start("doc")
        await probe.accept("doc", Writer().type("a"))
        assert server.journal_services is None
        assert server.stats()["acked"] == 1


async def test_a_journal_that_stopped_takes_none_and_the_server_goes_on_to_its_end() -> None:
    """The write neither fails nor waits, at the time or at the stop; its content is kept."""
    disk, nats = TestDisk(), MemoryNats()
    async with (
        Server(nats.connect(), QUICK, data=DATA, storage=disk) as server,
        Probe(nats.connect()) as probe,
    ):
        await probe.start("doc")
        writer = Writer()
        await probe.accept("doc", writer.type("a"))
        disk.break_()
        await services_of(server).record_answers()  # this write itself is what finds the disk broken

        async def stopped() -> bool:
            return server.journal is not None and bool(server.journal.stopped)

        await until(stopped)
        await until(lambda: _closed(server))
        server.context.ack_metrics.refused(Reason.NOT_OWNER)
        await services_of(server).record_answers()
    assert [one.reasons for one in answers_in(Reader.open(DATA / "journal" / "00", storage=disk))] == [{}]
    (kept,) = left_of(server)
    assert (kept.acked, kept.reasons) == (0, {"not-owner": 1})


def left_of(server: Server) -> list[AnswersRecord]:
    """The record that the server would write now, if any."""
    found: list[AnswersRecord] = []

    def write(record: AnswersRecord) -> bool:
        found.append(record)
        return True

    server.context.ack_metrics.report(SystemClock().wall_ns(), write)
    return found


async def _closed(server: Server) -> bool:
    return not server.hosts


async def test_where_there_is_no_room_the_next_record_says_both() -> None:
    """A queue that is full is not waited for."""
    disk = TestDisk()
    journal = DiskJournal(DATA / "journal", storage=disk, queue_bytes=1 << 20)
    record = AnswersRecord("server", 1, 2, 1, (1,), {})
    assert not journal.note(record)  # it is not open yet
    await journal.open()
    disk.hold()
    waiting = []
    try:
        assert journal.note(record)
        big = records.UpdateRecord(1, 1, "id", "7", 1, 0, (), bytes(600_000))
        for _ in range(4):
            waiting.append(asyncio.ensure_future(journal.put("doc", big, 1)))
            await asyncio.sleep(0)
        assert not journal.note(record)
    finally:
        disk.let_go()
    await asyncio.gather(*waiting)
    assert journal.note(record)
    await journal.close()
    assert not journal.note(record)
    assert answers_in(Reader.open(DATA / "journal" / "00", storage=disk)) == [record, record]


async def test_no_ack_waits_for_a_record_of_answers_to_be_copied(tmp_path: Path) -> None:
    """An update that is on other disks already does not wait for records written behind it."""
    journal = DiskJournal(tmp_path)
    await journal.open()
    record = AnswersRecord("server", 1, 2, 1, (1,), {})
    deleted = records.DeletedRecord("tombstone", (), 1, 0, 1)

    async def written(put: Callable[[], object]) -> int:
        put()
        await journal.logs[0].flush()
        return journal.end(0)

    try:
        assert journal.end(0) == 0
        await (await journal.put("doc", deleted, 1))
        assert journal.end(0) == 1
        assert await written(lambda: journal.note(record)) == 1
        assert await written(lambda: journal.note(record)) == 1
        await (await journal.put("doc", deleted, 1))
        assert journal.end(0) == 4
        assert await written(lambda: journal.note(record)) == 4
    finally:
        await journal.close()


def test_the_interval_must_be_positive() -> None:
    """Settings are checked before the start."""
    with pytest.raises(InvalidSettings, match="answers_every_seconds must be a number above 0"):
        ServerSettings(answers_every_seconds=0)


# --- skipped by readers of documents -------------------------------------------------------


async def test_reconciliation_makes_no_row_and_no_document_of_them(world: World) -> None:
    """After NATS lost everything, the documents come back and nothing else does."""
    async with world.serving() as server:
        await world.probe.start("doc")
        await world.write("a", "b")
        await answers_recorded(server)
        await world.write("c")
    assert len(world.answers()) == 2
    world.nats.stores.clear()
    async with world.serving() as server:
        assert server.reconciler is not None
        await server.reconciler.reconcile()
        assert list(server.reconciler.table.rows) == ["doc"]
        assert server.stats()["lost_for_good"] == 0
        assert not server.stats()["journal_damage"]
        wal = await server.context.wal.subjects(subjects.wal("*"))
        assert {subjects.document_of(subject) for subject in wal} <= {"doc"}
        # What came back is served again, and its owner puts its token on the stored snapshot.
        assert {head.document_id async for head in server.context.snapshots.list()} <= {"doc"}
        await world.probe.start("doc")
        assert await world.probe.value("doc") == {"body": "abc"}
    place = journal_scan.JournalFolder("00", world.folder / "worker-0" / "journal" / "00")
    assert {entry.document_id for entry in journal_scan.entries(place)} == {"doc"}
    assert list(journal_scan.entries(place, key=ANSWERS_KEY.decode())) == []
    sequence = next(
        one.sequence for batch in place.reader().cursor(key=ANSWERS_KEY) for one in batch.records()
    )
    assert journal_scan.lookup(place, sequence) is None


async def test_the_ledger_covers_what_it_covered(world: World) -> None:
    """A document that is loaded again is not journalled again because answers stand behind it."""
    async with world.serving() as server:
        await world.probe.start("doc")
        await world.write("a", "b")
        await answers_recorded(server)
    async with world.serving() as server:
        assert server.journal is not None
        before = server.journal.logs[0].stats().durable_sequence
        assert server.journal.covered("doc").position.sequence == 2
        assert not server.journal.covered(ANSWERS_KEY.decode()).position.sequence
        await world.probe.start("doc")
        assert server.journal.logs[0].stats().durable_sequence == before


async def restored(world: World, wanted: RestoreRequest | None = None) -> RestoreReport:
    scratch = world.folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return await restore(
        MemoryNats().connect(),
        find(str(world.folder)),
        wanted or RestoreRequest(),
        settings=ServerSettings(),
        clock=SystemClock(),
        new_id=lambda: str(nanoid.generate()),
        scratch=scratch,
    )


async def test_a_restore_neither_restores_nor_counts_them(world: World) -> None:
    """The proof is about documents: complete, with the records of documents, from journals and copies."""
    async with world.serving() as server:
        await world.probe.start("doc")
        await world.write("a", "b")
        await answers_recorded(server)
        await world.write("c")
    shutil.copytree(world.folder / "worker-0", world.folder / "copy")
    report = await restored(world)
    assert report.complete
    assert [(one.document, one.updates, one.repeated) for one in report.outcomes] == [("doc", 3, 3)]
    assert report.records == 8  # of each journal: a term and three updates


async def test_an_erasure_leaves_them(world: World) -> None:
    """They hold nothing of any document: its records go, the others stay, and the segment can be read."""
    async with world.serving() as server:
        await world.probe.start("doc")
        await world.write("a", "b")
        await answers_recorded(server)
        before = world.answers()
        await world.probe.call("delete", "doc", purge=True)
        place = journal_scan.JournalFolder("00", world.folder / "worker-0" / "journal" / "00")

        async def erased() -> bool:
            left = [entry.record for entry in journal_scan.entries(place, key="doc")]
            return bool(left) and all(isinstance(one, ErasedRecord) for one in left)

        await until(erased)
        assert world.answers() == before
        await services_of(server).upkeep.on_erased(ANSWERS_KEY.decode())  # no request can have erased them
        await services_of(server).upkeep.run_once()
        assert world.answers() == before


async def test_old_ones_expire_with_their_segments(world: World) -> None:
    """Retention goes by segments and times: a segment of nothing but answers goes like any other."""
    settings = replace(QUICK, journal_keep_bytes=1)
    async with world.serving(settings) as server:
        assert server.journal is not None
        for number in range(3):
            server.context.ack_metrics.acked(number)
            await answers_recorded(server)
            await server.journal.logs[0].rotate()

        async def expired() -> bool:
            await services_of(server).upkeep.run_once()
            return len(world.answers()) < 3

        await until(expired)
        await world.probe.start("doc")
        await world.write("a")
    assert (await restored(world)).complete


async def test_they_are_shipped_and_read_from_the_archive(world: World, tmp_path: Path) -> None:
    """The archive has all that the journal has; a restore from it skips them, too."""
    archive = tmp_path / "archive"
    settings = replace(QUICK, archive=f"file://{archive}", archive_every_seconds=0.01)
    async with world.serving(settings) as server:
        await world.probe.start("doc")
        await world.write("a")
        await answers_recorded(server)

        async def shipped() -> bool:
            await services_of(server).upkeep.run_once()
            folder = archive / "server-0" / "00"
            return folder.is_dir() and bool(answers_in(Reader(FileStorage().directory(folder, create=False))))

        await until(shipped)
    assert (await restored(world)).complete


async def test_pages_of_the_feed_have_none_and_wake_no_reader(world: World) -> None:
    """A page that is waited for comes with the next update; its position is behind the answers."""
    async with world.serving() as server:
        assert server.journal is not None
        caller = Caller(world.probe.bus, SystemClock(), nanoid.generate)
        await caller.start()

        async def page(**arguments: object) -> pages.FeedPage:
            (journal,) = server.journal.ids() if server.journal is not None else ()
            subject = subjects.server_feed(server.server_id)
            return pages.decode(await caller.ask(subject, {"journal": journal, **arguments}, timeout=WAIT))

        try:
            await world.probe.start("doc")
            await world.write("a")
            await answers_recorded(server)
            first = await page()
            assert [(entry.document, type(entry.record)) for entry in first.entries] == [
                ("doc", UpdateRecord),
            ]
            assert first.end
            assert first.next.split(":")[0] == "4"
            assert (await page(documents=[ANSWERS_KEY.decode()])).entries == ()
            waiting = asyncio.create_task(page(after=first.next, wait_seconds=10))

            async def asking() -> bool:
                return server.stats()["feeds_asking"] == 1

            await until(asking)
            server.context.ack_metrics.acked(1)
            await answers_recorded(server)
            nothing = await page(after=first.next)
            assert (nothing.entries, nothing.end) == ((), True)
            assert nothing.next.split(":")[0] == "5"
            assert not waiting.done()
            await world.write("b")
            assert [entry.document for entry in (await waiting).entries] == ["doc"]
        finally:
            await caller.close()


def test_a_page_that_has_one_is_read_without_it() -> None:
    """Also where a server of another version sends it."""
    record = records.encode(AnswersRecord("server", 1, 2, 1, (1,), {}))
    deleted = pages.PageEntry(7, 3, "doc", records.DeletedRecord("tombstone", (), 1, 0, 1))
    body = pages.encode(pages.FeedPage((deleted,), "9:0:0", end=True))
    rows = msgpack.unpackb(body["records"])
    body["records"] = msgpack.packb([[6, 2, "-answers", record], *rows], use_bin_type=True)
    assert pages.decode(body) == pages.FeedPage((deleted,), "9:0:0", end=True)
