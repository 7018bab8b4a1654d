"""The journal in a server: an ACK is sent when the disk has the update, and never earlier."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import nanoid
import pytest

from lorogo_client import ClientSettings, NotServed
from lorogo_client.delivery.starter import DocumentStarter
from lorogo_log import Directory, DiskFullError, FileStorage, LogFailedError, Reader
from lorogo_log.storage.disk import DiskFull
from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import (
    AnswersRecord,
    BaseRecord,
    DeletedRecord,
    DocumentRecord,
    TermKind,
    TermRecord,
    UpdateRecord,
)
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack, Nack
from lorogo_protocol.position import Position
from lorogo_protocol.status import Down
from lorogo_server import Server, ServerSettings
from lorogo_server.journal import coverage, journal_scan
from lorogo_server.journal.coverage import NOTHING, CoverageEntry
from lorogo_server.journal.disk_journal import DiskJournal, JournalStopped, reason
from lorogo_server.journal.journal_scan import JournalFolder
from lorogo_server.ownership import epoch
from lorogo_server.ownership.epoch import EpochWitness
from lorogo_server.settings import InvalidSettings
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.clock import SystemClock
from lorogo_transport.errors import OutcomeUnknown
from tests.journals import TestDisk, restored_record
from tests.server.support import QUICK, Probe, Writer, services_of, so, until

DATA = Path("data")


def written(disk: TestDisk, partition: str = "00") -> list[tuple[str, DocumentRecord]]:
    """Every record about a document on the disk, in order."""
    found: list[tuple[str, DocumentRecord]] = []
    for batch in Reader.open(DATA / "journal" / partition, storage=disk).cursor():
        for one in batch.records():
            record = records.decode(one.value)
            assert record is not None
            if not isinstance(record, AnswersRecord):
                found.append((one.key.decode(), record))
    return found


@asynccontextmanager
async def world(
    disk: TestDisk, settings: ServerSettings = QUICK
) -> AsyncIterator[tuple[Server, Probe, MemoryNats]]:
    nats = MemoryNats()
    async with (
        Server(nats.connect("server"), settings, data=DATA, storage=disk) as server,
        Probe(nats.connect("probe")) as probe,
    ):
        yield server, probe, nats


async def test_no_ack_before_the_disk_has_it() -> None:
    """While the sync is under way the update is applied and visible, but not ACKed."""
    disk = TestDisk()
    async with world(disk) as (_, probe, _):
        await probe.start("doc")
        writer = Writer()
        disk.hold()
        try:
            await probe.put("doc", probe.split(writer.type("hello")))
            await until(lambda: _equals(probe, {"body": "hello"}))
            assert probe.replies.empty()
        finally:
            disk.let_go()
        assert isinstance(await probe.answer(), Ack)
    assert [type(record) for _, record in written(disk)] == [TermRecord, UpdateRecord]


async def _equals(probe: Probe, value: object) -> bool:
    return await probe.value("doc") == value


async def test_the_follower_does_not_wait_for_the_disk() -> None:
    """Many updates are taken while one sync is under way, and ACKed in order when it is done."""
    disk = TestDisk()
    async with world(disk) as (_, probe, _):
        await probe.start("doc")
        writer = Writer()
        disk.hold()
        try:
            ids = []
            for number in range(20):
                parts = probe.split(writer.type(str(number % 10)))
                ids.append(parts[0].log_id)
                await probe.put("doc", parts)
            await until(lambda: _equals(probe, {"body": writer.text}))
            assert probe.replies.empty()
        finally:
            disk.let_go()
        assert [(await probe.answer()).log_id for _ in ids] == ids


async def test_an_update_that_comes_again_waits_like_the_first() -> None:
    """A resend is not ACKed before the original is on the disk, and then both with one answer."""
    disk = TestDisk()
    async with world(disk) as (_, probe, _):
        await probe.start("doc")
        parts = probe.split(Writer().type("hello"))
        disk.hold()
        try:
            await probe.put("doc", parts)
            await probe.put("doc", parts)
            await until(lambda: _equals(probe, {"body": "hello"}))
            assert probe.replies.empty()
        finally:
            disk.let_go()
        assert (await probe.answer()).log_id == parts[0].log_id
        await probe.put("doc", parts)
        assert (await probe.answer()).log_id == parts[0].log_id
        assert probe.replies.empty()
    assert [type(record) for _, record in written(disk)] == [TermRecord, UpdateRecord]


async def test_a_broken_disk_takes_the_documents_down_and_nothing_is_acked() -> None:
    """The journal stops for good: no ACK, status DOWN, not ready, no more documents taken."""
    disk = TestDisk()
    async with world(disk) as (server, probe, nats):
        await probe.start("doc")
        await probe.start("other")
        writer = Writer()
        await probe.accept("doc", writer.type("good"))
        disk.break_()
        await probe.put("doc", probe.split(writer.type("lost?")))

        async def down() -> bool:
            both = [await probe.status(name) for name in ("doc", "other")]
            return all(isinstance(entry.status, Down) for entry in both)

        await until(down)
        assert probe.replies.empty()
        assert not server.ready
        assert "stopped" in str(server.stats()["journal"])
        healthy = Server(nats.connect("two"), QUICK, data=DATA, storage=TestDisk())
        async with healthy:
            for _ in range(5):  # every init goes to the server that can
                await probe.start("doc")
                assert "doc" in healthy.hosts
                await asyncio.sleep(0)
            assert await probe.value("doc") == {"body": writer.text}
            await probe.accept("doc", writer.type("!"))


async def test_what_is_read_after_the_journal_stopped_is_not_acked() -> None:
    """It is in the document, and on no disk: sent again it changes nothing, and is no more safe for that."""
    async with world(TestDisk()) as (server, probe, _):
        await probe.start("doc")
        writer = Writer()
        await probe.accept("doc", writer.type("good"))
        host, parts = server.hosts["doc"], probe.split(writer.type("lost?"))
        assert server.journal is not None
        async with host.busy:  # the owner is in the middle of something when the journal stops
            server.journal.stopped = "no space left on the disk"
            await probe.put("doc", parts)
            await probe.put("doc", parts)
            host.catch_up()  # so it reads what it did not hear

        async def down() -> bool:
            return isinstance((await probe.status("doc")).status, Down)

        await until(down)
        assert not any(isinstance(probe.replies.get_nowait(), Ack) for _ in range(probe.replies.qsize()))


async def test_a_host_that_must_stop_at_once_is_not_asked_to_finish() -> None:
    """The journal has stopped: that the document is idle as well does not make it take what is queued."""
    async with world(TestDisk()) as (server, probe, _):
        await probe.start("doc")
        host = server.hosts["doc"]
        async with host.busy:
            await probe.put("doc", probe.split(Writer().type("queued")))
            await until(lambda: so(len(host.backlog) == 1))
            host.stop("the journal has stopped", finish=False)
            host.stop("idle")
        await host.closed.wait()
        assert len(host.backlog) == 1
        assert host.state.closed_because == "the journal has stopped"


async def test_what_the_owner_dropped_and_a_load_accepts_is_journalled() -> None:
    """The ledger never covers what was neither accepted nor removed: late chunks may be whole for a load."""
    disk = TestDisk()
    async with world(disk, replace(QUICK, unfinished_seconds=0.05)) as (server, probe, _):
        await probe.start("doc")
        await probe.accept("doc", Writer().type("before "))
        parts = probe.split(Writer().type("bytes that came too late"), size=60)
        assert len(parts) > 1
        await probe.put("doc", parts[:-1])
        intake = server.hosts["doc"].loaded.intake
        await until(lambda: so(intake.first_dropped() is not None))
        await probe.put("doc", parts[-1:])
        nack = await probe.answer()
        assert isinstance(nack, Nack)
        assert nack.reason is Reason.CHUNK_MISSING
        await probe.accept("doc", Writer().type("behind "))
        await _unload(server)
        assert server.journal is not None
        assert server.journal.covered("doc").position.sequence == 1
        await probe.start("doc")
        while (answer := await probe.answer()).log_id != parts[0].log_id:
            assert isinstance(answer, Ack)
        assert isinstance(answer, Ack)
        await _unload(server)
        # a load that takes all covers all
        assert server.journal.covered("doc").position.sequence == len(parts) + 2
    journalled = [record.log_id for _, record in written(disk) if isinstance(record, UpdateRecord)]
    assert parts[0].log_id in journalled


async def sent_twice_in_vain(probe: Probe) -> tuple[bytes, str]:
    """An update that was not sent; the log id of one on top of it, sent twice and given up each time."""
    await probe.start("doc")
    writer = Writer()
    needed, parts = writer.type("needed "), probe.split(writer.type("waits"))
    for _ in range(2):
        await probe.put("doc", parts)
        nack = await probe.answer()
        assert isinstance(nack, Nack)
        assert nack.reason is Reason.MISSING_DEPENDENCIES
    return needed, parts[0].log_id


async def test_what_waited_in_vain_leaves_no_copy_in_the_wal() -> None:
    """A load gives up the same updates as an owner: else a journal's updates are restored again and again."""
    async with world(TestDisk(), replace(QUICK, pending_seconds=0.05)) as (server, probe, _):
        needed, _ = await sent_twice_in_vain(probe)
        refused = server.hosts["doc"].refused
        await until(lambda: so(refused.moved == 2 and not refused.to_move))
        assert [await probe.wal.get(sequence) for sequence in (1, 2)] == [None, None]
        assert server.hosts["doc"].loaded.intake.first_dropped() is None
        await probe.accept("doc", needed)
        await _unload(server)
        await probe.start("doc")
        assert await probe.value("doc") == {"body": "needed "}


