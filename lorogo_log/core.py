"""The log for threads and tools; `lorogo_log.log` wraps it for asyncio."""

from __future__ import annotations

import os
import time as clock
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self

from lorogo_log import limits
from lorogo_log.checks import U32_MAX, check_keys, check_time, kind, seconds, whole, whole_or_none
from lorogo_log.cursor import Cursor
from lorogo_log.errors import (
    DamageError,
    FormatError,
    LockedError,
    ReplicaError,
    StaleEpochError,
    TornError,
)
from lorogo_log.format import names
from lorogo_log.format.batch import Batch, EncodedFrame, LogPosition, Record, pack_value, pack_values
from lorogo_log.format.layout import SEGMENT_HEADER_BYTES, Bytes, SegmentHeader
from lorogo_log.reader import OnDamage, Reader, SegmentInfo
from lorogo_log.recovery import sealed_segments
from lorogo_log.recovery.recovery import RecoveredLog, RecoveryMode, recover
from lorogo_log.recovery.sealed_segments import CleanFunction, CleaningResult, SegmentReport
from lorogo_log.storage.disk import FileStorage, Lock, Storage
from lorogo_log.storage.replica_state import load_state
from lorogo_log.write.engine import LogHead, SegmentAppender
from lorogo_log.write.policy import Sync, WriteFailure
from lorogo_log.write.turn_writer import TurnWriter
from lorogo_log.write.writer import LogWriter

