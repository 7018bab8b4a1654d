"""The writer: one queue, one thread, one sync for all queued records.

```
 append ─┐                       ┌─ writer thread ─────────────┐      ┌─ background thread ──────────┐
 append ─┼─▶ queue (items, bytes)┤ take all, one frame, one sync├─────▶│ prepare the next, seal the old │
 append ─┘                       └─ wake each loop once ────────┘      └───────────────────────────────┘
```

Rotation, fencing, mirroring and closing use the same queue (queue.py), so they are in order with the records.
The background is sealer.py. Without threads the same work is done in turns (turn_writer.py).
"""

from __future__ import annotations

import logging
import os
import threading
import time as clock
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any
from weakref import WeakSet

from lorogo_log import limits
from lorogo_log.checks import I64_MAX, I64_MIN, check_keys, check_time, whole
from lorogo_log.errors import (
    DiskFullError,
    LogClosedError,
    LogError,
    LogFailedError,
    QueueFullError,
    StaleEpochError,
    TooLargeError,
)
from lorogo_log.format.batch import EncodedFrame
from lorogo_log.format.layout import SegmentHeader
from lorogo_log.storage.disk import DiskFull
from lorogo_log.write.engine import SegmentAppender
from lorogo_log.write.policy import Sync, WriteFailure
from lorogo_log.write.queue import (
    COLUMN_BYTES,
    AppendedRecords,
    AppendWaker,
    Deferred,
    DirectWaker,
    PendingFrame,
    Waker,
    WriterCommand,
)
from lorogo_log.write.sealer import Sealer

_log = logging.getLogger(__name__)