async def test_a_load_after_a_lost_connection_asks_first_what_sequences_mean() -> None:
    """The stream went back meanwhile, and others' updates have the sequences that our journal covers."""
    disk = TestDisk()
    async with world(disk) as (server, probe, nats):
        await probe.start("doc")
        await probe.accept("doc", Writer().type("before "))
        await probe.accept("doc", Writer().type("lost "))
        await _unload(server)
        server.context.epochs.doubt()  # the connection was lost
        nats.rewind(subjects.WAL_STREAM, 1)
        parts = probe.split(Writer().type("instead "))
        await probe.put("doc", parts)
        await probe.start("doc")
        while (answer := await probe.answer()).log_id != parts[0].log_id:
            assert isinstance(answer, Ack)
        assert isinstance(answer, Ack)
        assert server.context.epochs.current == 2
    journalled = [record.log_id for _, record in written(disk) if isinstance(record, UpdateRecord)]
    assert parts[0].log_id in journalled


async def test_what_was_dropped_is_no_concern_once_it_is_purged() -> None:
    """A compaction removes dropped messages from the WAL; from then on the ledger goes on behind them."""
    disk = TestDisk()
    async with world(disk, replace(QUICK, unfinished_seconds=0.05)) as (server, probe, _):
        await probe.start("doc")
        writer = Writer()
        await probe.put("doc", probe.split(Writer().type("never whole"), size=60)[:-1])
        intake = server.hosts["doc"].loaded.intake
        await until(lambda: so(intake.first_dropped() is not None))
        await probe.accept("doc", writer.type("one "))
        await probe.call("compact", "doc")
        assert intake.first_dropped() is None
        ack = await probe.accept("doc", writer.type("two"))
        await _unload(server)
        assert server.journal is not None
        assert server.journal.covered("doc").position.sequence == ack.sequence