_GROUP, _STOP = Sync.group(), WriteFailure.stop()


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Options of a log, checked when they are created."""

    sync: Sync = _GROUP
    segment_bytes: int = limits.SEGMENT_BYTES
    queue_bytes: int = limits.QUEUE_BYTES
    queue_items: int = limits.QUEUE_ITEMS
    batch_bytes: int = limits.BATCH_BYTES
    ahead_bytes: int = limits.AHEAD_BYTES
    recovery: RecoveryMode = RecoveryMode.TAIL
    failure: WriteFailure = _STOP
    #: None: one above the newest in the log, durable with the first append. A given one is durable at open
    epoch: int | None = None
    #: a replica: keeps the epoch found at open; only `mirror` appends
    mirror: bool = False
    #: None: the log's own, 0 for a new one
    partition: int | None = None
    compress: bool = False
    lock_seconds: float = 0.0
    #: 16 bytes; None: the log's own, or random ones
    log_id: bytes | None = None
    #: True: a new log's id is durable once the log is open; False: with the first append
    durable_id: bool = False

    def __post_init__(self) -> None:
        kind("sync", self.sync, Sync, "Sync.group()")
        kind("recovery", self.recovery, RecoveryMode, "RecoveryMode.TAIL")
        kind("failure", self.failure, WriteFailure, "WriteFailure.stop()")
        whole("segment_bytes", self.segment_bytes, least=4096)
        whole("queue_bytes", self.queue_bytes, least=1)
        whole("queue_items", self.queue_items, least=1)
        whole("batch_bytes", self.batch_bytes, least=1, most=limits.BODY_BYTES_MAX // 2)
        whole("ahead_bytes", self.ahead_bytes, least=0)
        whole_or_none("epoch", self.epoch, least=0, most=limits.EPOCH_MAX)
        whole_or_none("partition", self.partition, least=0, most=U32_MAX)
        seconds("lock_seconds", self.lock_seconds)
        if self.log_id is not None and len(self.log_id) != 16:
            raise ValueError("log_id must be 16 bytes")
        if self.compress and find_spec("zstandard") is None:
            raise ValueError("compress=True needs the zstandard package")


@dataclass(frozen=True, slots=True)
class LogStats:
    """Counters and positions of a log."""

    next_sequence: int
    durable_sequence: int
    end_offset: int
    epoch: int
    queue_records: int
    queue_bytes: int
    commits: int
    syncs: int
    #: number of syncs that took between 2**(i-1) and 2**i microseconds
    sync_us_counts: tuple[int, ...]
    sync_seconds: float
    rotations: int
    appended_records: int
    appended_bytes: int
    damage: int
    #: torn tails cut at open
    torn: int
    failed: str | None
    #: the reason why the log waits for space on a full disk; None if it does not
    full: str | None


class BlockingLog:
    """A log opened for appending: one per directory, across processes. Every call may block."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: LogOptions | None = None,
        *,
        storage: Storage | None = None,
        on_damage: Callable[[DamageError], None] | None = None,
        forward: Callable[[int], Record | None] | None = None,
        forward_bytes: Callable[[int, int], bytes | None] | None = None,
        now: Callable[[], int] | None = None,
        random_bytes: Callable[[int], bytes] | None = None,
    ) -> None:
        """`now`, `random_bytes`: None means those of the storage's workers, or of the operating system."""
        self.options = options or LogOptions()
        storage = storage or FileStorage()
        workers = self._workers = storage.workers
        self.now = now or (workers.now if workers else clock.time_ns)
        random_bytes = random_bytes or (workers.random_bytes if workers else os.urandom)
        self._on_damage = on_damage
        self.damage: list[DamageError] = []
        self.directory = storage.directory(path, create=True)
        self._lock: Lock | None = self.directory.lock(
            names.APPEND_LOCK, exclusive=True, wait_seconds=self.options.lock_seconds
        )
        try:
            self.recovered = recover(
                self.directory,
                self.options.recovery,
                log_id=self.options.log_id,
                segment_bytes=self.options.segment_bytes,
            )
            self.writer = self._writer(self.recovered, random_bytes)
        except Exception:
            self._unlock()
            raise
        self.reader = Reader(
            self.directory,
            durable=lambda: self.writer.durable,
            hint=self._hint,
            on_damage=self._damaged,
            forward=forward,
            forward_bytes=forward_bytes,
        )
        #: torn tails cut at open: reported, although there is nothing to repair
        self.torn: list[TornError] = self.recovered.torn
        try:
            for found in self.recovered.damage:
                self._damaged(found)
            for torn in self.torn:
                if on_damage is not None:
                    on_damage(torn)
        except Exception:  # on_damage raised: do not leave the log open without an owner
            self.close()
            raise

    def _writer(self, recovered: RecoveredLog, random_bytes: Callable[[int], bytes]) -> LogWriter:
        options, head = self.options, recovered.head
        #: this opening's id; the epoch and end offset found at open
        self.incarnation = random_bytes(16)
        self.prior = (head.epoch, head.end_offset)
        promised = load_state(self.directory)  # of a replica, or of an earlier coordinator
        if options.epoch is not None and options.epoch < head.epoch:
            raise StaleEpochError(
                f"{self.directory.path}: epoch {options.epoch} is older than {head.epoch},"
                " a newer writer has written"
            )
        if not options.mirror and options.epoch is not None and promised and options.epoch <= promised.epoch:
            raise StaleEpochError(
                f"{self.directory.path}: epoch {promised.epoch} was promised to a coordinator,"
                f" and {options.epoch} is not above it"
            )
        if options.log_id and recovered.log_id and options.log_id != recovered.log_id:
            raise FormatError(f"{self.directory.path} belongs to another log")
        if None not in {options.partition, recovered.partition} and options.partition != recovered.partition:
            raise FormatError(
                f"{self.directory.path} is partition {recovered.partition}, not {options.partition}"
            )
        newer = not options.mirror and options.epoch is not None and options.epoch > head.epoch
        if not options.mirror:
            following = promised.next_epoch(head.epoch) if promised else head.epoch + 1
            head.epoch = following if options.epoch is None else options.epoch
            if head.epoch > limits.EPOCH_MAX:
                newest = max(self.prior[0], promised.epoch if promised else 0)
                raise StaleEpochError(
                    f"{self.directory.path}: no epoch above {newest} is left:"
                    " pass an epoch, or create a new log"
                )
        workers = self._workers
        engine = SegmentAppender(
            self.directory,
            head,
            log_id=recovered.log_id or options.log_id or recovered.damaged_log_id or random_bytes(16),
            partition=(recovered.partition if options.partition is None else options.partition) or 0,
            segment_bytes=options.segment_bytes,
            ahead_bytes=options.ahead_bytes,
            monotonic=workers.monotonic if workers else clock.perf_counter,
        )
        # a given epoch fences older writers, whatever happens next; a durable id may be announced at once
        if newer or (options.durable_id and recovered.log_id is None):
            engine.commit((), (), (), sync=True)
        make = partial(TurnWriter, workers=workers) if workers else LogWriter
        return make(
            engine,
            sync=options.sync,
            failure=options.failure,
            queue_bytes=options.queue_bytes,
            queue_items=options.queue_items,
            batch_bytes=options.batch_bytes,
            after_seal=self._compress if options.compress else None,
        )

    def _compress(self, name: str) -> None:
        with suppress(LockedError):  # a cursor still reads it: leave the segment as it is
            sealed_segments.compress(self.directory, name, wait_seconds=0)

    def _hint(self, segment: int, sequence: int) -> int:
        """Return the file position from which to search the segment being written."""
        active = self.writer.engine.active
        if active.header is None or active.header.first_sequence != segment:
            return SEGMENT_HEADER_BYTES
        block = bisect_right(active.index.sequences, sequence) - 1
        return active.index.positions[block] if block >= 0 else SEGMENT_HEADER_BYTES

    def _damaged(self, found: DamageError) -> None:
        if not any(known.path == found.path and known.offset == found.offset for known in self.damage):
            self.damage.append(found)
            if self._on_damage is not None:
                self._on_damage(found)

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, wait_seconds: float = limits.CLOSE_SECONDS) -> None:
        """Write queued records, seal, and release the lock. Idempotent.

        Raises LogFailedError if the disk fails meanwhile; keeps the lock while a thread may still write.
        """
        failed = self.writer.failed
        first = not self.writer.closed
        try:
            self.writer.close(wait_seconds)
        finally:
            if self.writer.ended:
                self._unlock()
        if first and failed is None and self.writer.failed is not None:
            raise self.writer.failed

    # -- append -------------------------------------------------------------------------------------

    def append(
        self, value: Any, *, key: bytes = b"", ts: int | None = None, wait_seconds: float = 60.0
    ) -> int:
        """Append one record; return its sequence once it is durable under the sync policy."""
        self._refuse_replica()
        check_keys((key,))
        time = check_time(self.now() if ts is None else ts)
        return self.writer.append([key], [pack_value(value)], [time], wait_seconds=wait_seconds)[0]

    def append_many(
        self, items: Iterable[tuple[bytes, Any]], *, ts: int | None = None, wait_seconds: float = 60.0
    ) -> range:
        """Append records, all or none of which survive a crash; return their sequences."""
        self._refuse_replica()
        keys, values = columns(items)
        if not values:
            return range(0)
        times = [check_time(self.now() if ts is None else ts)] * len(values)
        return self.writer.append(keys, values, times, wait_seconds=wait_seconds)

    def fence(self, epoch: int, wait_seconds: float = 60.0) -> None:
        """Take over with a newer epoch; durable when this returns."""
        self.writer.fence(epoch).result(wait_seconds)

    def flush(self, wait_seconds: float = 60.0) -> None:
        """Sync all earlier appends, whatever the policy."""
        self.writer.flush().result(wait_seconds)

    def _refuse_replica(self) -> None:
        if self.options.mirror:
            raise ReplicaError(f"{self.directory.path} is a replica: append at its coordinator")

    def mirror(
        self, header: SegmentHeader | None, frames: Sequence[tuple[EncodedFrame, set[bytes]]]
    ) -> Future[Any]:
        """Append a coordinator's frames unchanged, on a replica; done when they are durable."""
        return self.writer.mirror(header, frames)

    # -- read ---------------------------------------------------------------------------------------

    def cursor(
        self,
        *,
        from_seq: int | None = None,
        from_time: int | None = None,
        from_pos: LogPosition | None = None,
        key: bytes | None = None,
    ) -> Cursor:
        """Return a cursor over durable records."""
        return self.reader.cursor(from_seq=from_seq, from_time=from_time, from_pos=from_pos, key=key)

    def read(
        self,
        *,
        from_seq: int | None = None,
        from_time: int | None = None,
        from_pos: LogPosition | None = None,
        key: bytes | None = None,
        damaged: OnDamage = "raise",
    ) -> Iterator[Batch]:
        """Yield batches up to the end of the durable log."""
        return self.reader.read(
            from_seq=from_seq, from_time=from_time, from_pos=from_pos, key=key, damaged=damaged
        )

    def lookup(self, sequence: int) -> Record:
        """Return one record, verified."""
        return self.reader.lookup(sequence)

    def lookup_bytes(self, offset: int, size: int) -> bytes:
        """Return bytes by log offset, verified."""
        return self.reader.lookup_bytes(offset, size)

    # -- maintain -----------------------------------------------------------------------------------

    def rotate(self, wait_seconds: float = 60.0) -> str | None:
        """Begin a new segment; return the name of the finished one, None if it was empty.

        When this returns, every segment but the new one is sealed, so `clean` and `expire` include it.
        """
        name: str | None = self.writer.rotate().result(wait_seconds)
        return name

    def clean(self, function: CleanFunction) -> CleaningResult:
        """Drop records from sealed segments; damaged segments are reported and skipped."""
        if self.options.mirror:
            raise ReplicaError(f"{self.directory.path} is a replica: clean at its coordinator")
        return sealed_segments.clean(self.directory, function, on_damage=self._damaged)

    def expire(self, *, before: int | None = None, keep_bytes: int | None = None) -> list[str]:
        """Remove the oldest sealed segments: wholly before a time (ns), or beyond `keep_bytes` of data."""
        before = whole_or_none("before", before)
        keep_bytes = whole_or_none("keep_bytes", keep_bytes, least=0)
        active = self.writer.engine.active
        return sealed_segments.expire(
            self.directory, before=before, keep_bytes=keep_bytes, written={active.name: active.position}
        )

    def scrub(self) -> Iterator[SegmentReport]:
        """Read and check every segment but the one being written; damage is reported."""
        for report in sealed_segments.scrub(self.directory, open_name=self.writer.engine.active.name):
            for found in report.damage:
                self._damaged(found)
            yield report

    def install(self, name: str, pieces: Iterable[Bytes]) -> SegmentReport:
        """Replace a damaged segment by one fetched from a replica."""
        if name == self.writer.engine.active.name:
            raise ValueError(f"{name} is being written: rotate first")
        report = sealed_segments.install(self.directory, name, pieces, head=self._head)
        self.forget_damage(name)
        return report

    def _head(self) -> LogHead:
        """Return a consistent snapshot of the log's end while the writer continues."""
        while True:
            active = self.writer.engine.active
            began = active.header is not None
            head = replace(self.writer.engine.head)
            # the first commit of a segment changes several fields: repeat the read if it may have happened
            if began or active.header is None:
                return head

    def forget_damage(self, name: str) -> None:
        """Drop the reported damage of a segment that was repaired."""
        path = f"{self.directory.path}/{name}"
        self.damage = [known for known in self.damage if known.path != path]

    def segments(self) -> list[SegmentInfo]:
        return self.reader.segments()

    def active_segments(self) -> list[str]:
        return self.writer.active_segments()

    def queue_length(self) -> int:
        return self.writer.queue_length()

    def stats(self) -> LogStats:
        writer = self.writer
        head = writer.engine.head
        return LogStats(
            next_sequence=head.next_sequence,
            durable_sequence=writer.durable,
            end_offset=head.end_offset,
            epoch=writer.epoch,
            queue_records=writer.queue_length(),
            queue_bytes=writer.queue_bytes(),
            commits=writer.commits,
            syncs=writer.syncs,
            sync_us_counts=tuple(writer.engine.sync_us_counts),
            sync_seconds=writer.engine.sync_seconds,
            rotations=writer.rotations,
            appended_records=writer.appended,
            appended_bytes=writer.appended_bytes,
            damage=len(self.damage),
            torn=len(self.torn),
            failed=str(writer.failed) if writer.failed else None,
            full=str(writer.full) if writer.full else None,
        )


def columns(items: Iterable[tuple[bytes, Any]]) -> tuple[list[bytes], list[bytes]]:
    """Return (keys, packed values) of pairs; the writer checks the keys."""
    pairs = list(items)
    if not pairs:
        return [], []
    try:
        keys = [key for key, _ in pairs]
    except (TypeError, ValueError):
        raise TypeError("append_many takes pairs of a key and a value") from None
    return keys, pack_values([value for _, value in pairs])
