"""What once lost a record, hung or lied: each with the test that would have seen it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lorogo_log import (
    BlockingLog,
    CorruptionError,
    FormatError,
    LockedError,
    Log,
    LogFailedError,
    LogOptions,
    MemoryStorage,
    NotFoundError,
    Reader,
    RecoveryMode,
    StaleEpochError,
    Sync,
    WriteFailure,
)
from lorogo_log.format import names
from lorogo_log.format.batch import EncodedFrame
from lorogo_log.recovery import sealed_segments
from lorogo_log.recovery.recovery import broken_files, keep_broken, list_segments, recover
from lorogo_log.storage.segment import Segment
from tests.log.simdisk import Fault, PowerCut, SimDisk
from tests.log.write.test_crashes import SimWriter, everything

FAULTS: list[Fault] = ["enospc", "eio", "short", "crash"]
SMALL = LogOptions(segment_bytes=4096, ahead_bytes=0)


def values(reader: Reader, **wishes: Any) -> list[Any]:
    return [record.value for batch in reader.read(**wishes) for record in batch.records()]


def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.005)


# -- mistakes of callers ---------------------------------------------------------------------------------

MISTAKES: list[dict[str, Any]] = [
    {"value": 1, "key": "text"},
    {"value": 1, "key": bytearray(b"may change")},
    {"value": 1, "key": None},
    {"value": 1, "ts": 1 << 63},
    {"value": 1, "ts": -(1 << 63) - 1},
    {"value": 1, "ts": 1.5},
    {"value": object()},
    {"value": 1 << 64},
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=range(len(MISTAKES)))
async def test_a_callers_mistake_is_told_to_that_caller_alone(mistake: dict[str, Any], path: str) -> None:
    """A key, time or value that cannot be written is refused at once; the log goes on for everybody."""
    wrong = dict(mistake)
    value = wrong.pop("value")
    async with Log.open(path) as log:
        with pytest.raises((TypeError, ValueError, OverflowError)):
            await asyncio.wait_for(log.append(value, **wrong), 5)
        with pytest.raises((TypeError, ValueError, OverflowError)):
            log.append_nowait(value, **wrong)
        many = {"ts": wrong["ts"]} if "ts" in wrong else {}
        with pytest.raises((TypeError, ValueError, OverflowError)):
            await asyncio.wait_for(log.append_many([(b"", 0), (wrong.get("key", b""), value)], **many), 5)
        with pytest.raises((TypeError, ValueError, OverflowError)):
            log.core.append(value, **wrong)
        assert await asyncio.wait_for(log.append("good"), 5) == 1
        assert log.queue_length() == 0


async def test_a_cancelled_order_stops_nobody(path: str) -> None:
    """Whoever gives up waiting for a rotation, a flush or a fence leaves the writer at work."""
    async with Log.open(path) as log:
        for number in range(20):
            await log.append(number)
            orders = [log.rotate(), log.flush(), log.fence(100 + number)]
            waiting = [asyncio.ensure_future(order) for order in orders]
            await asyncio.sleep(0)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        assert await asyncio.wait_for(log.append("after"), 5) > 20
        read = [record.value async for batch in log.read() for record in batch.records()]
    assert read == [*range(20), "after"]


async def test_a_cancelled_open_gives_the_lock_back(path: str) -> None:
    """Opening that was cancelled leaves nothing open behind."""
    opening = asyncio.ensure_future(Log.open(path).__aenter__())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    async with Log.open(path, lock_seconds=5) as log:
        assert await log.append(1) == 1


async def test_a_cancelled_reader_lets_its_thread_finish(path: str) -> None:
    """A reader that is cancelled while a thread reads for it closes its file afterwards, not under it."""
    async with Log.open(path) as log:
        await log.append_many([(b"", bytes(1000))] * 1000)

        async def read() -> None:
            async for _ in log.read(follow=True):
                pass

        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        for _ in range(20):
            task = asyncio.ensure_future(read())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(until, lambda: len(os.listdir("/proc/self/fd")) <= before)  # noqa: PTH208


# -- epochs ----------------------------------------------------------------------------------------------


async def test_a_fence_without_records_hides_none_that_come_after_it(path: str) -> None:
    """A segment that holds only an epoch never takes the place of the next one."""
    async with Log.open(path) as log:
        await log.fence(7)
        assert await log.rotate() is None
    followed: list[Any] = []
    async with Log.open(path) as log:
        assert log.stats().epoch == 8
        first = await log.append("a")
        await log.fence(20)
        await log.rotate()
        await log.fence(21)
        await log.rotate()
        await log.fence(22)
        second = await log.append("b")
        assert first < second
        assert [log.lookup(first).value, log.lookup(second).value] == ["a", "b"]
        async for batch in log.read():
            followed += [record.value for record in batch.records()]
    assert followed == values(Reader.open(path)) == ["a", "b"]
    assert len({entry.first_sequence for entry in list_segments(Reader.open(path).directory)}) == len(
        [name for name in os.listdir(path) if name.endswith(".seg")]  # noqa: PTH208
    )
    with pytest.raises(StaleEpochError):
        BlockingLog(path, LogOptions(epoch=21))
    with BlockingLog(path) as log2:
        assert not [report for report in log2.scrub() if report.damage]
        assert log2.append("c") > second


@pytest.mark.parametrize("seed", range(40))
def test_fences_and_crashes(seed: int) -> None:
    """Wherever the power goes, an epoch once written down stays, and no record is hidden behind it."""
    rng = random.Random(seed)
    disk = SimDisk()
    rows: list[Any] = []
    epoch = 0
    for _ in range(8):
        disk.plan = {disk.calls + rng.randrange(1, 30): "crash"}
        try:
            writer = SimWriter(disk, segment_bytes=4096)
            for _ in range(rng.randrange(4)):
                if rng.random() < 0.6:
                    writer.engine.head.epoch += 5
                    writer.engine.commit((), (), (), sync=True)
                    epoch = writer.engine.head.epoch
                if rng.random() < 0.5:
                    rows += writer.append([(rng.randrange(9), b"k", rng.randbytes(100))])
                writer.work()
            writer.lock.release()
        except PowerCut:
            pass
        disk.plan.clear()
        disk.crash(rng)
        found = recover(disk, RecoveryMode.TAIL)
        assert found.damage == []
        assert found.head.epoch >= epoch
        seen = everything(disk)
        assert [row for row in seen if row in rows] == rows
        assert len({row[0] for row in seen}) == len(seen)
        assert found.head.next_sequence > max((row[0] for row in seen), default=0)
        rows = seen


def test_cleaning_keeps_the_epoch() -> None:
    """Records that are dropped do not take the fence with them."""
    disk = MemoryStorage()
    with BlockingLog("m", LogOptions(epoch=3), storage=disk) as log:
        log.append(1)
        log.writer.fence(9).result(5)
        log.append(2)
    sealed_segments.clean(disk.directory("m", create=False), lambda _, record: True)
    with pytest.raises(StaleEpochError):
        BlockingLog("m", LogOptions(epoch=8), storage=disk)


# -- the interval ----------------------------------------------------------------------------------------


def test_a_quiet_writers_last_record_is_synced_after_the_interval() -> None:
    """Under `interval`, the last record before a pause is on the disk when the interval is over."""
    disk = SimDisk()
    with BlockingLog("sim", LogOptions(sync=Sync.interval(0.05)), storage=disk) as log:
        log.append(0)
        for number in range(3):
            syncs = log.writer.syncs
            log.append(number)
            until(lambda syncs=syncs: log.writer.syncs > syncs)  # type: ignore[misc]


def test_a_sync_that_fails_in_the_callers_thread_stops_the_log() -> None:
    """A failed sync is never tried again, whoever's thread met it."""
    disk = SimDisk()
    moment = [0.0]
    log = BlockingLog("sim", LogOptions(sync=Sync.interval(1.0)), storage=disk)
    log.writer._monotonic = lambda: moment[0]
    log.writer._synced_at = 0.0
    log.append(1)
    until(lambda: log.writer._idle)
    moment[0] = 2.0
    until(lambda: "sync directory" in disk.kinds[-1:] or len(log.active_segments()) == 2)
    disk.plan = {disk.calls + 2: "eio"}
    log.append(2)
    assert log.writer.failed is not None
    with pytest.raises(LogFailedError):
        log.append(3)
    log.close()