async def test_a_deletion_is_never_answered_without_its_record() -> None:
    """If the tombstone was stored and its answer lost, the next load, or a repeated call, writes it."""
    disk = TestDisk()
    async with world(disk) as (server, probe, _):
        await probe.start("doc")
        await probe.accept("doc", Writer().type("secret"))
        snapshots = server.context.snapshots
        stored = snapshots.put

        async def unheard(*args: Any, **options: Any) -> None:
            snapshots.put = stored  # type: ignore[method-assign]
            await stored(*args, **options)
            raise OutcomeUnknown("the answer was lost")

        snapshots.put = unheard  # type: ignore[method-assign, assignment]
        with pytest.raises(Refused):
            await probe.call("delete", "doc")
        await until(lambda: _deletions(disk, 1))  # by the load, before a repeated call
        await probe.call("delete", "doc")
        assert await _deletions(disk, 2)
        await _unload(server)
        await probe.start("doc")  # the ledger knows it
        assert await _deletions(disk, 2)


async def test_a_takeover_of_a_deleted_document_journals_the_deletion() -> None:
    """An owner that died between tombstone and record leaves it to the next, which has it before UP."""
    first, second = TestDisk(), TestDisk()
    async with world(first) as (server, probe, nats):
        await probe.start("doc")
        await probe.accept("doc", Writer().type("secret"))
        await probe.call("delete", "doc")
        await server.stop()
        async with Server(nats.connect("two"), QUICK, data=DATA, storage=second):
            await probe.start("doc")
            assert await _deletions(second, 1)
            deletion = written(second)[-1][1]
            assert isinstance(deletion, DeletedRecord)
            assert deletion.deleted_ns == (await probe.call("delete", "doc"))["deleted_ns"]


