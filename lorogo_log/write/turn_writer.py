"""The writer without threads: the same queue and engine, with the work done in turns.

A turn commits queued records, and is scheduled with `later`. A command, a blocking append and `close` do the
queued work before them, and their own, at once. This code never waits for another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from lorogo_log import limits
from lorogo_log.errors import QueueFullError
from lorogo_log.storage.disk import DiskFull
from lorogo_log.storage.workers import Workers
from lorogo_log.write.queue import AppendedRecords, Deferred, PendingFrame, WriterCommand
from lorogo_log.write.writer import LogWriter


class TurnWriter(LogWriter):
    """A writer that runs on `Workers`."""

    threads = False

    def __init__(self, *args: Any, workers: Workers, **options: Any) -> None:
        self._workers = workers
        self._working = False  # a turn, a command or `close` is active, further up the stack
        self._turn_scheduled = False  # a turn is scheduled
        self._over = False
        super().__init__(*args, monotonic=workers.monotonic, **options)

    def _start(self) -> None:
        self._idle = True
        self._workers.later(self._run_background)

    # -- who wants something -----------------------------------------------------------------------

    def _wake_thread(self) -> None:
        self._idle = False
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._workers.later(self._turn)

    def append(
        self, keys: Sequence[bytes], values: Sequence[bytes], times: Sequence[int], *, wait_seconds: float
    ) -> range:
        many = AppendedRecords(keys, values, times)
        token: Future[range] = Future()
        try:
            self._put(many, self._direct, token)
        except QueueFullError:
            self._drain()
            self._put(many, self._direct, token)
        self._drain()
        return token.result(0)

    def command(self, run: Callable[[], Any], *, writes: bool = True) -> Future[Any]:
        done = super().command(run, writes=writes)
        self._drain()
        return done

    def close(self, wait_seconds: float = limits.CLOSE_SECONDS) -> None:
        self._closing = True
        self._drain()

    @property
    def ended(self) -> bool:
        return self._over

    # -- the work ------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Commit the oldest batch; schedule a turn for the next."""
        self._turn_scheduled = False
        self._drain(1)
        with self._lock:
            self._idle = True
            if self._queue and self._error is None:
                self._wake_thread()
        if self._sync.kind == "interval" and self._dirty:
            left = self._synced_at + self._sync.seconds - self._monotonic()
            self._workers.later(self._sync_interval, max(0.0, left))

    def _drain(self, items: int | None = None) -> None:
        """Process the queue, or so many of its entries; and end, if the log is closed."""
        if self._working:
            return  # the active caller continues until the queue is empty
        self._working = True
        try:
            while self._queue and self._error is None and items != 0:
                item = self._queue.popleft()
                if isinstance(item, WriterCommand):
                    self._commands -= 1
                    self._execute(item)
                elif isinstance(item, PendingFrame):
                    self._commit(item)
                items = None if items is None else items - 1
            if self._closing or self._error is not None:
                self._leave()
        finally:
            self._working = False

    def _leave(self) -> None:
        """End as the two threads would, after the last entry."""
        if self._over or (self._queue and self._error is None):
            return
        try:
            if self._error is None:
                self._end()
        except Exception as error:  # noqa: BLE001 - as in a thread: reported, not raised
            self._fail(error)
        self._over = True
        self._sealer.retire()
        self._sealer.run_pending()

    def _sync_interval(self) -> None:
        """Sync at the end of the interval."""
        if self._error is None and not self._over and self._dirty:
            try:
                self._flush()
            except OSError as error:
                self._fail(error)

    # -- a full disk -----------------------------------------------------------------------------------

    def _on_full(self, error: DiskFull) -> None:
        self._pause(error)

    def _pause(self, error: DiskFull, pending: PendingFrame | None = None) -> None:
        first = self._full is None
        super()._pause(error, pending)
        if first and self._full is not None:
            self._workers.later(self._retry, limits.FULL_SECONDS)

    def _retry(self) -> None:
        """Check for space repeatedly, until there is some."""
        if self._full is not None and self._error is None and not self._over:
            self._resume()
            if self._full is not None:
                self._workers.later(self._retry, limits.FULL_SECONDS)

    def _prepare_next(self) -> None:
        self._sealer.retry()
        self._sealer.run_pending()  # no thread prepares the segment
        self._sealer.prepared()

    # -- the background ------------------------------------------------------------------------------

    def _run_background(self) -> None:
        """Prepare the next segment, seal finished ones."""
        if not self._over and self._error is None:
            self._sealer.run_pending()

    def _swap(self) -> str:
        if self._sealer.standby is None:
            self._sealer.prepare()
        name = super()._swap()
        if not self._closing:
            self._workers.later(self._run_background)
        return name

    def _when_sealed(self, name: str | None) -> str | Deferred | None:
        self._run_background()
        return super()._when_sealed(name)
