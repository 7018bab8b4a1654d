"""A disk that is full and has room again: the log waits, loses nothing acknowledged, and goes on."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable

import pytest

from lorogo_log import (
    BlockingLog,
    DiskFullError,
    LogError,
    LogFailedError,
    LogOptions,
    Reader,
    WriteFailure,
    limits,
)
from lorogo_log.core import LogStats
from lorogo_log.recovery.recovery import RecoveryMode, recover
from tests.log.one_thread import LoopWorkers
from tests.log.simdisk import Fault, PowerCut, SimDisk

VALUE = b"x" * 400
MIB = 1 << 20


class Waiting:
    """A log that waits for room on a simulated disk, without threads; and what it said of its disk."""

    def __init__(self, disk: SimDisk, **options: int) -> None:
        self.disk = disk
        self.hands = LoopWorkers()
        disk.workers = self.hands
        self.reported: list[str] = []
        self.failed: list[LogFailedError] = []
        self.acknowledged: list[int] = []
        self.log = BlockingLog(
            "sim",
            LogOptions(
                segment_bytes=4096,
                ahead_bytes=1024,
                failure=WriteFailure.call(self.failed.append, full=self._full),
                **options,  # type: ignore[arg-type]  # whole numbers
            ),
            storage=disk,
        )

    def _full(self, error: DiskFullError | None) -> None:
        self.reported.append("goes on" if error is None else "full")

    def append(self, number: int) -> bool:
        """Whether it was acknowledged."""
        try:
            self.log.append([number, VALUE])
        except DiskFullError:
            return False
        self.acknowledged.append(number)
        return True

    def work(self) -> None:
        """What the background has to do, and one look for room."""
        for work in list(self.hands.waiting):
            self.hands._do(work)

    def stats(self) -> LogStats:
        return self.log.stats()


def numbers(disk: SimDisk) -> list[int]:
    return [record.value[0] for batch in Reader(disk).read() for record in batch.records()]


def calls_of_a_good_run() -> tuple[int, list[str]]:
    disk = SimDisk()
    one = Waiting(disk)
    for number in range(24):
        one.append(number)
        one.work()
    one.log.close()
    return disk.calls, disk.kinds


CALLS, KINDS = calls_of_a_good_run()
#: calls that are writes or make a file: the others are syncs, renames, truncations
WRITES = [at for at, kind in enumerate(KINDS, 1) if kind in ("write", "create")]


@pytest.mark.parametrize("fault", ["enospc", "edquot", "short"])
@pytest.mark.parametrize("crash", [False, True], ids=["goes on", "crash"])
def test_wherever_a_write_finds_no_room_the_log_waits_and_goes_on(fault: Fault, crash: bool) -> None:
    """Whichever write or preallocation is refused: what was acknowledged is there, what was refused is not,
    and no half of it; after room came back, and after a crash at any later time.
    """
    paused = 0
    for call in WRITES:
        for later in range(1, 8) if crash else (0,):
            disk = SimDisk()
            disk.plan = {call: fault}
            if later:
                disk.plan[call + later] = "crash"
            try:
                one = Waiting(disk)
            except (OSError, PowerCut):
                continue  # at open: nothing was acknowledged
            try:
                for number in range(24):
                    if not one.append(number):
                        assert one.stats().full
                        with pytest.raises(DiskFullError):
                            one.log.append("refused at once")
                    one.work()
                if one.failed:  # by the background, as the last of all
                    raise one.failed[0]
                assert one.stats().full is None
                if one.reported:
                    assert one.reported == ["full", "goes on"], (call, one.reported)
                    paused += 1
                one.log.close()
            except LogFailedError as error:
                if not isinstance(error.__cause__, PowerCut):
                    raise
                disk.crash(random.Random(call))
            disk.plan.clear()
            disk.locks.clear()
            disk.workers = None
            found = recover(disk, RecoveryMode.TAIL)
            assert found.damage == [], (call, fault, later)
            assert crash or found.torn == []
            there = numbers(disk)
            assert [number for number in there if number in one.acknowledged] == one.acknowledged
            if not crash:
                assert there == one.acknowledged, (call, fault)
    assert crash or paused > len(WRITES) // 2


@pytest.mark.parametrize("fault", ["enospc", "edquot", "eio"])
def test_a_sync_that_fails_stops_the_log_for_good(fault: Fault) -> None:
    """Whatever the error of a sync says, it is unknown what is on the disk: nothing is tried again."""
    stopped = 0
    for call, kind in enumerate(KINDS, 1):
        if kind not in ("sync", "sync directory"):
            continue
        disk = SimDisk()
        disk.plan = {call: fault}
        try:
            one = Waiting(disk)
        except OSError:
            continue  # at open
        try:
            for number in range(24):
                one.append(number)
                one.work()
            one.log.close()
        except LogFailedError:
            stopped += 1
            assert one.reported == []
            with pytest.raises(LogError):
                one.log.append("late")
        else:
            assert disk.calls < call, f"{kind} {call} failed, and the log went on"
    assert stopped > 10


@pytest.mark.parametrize(
    ("step", "kind"),
    [(1, "truncate"), (2, "sync")],
)
def test_a_tail_that_cannot_be_cut_stops_the_log_for_good(step: int, kind: str) -> None:
    """No torn batch lies in the middle of a log: where it cannot be removed, nothing comes behind it."""
    disk = SimDisk()
    one = Waiting(disk)
    assert one.append(0)
    one.work()
    disk.plan = {disk.calls + 1: "short", disk.calls + 1 + step: "enospc"}
    with pytest.raises(LogFailedError):
        one.append(1)
    assert disk.kinds[-1] == kind
    assert one.reported == [] and len(one.failed) == 1
    one.work()
    with pytest.raises(LogFailedError):
        one.append(2)


def test_a_log_waits_until_two_segments_fit() -> None:
    """With less it waits on: it would be full again at once. On a small disk, a quarter of it is enough."""
    disk = SimDisk()
    one = Waiting(disk)
    assert one.append(0)
    one.work()
    disk.plan = {disk.calls + 1: "short"}
    disk.room = (2 * 4096 - 1, MIB)
    assert not one.append(1)
    for _ in range(5):
        one.work()
        assert not one.append(1)
    disk.room = (2 * 4096, MIB)
    one.work()
    assert one.append(1)
    assert one.reported == ["full", "goes on"]
    disk.plan = {disk.calls + 1: "short"}
    disk.room = (1023, 4096)
    assert not one.append(2)
    one.work()
    assert not one.append(2)
    disk.room = (1024, 4096)
    one.work()
    assert one.append(2)
    one.work()
    assert numbers(disk) == [0, 1, 2]
    assert [segment.sealed for segment in one.log.segments()] == [True, True, False]


def test_a_disk_that_stays_full_is_tried_again_and_leaves_nothing_behind() -> None:
    """A quota shows in no free space: each try fails, removes what it made, and the next one may go well."""
    disk = SimDisk()
    one = Waiting(disk)
    assert one.append(0)
    files = set(disk.list())
    refused = _only_writes(disk)
    assert not one.append(1)
    for _ in range(10):
        one.work()
    assert set(disk.list()) <= files, "no prepared file is left behind"
    assert one.stats().full is not None
    refused()
    disk.plan.clear()
    one.work()
    assert one.append(1)
    assert one.reported == ["full", "goes on"]
    one.log.close()
    assert numbers(disk) == [0, 1]


def _only_writes(disk: SimDisk) -> Callable[[], None]:
    """Let writes fail from now on, and nothing else; returns what ends that."""
    step, active = disk.step, [True]

    def chosen(kind: str) -> Fault | None:
        disk.plan.clear()
        if active[0] and kind in ("write", "create"):
            raise OSError(errno.EDQUOT, "quota")
        return step(kind)

    disk.step = chosen  # type: ignore[method-assign]  # a disk of this test

    def end() -> None:
        active[0] = False

    return end


def test_a_log_that_is_closed_while_it_waits_opens_again() -> None:
    """Closing a log whose disk is full raises nothing; the next open seals what had no room for a seal."""
    disk = SimDisk()
    one = Waiting(disk)
    for number in range(3):
        assert one.append(number)
    end = _only_writes(disk)
    assert not one.append(3)
    one.log.close()
    assert one.failed == []
    end()
    disk.workers = None
    with BlockingLog("sim", storage=disk) as log:
        assert log.torn == [] and log.damage == []
        assert log.append([3, VALUE]) == 4
    assert numbers(disk) == [0, 1, 2, 3]


def test_without_a_wish_to_wait_a_full_disk_stops_the_log() -> None:
    """Only who says what to do meanwhile has a log that waits: a replica and a client's store stop."""
    disk = SimDisk()
    log = BlockingLog("sim", LogOptions(segment_bytes=4096, ahead_bytes=1024), storage=disk)
    assert log.append(0)
    disk.plan = {disk.calls + 1: "short"}
    with pytest.raises(LogFailedError, match="short write"):
        log.append([1, VALUE])


def test_threads_wait_and_go_on_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the writer's own threads: appends are refused while the disk is full, and taken when it is not."""
    monkeypatch.setattr(limits, "FULL_SECONDS", 0.01)
    disk = SimDisk()
    reported: list[str] = []
    went_on = threading.Event()

    def full(error: DiskFullError | None) -> None:
        reported.append("goes on" if error is None else "full")
        if error is None:
            went_on.set()

    options = LogOptions(
        segment_bytes=4096, ahead_bytes=1024, failure=WriteFailure.call(lambda _: None, full=full)
    )
    with BlockingLog("sim", options, storage=disk) as log:
        assert log.append([0, VALUE]) == 1
        end = _only_writes(disk)
        with pytest.raises(DiskFullError):
            log.append_many([(b"", [number, VALUE]) for number in range(20)])
        durable = log.stats().durable_sequence
        with pytest.raises(DiskFullError):
            log.rotate()
        end()
        assert went_on.wait(10)
        assert log.append(["after", VALUE]) == durable + 1
        assert reported == ["full", "goes on"]
        assert log.rotate()
    assert recover(disk, RecoveryMode.STRICT).damage == []
