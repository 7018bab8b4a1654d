"""The log for asyncio: the only module here that imports asyncio for appends and reads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from lorogo_log import limits
from lorogo_log.checks import check_time
from lorogo_log.core import BlockingLog, LogOptions, LogStats, columns
from lorogo_log.cursor import Cursor
from lorogo_log.errors import (
    CorruptionError,
    DamageError,
    End,
    LogClosedError,
    LogError,
    QueueFullError,
)
from lorogo_log.format.batch import Batch, LogPosition, Record, pack_value
from lorogo_log.format.layout import Bytes
from lorogo_log.reader import OnDamage, SegmentInfo, check_damaged
from lorogo_log.recovery.recovery import RecoveryMode
from lorogo_log.recovery.sealed_segments import CleanFunction, CleaningResult, SegmentReport
from lorogo_log.storage.disk import Storage
from lorogo_log.write.policy import Sync, WriteFailure
from lorogo_log.write.queue import Waiting
from lorogo_log.write.writer import LogWriter

_BATCHES_PER_HOP = 64


class LoopWaker:
    """Waiters of one event loop, woken with one call per batch."""

    def __init__(self, loop: asyncio.AbstractEventLoop, writer: LogWriter) -> None:
        self.loop = loop
        self._writer = writer
        self.space_lock = asyncio.Lock()  # FIFO order among appends that wait for queue space
        self._space: asyncio.Event | None = None
        self._followers: set[asyncio.Event] = set()
        self._wake_scheduled = False

    def wake_soon(self, wake: Callable[[], None]) -> None:
        """Wake the writer at the end of this iteration of the loop, for all its appends.

        Woken at once, the writer would only wait for the interpreter lock.
        """
        if not self._wake_scheduled:
            self._wake_scheduled = True
            self.loop.call_soon(self._wake_writer, wake)

    def _wake_writer(self, wake: Callable[[], None]) -> None:
        self._wake_scheduled = False
        wake()

    def wake(self, waiting: list[Waiting], first_sequence: int, error: LogError | None) -> None:
        """Resolve the waiters of a batch. Called by the writer's thread."""
        with suppress(RuntimeError):  # the loop is closed: no task waits there
            self.loop.call_soon_threadsafe(self._resolve, waiting, first_sequence, error)

    def _resolve(self, waiting: list[Waiting], first: int, error: LogError | None) -> None:
        for future, start, count in waiting:
            if future.done():
                continue  # cancelled: the record is written nevertheless
            if error is not None:
                future.set_exception(error)
                future.exception()  # mark it retrieved: a caller of many appends may await only one
            elif count:
                future.set_result(range(first + start, first + start + count))
            else:
                future.set_result(first + start)
        if self._space is not None:
            self._space.set()
        for event in self._followers:
            event.set()

    async def wait_for_space(self, put: Callable[[], None]) -> None:
        """Retry `put` until the queue has space."""
        async with self.space_lock:
            self._space = asyncio.Event()
            self._writer.watch(self)
            try:
                while True:
                    self._space.clear()
                    try:
                        put()
                        return
                    except QueueFullError:
                        await self._space.wait()
            finally:
                self._space = None
                self._unwatch()

    def follow(self) -> asyncio.Event:
        """Return an event that is set after each batch."""
        event = asyncio.Event()
        self._followers.add(event)
        self._writer.watch(self)
        return event

    def unfollow(self, event: asyncio.Event) -> None:
        self._followers.discard(event)
        self._unwatch()

    def _unwatch(self) -> None:
        if self._space is None and not self._followers:
            self._writer.unwatch(self)


