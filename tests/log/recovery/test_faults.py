"""Disks that say no: each call of each kind refused once, and the log stops, tells everybody, and loses
nothing acknowledged.
"""

from __future__ import annotations

import asyncio
import gc
import random
import threading

import pytest

from lorogo_log import (
    BlockingLog,
    Log,
    LogError,
    LogFailedError,
    LogOptions,
    MemoryStorage,
    Reader,
    Sync,
    TooLargeError,
    WriteFailure,
    limits,
)
from lorogo_log.recovery import sealed_segments
from lorogo_log.recovery.recovery import RecoveryMode, recover
from tests.log.simdisk import Fault, SimDisk
from tests.log.write.test_crashes import SimWriter, everything, row_of

BATCHES = [[(number, b"k", bytes([number]) * 300)] * 3 for number in range(8)]


def run(disk: SimDisk) -> list[object]:
    """Open, append, rotate, seal, clean, close; what was acknowledged before the first error."""
    done: list[object] = []
    writer = SimWriter(disk, segment_bytes=4096, ahead_bytes=1024)
    for batch in BATCHES:
        done += writer.append(batch)
        writer.work()
    sealed_segments.clean(disk, lambda _, record: False)
    writer.close()
    return done


def calls_of_a_good_run() -> int:
    disk = SimDisk()
    run(disk)
    return disk.calls


CALLS = calls_of_a_good_run()


@pytest.mark.parametrize("fault", ["enospc", "eio", "short"])
def test_each_call_refused_once(fault: Fault) -> None:
    """Wherever the disk refuses, what was acknowledged is there after reopening, also when the machine then
    crashes.
    """
    refused = 0
    for call in range(1, CALLS + 1):
        for crash in (False, True):
            disk = SimDisk()
            disk.plan = {call: fault}
            acknowledged: list[object] = []
            writer = None
            try:
                writer = SimWriter(disk, segment_bytes=4096, ahead_bytes=1024)
                for batch in BATCHES:
                    acknowledged += writer.append(batch)
                    writer.work()
                writer.close()
            except OSError:
                refused += 1
            disk.plan.clear()
            if crash:
                disk.crash(random.Random(call))
            disk.locks.clear()
            after = SimWriter(disk, segment_bytes=4096)
            assert after.recovered.damage == [], (call, fault)
            found = everything(disk)
            assert found[: len(acknowledged)] == acknowledged, (call, fault, crash)
            assert len(found) - len(acknowledged) in {0, 3}, "the batch in flight: whole or not at all"
    assert refused > CALLS // 2, "the table is not empty (only writes can be short)"


@pytest.mark.parametrize("fault", ["enospc", "eio", "short"])
@pytest.mark.parametrize("policy", [Sync.group(), Sync.always()], ids=lambda policy: policy.kind)
def test_the_log_stops_and_everybody_is_told(fault: Fault, policy: Sync) -> None:
    """Any error of a write or sync fails all who wait, and all who come later; it is not tried again."""
    for call in range(5, 16):
        disk = SimDisk()
        told: list[LogFailedError] = []
        options = LogOptions(
            sync=policy, segment_bytes=4096, ahead_bytes=1024, failure=WriteFailure.call(told.append)
        )
        log = BlockingLog("sim", options, storage=disk)
        acknowledged: list[int] = []
        errors: list[LogError] = []

        def appends(
            log: BlockingLog = log, ok: list[int] = acknowledged, bad: list[LogError] = errors
        ) -> None:
            for number in range(12):
                try:
                    ok.append(log.append([number, b"x" * 400], wait_seconds=10))
                except LogError as error:
                    bad.append(error)  # noqa: B023 - used at once

        disk.plan = {disk.calls + call: fault}
        threads = [threading.Thread(target=appends) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive(), "nobody waits for ever"
        refused = log.writer.failed
        if refused is not None:
            assert len(told) == 1
            assert errors and all(isinstance(error, LogFailedError) for error in errors)
            after = disk.calls
            with pytest.raises(LogFailedError):
                log.append("late")
            assert disk.calls == after, "nothing is tried again"
        log.close()
        disk.plan.clear()
        disk.crash(random.Random(call))
        assert recover(disk, RecoveryMode.TAIL).damage == []
        found = {record.sequence for batch in Reader(disk).read() for record in batch.records()}
        assert set(acknowledged) <= found, (call, fault)


async def test_who_queued_many_need_not_look_at_each() -> None:
    """A future that nobody looked at is no complaint of the loop: the log itself says that it ended."""
    disk = SimDisk()
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    async def fails() -> None:
        async with Log.open("sim", storage=disk) as log:
            disk.plan = dict.fromkeys(range(disk.calls, disk.calls + 50), "enospc")
            queued = [log.append_nowait(number) for number in range(3)]
            await asyncio.wait(queued)
            assert isinstance(queued[-1].exception(), LogFailedError)

    await fails()
    gc.collect()
    await asyncio.sleep(0)
    assert not complaints


def test_a_failed_log_opens_again() -> None:
    """After a full disk has room again, opening the log goes on behind what was acknowledged."""
    disk = SimDisk()
    log = BlockingLog("sim", storage=disk)
    assert log.append(1) == 1
    disk.plan = dict.fromkeys(range(disk.calls + 1, disk.calls + 100), "enospc")
    with pytest.raises(LogFailedError, match="No space left"):
        log.append_many([(b"", number) for number in range(100)])
    log.close()
    disk.plan.clear()
    with BlockingLog("sim", storage=disk) as log:
        assert log.append("again") == 2
        assert [row_of(r)[3] for b in log.cursor() for r in b.records()] == [1, "again"]


def test_a_record_too_large_is_refused_and_nothing_stops() -> None:
    """A record above the limit is refused to its sender; the log goes on."""
    with BlockingLog("m", storage=MemoryStorage()) as log:
        with pytest.raises(TooLargeError):
            log.writer.put([b""], [Big(limits.BODY_BYTES_MAX)], [0], log.writer._direct, None)  # type: ignore[list-item]
        assert log.append("small") == 1


class Big:
    """Says that it is large without being it."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size
