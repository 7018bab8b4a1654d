"""The writer without threads: the same queue and the same engine, but its work is done in turns.

A turn commits what is queued, and comes `later`. Whoever may not wait for it (an order, a blocking append,
`close`) does what is queued before it, and its own work, at once. Nothing here waits for another thread.
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
    """A writer whose hands are `Workers`."""

    threads = False

    def __init__(self, *args: Any, workers: Workers, **options: Any) -> None:
        self._workers = workers
        self._working = False  # a turn, an order or `close` is at it, further up the stack
        self._expected = False  # a turn will come
        self._over = False
        super().__init__(*args, monotonic=workers.monotonic, **options)

    def _start(self) -> None:
        self._idle = True
        self._workers.later(self._tidy)

    # -- who wants something -----------------------------------------------------------------------

    def _ring(self) -> None:
        self._idle = False
        if not self._expected:
            self._expected = True
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

    def order(self, run: Callable[[], Any], *, writes: bool = True) -> Future[Any]:
        done = super().order(run, writes=writes)
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
        """Commit the oldest batch; the next, if there is one, in a turn of its own."""
        self._expected = False
        self._drain(1)
        with self._lock:
            self._idle = True
            if self._queue and self._error is None:
                self._ring()
        if self._sync.kind == "interval" and self._dirty:
            left = self._synced_at + self._sync.seconds - self._monotonic()
            self._workers.later(self._late, max(0.0, left))

    def _drain(self, items: int | None = None) -> None:
        """Do what is queued, or so many items of it; and end, if that was all for good."""
        if self._working:
            return  # whoever is at it goes on until nothing is left
        self._working = True
        try:
            while self._queue and self._error is None and items != 0:
                item = self._queue.popleft()
                if isinstance(item, WriterCommand):
                    self._orders -= 1
                    self._obey(item)
                elif isinstance(item, PendingFrame):
                    self._commit(item)
                items = None if items is None else items - 1
            if self._closing or self._error is not None:
                self._leave()
        finally:
            self._working = False

    def _leave(self) -> None:
        """Nothing more will come: end as the two threads would."""
        if self._over or (self._queue and self._error is None):
            return
        try:
            if self._error is None:
                self._end()
        except Exception as error:  # noqa: BLE001 - as in a thread: it is told, not raised
            self._fail(error)
        self._over = True
        self._sealer.retire()
        self._sealer.tidy()

    def _late(self) -> None:
        """The time between two syncs is over."""
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
        """Look for room, until there is some."""
        if self._full is not None and self._error is None and not self._over:
            self._resume()
            if self._full is not None:
                self._workers.later(self._retry, limits.FULL_SECONDS)

    def _prepare_next(self) -> None:
        self._sealer.again()
        self._sealer.tidy()  # no thread prepares the segment
        self._sealer.prepared()

    # -- the background ------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """Prepare the next segment, seal what is finished."""
        if not self._over and self._error is None:
            self._sealer.tidy()

    def _swap(self) -> str:
        if self._sealer.standby is None:
            self._sealer.prepare()
        name = super()._swap()
        if not self._closing:
            self._workers.later(self._tidy)
        return name

    def _when_sealed(self, name: str | None) -> str | Deferred | None:
        self._tidy()
        return super()._when_sealed(name)
