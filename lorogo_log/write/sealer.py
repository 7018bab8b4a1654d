"""The background of a writer: the next segment is there before it is needed, a finished one gets its seal.

```
 writer thread ── take_standby ◀── prepared ── background thread (run)
               ── hand_over ─────▶ to seal  ──▶ sealed: whoever waits for `last` is told
```

Its lock is for what the two threads hand to each other, and never held while the disk works.
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
        """`failed` says what has stopped the log, if anything; `fail` stops it, and calls `stop`.

        `full` is called when the disk is full; the background then waits for `again`. None: that fails, too.
        """
        self._engine = engine
        self._failed = failed
        self._fail = fail
        self._full = full
        self._stuck: DiskFull | None = None  # until there is room again
        self._after_seal = after_seal
        self._jobs = threading.Condition()
        self._seals: deque[OpenSegment] = deque()
        self._unsealed: deque[Future[None]] = deque()  # one for each that was handed over, in order
        self._retired = False
        #: the segment that will follow the active one, once it is prepared
        self.standby: OpenSegment | None = None

    # -- the writer's thread ------------------------------------------------------------------------

    def take_standby(self) -> OpenSegment:
        """The next segment, when it is prepared."""
        with self._jobs:
            while self.standby is None:
                if (error := self._failed()) is not None:
                    raise error
                if self._stuck is not None:
                    raise self._stuck
                if not self._jobs.wait(limits.CLOSE_SECONDS):
                    raise OSError("the next segment was not ready in time")
            standby, self.standby = self.standby, None
            return standby

    def again(self) -> None:
        """There may be room on the disk: try again what found none."""
        with self._jobs:
            self._stuck = None
            self._jobs.notify_all()

    def prepared(self) -> None:
        """Return when the next segment is prepared. Raises DiskFull."""
        standby = self.take_standby()
        with self._jobs:
            self.standby = standby

    def hand_over(self, segment: OpenSegment) -> None:
        """A segment that gets no more frames is sealed in the background."""
        with self._jobs:
            self._seals.append(segment)
            self._unsealed.append(Future())
            self._jobs.notify_all()

    def last(self) -> Future[None] | None:
        """Done when everything that was handed over until now is sealed; None if it is."""
        with self._jobs:
            return self._unsealed[-1] if self._unsealed else None

    def retire(self) -> None:
        """Nothing more is handed over: what there is will be sealed, and the prepared file removed."""
        with self._jobs:
            self._retired = True
            self._jobs.notify_all()

    # -- any thread ---------------------------------------------------------------------------------

    def stop(self, error: LogFailedError) -> None:
        """The log has stopped: whoever waits for a seal is told, and the background ends."""
        with self._jobs:
            never, self._unsealed = self._unsealed, deque()
            self._jobs.notify_all()
        for sealed in never:
            sealed.set_exception(error)

    def refuse(self, error: LogError) -> None:
        """Fail the waiting futures: their seals do not come now. The seals themselves are still due."""
        with self._jobs:
            waiting, self._unsealed = self._unsealed, deque(Future() for _ in self._unsealed)
        for sealed in waiting:
            sealed.set_exception(error)

    def forked(self) -> None:
        """In a child process: whoever held the lock stayed with the parent."""
        self._jobs = threading.Condition()

    # -- the background thread ----------------------------------------------------------------------

    def run(self) -> None:
        """Work until the writer retires, or the log has stopped."""
        self._work(wait=True)

    def tidy(self) -> None:
        """Do what there is to do now: for who has no thread for it."""
        self._work(wait=False)

    def prepare(self) -> None:
        """Have the next segment ready."""
        standby = self._engine.prepare()
        with self._jobs:
            self.standby = standby
            self._jobs.notify_all()

    def _work(self, *, wait: bool) -> None:
        """Have the next file ready, seal what is finished: in this order."""
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
                    if retired:  # it ends with its last frame: the next open seals it
                        self.refuse(DiskFullError(str(full)))
                        break
                    with self._jobs:
                        self._stuck = full
                        self._jobs.notify_all()
                    self._full(full)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
            self._fail(error)
        for segment in [*self._seals, *([self.standby] if self.standby else [])]:
            segment.file.close()

    def _has_job(self) -> bool:
        """Whether there is work, or a reason to end; with the lock held."""
        work = self._stuck is None and (self.standby is None or bool(self._seals))
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
        """The log is closed: a file that was prepared for nothing disappears."""
        if self.standby is not None:
            self._engine.discard(self.standby)
            self.standby = None
        self._engine.directory.sync()