# -- interruptions, forks, closing -----------------------------------------------------------------------


class Interrupting(SimDisk):
    """A disk on which Ctrl-C comes in the middle of a write."""

    armed = False

    def step(self, kind: str) -> Fault | None:
        if self.armed and kind == "sync" and threading.current_thread() is threading.main_thread():
            self.armed = False
            raise KeyboardInterrupt
        return super().step(kind)


def test_an_interrupted_append_stops_the_log() -> None:
    """After Ctrl-C within a write, the frame may be in the file: its sequence is not given again."""
    disk = Interrupting()
    log = BlockingLog("sim", storage=disk)
    assert log.append("first") == 1
    until(lambda: log.writer._idle)
    disk.armed = True
    with pytest.raises(KeyboardInterrupt):
        log.append("a long record that is in the file")
    with pytest.raises(LogFailedError, match="interrupted"):
        log.append("short")
    assert log.queue_length() == 0
    log.close()
    with BlockingLog("sim", storage=disk) as log:
        assert log.append("short") == 3
    assert values(Reader(disk)) == ["first", "a long record that is in the file", "short"]


def test_a_forked_child_cannot_write_and_keeps_no_lock(path: str) -> None:
    """A child process that inherits an open log is refused, and holds nothing of it after the parent."""
    log = BlockingLog(path)
    assert log.append("parent") == 1
    told, tell = os.pipe()
    stay, go = os.pipe()
    child = os.fork()
    if child == 0:
        result = b"wrote"
        try:
            log.append("child", wait_seconds=5)
        except LogFailedError:
            result = b"refused"
        try:
            log.close(5)
        finally:
            os.write(tell, result)
            os.close(go)
            os.read(stay, 1)  # lives on until the parent has closed
            os._exit(0)
    try:
        assert os.read(told, 10) == b"refused"
        with pytest.raises(LockedError):
            BlockingLog(path)
        assert log.append("parent again") == 2
        log.close()
        with BlockingLog(path) as log:
            assert log.append("later") == 3
            assert values(log.reader) == ["parent", "parent again", "later"]
    finally:
        os.close(go)
        os.waitpid(child, 0)
        for fd in (told, tell, stay):
            os.close(fd)