class LogWriter:
    """Owns the engine and its two threads."""

    threads = True

    def __init__(
        self,
        engine: SegmentAppender,
        *,
        sync: Sync,
        failure: WriteFailure,
        queue_bytes: int = limits.QUEUE_BYTES,
        queue_items: int = limits.QUEUE_ITEMS,
        batch_bytes: int = limits.BATCH_BYTES,
        after_seal: Callable[[str], None] | None = None,
        monotonic: Callable[[], float] = clock.monotonic,
    ) -> None:
        self.engine = engine
        self._sync = sync
        self._alone = sync.kind == "always"
        self._failure = failure
        self._queue_bytes = queue_bytes
        self._queue_items = queue_items
        self._batch_bytes = batch_bytes
        self._monotonic = monotonic

        self._lock = threading.Lock()
        self._space = threading.Condition(self._lock)
        self._wakeups: SimpleQueue[None] = SimpleQueue()  # one token for each sleep of the writer
        self._queue: deque[PendingFrame | WriterCommand] = deque()
        self._bytes = 0
        self._items = 0
        self._commands = 0
        self._idle = False
        self._inline = False  # a caller's thread does the writer's work
        self._timed = False  # the writer's thread sleeps with a timeout
        self._closing = False
        self._error: LogFailedError | None = None
        self._full: DiskFullError | None = None  # the log waits for space on the disk
        self._found_full: DiskFull | None = None  # set by the background; the writer's thread acts on it
        self._check_space_at = 0.0  # the time of the next check for space
        self._watchers: set[Waker] = set()
        self._direct = DirectWaker()

        self._sealer = Sealer(
            engine,
            failed=lambda: self._error,
            fail=self._fail,
            full=None if failure.full is None else self._on_full,
            after_seal=after_seal,
        )

        #: the last sequence visible to readers in this process
        self.durable = engine.head.next_sequence - 1
        self.epoch = engine.head.epoch
        #: the epoch of a newer writer, once known
        self.replaced: int | None = None
        self.commits = self.syncs = self.rotations = self.appended = self.appended_bytes = 0
        self._dirty = False
        self._synced_at = monotonic()

        self._start()
        _LIVE.add(self)

    def _start(self) -> None:
        self._background = threading.Thread(
            target=self._sealer.run, name="lorogo-log-background", daemon=True
        )
        self._thread = threading.Thread(target=self._run, name="lorogo-log-writer", daemon=True)
        self._background.start()
        self._thread.start()

    # -- any thread ------------------------------------------------------------------------------

    def put(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        times: Sequence[int],
        waker: AppendWaker,
        token: Any,
        *,
        epoch: int | None = None,
    ) -> None:
        """Put records into the queue, or raise at once (full, too large, stale, closed, failed).

        The caller has checked the times (`check_time`).
        """
        self._put(AppendedRecords(keys, values, times), waker, token, epoch)

    def _put(self, many: AppendedRecords, waker: AppendWaker, token: Any, epoch: int | None = None) -> None:
        with self._lock:
            pending = self._admit(len(many.values), many.size, epoch)
            waiting = (token, len(pending.values), len(many.values))
            pending.waiters.setdefault(waker, []).append(waiting)
            pending.add(many)
            idle = self._idle
        if idle:
            waker.wake_soon(self.wake_thread)

    def put_one(
        self, key: bytes, value: bytes, time: int, waker: AppendWaker, token: Any, epoch: int | None = None
    ) -> None:
        """`put` for one record."""
        if type(key) is not bytes or type(time) is not int or not I64_MIN <= time <= I64_MAX:
            check_keys((key,))
            check_time(time)
        size = len(value) + len(key) + COLUMN_BYTES
        with self._lock:
            pending = self._admit(1, size, epoch)
            values = pending.values
            waiters = pending.waiters.get(waker)
            if waiters is None:
                waiters = pending.waiters[waker] = []
            waiters.append((token, len(values), 0))
            pending.keys.append(key)
            pending.key_sizes.append(len(key))
            pending.distinct.add(key)
            values.append(value)
            pending.value_sizes.append(len(value))
            pending.times.append(time)
            pending.size += size
            idle = self._idle
        if idle:
            waker.wake_soon(self.wake_thread)

    def _admit(self, count: int, size: int, epoch: int | None) -> PendingFrame:
        """Return the batch to join; with the lock held."""
        if self._closing or self._error is not None or self._full is not None or self.replaced is not None:
            raise self._refusal()
        if epoch is not None and epoch != self.epoch:
            if whole("epoch", epoch) < self.epoch:
                raise StaleEpochError(
                    f"epoch {epoch} is older than {self.epoch}: a newer writer has taken over"
                )
            raise ValueError(f"epoch {epoch} is newer than {self.epoch}: fence first")
        if size > limits.BODY_BYTES_MAX - 64:
            raise TooLargeError(f"{size} bytes in one append, at most {limits.BODY_BYTES_MAX - 64}")
        if self._items and (
            self._items + count > self._queue_items or self._bytes + size > self._queue_bytes
        ):
            raise QueueFullError(f"{self._items} records, {self._bytes} bytes wait to be written")
        self._items += count
        self._bytes += size
        if self._queue and not self._alone:
            last = self._queue[-1]
            if isinstance(last, PendingFrame) and last.size + size <= self._batch_bytes:
                return last
        pending = PendingFrame()
        self._queue.append(pending)
        return pending

    def wake_thread(self) -> None:
        """Wake the writer's thread if it sleeps."""
        with self._lock:
            if self._idle:
                self._wake_thread()

    def _wake_thread(self) -> None:
        """Wake the sleeping writer's thread; with the lock held.

        A token in a queue instead of a condition: the thread wakes without waiting for the lock.
        """
        self._idle = False
        self._wakeups.put(None)

    def _has_work(self) -> bool:
        """Return True if the writer's thread has a reason to wake up; with the lock held."""
        waits = self._full is not None or self._found_full is not None
        return bool(self._queue) or self._closing or self._error is not None or waits

    def _refusal(self) -> LogError:
        """Return the error that refuses every entry now, if any."""
        if self._error is not None:
            return self._error
        if self._full is not None and not self._closing:
            return self._full
        if self._closing or self.replaced is None:
            return LogClosedError("the log is closed")
        return StaleEpochError(
            f"epoch {self.epoch} is older than {self.replaced}: another coordinator took over, append there"
        )

    def append(
        self, keys: Sequence[bytes], values: Sequence[bytes], times: Sequence[int], *, wait_seconds: float
    ) -> range:
        """Append from a thread: wait for queue space, then for the disk."""
        many = AppendedRecords(keys, values, times)
        if (alone := self._append_inline(many)) is not None:
            return alone
        deadline = self._monotonic() + wait_seconds
        token: Future[range] = Future()
        while True:
            try:
                self._put(many, self._direct, token)
                break
            except QueueFullError:
                left = deadline - self._monotonic()
                with self._lock:
                    self._space.wait(max(0.0, min(left, 1.0)))
                if self._monotonic() >= deadline:
                    raise
        return token.result(max(0.0, deadline - self._monotonic()))

    def _append_inline(self, many: AppendedRecords) -> range | None:
        """Do the writer's work in the caller's thread if the queue is empty and the writer's thread sleeps.

        The caller waits for the disk anyway; this saves two thread switches.
        """
        if not self._can_append_inline():
            return None
        mine = PendingFrame()
        mine.add(many)
        inline = whole = False
        first: int | None = None
        try:
            with self._lock:
                if not self._can_append_inline():
                    return None
                self._admit(len(many.values), many.size, None)
                self._queue.clear()
                self._idle = False
                self._inline = inline = True
            first = self._commit(mine)
            whole = True
        finally:
            if inline:
                self._end_inline(None if whole else mine)
        if first is None:
            raise self._refusal()
        return range(first, first + len(many.values))

    def _can_append_inline(self) -> bool:
        """Return True if the writer's thread sleeps and has no reason to wake up."""
        return self._idle and not self._has_work()

    def _end_inline(self, interrupted: PendingFrame | None) -> None:
        """End the writer's work in the caller's thread, also after an interruption (Ctrl-C).

        After an interruption the written part of the frame is unknown: going on would use sequences twice.
        """
        if interrupted is not None:
            self._fail(LogFailedError("the log has stopped: an append was interrupted"), interrupted)
        with self._lock:
            self._inline = False
            self._idle = True  # the writer's thread still waits
            # a thread that sleeps without a timeout would never sync the last write
            if self._has_work() or (self._dirty and self._sync.kind == "interval" and not self._timed):
                self._wake_thread()

    def command(self, run: Callable[[], Any], *, writes: bool = True) -> Future[Any]:
        """Let the writer's thread run a command after all queued entries.

        A command that writes nothing runs on a full disk, too. Raises QueueFullError if too many such
        commands wait: each stays in the queue until there is space.
        """
        order = WriterCommand(run)
        with self._lock:
            if self._closing or self._error is not None or (writes and self._full is not None):
                raise self._refusal()
            if self._commands >= limits.QUEUE_COMMANDS:
                raise QueueFullError(f"{self._commands} rotations, fences and flushes wait to be done")
            self._commands += 1
            self._queue.append(order)
            if self._idle:
                self._wake_thread()
        return order.done

    def rotate(self) -> Future[Any]:
        """Begin a new segment after all queued entries; resolves when the old one is sealed."""
        return self.command(self._rotate_and_seal)

    def finish(self) -> Future[Any]:
        """As `rotate`, also for a segment with only an epoch; used by replicas."""
        return self.command(
            lambda: self._when_sealed(self._swap() if self.engine.active.header is not None else None)
        )

    def announce(self) -> Future[Any]:
        """Write this writer's epoch, if no frame has it yet; return the end of the log."""
        return self.command(self._announce)

    def fence(self, epoch: int) -> Future[Any]:
        """Take over with a newer epoch, durable when this resolves: older writers are refused."""
        number = whole("epoch", epoch, least=0, most=limits.EPOCH_MAX)
        return self.command(lambda: self._fence(number))

    def replace(self, epoch: int) -> None:
        """Note a newer epoch of another writer: appends raise StaleEpochError from now on."""
        with self._lock:
            if epoch > self.epoch:
                self.replaced = epoch

    def flush(self) -> Future[Any]:
        """Sync all earlier entries, whatever the policy."""
        return self.command(self._flush)

    def mirror(
        self, header: SegmentHeader | None, frames: Sequence[tuple[EncodedFrame, set[bytes]]]
    ) -> Future[Any]:
        """Write a coordinator's frames unchanged; the append of a replica."""
        return self.command(lambda: self._mirror(header, frames))

    def watch(self, waker: Waker) -> None:
        """Wake this waker after every batch, with or without its appends."""
        with self._lock:
            self._watchers.add(waker)

    def unwatch(self, waker: Waker) -> None:
        with self._lock:
            self._watchers.discard(waker)

    @property
    def failed(self) -> LogFailedError | None:
        """The error that stopped the log."""
        return self._error

    @property
    def full(self) -> DiskFullError | None:
        """The reason why the log waits for space on the disk."""
        return self._full

    @property
    def closed(self) -> bool:
        return self._closing

    def queue_length(self) -> int:
        """Return the number of records that are not written yet."""
        return self._items

    def queue_bytes(self) -> int:
        return self._bytes

    def active_segments(self) -> list[str]:
        """Return the two open files: the one being written, and the one to follow it."""
        standby = self._sealer.standby
        return [self.engine.active.name] + ([standby.name] if standby else [])

    def close(self, wait_seconds: float = limits.CLOSE_SECONDS) -> None:
        """Write queued records, seal the active segment, end the threads. Idempotent."""
        with self._lock:
            self._closing = True
            if self._idle:
                self._wake_thread()
        deadline = self._monotonic() + wait_seconds
        here = threading.current_thread()
        for thread in (self._thread, self._background):
            if thread is not here:  # a failure callback may close the log that called it
                thread.join(max(0.1, deadline - self._monotonic()))
                if thread.is_alive() and here is not self._thread and here is not self._background:
                    raise FutureTimeout("the log's threads did not end in time: is the disk stuck?")

    @property
    def ended(self) -> bool:
        """True if no thread can write any more: only then may another appender open the log."""
        return not (self._thread.is_alive() or self._background.is_alive() or self._inline)

    def forked(self) -> None:
        """Disable the log in a child process: the threads and the lock stayed with the parent."""
        self._lock = threading.Lock()
        self._space = threading.Condition(self._lock)
        self._wakeups = SimpleQueue()
        self._sealer.forked()
        self._inline = False
        self._error = LogFailedError("the log was opened before a fork: open it again in this process")

    # -- the writer's thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (item := self._take()) is not None:
                if isinstance(item, PendingFrame):
                    self._commit(item)
                else:
                    self._execute(item)
            if self._error is None:
                self._end()
        except Exception as error:  # noqa: BLE001 - the waiters of a dead thread must fail
            self._fail(error)
        finally:
            self._sealer.retire()

    def _take(self) -> PendingFrame | WriterCommand | None:
        """Return the next batch or command; None at the end."""
        late = False
        while True:
            seconds: float | None = None
            found: DiskFull | None = None
            with self._lock:
                # idle only with the lock held, just before the wait: only then may a caller do the work
                self._idle = self._timed = False
                if self._inline:
                    late = False
                else:
                    if self._error is not None:
                        return None
                    found = self._found_full
                    if found is None and self._queue:
                        item = self._queue.popleft()
                        self._commands -= isinstance(item, WriterCommand)
                        return item
                    if found is None and self._closing:
                        return None
                    if found is None and not late:
                        self._idle = True
                        if self._full is not None:
                            seconds = max(0.0, self._check_space_at - self._monotonic())
                        elif self._sync.kind == "interval" and self._dirty:
                            seconds = max(0.0, self._synced_at + self._sync.seconds - self._monotonic())
                            self._timed = True
            if found is not None:
                self._pause(found)
                continue
            if late:
                if self._full is not None:
                    self._resume()
                else:
                    self._flush()
                late = False
                continue
            try:
                self._wakeups.get(timeout=seconds)
            except Empty:
                late = True

    def _commit(self, pending: PendingFrame) -> int | None:
        """Commit a batch; return its first sequence once durable, or None if the log has stopped."""
        engine = self.engine
        try:
            if not engine.fits(pending.size):
                self._rotate()
            first = engine.head.next_sequence
            header = engine.commit(
                pending.keys,
                pending.values,
                pending.times,
                sync=self._sync.waits,
                sizes=(pending.key_sizes, pending.value_sizes),
                distinct=pending.distinct,
            )
        except Exception as error:  # noqa: BLE001 - any error must reach the waiters
            self._stop_or_pause(error, pending)
            return None
        if self._error is not None:
            # the background met an error on the same disk meanwhile: this sync proves nothing
            self._fail(self._error, pending)
            return None
        self._advance(len(pending.values), header.frame_bytes)
        with self._lock:
            self._items -= len(pending.values)
            self._bytes -= pending.size
            self._space.notify_all()
            watchers = self._watchers - pending.waiters.keys() if self._watchers else ()
        for waker, waiting in pending.waiters.items():
            waker.wake(waiting, first, None)
        for waker in watchers:
            waker.wake([], first, None)
        if self._sync.kind == "interval" and self._monotonic() - self._synced_at >= self._sync.seconds:
            try:
                self._flush()
            except OSError as error:
                self._fail(error)  # also in a caller's thread: a failed sync is never repeated
        return first

    def _advance(self, count: int, size: int) -> None:
        """Update the state after every written frame."""
        self.durable = self.engine.head.next_sequence - 1
        self.commits += 1
        self.appended += count
        self.appended_bytes += size
        if self._sync.waits:
            self.syncs += 1
        else:
            self._dirty = True

    def _execute(self, order: WriterCommand) -> None:
        if not order.done.set_running_or_notify_cancel():
            return  # cancelled while it waited in the queue
        try:
            match order.run():
                case Deferred(value, done):
                    done.add_done_callback(partial(order.resolve, value))
                case value:
                    order.done.set_result(value)
        except (StaleEpochError, ValueError) as refused:
            order.done.set_exception(refused)
        except Exception as error:  # noqa: BLE001 - any error must reach the waiters
            self._stop_or_pause(error)
            order.done.set_exception(self._error or self._full)

    def _flush(self) -> None:
        if self._dirty:
            self.engine.sync()
            self.syncs += 1
            self._dirty = False
        self._synced_at = self._monotonic()

    def _rotate(self) -> str | None:
        """Swap the two files; return the name of the finished one, None if it was empty."""
        engine = self.engine
        if not engine.active.records():
            return None  # a segment with only an epoch continues: the next would begin at the same sequence
        return self._swap()

    def _rotate_and_seal(self) -> str | Deferred | None:
        """As `_rotate`, resolved when the finished segment is sealed. The writer continues meanwhile."""
        return self._when_sealed(self._rotate())

    def _when_sealed(self, name: str | None) -> str | Deferred | None:
        """Return the name, resolved once everything finished so far is sealed."""
        last = self._sealer.pending_seals()
        if self._error is not None:
            raise self._error
        return name if last is None else Deferred(name, last)

    def _swap(self) -> str:
        engine = self.engine
        engine.standby = self._sealer.take_standby()
        old = engine.swap(synced=not self._dirty)
        self._dirty = False
        self.rotations += 1
        self._sealer.hand_over(old)
        return old.name

    def _fence(self, epoch: int) -> None:
        head = self.engine.head
        if epoch < head.epoch:
            raise StaleEpochError(f"epoch {epoch} is older than {head.epoch}")
        if epoch > head.epoch:
            head.epoch = self.epoch = epoch
            if self.replaced is not None and epoch > self.replaced:
                self.replaced = None  # it took over again, above the other
            self.engine.commit((), (), (), sync=True)

    def _announce(self) -> int:
        if self.engine.active.header is None and not self.commits:
            self.engine.commit((), (), (), sync=True)
        return self.engine.head.end_offset

    def _mirror(self, header: SegmentHeader | None, frames: Sequence[tuple[EncodedFrame, set[bytes]]]) -> int:
        if header is not None:
            if header.log_id != self.engine.log_id:
                raise ValueError("the frames belong to another log")
            if self.engine.active.header is not None:
                self._swap()
        for number, (frame, keys) in enumerate(frames):
            # visible after the one sync; if a frame is refused, the next swap syncs those before it
            self._dirty = True
            self.engine.mirror(header if number == 0 else None, frame, keys, sync=number + 1 == len(frames))
        for frame, _ in frames:
            self._advance(frame.header.count, frame.header.frame_bytes)
            self._dirty = False
        self.epoch = self.engine.head.epoch
        with self._lock:
            watchers = set(self._watchers)
        for waker in watchers:
            waker.wake([], 0, None)
        return self.durable

    def _end(self) -> None:
        """Close: seal the active segment, or remove it if it is empty."""
        active = self.engine.active
        if active.header is None:
            self.engine.discard(active)
        else:
            self.engine.sync()
            self._sealer.hand_over(active)
        self._wake_all()

    # -- a full disk ----------------------------------------------------------------------------------

    def _stop_or_pause(self, error: Exception, pending: PendingFrame | None = None) -> None:
        """After a failed write, wait for space if the disk is full and the policy waits; else stop."""
        if isinstance(error, DiskFull) and self._failure.full is not None:
            self._pause(error, pending)
        else:
            self._fail(error, pending)

    def _on_full(self, error: DiskFull) -> None:
        """Pause the writer's thread because the background found the disk full."""
        with self._lock:
            self._found_full = error
            if self._idle:
                self._wake_thread()

    def _pause(self, error: DiskFull, pending: PendingFrame | None = None) -> None:
        """Take no entries until there is space; with the engine in hand.

        The segment ends at its last acknowledged frame, durably, before a caller gets the error: refused
        appends are not in the log, and no partial frame precedes later ones.
        """
        try:
            self.engine.cut(self.engine.active)
        except Exception as worse:  # noqa: BLE001 - where the log ends is not known then
            self._fail(worse, pending)
            return
        self._dirty = False
        self._check_space_at = self._monotonic() + limits.FULL_SECONDS
        # whole frames mirrored before the one that failed are synced now, too
        self.durable = self.engine.head.next_sequence - 1
        with self._lock:
            full = DiskFullError(f"{self.engine.directory.path}: the disk is full: {error}")
            full.__cause__ = error
            first, self._full, self._found_full = self._full is None, full, None
            left = self._empty_queue(pending)
        self._refuse(left, full)
        self._sealer.refuse(full)
        if first and self._failure.full is not None:
            self._call(partial(self._failure.full, full))

    def _prepare_next(self) -> None:
        """Wait until the next segment is prepared. Raises DiskFull."""
        self._sealer.retry()
        self._sealer.prepared()

    def _resume(self) -> None:
        """Continue in a new segment if two fit on the disk; else wait on. With the engine in hand."""
        self._check_space_at = self._monotonic() + limits.FULL_SECONDS
        try:
            if not self.engine.has_room():
                return
            self._prepare_next()
            if self.engine.active.records():
                self._swap()
            else:
                self.engine.fill(self.engine.active)
        except DiskFull:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, no caller may wait for ever
            self._fail(error)
            return
        with self._lock:
            if self._found_full is not None:
                return  # the old segment found no space for its seal
            self._full = None
        if self._failure.full is not None:
            self._call(partial(self._failure.full, None))

    def _fail(self, error: Exception, pending: PendingFrame | None = None) -> None:
        """Stop for good. Appends without an acknowledgement fail, and no operation is repeated."""
        with self._lock:
            if self._error is None:
                self._error = (
                    error
                    if isinstance(error, LogFailedError)
                    else LogFailedError(f"{self.engine.directory.path}: the log has stopped: {error}")
                )
                self._error.__cause__ = error
                first = True
            else:
                first = False
            failed = self._error
            left = self._empty_queue(pending)
            if self._idle:
                self._wake_thread()
        self._refuse(left, failed)
        self._wake_all()
        self._sealer.stop(failed)
        if first and self._failure.callback is not None:
            self._call(partial(self._failure.callback, failed))

    def _empty_queue(self, pending: PendingFrame | None) -> list[PendingFrame | WriterCommand]:
        """Drop all queued entries; with the lock held."""
        left = [pending, *self._queue] if pending else list(self._queue)
        self._queue.clear()
        self._items = self._bytes = self._commands = 0
        self._space.notify_all()
        return left

    def _refuse(self, left: list[PendingFrame | WriterCommand], error: LogError) -> None:
        for item in left:
            if isinstance(item, WriterCommand):
                item.fail(error)
            else:
                for waker, waiting in item.waiters.items():
                    waker.wake(waiting, 0, error)

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:  # noqa: BLE001 - a caller's mistake must not stop our thread
            _log.exception("the callback of a log raised")

    def _wake_all(self) -> None:
        with self._lock:
            watchers = set(self._watchers)
        for waker in watchers:
            waker.wake([], 0, self._error)


_LIVE: WeakSet[LogWriter] = WeakSet()


def _after_fork() -> None:
    for writer in list(_LIVE):
        writer.forked()


os.register_at_fork(after_in_child=_after_fork)