async def _deletions(disk: TestDisk, count: int) -> bool:
    return len([record for _, record in written(disk) if isinstance(record, DeletedRecord)]) == count


async def test_a_folder_in_use_is_left_as_it_is(tmp_path: Path) -> None:
    """A second process on a folder ends with one sentence, and changes no file of the first."""
    nats = MemoryNats()
    async with (
        Server(nats.connect("one"), QUICK, data=tmp_path) as server,
        Probe(nats.connect("probe")) as probe,
    ):
        await probe.start("doc")
        await probe.accept("doc", Writer().type("hello"))
        await _unload(server)
        assert server.journal is not None
        await services_of(server).save_coverage()
        names = ("epoch", "ledger")
        before = {name: (tmp_path / "journal" / name).read_bytes() for name in names}
        with pytest.raises(JournalStopped):
            await Server(nats.connect("two"), QUICK, data=tmp_path).__aenter__()
        assert {name: (tmp_path / "journal" / name).read_bytes() for name in names} == before
        assert b'"sequence":1' in before["epoch"]


async def test_a_ledger_that_could_not_be_written_is_written_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if nothing was added meanwhile."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    journal = DiskJournal(tmp_path / "journal")
    await journal.open()
    journal.cover("doc", CoverageEntry("", Position(1, 5, 5)))
    with monkeypatch.context() as patch:
        patch.setattr(coverage, "write", full)
        assert not await journal.save_coverage()
    assert await journal.save_coverage()
    found = coverage.read(journal.directory, tuple(bytes.fromhex(one) for one in journal.ids()))
    assert found.of("doc") == CoverageEntry("", Position(1, 5, 5))
    await journal.close()