class Log:
    """A log opened for appending, for asyncio.

    ```python
    async with Log.open(path) as log:
        sequence = await log.append({"x": 1}, key=b"doc-1")
        async for batch in log.read(from_seq=sequence):
            ...
    ```
    """

    def __init__(self, opener: Callable[[], BlockingLog]) -> None:
        self._opener = opener
        self._core: BlockingLog | None = None
        self._wakers: dict[asyncio.AbstractEventLoop, LoopWaker] = {}

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        sync: Sync | None = None,
        segment_bytes: int = limits.SEGMENT_BYTES,
        queue_bytes: int = limits.QUEUE_BYTES,
        queue_items: int = limits.QUEUE_ITEMS,
        storage: Storage | None = None,
        recovery: RecoveryMode = RecoveryMode.TAIL,
        failure: WriteFailure | None = None,
        epoch: int | None = None,
        partition: int | None = None,
        compress: bool = False,
        ahead_bytes: int = limits.AHEAD_BYTES,
        lock_seconds: float = 0.0,
        log_id: bytes | None = None,
        durable_id: bool = False,
        on_damage: Callable[[DamageError], None] | None = None,
        forward: Callable[[int], Record | None] | None = None,
        forward_bytes: Callable[[int, int], bytes | None] | None = None,
        now: Callable[[], int] | None = None,
    ) -> Self:
        """Return a log that opens when it is entered.

        `on_damage` (with a CorruptionError, or with a TornError for a tail that was cut), `forward` and
        `forward_bytes` (records and bytes of a replica where this log is damaged) are called from any thread.
        """
        options = LogOptions(
            sync=Sync.group() if sync is None else sync,
            segment_bytes=segment_bytes,
            queue_bytes=queue_bytes,
            queue_items=queue_items,
            ahead_bytes=ahead_bytes,
            recovery=recovery,
            failure=WriteFailure.stop() if failure is None else failure,
            epoch=epoch,
            partition=partition,
            compress=compress,
            lock_seconds=lock_seconds,
            log_id=log_id,
            durable_id=durable_id,
        )
        return cls(
            lambda: BlockingLog(
                path,
                options,
                storage=storage,
                on_damage=on_damage,
                forward=forward,
                forward_bytes=forward_bytes,
                now=now,
            )
        )

    async def __aenter__(self) -> Self:
        opening = asyncio.ensure_future(asyncio.to_thread(self._opener))
        try:
            self._core = await asyncio.shield(opening)
        except asyncio.CancelledError:
            # the thread opens it nevertheless: an abandoned log must not hold the lock
            opening.add_done_callback(_close_unwanted)
            raise
        self._now = self._core.now
        self._put_one = self._core.writer.put_one
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def core(self) -> BlockingLog:
        """The same log without asyncio."""
        if self._core is None:
            raise LogClosedError("the log is not open: use `async with`")
        return self._core

    async def close(self) -> None:
        """Write queued records, seal, and release the lock. Idempotent."""
        if self._core is not None:
            await asyncio.to_thread(self._core.close)

    # -- append -------------------------------------------------------------------------------------

    def _waker(self) -> LoopWaker:
        loop = asyncio.get_running_loop()
        waker = self._wakers.get(loop)
        if waker is None:
            waker = self._wakers[loop] = LoopWaker(loop, self.core.writer)
        return waker

    async def append(
        self, value: Any, *, key: bytes = b"", ts: int | None = None, epoch: int | None = None
    ) -> int:
        """Append one record; return its sequence once it is durable. Waits while the queue is full.

        A cancelled append may still be written.
        """
        waker = self._waker()
        future: asyncio.Future[int] = waker.loop.create_future()
        packed = pack_value(value)
        time = self._now() if ts is None else ts
        if waker.space_lock.locked():
            await waker.wait_for_space(lambda: self._put_one(key, packed, time, waker, future, epoch))
        else:
            try:
                self._put_one(key, packed, time, waker, future, epoch)
            except QueueFullError:
                await waker.wait_for_space(lambda: self._put_one(key, packed, time, waker, future, epoch))
        return await future

    def append_nowait(
        self, value: Any, *, key: bytes = b"", ts: int | None = None, epoch: int | None = None
    ) -> asyncio.Future[int]:
        """As `append`, but raise QueueFullError at once; the future resolves when the record is durable."""
        waker = self._waker()
        if waker.space_lock.locked():
            raise QueueFullError("the queue is full: earlier appends wait for space")
        future: asyncio.Future[int] = waker.loop.create_future()
        self._put_one(key, pack_value(value), self._now() if ts is None else ts, waker, future, epoch)
        return future

    async def append_many(
        self, items: Iterable[tuple[bytes, Any]], *, ts: int | None = None, epoch: int | None = None
    ) -> range:
        """Append records in one frame, all or none of which survive a crash; return their sequences."""
        waker = self._waker()
        keys, values = columns(items)
        if not values:
            return range(0)
        times = [check_time(self._now() if ts is None else ts)] * len(values)
        future: asyncio.Future[range] = waker.loop.create_future()

        def put() -> None:
            self.core.writer.put(keys, values, times, waker, future, epoch=epoch)

        if waker.space_lock.locked():
            await waker.wait_for_space(put)
        else:
            try:
                put()
            except QueueFullError:
                await waker.wait_for_space(put)
        return await future

    async def fence(self, epoch: int) -> None:
        """Take over with a newer epoch; durable when this returns."""
        await asyncio.wrap_future(self.core.writer.fence(epoch))

    async def flush(self) -> None:
        """Sync all earlier appends, whatever the policy."""
        await asyncio.wrap_future(self.core.writer.flush())

    # -- read ---------------------------------------------------------------------------------------

    async def read(
        self,
        *,
        from_seq: int | None = None,
        from_time: int | None = None,
        from_pos: LogPosition | None = None,
        key: bytes | None = None,
        follow: bool = False,
        damaged: OnDamage = "raise",
    ) -> AsyncIterator[Batch]:
        """Yield batches from a sequence, a time or a position; to the end, or following until the log closes.

        A thread reads the files, many batches per call. At damage: raise (the error's `resume` is the
        position of the next good frames), or report it and continue with the rest.
        """
        core = self.core
        waker = self._waker()
        check_damaged(damaged)
        cursor = core.cursor(from_seq=from_seq, from_time=from_time, from_pos=from_pos, key=key)
        event = waker.follow() if follow else None
        hop: asyncio.Future[tuple[list[Batch], LogError | None]] | None = None
        try:
            while True:
                if event is not None:
                    event.clear()
                over = core.writer.closed
                hop = asyncio.ensure_future(asyncio.to_thread(_some, cursor))
                batches, stop = await asyncio.shield(hop)
                for batch in batches:
                    yield batch
                match stop:
                    case None:
                        continue
                    case CorruptionError():
                        core.reader.report(stop)
                        if damaged == "raise":
                            raise stop
                    case End() if batches:
                        continue  # records may have arrived meanwhile
                    case End() if event is not None and not over:
                        if core.writer.failed is not None:
                            raise core.writer.failed
                        await event.wait()
                    case End():
                        return
                    case _:
                        raise stop
        finally:
            if event is not None:
                waker.unfollow(event)
            if hop is None or hop.done():
                cursor.close()
            else:  # cancelled: a thread still reads from it
                hop.add_done_callback(lambda _: cursor.close())

    def lookup(self, sequence: int) -> Record:
        """Return one record, verified. Reads the disk: in a busy loop use `asyncio.to_thread`."""
        return self.core.lookup(sequence)

    def lookup_bytes(self, offset: int, size: int) -> bytes:
        """Return bytes by log offset, verified."""
        return self.core.lookup_bytes(offset, size)

    # -- maintain -----------------------------------------------------------------------------------

    async def rotate(self) -> str | None:
        """Begin a new segment; return the name of the finished one, None if it was empty.

        When this returns, every segment but the new one is sealed, so `clean` and `expire` include it.
        Appends continue meanwhile.
        """
        rotated: Future[str | None] = self.core.writer.rotate()
        return await asyncio.wrap_future(rotated)

    async def expire(self, *, before: int | None = None, keep_bytes: int | None = None) -> list[str]:
        """Remove the oldest sealed segments: wholly before a time (ns), or more than `keep_bytes` in all."""
        return await asyncio.to_thread(self.core.expire, before=before, keep_bytes=keep_bytes)

    async def clean(self, function: CleanFunction) -> CleaningResult:
        """Drop records from sealed segments: those for which `function(segment_path, record)` is True.

        It runs in a thread. Damaged segments are reported and skipped.
        """
        return await asyncio.to_thread(self.core.clean, function)

    async def scrub(self) -> list[SegmentReport]:
        """Read and check every segment but the one being written."""
        return await asyncio.to_thread(lambda: list(self.core.scrub()))

    async def install(self, name: str, pieces: Iterable[Bytes]) -> SegmentReport:
        """Replace a damaged segment by one fetched from a replica."""
        return await asyncio.to_thread(self.core.install, name, pieces)

    def segments(self) -> list[SegmentInfo]:
        """Every segment, in order."""
        return self.core.segments()

    def active_segments(self) -> list[str]:
        """Return the file being written and the one prepared to follow it."""
        return self.core.active_segments()

    def queue_length(self) -> int:
        """Return the number of records that wait to be written."""
        return self.core.queue_length()

    def stats(self) -> LogStats:
        """Return counters and positions of the log."""
        return self.core.stats()


def _close_unwanted(opening: asyncio.Future[BlockingLog]) -> None:
    """Close a log whose opener was cancelled, in its own thread: closing waits for the disk."""
    if not opening.cancelled() and opening.exception() is None:
        unwanted = opening.result()
        if unwanted.writer.threads:
            threading.Thread(target=unwanted.close, name="lorogo-log-close", daemon=True).start()
        else:
            unwanted.close()


def _some(cursor: Cursor) -> tuple[list[Batch], LogError | None]:
    """Read a few batches; also return why there are not more (None: the limit is reached)."""
    batches: list[Batch] = []
    size = 0
    while len(batches) < _BATCHES_PER_HOP and size < limits.READ_BYTES:
        try:
            batch = cursor.next()
        except LogError as stop:
            return batches, stop
        batches.append(batch)
        size += batch.header.frame_bytes
    return batches, None
