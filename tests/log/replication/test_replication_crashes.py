"""A replica on a disk that fails at any call and forgets what was not synced loses nothing acknowledged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress

import pytest

from lorogo_log import BlockingLog, LogOptions, MemoryStorage
from lorogo_log.errors import LogError
from lorogo_log.format.batch import Batch
from lorogo_log.format.layout import SEGMENT_HEADER_BYTES
from lorogo_log.replication.replica_rules import Piece, WantedSegment, plan
from lorogo_log.replication.replica_store import ReplicaStore
from lorogo_log.storage.segment import Segment
from lorogo_log.transfer.catalog import catalog
from lorogo_log.transfer.segment_transfer import ServedLog
from lorogo_log.transfer.wire import SegmentEntry
from tests.log.replicas import items
from tests.log.simdisk import SimDisk

OPTIONS = LogOptions(segment_bytes=8192, ahead_bytes=1024)


@pytest.fixture(scope="module")
def source() -> Iterator[BlockingLog]:
    with BlockingLog("source", OPTIONS, storage=MemoryStorage()) as core:
        for _ in range(16):
            core.append_many(items(5, 300))
        while len([entry for entry in catalog(core) if not entry.sealed]) > 1:
            pass  # the background seals what was rotated
        yield core


def pieces(core: BlockingLog, entry: SegmentEntry, upto: int) -> list[Piece]:
    """The frames of a segment up to a log offset."""
    segment = Segment.open(core.directory, entry.name)
    frames = segment.frames(end=entry.position)
    result: list[Piece] = []
    while isinstance(batch := frames.next(), Batch) and batch.header.offset < upto:
        first = batch.position == SEGMENT_HEADER_BYTES
        raw = batch.header.pack() + batch.stored
        result.append(Piece(batch.header, raw, segment.header if first else None))
    return result


def mirror(core: BlockingLog, store: ReplicaStore, acked: list[int], upto: int) -> None:
    """What a session does, without a network: compare, fetch, mirror, acknowledge."""
    store.accept(ServedLog(core, None, bytes(16)).welcome())
    for _ in range(10):
        local, remote = store.catalog(), [entry for entry in catalog(core) if entry.first_offset < upto]
        todo = plan(local, remote)
        assert not todo.aside
        for wanted in todo.fetch:
            if wanted.entry.end_offset > upto:
                _frames(core, store, wanted.entry, local, acked, upto)
                return
            _fetch(core, store, wanted)
            acked[0] = store.core.writer.durable
        if not todo.fetch:
            if todo.follow is not None:
                _frames(core, store, todo.follow, local, acked, upto)
            return


def _fetch(core: BlockingLog, store: ReplicaStore, wanted: WantedSegment) -> None:
    entry = wanted.entry
    at = store.resume(entry, wanted.have)
    data = core.directory.open(entry.name).pread(entry.size, 0)
    part = store.part(entry)
    part.pwrite([data[at:]], at)
    part.close()
    try:
        store.install(entry)
    except LogError:
        store.discard(entry)  # a crash left something else in it
        raise


def _frames(
    core: BlockingLog,
    store: ReplicaStore,
    entry: SegmentEntry,
    local: list[SegmentEntry],
    acked: list[int],
    upto: int,
) -> None:
    active = store.core.writer.engine.active.header
    if active is None and local and local[-1].first_sequence == entry.first_sequence:
        store.adopt(local[-1])
    for piece in pieces(core, entry, upto):
        if piece.offset >= store.head.end_offset:
            acked[0] = store.apply([piece])


def scenario(core: BlockingLog, disk: SimDisk, acked: list[int], parts: tuple[int, ...] = (5, 2, 1)) -> None:
    """Mirror a part, restart in the middle of a segment, mirror more, restart, mirror the rest."""
    end = core.stats().end_offset
    for upto in (end // part for part in parts):
        store = ReplicaStore("sim", OPTIONS, storage=disk, random_bytes=lambda count: bytes(range(count)))
        try:
            mirror(core, store, acked, upto)
        finally:
            store.close()


def contents(core: BlockingLog, upto: int) -> list[tuple[int, bytes]]:
    with core.cursor() as cursor:
        return [
            (record.sequence, record.payload)
            for batch in cursor
            for record in batch.records()
            if record.sequence <= upto
        ]


def test_the_scenario_without_faults_gives_equal_files(source: BlockingLog) -> None:
    """Mirrored over two restarts: every segment equals the source's."""
    disk, acked = SimDisk(), [0]
    scenario(source, disk, acked)
    assert acked[0] == source.stats().durable_sequence
    for entry in catalog(source):
        data = disk.open(entry.name).pread(1 << 20, 0)
        assert data[: entry.position] == source.directory.open(entry.name).pread(entry.position, 0)
    assert disk.calls > 50


@pytest.mark.parametrize("fault", ["eio", "enospc"])
@pytest.mark.parametrize("seed", range(2))
def test_a_replica_killed_at_any_call_of_its_disk_loses_nothing(
    source: BlockingLog, fault: str, seed: int
) -> None:
    """At each call the disk fails, then the machine: what was acknowledged is there; it catches up again."""
    counting = SimDisk()
    scenario(source, counting, [0])
    for call in range(1 + seed, counting.calls, 2):
        rng = random.Random(call * 7 + seed)
        disk, acked = SimDisk(), [0]
        disk.plan[call] = fault  # type: ignore[assignment]
        with suppress(LogError, OSError):
            scenario(source, disk, acked)
        disk.crash(rng)
        check = BlockingLog("sim", LogOptions(segment_bytes=8192, mirror=True), storage=disk)
        have = contents(check, acked[0])
        check.close()
        assert have == contents(source, acked[0]), f"call {call} ({counting.kinds[call - 1]})"
        for _ in range(3):
            try:
                scenario(source, disk, acked, parts=(1,))
                break
            except LogError:
                continue
        assert acked[0] == source.stats().durable_sequence