@pytest.mark.parametrize("policy", [Sync.os(), Sync.interval(60), Sync.group()], ids=lambda one: one.kind)
def test_closing_on_a_failing_disk_says_so(policy: Sync) -> None:
    """`close` is the last chance to hear that what it should have synced is not on the disk; told once."""
    disk = SimDisk()
    log = BlockingLog("sim", LogOptions(sync=policy), storage=disk)
    log.append(1)
    log.append(2)
    until(lambda: len(log.active_segments()) == 2)
    disk.plan = dict.fromkeys(range(disk.calls + 1, disk.calls + 50), "eio")
    with pytest.raises(LogFailedError):
        log.close()
    log.close()
    disk.plan.clear()
    with BlockingLog("sim", storage=disk) as log:
        assert values(log.reader) == [1, 2]


class Stuck(SimDisk):
    """A disk whose syncs hang until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.going = threading.Event()
        self.going.set()

    def step(self, kind: str) -> Fault | None:
        assert self.going.wait(30)
        return super().step(kind)


def test_a_log_that_cannot_close_keeps_its_lock() -> None:
    """While a thread may still write, nobody else may open."""
    disk = Stuck()
    log = BlockingLog("sim", storage=disk)
    log.append(1)
    disk.going.clear()
    with pytest.raises(TimeoutError):
        log.close(0.1)
    assert names.APPEND_LOCK in disk.locks
    disk.going.set()
    log.close()
    assert names.APPEND_LOCK not in disk.locks


def test_a_failure_callback_may_raise_or_close(caplog: pytest.LogCaptureFixture) -> None:
    """A callback that raises is logged; one that closes the log does not wait for itself."""
    for closes in (False, True):
        disk = SimDisk()
        told = threading.Event()

        def callback(_: LogFailedError, closes: bool = closes, told: threading.Event = told) -> None:
            told.set()
            if closes:
                log.close(5)  # noqa: B023 - used at once
            else:
                raise RuntimeError("a mistake of the callback")

        log = BlockingLog("sim", LogOptions(failure=WriteFailure.call(callback)), storage=disk)
        log.append(1)
        until(lambda: len(log.active_segments()) == 2)  # noqa: B023
        disk.plan = dict.fromkeys(range(disk.calls + 1, disk.calls + 50), "eio")
        with pytest.raises(LogFailedError), caplog.at_level(logging.ERROR):
            log.append_many([(b"", number) for number in range(9)])
        assert told.wait(5)
        log.close()
        until(lambda: log.writer.ended)  # noqa: B023
        log.close()
        assert not disk.locks
    assert "a mistake of the callback" in caplog.text


def test_an_unexpected_error_in_the_background_fails_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong in a thread, nobody waits for it for ever."""
    with BlockingLog("m", storage=MemoryStorage()) as log:
        log.append(1)

        def broken(_: Any) -> None:
            raise RuntimeError("not an OSError")

        monkeypatch.setattr(log.writer.engine, "seal", broken)
        with pytest.raises(LogFailedError, match="not an OSError"):
            log.rotate()
        with pytest.raises(LogFailedError, match="not an OSError"):
            log.append(2)


