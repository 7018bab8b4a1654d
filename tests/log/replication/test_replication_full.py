"""A replica whose disk is full: it acknowledges nothing that it has not, says why, and goes on by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from lorogo_log import BlockingLog, Coordinator, DiskFullError, LogFailedError, LogOptions, limits
from lorogo_log.errors import DamageError
from lorogo_log.recovery.recovery import RecoveryMode, recover
from lorogo_log.replication.replica_store import ReplicaStore
from lorogo_log.transfer.catalog import catalog
from lorogo_log.transfer.segment_transfer import ServedLog
from lorogo_log.transfer.wire import Welcome
from tests.log.full_disk import FullDisk
from tests.log.one_thread import LoopWorkers
from tests.log.replicas import OPTIONS, copy_of, grow
from tests.log.replication.test_coordinator import opened
from tests.log.replication.test_replication_crashes import contents, mirror, pieces, source
from tests.log.replication.test_replication_safety import until
from tests.log.simdisk import Fault, SimDisk

__all__ = ["source"]
_SMALL = LogOptions(segment_bytes=8192, ahead_bytes=1024)


@pytest.mark.parametrize("batches", [1, 40], ids=["within a segment", "over segments"])
async def test_a_replica_goes_on_when_its_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    """Nothing is acknowledged meanwhile, and the coordinator knows why; then all is, and the bytes are
    those of the coordinator.
    """
    monkeypatch.setattr(limits, "FULL_SECONDS", 0.02)
    disk = FullDisk()
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        async with copy_of(Path("copy"), coordinator.address, storage=disk) as replica:
            before = await grow(log, 3)
            await coordinator.wait(before, timeout=10)
            disk.full = True
            last = await grow(log, batches)
            await until(lambda: replica.stats().full is not None and not replica.stats().connected)
            await until(lambda: "the disk is full" in (coordinator.trouble or ""))
            assert coordinator.replicated_through(1) < last
            assert replica.sequence < last
            disk.full = False
            await coordinator.wait(last, timeout=10)
            after = await grow(log, 3)
            await coordinator.wait(after, timeout=10)
            stats = replica.stats()
            assert (stats.full, stats.failed, stats.diverged) == (None, None, ())
            assert coordinator.trouble is None
            await log.rotate()
            await replica.caught_up(timeout=10)
        folder = disk.directory("copy", create=False)
        assert not [name for name in folder.list() if name.endswith(".broken")]
        found = recover(folder, RecoveryMode.TAIL)
        assert (found.damage, found.torn) == ([], [])
    with BlockingLog("copy", OPTIONS, storage=disk) as core, BlockingLog(tmp_path / "log", OPTIONS) as origin:
        assert contents(core, after) == contents(origin, after)


def _mirrored(core: BlockingLog, disk: SimDisk, store: ReplicaStore, acked: list[int]) -> int:
    """Mirror all of it, again whenever the disk was full; how often it was."""
    end, paused = core.stats().end_offset, 0
    for _ in range(8):
        try:
            store.reconcile()
            mirror(core, store, acked, end // 2)
            mirror(core, store, acked, end)
            return paused
        except (DiskFullError, OSError, DamageError):  # what a session dies of, and the next goes on
            assert acked[0] <= store.core.writer.durable
            paused += 1
        hands = disk.workers
        assert isinstance(hands, LoopWorkers)
        for work in list(hands.waiting):
            hands._do(work)
    raise AssertionError("the replica does not go on")


def _store(disk: SimDisk) -> ReplicaStore:
    disk.workers = LoopWorkers()
    return ReplicaStore("sim", _SMALL, storage=disk, random_bytes=lambda count: bytes(range(count)))


def _good_run(core: BlockingLog) -> list[str]:
    disk = SimDisk()
    store = _store(disk)
    assert _mirrored(core, disk, store, [0]) == 0
    store.close()
    return disk.kinds


@pytest.mark.parametrize("fault", ["enospc", "edquot", "short"])
def test_wherever_a_write_finds_no_room_the_replica_waits_and_goes_on(
    source: BlockingLog, fault: Fault
) -> None:
    """Whichever write is refused: no half of a frame stays, what was acknowledged is there, and in the end
    everything is, byte for byte.
    """
    paused = 0
    for call, kind in enumerate(_good_run(source), 1):
        if kind not in ("write", "create"):
            continue
        disk, acked = SimDisk(), [0]
        disk.plan = {call: fault}
        try:
            store = _store(disk)
        except OSError:
            continue  # at open: nothing was acknowledged
        paused += _mirrored(source, disk, store, acked)
        assert acked[0] == source.stats().durable_sequence, (call, fault)
        assert store.core.writer.failed is None
        assert store.diverged == []
        store.close()
        disk.workers = None
        found = recover(disk, RecoveryMode.TAIL)
        assert (found.damage, found.torn) == ([], []), (call, fault)
        for entry in catalog(source):
            data = disk.open(entry.name).pread(entry.position, 0)
            assert data == source.directory.open(entry.name).pread(entry.position, 0), (call, fault)
    assert paused > 5


@pytest.mark.parametrize("fault", ["enospc", "edquot", "eio"])
def test_a_sync_of_frames_that_fails_stops_the_replica_for_good(source: BlockingLog, fault: Fault) -> None:
    """As in every log: what is on the disk is not known any more."""
    disk = SimDisk()
    store = _store(disk)
    mirror(source, store, [0], source.stats().end_offset // 2)
    entry = next(one for one in catalog(source) if one.end_offset > store.head.end_offset)
    after = [one for one in pieces(source, entry, 1 << 62) if one.offset >= store.head.end_offset]
    disk.plan = {disk.calls + 2: fault}
    with pytest.raises(LogFailedError):
        store.apply(after[:1])
    assert disk.kinds[-1] == "sync"
    with pytest.raises(LogFailedError):
        store.apply(after[:1])


def test_whole_frames_before_the_one_that_found_no_room_stay(source: BlockingLog) -> None:
    """Several frames have one sync: those that were written whole are synced before the log waits, and none
    is written twice.
    """
    disk = SimDisk()
    store = _store(disk)
    store.accept(_welcome(source))
    frames = pieces(source, catalog(source)[0], 1 << 62)
    store.apply(frames[:1])
    disk.plan = {disk.calls + 2: "short"}
    with pytest.raises(DiskFullError):
        store.apply(frames[1:4])
    assert store.core.writer.durable == frames[1].frame.last_sequence
    assert store.head.end_offset == frames[1].end


def _welcome(core: BlockingLog) -> Welcome:
    return ServedLog(core, None, bytes(16)).welcome()
