"""Background work of a writer: preparing the next segment, and sealing finished ones.

```
 writer thread ── take_standby ◀── prepared ── background thread (run)
               ── hand_over ─────▶ to seal  ──▶ sealed: the future of `pending_seals` resolves
```

Its lock guards the state shared by the two threads, and is never held during disk operations.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from lorogo_log import limits
from lorogo_log.errors import DiskFullError, LogError, LogFailedError
from lorogo_log.storage.disk import DiskFull
from lorogo_log.write.engine import OpenSegment, SegmentAppender


class Sealer:
    """Prepares and seals the segments of one engine."""

    def __init__(
        self,
        engine: SegmentAppender,
        *,
        failed: Callable[[], LogFailedError | None],
        fail: Callable[[Exception], None],
        full: Callable[[DiskFull], None] | None = None,
        after_seal: Callable[[str], None] | None = None,
    ) -> None:
        """`failed` returns the error that stopped the log, if any; `fail` stops it, and calls `stop`.

        `full` is called when the disk is full; the background then waits for `retry`. None: that fails, too.
        """
        self._engine = engine
        self._failed = failed
        self._fail = fail
        self._full = full
        self._found_full: DiskFull | None = None  # until there is space
        self._after_seal = after_seal
        self._jobs = threading.Condition()
        self._seals: deque[OpenSegment] = deque()
        self._unsealed: deque[Future[None]] = deque()  # one for each handed-over segment, in order
        self._retired = False
        #: the segment to follow the active one, once it is prepared
        self.standby: OpenSegment | None = None

    # -- the writer's thread ------------------------------------------------------------------------

    def take_standby(self) -> OpenSegment:
        """Return the next segment, once it is prepared."""
        with self._jobs:
            while self.standby is None:
                if (error := self._failed()) is not None:
                    raise error
                if self._found_full is not None:
                    raise self._found_full
                if not self._jobs.wait(limits.CLOSE_SECONDS):
                    raise OSError("the next segment was not ready in time")
            standby, self.standby = self.standby, None
            return standby

    def retry(self) -> None:
        """Retry an operation that found the disk full."""
        with self._jobs:
            self._found_full = None
            self._jobs.notify_all()

    def prepared(self) -> None:
        """Wait until the next segment is prepared. Raises DiskFull."""
        standby = self.take_standby()
        with self._jobs:
            self.standby = standby

    def hand_over(self, segment: OpenSegment) -> None:
        """Seal a finished segment in the background."""
        with self._jobs:
            self._seals.append(segment)
            self._unsealed.append(Future())
            self._jobs.notify_all()

    def pending_seals(self) -> Future[None] | None:
        """Return a future of the seals handed over so far; None if all are done."""
        with self._jobs:
            return self._unsealed[-1] if self._unsealed else None

    def retire(self) -> None:
        """Hand over nothing more: seal the rest, and remove the prepared file."""
        with self._jobs:
            self._retired = True
            self._jobs.notify_all()

    # -- any thread ---------------------------------------------------------------------------------

    def stop(self, error: LogFailedError) -> None:
        """Stop the background because the log has stopped, and fail the futures of its seals."""
        with self._jobs:
            never, self._unsealed = self._unsealed, deque()
            self._jobs.notify_all()
        for sealed in never:
            sealed.set_exception(error)

    def refuse(self, error: LogError) -> None:
        """Fail the waiting futures because their seals are late. The seals themselves remain due."""
        with self._jobs:
            waiting, self._unsealed = self._unsealed, deque(Future() for _ in self._unsealed)
        for sealed in waiting:
            sealed.set_exception(error)

    def forked(self) -> None:
        """Replace the lock in a child process: its holder may have stayed with the parent."""
        self._jobs = threading.Condition()

    # -- the background thread ----------------------------------------------------------------------

    def run(self) -> None:
        """Work until the writer retires, or the log has stopped."""
        self._work(wait=True)

    def run_pending(self) -> None:
        """Do the pending work now, for a writer without threads."""
        self._work(wait=False)

    def prepare(self) -> None:
        """Prepare the next segment."""
        standby = self._engine.prepare()
        with self._jobs:
            self.standby = standby
            self._jobs.notify_all()

    def _work(self, *, wait: bool) -> None:
        """Prepare the next file, then seal finished ones: in this order."""
        try:
            while True:
                with self._jobs:
                    if wait:
                        self._jobs.wait_for(self._has_job)
                    elif not self._has_job():
                        return
                    retired = self._retired
                    need = self.standby is None and not retired
                if self._failed() is not None:
                    break
                try:
                    if need:
                        self.prepare()
                    elif self._seals:
                        self._seal(self._seals[0])
                    elif retired:
                        self._leave()
                        return
                except DiskFull as full:
                    if self._full is None:
                        raise
                    if retired:  # unsealed, it ends with its last frame: the next open seals it
                        self.refuse(DiskFullError(str(full)))
                        break
                    with self._jobs:
                        self._found_full = full
                        self._jobs.notify_all()
                    self._full(full)
        except Exception as error:  # noqa: BLE001 - any error must reach the waiters
            self._fail(error)
        for segment in [*self._seals, *([self.standby] if self.standby else [])]:
            segment.file.close()

    def _has_job(self) -> bool:
        """Return True if there is work, or a reason to end; with the lock held."""
        work = self._found_full is None and (self.standby is None or bool(self._seals))
        return work or self._retired or self._failed() is not None

    def _seal(self, segment: OpenSegment) -> None:
        self._engine.seal(segment)
        self._seals.popleft()
        with self._jobs:
            sealed = self._unsealed.popleft() if self._unsealed else None
        if sealed is not None:
            sealed.set_result(None)
        if self._after_seal is not None:
            self._after_seal(segment.name)

    def _leave(self) -> None:
        """Remove the unused prepared file of a closed log."""
        if self.standby is not None:
            self._engine.discard(self.standby)
            self.standby = None
        self._engine.directory.sync()