# -- recovery --------------------------------------------------------------------------------------------


def three_segments(count: int = 3) -> tuple[MemoryStorage, dict[str, bytearray], list[str]]:
    storage = MemoryStorage()
    with BlockingLog("m", SMALL, storage=storage) as log:
        for number in range(count):
            log.append_many([(b"k", [number, row]) for row in range(2)])
            log.append_many([(b"k", [number, row]) for row in range(2, 4)])
            log.rotate()
    files = storage.directories["m"].files
    return storage, files, sorted(name for name in files if name.endswith(".seg"))


def unseal(files: dict[str, bytearray], name: str) -> None:
    end = files[name].find(b"LGTRAIL1")
    del files[name][end:]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("damaged", [0, -1])
@pytest.mark.parametrize("sealed", [True, False])
def test_a_salvaged_header_belongs_to_its_log(count: int, damaged: int, sealed: bool) -> None:
    """Salvage of a segment without its header gives it the log's own id: the log opens again, for good."""
    storage, files, segments = three_segments(count)
    identity = bytes(files[segments[0]][56:72])
    if not sealed:
        unseal(files, segments[damaged])
    files[segments[damaged]][20] ^= 1
    with BlockingLog("m", LogOptions(recovery=RecoveryMode.SALVAGE), storage=storage) as log:
        assert log.damage
        log.append("new")
    for mode in (RecoveryMode.STRICT, RecoveryMode.TAIL):
        with BlockingLog("m", LogOptions(recovery=mode), storage=storage) as log:
            assert log.damage == []
            assert [report.damage for report in log.scrub()] == [()] * (count + 1)
            assert len(values(log.reader)) == 4 * count + 1
            assert log.writer.engine.log_id == identity
    assert list(broken_files(storage.directory("m", create=False)))


def test_a_log_keeps_its_id_when_the_header_of_its_only_segment_is_damaged_for_a_while() -> None:
    """A restored header must fit the segments that were written meanwhile."""
    storage = MemoryStorage()
    with BlockingLog("log", storage=storage) as log:
        log.append(1)
    directory = storage.directory("log", create=False)
    (entry,) = list_segments(directory)
    for value in (2, 3):  # the same bit flips, and flips back
        file = directory.open(entry.name)
        first = file.pread(1, 0)
        file.pwrite([bytes([first[0] ^ 1])], 0)
        file.close()
        with BlockingLog("log", storage=storage) as log:
            log.append(value)
    assert values(Reader(storage.directory("log", create=False))) == [1, 2, 3]


@pytest.mark.parametrize("where", ["body", "frame header", "trailer"])
def test_salvage_reads_sealed_segments(where: str) -> None:
    """Damage in a sealed segment is found by salvage, and what is good is served without an error."""
    storage, files, segments = three_segments()
    data = files[segments[1]]
    at = {"body": 128 + 80 + 3, "frame header": 128 + 20, "trailer": data.find(b"LGTRAIL1") + 12}[where]
    data[at] ^= 0x10
    with BlockingLog("m", LogOptions(recovery=RecoveryMode.SALVAGE), storage=storage) as log:
        assert len(log.damage) == 1
    with BlockingLog("m", LogOptions(recovery=RecoveryMode.STRICT), storage=storage) as log:
        assert not [report for report in log.scrub() if report.damage]
        assert len(values(log.reader)) == (12 if where == "trailer" else 10)
        assert log.append("new") == 13