async def test_an_older_ledger_never_comes_behind_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An expired record is no longer covered once removed, on the disk too, even beside another save."""
    write, begun, late = coverage.write, threading.Event(), threading.Event()

    def first_late(directory: Directory, data: bytes) -> None:
        monkeypatch.setattr(coverage, "write", write)
        begun.set()
        assert late.wait(10)
        write(directory, data)

    journal = DiskJournal(tmp_path / "journal")
    await journal.open()
    journal.cover("doc", CoverageEntry("base", Position(1, 5, 5)))
    monkeypatch.setattr(coverage, "write", first_late)
    timer = asyncio.create_task(journal.save_coverage())
    assert await asyncio.to_thread(begun.wait, 10)
    journal.uncover()
    expiring = asyncio.create_task(journal.save_coverage())
    await asyncio.wait({expiring}, timeout=0.1)
    late.set()
    assert (await timer, await expiring) == (True, True)
    found = coverage.read(journal.directory, tuple(bytes.fromhex(one) for one in journal.ids()))
    assert found.of("doc") == NOTHING
    await journal.close()


def test_the_witness_of_the_epoch_never_goes_back(tmp_path: Path) -> None:
    """The recorded position never goes back."""
    directory = FileStorage().directory(tmp_path, create=False)
    for known in (
        EpochWitness(Position(2, 5, 1)),
        EpochWitness(Position(2, 4, 1)),
        EpochWitness(Position(1, 9, 1)),
    ):
        epoch.remember(directory, known)
        assert epoch.recalled(directory) == EpochWitness(Position(2, 5, 1))
    epoch.remember(directory, EpochWitness(Position(3, 0, 0)))
    assert epoch.recalled(directory) == EpochWitness(Position(3, 0, 0))


async def test_a_start_that_is_cancelled_lets_go_of_the_journal(tmp_path: Path) -> None:
    """The next server on the same folder can open it."""
    nats = MemoryNats()
    half = Server(nats.connect("one"), QUICK, data=tmp_path)
    there = asyncio.Event()

    async def never() -> None:
        there.set()
        await asyncio.Event().wait()

    half._ensure_streams = never  # type: ignore[method-assign]
    starting = asyncio.ensure_future(half.__aenter__())
    await asyncio.wait_for(there.wait(), 10)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    async with Server(nats.connect("two"), QUICK, data=tmp_path) as server:
        assert server.ready


async def test_what_a_damaged_journal_lost_is_written_again_from_the_wal(tmp_path: Path) -> None:
    """After damage the coverage record does not count: a load journals all that it accepts."""
    nats = MemoryNats()
    async with Probe(nats.connect("probe")) as probe:
        async with Server(nats.connect("one"), QUICK, data=tmp_path) as server:
            await probe.start("doc")
            writer = Writer()
            acks = [await probe.accept("doc", writer.type(f"{number} ")) for number in range(4)]
        folder = tmp_path / "journal" / "00"
        (segment,) = folder.glob("*.seg")
        raw = bytearray(segment.read_bytes())
        raw[raw.rindex(acks[-1].log_id.encode())] ^= 1
        segment.write_bytes(raw)
        async with Server(nats.connect("two"), QUICK, data=tmp_path) as server:
            journal = server.journal
            assert journal is not None
            await until(lambda: so(bool(journal.damage)))  # by reconciliation, which reads it
            assert journal.covered("doc") == NOTHING
            await probe.start("doc")
            assert await probe.value("doc") == {"body": writer.text}
        found = [entry.record for entry in journal_scan.entries(JournalFolder("00", folder))]
        assert {record.log_id for record in found if isinstance(record, UpdateRecord)} == {
            ack.log_id for ack in acks
        }


async def test_damage_found_later_journals_open_documents_again() -> None:
    """An open document is journalled with its content again, and is covered only after that."""
    disk = TestDisk()
    async with world(disk) as (server, probe, _):
        await probe.start("doc")
        writer = Writer()
        await probe.accept("doc", writer.type("hello"))
        assert server.journal is not None
        server.journal.damaged("somewhere")
        assert server.journal.covered("doc") == NOTHING

        async def again() -> bool:
            return [record for _, record in written(disk) if isinstance(record, BaseRecord)] != []

        await until(again)
        base = written(disk)[-1][1]
        assert isinstance(base, BaseRecord)
        assert Writer(base.content).text == writer.text
        journalling = server.hosts["doc"].journal
        await until(lambda: so(journalling._whole))  # on the disk, and the host knows of it
        await _unload(server)
        assert server.journal.covered("doc").base == base.snapshot_digest


async def test_a_client_learns_in_time_that_no_server_can_take_its_document() -> None:
    """With the only journal stopped, a caller gets an error within its timeout, with the place to check."""
    disk = TestDisk()
    async with world(disk) as (server, probe, nats):
        await probe.start("doc")
        disk.break_()
        await probe.put("doc", probe.split(Writer().type("lost?")))
        await until(lambda: so(not server.ready and not server.hosts))
        starter = DocumentStarter(
            nats.connect("client"), SystemClock(), random.Random(1), nanoid.generate, ClientSettings()
        )
        with pytest.raises(NotServed, match=r"none of the servers on NATS \(1\) accepts documents.*status"):
            await starter.served("doc", timeout=2)


async def test_a_journal_that_stops_while_the_server_starts_ends_the_start() -> None:
    """It never reports that it serves: the start fails, with the error of the journal."""
    server = Server(MemoryNats().connect("one"), QUICK, data=DATA, storage=TestDisk())
    ensure = server._ensure_streams

    async def stopped() -> None:
        await ensure()
        assert server.journal is not None
        server.journal._stop("the journal has stopped: no space left on the disk of data")

    server._ensure_streams = stopped  # type: ignore[method-assign]
    with pytest.raises(JournalStopped, match="no space left"):
        await server.__aenter__()
    assert not server.ready


@pytest.mark.parametrize(
    ("cause", "sentence"),
    [
        (OSError(28, "No space left on device"), "no space left on the disk of /d/00"),
        (OSError(122, "Disk quota exceeded"), "no space left on the disk of /d/00"),
        (OSError(5, "Input/output error"), "/d/00: Input/output error"),
        (DiskFull(28, "short write, 1 of 2 bytes"), "no space left on the disk of /d/00"),
    ],
)
def test_the_journal_says_once_why_it_stopped(cause: OSError, sentence: str) -> None:
    """The cause and the place, without the path of the report."""
    error = LogFailedError(f"/d/00: the log has stopped: {cause}")
    error.__cause__ = cause
    assert reason(error) == sentence


def test_a_disk_that_has_no_room_now_is_waited_for() -> None:
    """A short write is a full disk, too; the message states that the journal continues by itself."""
    error = DiskFullError("/d/00: the disk is full: short write, 1 of 2 bytes")
    error.__cause__ = DiskFull(28, "short write, 1 of 2 bytes", "/d/00/1.seg")
    assert reason(error) == "no space left on the disk of /d/00"


async def _unload(server: Server, document_id: str = "doc") -> None:
    host = server.hosts[document_id]
    host.stop("idle")
    await host.closed.wait()


async def test_a_load_journals_the_base_and_what_it_replays_before_up() -> None:
    """A server that takes over has the snapshot and the WAL in its own journal before it writes UP."""
    first, second = TestDisk(), TestDisk()
    writer = Writer()
    async with world(first) as (server, probe, nats):
        await probe.start("doc")
        await probe.accept("doc", writer.type("old"))
        await probe.call("compact", "doc")
        await probe.accept("doc", writer.type("newer"))
        await server.stop()
        async with Server(nats.connect("two"), QUICK, data=DATA, storage=second) as other:
            second.hold()
            operation = await probe.move("doc")
            await probe.init("doc", operation.encode())
            await until(lambda: _waiting(second))
            assert not other.hosts["doc"].state.is_up
            second.let_go()
            await probe.until_up("doc")
            kinds = [type(record) for _, record in written(second)]
            assert kinds == [TermRecord, BaseRecord, UpdateRecord]
            base = written(second)[1][1]
            assert isinstance(base, BaseRecord)
            assert base.content


async def _waiting(disk: TestDisk) -> bool:
    return disk.waiting > 0


async def test_what_the_ledger_knows_is_not_written_again() -> None:
    """A document that the same server loads again adds nothing to the journal."""
    disk = TestDisk()
    async with world(disk) as (server, probe, _):
        await probe.start("doc")
        writer = Writer()
        await probe.accept("doc", writer.type("one"))
        await probe.call("compact", "doc")
        await probe.accept("doc", writer.type("two"))
        before = written(disk)
        server.hosts["doc"].stop("test")
        await until(lambda: _gone(server))
        await probe.start("doc")
        assert await probe.value("doc") == {"body": writer.text}
        assert written(disk) == before


async def _gone(server: Server) -> bool:
    return "doc" not in server.hosts


async def test_an_early_update_is_journalled_by_the_load_that_accepts_it() -> None:
    """The ledger never covers an update with missing dependencies: a load may accept it later."""
    disk = TestDisk()
    async with world(disk, replace(QUICK, pending_seconds=30.0)) as (server, probe, _):
        await probe.start("doc")
        writer, stranger = Writer(), Writer()
        first, second = writer.type("a"), writer.type("b")
        early = probe.split(second)
        await probe.put("doc", early)  # depends on `first`
        assert not isinstance(await probe.answer(), Ack)
        await probe.accept("doc", stranger.type("x"))  # the head moves on
        for _ in range(2):  # the second load finds what it depends on
            await _unload(server)
            assert server.journal is not None
            assert server.journal.covered("doc").position.sequence == 0
            await probe.start("doc")
            await probe.accept("doc", first)
        await _unload(server)
        assert server.journal is not None
        assert server.journal.covered("doc").position.sequence == 4
        ids = [record.log_id for _, record in written(disk) if isinstance(record, UpdateRecord)]
        assert early[0].log_id in ids
        assert len(set(ids)) == 3


async def test_nothing_is_purged_before_the_journal_has_it() -> None:
    """Compaction stores its snapshot, then waits for the disk, then purges."""
    disk = TestDisk()
    async with world(disk) as (_, probe, _):
        await probe.start("doc")
        writer = Writer()
        await probe.accept("doc", writer.type("one"))
        disk.hold()
        try:
            await probe.put("doc", probe.split(writer.type("two")))
            await probe.put("doc", probe.split(writer.type("three")))
            await until(lambda: _equals(probe, {"body": writer.text}))
            compacting = asyncio.create_task(probe.call("compact", "doc"))
            await until(lambda: _has_snapshot(probe))
            assert await probe.wal.count(subjects.wal("doc")) == 3
        finally:
            disk.let_go()
        assert (await compacting)["purged"] == 2


async def _has_snapshot(probe: Probe) -> bool:
    return bool((await probe.call("status", "doc"))["snapshot_bytes"])


async def test_delete_restore_and_fork_are_in_the_journal_when_they_are_answered() -> None:
    """A tombstone, its undoing and a new document are facts like any other."""
    disk = TestDisk()
    async with world(disk) as (_, probe, _):
        await probe.start("doc")
        await probe.accept("doc", Writer().type("text"))
        await probe.call("fork", "doc", to="copy")
        forked = written(disk)[-1]
        assert forked[0] == "copy"
        assert isinstance(forked[1], BaseRecord)
        assert forked[1].content
        await probe.call("delete", "doc")
        deletion = written(disk)[-1][1]
        assert isinstance(deletion, DeletedRecord)
        assert deletion.ends
        await probe.call("restore", "doc")
        restores = [
            record
            for _, record in written(disk)
            if isinstance(record, TermRecord) and record.kind is TermKind.RESTORED
        ]
        assert [(one.undoes, one.generation) for one in restores] == [((deletion.tombstone,), 1)]
        assert set(restores[0].ancestors) <= set(deletion.ends)


def test_a_journal_needs_a_folder() -> None:
    """Durability `journal` without a place to write is refused with what to do."""
    with pytest.raises(InvalidSettings, match="needs a folder"):
        Server(MemoryNats().connect("server"), ServerSettings())


async def test_durability_stream_writes_no_journal() -> None:
    """The ACK has its durability."""
    nats = MemoryNats()
    settings = replace(QUICK, durability="stream")
    async with Server(nats.connect("server"), settings), Probe(nats.connect("probe")) as probe:
        await probe.start("doc")
        assert (await probe.accept("doc", Writer().type("x"))).durability == "stream"


async def test_partitions_hold_each_document_in_one_place(tmp_path: Path) -> None:
    """Every document has its partition, by its name alone; the files of all are found again."""
    journal = DiskJournal(tmp_path / "journal", partitions=4)
    await journal.open()
    for number in range(20):
        await (await journal.put(f"doc-{number}", restored_record(1, number), 0))
    places = {journal.partition(f"doc-{number}") for number in range(20)}
    assert len(places) > 1
    await journal.close()
    with pytest.raises(JournalStopped):
        await journal.put("doc", restored_record(1, 1), 0)
    count = 0
    for place in sorted(places):
        for batch in Reader.open(tmp_path / "journal" / f"{place:02d}").cursor():
            for record in batch.records():
                assert journal.partition(record.key.decode()) == place
                count += 1
    assert count == 20


async def test_a_journal_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    """One sentence with the folder, and nothing started."""
    (tmp_path / "journal").write_text("a file where the folder should be")
    nats = MemoryNats()
    with pytest.raises(JournalStopped, match="cannot open the journal"):
        async with Server(nats.connect("server"), QUICK, data=tmp_path):
            pass


async def test_a_wal_that_was_created_again_is_not_taken_for_the_old_one() -> None:
    """With NATS's files gone, sequences begin at 1 again: the ledger does not know these updates."""
    disk = TestDisk()
    writer = Writer()
    async with world(disk) as (_, probe, _):
        await probe.start("doc")
        for word in ("a", "b", "c"):
            await probe.accept("doc", writer.type(word))
    before = len(written(disk))
    stranger = Writer()
    async with world(disk) as (_, probe, _):  # another NATS, the same journal
        parts = probe.split(stranger.type("new"))
        await probe.put("doc", parts)  # before it has an owner: replayed at load
        await probe.start("doc")
        assert isinstance(await probe.answer(), Ack)
        ids = [record.log_id for _, record in written(disk)[before:] if isinstance(record, UpdateRecord)]
        assert parts[0].log_id in ids
