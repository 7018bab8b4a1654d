"""The writer: one queue, one thread, one sync for all that waits.

```
 append ─┐                       ┌─ writer thread ─────────────┐      ┌─ background thread ──────────┐
 append ─┼─▶ queue (items, bytes)┤ take all, one frame, one sync├─────▶│ prepare the next, seal the old │
 append ─┘                       └─ wake each loop once ────────┘      └───────────────────────────────┘
```

Rotation, fencing, mirroring and closing travel through the same queue (queue.py), so they have a place among
the records. The background is sealer.py. Without threads the same work is done in turns (turn_writer.py).
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
        self._room = threading.Condition(self._lock)
        self._bell: SimpleQueue[None] = SimpleQueue()  # rung once for each time that the writer sleeps
        self._queue: deque[PendingFrame | WriterCommand] = deque()
        self._bytes = 0
        self._items = 0
        self._orders = 0
        self._idle = False
        self._borrowed = False  # a caller's thread does the writer's work
        self._timed = False  # the writer's thread wakes up by itself
        self._closing = False
        self._error: LogFailedError | None = None
        self._full: DiskFullError | None = None  # the log waits for room on the disk
        self._found_full: DiskFull | None = None  # by the background; the writer's thread acts on it
        self._look_at = 0.0  # when to look for room again
        self._watchers: set[Waker] = set()
        self._direct = DirectWaker()

        self._sealer = Sealer(
            engine,
            failed=lambda: self._error,
            fail=self._fail,
            full=None if failure.full is None else self._on_full,
            after_seal=after_seal,
        )

        #: what readers in this process may see
        self.durable = engine.head.next_sequence - 1
        self.epoch = engine.head.epoch
        #: a newer writer's epoch, once somebody told of it
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

        Times were checked before (`check_time`).
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
            waker.soon(self.ring)

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
            waker.soon(self.ring)

    def _admit(self, count: int, size: int, epoch: int | None) -> PendingFrame:
        """The batch to join; with the lock held."""
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

    def ring(self) -> None:
        """Wake the writer's thread if it sleeps."""
        with self._lock:
            if self._idle:
                self._ring()

    def _ring(self) -> None:
        """Wake the writer's thread, which sleeps; with the lock held.

        A queue's token instead of a condition: the thread wakes without having to get the lock back.
        """
        self._idle = False
        self._bell.put(None)

    def _has_work(self) -> bool:
        """Whether the writer's thread has a reason to wake up; with the lock held."""
        waits = self._full is not None or self._found_full is not None
        return bool(self._queue) or self._closing or self._error is not None or waits

    def _refusal(self) -> LogError:
        """Why nothing is taken, now or any more."""
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
        """For threads: wait for room, then for the disk."""
        many = AppendedRecords(keys, values, times)
        if (alone := self._alone_at_the_disk(many)) is not None:
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
                    self._room.wait(max(0.0, min(left, 1.0)))
                if self._monotonic() >= deadline:
                    raise
        return token.result(max(0.0, deadline - self._monotonic()))

    def _alone_at_the_disk(self, many: AppendedRecords) -> range | None:
        """When nothing is queued and the writer's thread sleeps, the caller does the work itself.

        It waits for the disk anyway; this way it does not wait for two changes of thread as well.
        """
        if not self._lendable():
            return None
        mine = PendingFrame()
        mine.add(many)
        borrowed = whole = False
        first: int | None = None
        try:
            with self._lock:
                if not self._lendable():
                    return None
                self._admit(len(many.values), many.size, None)
                self._queue.clear()
                self._idle = False
                self._borrowed = borrowed = True
            first = self._commit(mine)
            whole = True
        finally:
            if borrowed:
                self._give_back(None if whole else mine)
        if first is None:
            raise self._refusal()
        return range(first, first + len(many.values))

    def _lendable(self) -> bool:
        """Whether the writer's thread sleeps and has no reason to wake up."""
        return self._idle and not self._has_work()

    def _give_back(self, interrupted: PendingFrame | None) -> None:
        """The caller's thread has done the writer's work, or was interrupted (Ctrl-C) within it.

        Nobody knows then how much of the frame is in the file: writing on would give its sequences twice.
        """
        if interrupted is not None:
            self._fail(LogFailedError("the log has stopped: an append was interrupted"), interrupted)
        with self._lock:
            self._borrowed = False
            self._idle = True  # the writer's thread still waits
            # a thread that sleeps without a clock would never sync what was just written
            if self._has_work() or (self._dirty and self._sync.kind == "interval" and not self._timed):
                self._ring()

    def order(self, run: Callable[[], Any], *, writes: bool = True) -> Future[Any]:
        """Let the writer's thread do something after everything that is queued now.

        One that writes nothing is taken while the disk is full, too. Raises QueueFullError when too many such
        orders wait: each holds its place until the disk is there.
        """
        order = WriterCommand(run)
        with self._lock:
            if self._closing or self._error is not None or (writes and self._full is not None):
                raise self._refusal()
            if self._orders >= limits.QUEUE_ORDERS:
                raise QueueFullError(f"{self._orders} rotations, fences and flushes wait to be done")
            self._orders += 1
            self._queue.append(order)
            if self._idle:
                self._ring()
        return order.done

    def rotate(self) -> Future[Any]:
        """Begin a new segment after everything that is queued now; done when the old one is sealed."""
        return self.order(self._rotate_and_seal)

    def finish(self) -> Future[Any]:
        """As `rotate`, also when the segment holds no record but only an epoch: a replica's way."""
        return self.order(
            lambda: self._when_sealed(self._swap() if self.engine.active.header is not None else None)
        )

    def announce(self) -> Future[Any]:
        """Write this writer's epoch down, if no frame of it has yet; where the log ends then."""
        return self.order(self._announce)

    def fence(self, epoch: int) -> Future[Any]:
        """Take over with a newer epoch: written down before this is done, so an older writer is refused."""
        number = whole("epoch", epoch, least=0, most=limits.EPOCH_MAX)
        return self.order(lambda: self._fence(number))

    def replace(self, epoch: int) -> None:
        """Another writer has this newer epoch: appends raise StaleEpochError from now on."""
        with self._lock:
            if epoch > self.epoch:
                self.replaced = epoch

    def flush(self) -> Future[Any]:
        """Everything queued before is on the disk, whatever the policy."""
        return self.order(self._flush)

    def mirror(
        self, header: SegmentHeader | None, frames: Sequence[tuple[EncodedFrame, set[bytes]]]
    ) -> Future[Any]:
        """Write a coordinator's frames as they are (a replica's way to append)."""
        return self.order(lambda: self._mirror(header, frames))

    def watch(self, waker: Waker) -> None:
        """Wake this one after every batch, whether it has appends in it or not."""
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
        """Why the log waits, while it waits for room on the disk."""
        return self._full

    @property
    def closed(self) -> bool:
        return self._closing

    def queue_length(self) -> int:
        """Records that are not yet written."""
        return self._items

    def queue_bytes(self) -> int:
        return self._bytes

    def active_segments(self) -> list[str]:
        """The two open files: the one being written, and the one that will follow it."""
        standby = self._sealer.standby
        return [self.engine.active.name] + ([standby.name] if standby else [])

    def close(self, wait_seconds: float = limits.CLOSE_SECONDS) -> None:
        """Write what is queued, seal the active segment, end the threads. Again: nothing."""
        with self._lock:
            self._closing = True
            if self._idle:
                self._ring()
        deadline = self._monotonic() + wait_seconds
        here = threading.current_thread()
        for thread in (self._thread, self._background):
            if thread is not here:  # a failure callback may close the log that called it
                thread.join(max(0.1, deadline - self._monotonic()))
                if thread.is_alive() and here is not self._thread and here is not self._background:
                    raise FutureTimeout("the log's threads did not end in time: is the disk stuck?")

    @property
    def ended(self) -> bool:
        """Whether nothing can be written any more: only then may another appender come."""
        return not (self._thread.is_alive() or self._background.is_alive() or self._borrowed)

    def forked(self) -> None:
        """In a child process: the threads and the right to write stayed with the parent."""
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._bell = SimpleQueue()
        self._sealer.forked()
        self._borrowed = False
        self._error = LogFailedError("the log was opened before a fork: open it anew in this process")

    # -- the writer's thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (item := self._take()) is not None:
                if isinstance(item, PendingFrame):
                    self._commit(item)
                else:
                    self._obey(item)
            if self._error is None:
                self._end()
        except Exception as error:  # noqa: BLE001 - nobody may wait for a thread that is gone
            self._fail(error)
        finally:
            self._sealer.retire()

    def _take(self) -> PendingFrame | WriterCommand | None:
        """The next batch or order; None when there is nothing more to come."""
        late = False
        while True:
            seconds: float | None = None
            found: DiskFull | None = None
            with self._lock:
                # only whoever holds the lock and is about to wait is idle: work may be lent only then
                self._idle = self._timed = False
                if self._borrowed:
                    late = False
                else:
                    if self._error is not None:
                        return None
                    found = self._found_full
                    if found is None and self._queue:
                        item = self._queue.popleft()
                        self._orders -= isinstance(item, WriterCommand)
                        return item
                    if found is None and self._closing:
                        return None
                    if found is None and not late:
                        self._idle = True
                        if self._full is not None:
                            seconds = max(0.0, self._look_at - self._monotonic())
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
                self._bell.get(timeout=seconds)
            except Empty:
                late = True

    def _commit(self, pending: PendingFrame) -> int | None:
        """The first sequence of what is durable now; None if the log has stopped."""
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
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
            self._stop_or_pause(error, pending)
            return None
        if self._error is not None:
            # the background thread met an error on the same disk meanwhile: this sync proves nothing
            self._fail(self._error, pending)
            return None
        self._after(len(pending.values), header.frame_bytes)
        with self._lock:
            self._items -= len(pending.values)
            self._bytes -= pending.size
            self._room.notify_all()
            watchers = self._watchers - pending.waiters.keys() if self._watchers else ()
        for waker, waiting in pending.waiters.items():
            waker.wake(waiting, first, None)
        for waker in watchers:
            waker.wake([], first, None)
        if self._sync.kind == "interval" and self._monotonic() - self._synced_at >= self._sync.seconds:
            try:
                self._flush()
            except OSError as error:
                self._fail(error)  # also in a caller's thread: a failed sync is never tried again
        return first

    def _after(self, count: int, size: int) -> None:
        """What every written frame changes."""
        self.durable = self.engine.head.next_sequence - 1
        self.commits += 1
        self.appended += count
        self.appended_bytes += size
        if self._sync.waits:
            self.syncs += 1
        else:
            self._dirty = True

    def _obey(self, order: WriterCommand) -> None:
        if not order.done.set_running_or_notify_cancel():
            return  # cancelled while it waited in the queue
        try:
            match order.run():
                case Deferred(value, done):
                    done.add_done_callback(partial(order.settle, value))
                case value:
                    order.done.set_result(value)
        except (StaleEpochError, ValueError) as refused:
            order.done.set_exception(refused)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
            self._stop_or_pause(error)
            order.done.set_exception(self._error or self._full)

    def _flush(self) -> None:
        if self._dirty:
            self.engine.sync()
            self.syncs += 1
            self._dirty = False
        self._synced_at = self._monotonic()

    def _rotate(self) -> str | None:
        """Swap the two files. The name of the one that was finished; None if it was empty."""
        engine = self.engine
        if not engine.active.records():
            return None  # one that only carries an epoch goes on: the next would begin at the same sequence
        return self._swap()

    def _rotate_and_seal(self) -> str | Deferred | None:
        """As `_rotate`, for who wants to work on what was finished. The writer goes on meanwhile."""
        return self._when_sealed(self._rotate())

    def _when_sealed(self, name: str | None) -> str | Deferred | None:
        """The name, for who waits, once everything that was finished until now is sealed."""
        last = self._sealer.last()
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
                self.replaced = None  # it took over once more, above the other
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
            # all are shown after the one sync; if one is refused, the next swap syncs those before it
            self._dirty = True
            self.engine.mirror(header if number == 0 else None, frame, keys, sync=number + 1 == len(frames))
        for frame, _ in frames:
            self._after(frame.header.count, frame.header.frame_bytes)
            self._dirty = False
        self.epoch = self.engine.head.epoch
        with self._lock:
            watchers = set(self._watchers)
        for waker in watchers:
            waker.wake([], 0, None)
        return self.durable

    def _end(self) -> None:
        """Closing: the active segment is sealed like any other, an empty one disappears."""
        active = self.engine.active
        if active.header is None:
            self.engine.discard(active)
        else:
            self.engine.sync()
            self._sealer.hand_over(active)
        self._wake_all()

    # -- a full disk ----------------------------------------------------------------------------------

    def _stop_or_pause(self, error: Exception, pending: PendingFrame | None = None) -> None:
        """A write failed: wait for room if the disk is full and the caller wants that, else stop for good."""
        if isinstance(error, DiskFull) and self._failure.full is not None:
            self._pause(error, pending)
        else:
            self._fail(error, pending)

    def _on_full(self, error: DiskFull) -> None:
        """The background found no room: the writer's thread pauses before it takes anything else."""
        with self._lock:
            self._found_full = error
            if self._idle:
                self._ring()

    def _pause(self, error: DiskFull, pending: PendingFrame | None = None) -> None:
        """Nothing is taken until there is room; with the engine in hand.

        The segment ends at its last acknowledged frame, on the disk, before a caller gets the error: what
        waited is not in the log, and no half of it lies before what is appended later.
        """
        try:
            self.engine.cut(self.engine.active)
        except Exception as worse:  # noqa: BLE001 - where the log ends is not known then
            self._fail(worse, pending)
            return
        self._dirty = False
        self._look_at = self._monotonic() + limits.FULL_SECONDS
        # whole frames that were mirrored before the one that found no room are synced now, too
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
        """Return when the next segment is prepared. Raises DiskFull."""
        self._sealer.again()
        self._sealer.prepared()

    def _resume(self) -> None:
        """Go on in a new segment if two fit on the disk; else the log waits on. With the engine in hand."""
        self._look_at = self._monotonic() + limits.FULL_SECONDS
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
                return  # the old segment found no room for its seal
            self._full = None
        if self._failure.full is not None:
            self._call(partial(self._failure.full, None))

    def _fail(self, error: Exception, pending: PendingFrame | None = None) -> None:
        """Stop for good. Nothing that was not acknowledged will be, and nothing is tried again."""
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
                self._ring()
        self._refuse(left, failed)
        self._wake_all()
        self._sealer.stop(failed)
        if first and self._failure.callback is not None:
            self._call(partial(self._failure.callback, failed))

    def _empty_queue(self, pending: PendingFrame | None) -> list[PendingFrame | WriterCommand]:
        """Everything that waits, which is forgotten; with the lock held."""
        left = [pending, *self._queue] if pending else list(self._queue)
        self._queue.clear()
        self._items = self._bytes = self._orders = 0
        self._room.notify_all()
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