def test_salvage_under_faults_and_crashes() -> None:
    """Salvage that is refused or cut off at any call loses none of the good frames, and can be done again."""
    for fault in FAULTS:
        for call in range(1, 40):
            disk = SimDisk()
            writer = SimWriter(disk, segment_bytes=4096)
            rows = []
            for number in range(6):
                rows += writer.append([(number, b"k", bytes([number]) * 900)])
                writer.work()
            writer.close()
            first = min(name for name in disk.entries if name.endswith(".seg"))
            damaged = bytearray(disk.entries[first].data)
            damaged[128 + 80 + 50] ^= 1
            disk.entries[first].engrave(damaged)
            disk.plan = {disk.calls + call: fault}
            try:
                recover(disk, RecoveryMode.SALVAGE)
                done = True
            except (OSError, PowerCut):
                done = False
            disk.plan.clear()
            disk.crash(random.Random(call))
            found = [
                record.sequence for batch in Reader(disk).read(damaged="skip") for record in batch.records()
            ]
            assert found == [row[0] for row in rows[1:]]
            assert all(len(disk.entries[name].data) > 900 for name in broken_files(disk)), "whole copies"
            again = recover(disk, RecoveryMode.SALVAGE)
            assert again.head.next_sequence == 7
            assert [row[0] for row in everything(disk)] == [row[0] for row in rows[1:]]
            if done and call > 30:
                break


def test_a_copy_of_broken_bytes_is_whole_or_not_there() -> None:
    """`.broken` is written under another name: a full disk leaves no half of it."""
    disk = SimDisk()
    writer = SimWriter(disk, segment_bytes=4096)
    writer.append([(0, b"", b"x" * 3000)])
    segment = writer.engine.active.name
    for fault in FAULTS[:3]:
        for call in range(1, 6):
            disk.plan = {disk.calls + call: fault}
            try:
                keep_broken(disk, segment, disk.open(segment), 0)
            except OSError:
                whole = len(disk.entries[segment].data)
                assert all(len(disk.entries[name].data) == whole for name in broken_files(disk))
                assert not [name for name in disk.entries if name.endswith(".tmp")]


@pytest.mark.parametrize("seed", range(30))
def test_a_trailer_never_outlives_its_frames(seed: int) -> None:
    """A writer dies before its sync, recovery seals what it reads, the power goes: no hole is vouched for."""
    disk = SimDisk()
    writer = SimWriter(disk, segment_bytes=1 << 20)
    rows = writer.append([(0, b"", b"a" * 600)])
    disk.plan = {disk.calls + 2: "eio"}
    with pytest.raises(OSError, match="error"):
        writer.append([(1, b"", b"b" * 600)])
    disk.locks.clear()
    disk.plan = {disk.calls + 1 + seed % 4: "crash"}
    with contextlib.suppress(PowerCut):
        recover(disk, RecoveryMode.TAIL)
    disk.crash(random.Random(seed))
    assert recover(disk, RecoveryMode.TAIL).damage == []
    assert everything(disk)[:1] == rows


def test_a_first_frame_that_is_bad_leaves_no_segment_in_the_way() -> None:
    """A newest segment without one good frame is reported and stays; the log goes on far behind it."""
    storage = MemoryStorage()
    with BlockingLog("m", storage=storage) as log:
        log.append("a", ts=10)
    with BlockingLog("m", storage=storage) as log:
        log.append("b", ts=100)
    files = storage.directories["m"].files
    newest = max(name for name in files if name.endswith(".seg"))
    del files[newest][128 + 85 :]
    with BlockingLog("m", storage=storage) as log:
        assert len(log.damage) == 1
        sequence = log.append("c", ts=50)
        assert log.lookup(sequence).value == "c"
    assert values(Reader(storage.directory("m", create=False)), damaged="skip") == ["a", "c"]
    with BlockingLog("m", LogOptions(recovery=RecoveryMode.SALVAGE), storage=storage) as log:
        assert len(log.damage) == 1
    assert values(Reader(storage.directory("m", create=False))) == ["a", "c"]
    assert len(list(broken_files(storage.directory("m", create=False)))) == 1


def test_a_rewritten_segment_with_a_bad_footer_gives_no_sequence_twice() -> None:
    """Only the footer knows how far a cleaned segment reached: a bad one is told, and nothing guessed low."""
    storage, files, segments = three_segments()
    directory = storage.directory("m", create=False)
    sealed_segments.clean(directory, lambda _, record: record.sequence > 9)
    for bit in (0, 3):
        files[segments[-1]][-1] ^= 1 << bit
        with BlockingLog("m", storage=storage) as log:
            assert [found.reason for found in log.damage] == ["the footer does not check"]
            assert log.append("new") >= 13
        files[segments[-1]][-1] ^= 1 << bit


def test_leftovers_of_a_cleaner_at_work_stay(path: str) -> None:
    """Opening a log does not take the file away that a cleaner in another process is writing."""
    with BlockingLog(path) as log:
        log.append(1)
    leftover = Path(path, "00000000000000000001-00000000000000000001.seg.tmp")
    leftover.write_bytes(b"half")
    with sealed_segments.cleaning(Reader.open(path).directory), BlockingLog(path):
        assert leftover.exists()
    with BlockingLog(path):
        assert not leftover.exists()


# -- maintenance -----------------------------------------------------------------------------------------


def test_scrub_sees_every_flipped_bit_of_a_sealed_segment() -> None:
    """A scrub reports a bit that flipped anywhere in a segment: header, frames, trailer, footer."""
    storage, files, segments = three_segments()
    directory = storage.directory("m", create=False)
    for name in (segments[1], segments[-1]):
        for at in range(len(files[name])):
            files[name][at] ^= 1 << at % 8
            reports = {report.name: report for report in sealed_segments.scrub(directory)}
            assert reports[name].damage, f"byte {at} of {len(files[name])}"
            files[name][at] ^= 1 << at % 8
    assert not [report for report in sealed_segments.scrub(directory) if report.damage]


def test_scrub_sees_an_open_segment_that_ends_too_early() -> None:
    """A segment that was never sealed and lacks records before the next one is damaged."""
    storage, files, segments = three_segments()
    unseal(files, segments[1])
    directory = storage.directory("m", create=False)
    assert not [report for report in sealed_segments.scrub(directory) if report.damage], "open, and all there"
    second = files[segments[1]].find(b"LGFR", 200)
    del files[segments[1]][second:]
    damage = [found for report in sealed_segments.scrub(directory) for found in report.damage]
    assert [str(found) for found in damage] == [
        f"m/{segments[1]} at byte {second}: the segment ends too early: records 7 to 8 are missing"
    ]


@pytest.mark.parametrize("fault", ["enospc", "eio", "short", "crash"])
def test_cleaning_refused_at_each_call(fault: Fault) -> None:
    """Wherever cleaning is refused or cut off, every kept record is there, and cleaning again finishes it."""
    refused = 0
    for call in range(1, 60):
        disk = SimDisk()
        writer = SimWriter(disk, segment_bytes=4096, ahead_bytes=1024)
        rows = []
        for number in range(12):
            rows += writer.append([(number, b"ab"[number % 2 : number % 2 + 1], bytes([number]) * 700)])
            writer.work()
        writer.rotate()
        writer.work()
        disk.plan = {disk.calls + call: fault}
        try:
            sealed_segments.clean(disk, lambda _, record: record.key == b"a" or record.sequence < 4)
        except (OSError, PowerCut):
            refused += 1
        if disk.calls < max(disk.plan):
            break  # the table is through
        disk.plan.clear()
        kept = [row for row in rows if row[2] == b"b" and row[0] >= 4]
        seen = everything(disk)
        assert [row for row in seen if row in kept] == kept
        assert [row for row in rows if row in seen] == seen
        if fault == "crash" or call % 2:
            disk.crash(random.Random(call))
            SimWriter(disk, segment_bytes=4096)
        disk.locks.clear()
        sealed_segments.clean(disk, lambda _, record: record.key == b"a" or record.sequence < 4)
        assert everything(disk) == kept
        assert recover(disk, RecoveryMode.TAIL).head.next_sequence == 13
        assert not [name for name in disk.entries if name.endswith(".tmp")]
    assert refused > 4


def test_expire_leaves_no_older_neighbour() -> None:
    """A damaged segment that cannot be expired keeps all that are newer."""
    storage, files, segments = three_segments(4)
    for at in (0, 130, 300):
        files[segments[1]][at] ^= 1
    with BlockingLog("m", storage=storage) as log:
        assert log.expire(keep_bytes=0) == [segments[0]]


def test_install_takes_only_what_belongs_there() -> None:
    """A good segment of another log or of another place is refused, and so is a swap under the writer."""
    storage, files, segments = three_segments()
    _, other, strangers = three_segments()
    directory = storage.directory("m", create=False)
    with pytest.raises(FormatError, match="another segment"):
        sealed_segments.install(directory, segments[0], [bytes(files[segments[1]])])
    with pytest.raises(FormatError, match="another log"):
        sealed_segments.install(directory, strangers[0], [bytes(other[strangers[0]])])

    def broken() -> Any:
        yield bytes(files[segments[0]][:100])
        raise ConnectionError

    with pytest.raises(ConnectionError):
        sealed_segments.install(directory, segments[0], broken())
    assert not [name for name in files if name.endswith((".tmp", ".broken"))]
    with BlockingLog("m", storage=storage) as log:
        log.append("active")
        with pytest.raises(ValueError, match="being written"):
            log.install(log.active_segments()[0], [b""])
        assert (
            sealed_segments.install(directory, segments[0], [bytes(files[segments[0]])]).name == segments[0]
        )


# -- reading ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seal", [False, True])
def test_from_a_time_with_a_key_is_the_same_sealed_or_open(seal: bool) -> None:
    """A time is a place in the log: what has the key and comes after it is read, whatever its own time."""
    with BlockingLog("m", storage=MemoryStorage()) as log:
        log.append(bytes(40_000), key=b"a", ts=10)
        log.append(bytes(40_000), key=b"a", ts=100)
        log.append("late, with an early time", key=b"b", ts=50)
        log.append(bytes(40_000), key=b"a", ts=110)
        if seal:
            name = log.rotate()
            until(lambda: any(info.name == name and info.sealed for info in log.segments()))
        assert values(log.reader, from_time=80, key=b"b") == ["late, with an early time"]
        assert values(log.reader, from_time=105, key=b"b") == []


def test_a_sequence_that_no_record_has_is_not_found() -> None:
    """The sequence that an epoch took for itself is like one that was cleaned."""
    storage = MemoryStorage()
    with BlockingLog("m", storage=storage) as log:
        log.writer.fence(5).result(5)
    with BlockingLog("m", storage=storage) as log:
        assert log.append("x") == 2
        with pytest.raises(NotFoundError):
            log.lookup(1)
        assert values(log.reader, from_seq=1) == ["x"]


def test_a_damaged_file_under_salvage_is_never_half_served() -> None:
    """After salvage, each record that is read is one that was written."""
    rng = random.Random(7)
    for _ in range(60):
        storage, files, segments = three_segments()
        good = [[number, row] for number in range(3) for row in range(4)]
        for _ in range(rng.randrange(1, 6)):
            name = rng.choice(segments)
            files[name][rng.randrange(len(files[name]))] ^= 1 << rng.randrange(8)
        for mode in (RecoveryMode.SALVAGE, RecoveryMode.TAIL):
            with BlockingLog("m", LogOptions(recovery=mode), storage=storage) as log:
                seen = []
                cursor = log.cursor()
                while True:
                    try:
                        seen += [record.value for batch in cursor for record in batch.records()]
                        break
                    except CorruptionError:
                        assert mode is RecoveryMode.SALVAGE, "salvaged before"
                assert [value for value in good if value in seen] == [v for v in seen if v != "new"]
                log.append("new")


def test_frames_before_a_refused_one_are_synced_by_the_next_swap() -> None:
    """A replica that refuses the second of two frames still has the first before anything newer."""
    source = SimDisk()
    writer = SimWriter(source, segment_bytes=4096)
    for number in range(3):
        writer.append([(number, b"", number)])
    frames = [
        (EncodedFrame((batch.header.pack(), batch.stored), batch.header), {b""})
        for batch in Reader(source).read()
    ]
    segment = Segment.open(source, list_segments(source)[0].name)
    disk = SimDisk()
    log = BlockingLog("sim", LogOptions(mirror=True, log_id=segment.header.log_id), storage=disk)
    assert log.mirror(segment.header, frames[:1]).result(5) == 1
    with pytest.raises(ValueError, match="does not continue"):
        log.mirror(None, [frames[1], frames[1]]).result(5)
    assert log.writer.durable == 1, "not synced, not shown"
    until(lambda: len(log.active_segments()) == 2)
    disk.kinds.clear()
    log.rotate()
    assert disk.kinds[0] == "sync", "before anything else"
    log.close()
    assert [row[3] for row in everything(disk)] == [0, 1]
