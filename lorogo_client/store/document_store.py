"""One document in the store: appends the room's records to the log, in order.

Only `durable()` waits. After a record that could not be queued the stored copy *needs a snapshot*: no
further record is accepted until the room writes a snapshot of the whole document.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from lorogo_client.delivery.outbox import OutgoingUpdate
from lorogo_client.errors import StoreFailed
from lorogo_client.store.records import (
    AckedUpdate,
    AssignedLogId,
    DeletionMark,
    LocalCommit,
    PendingUpdate,
    Record,
    RemoteUpdate,
    StoreSnapshot,
)
from lorogo_client.store.stored_document import CopyIndex
from lorogo_log import DiskFullError, LogError, QueueFullError

TAIL_BYTES_MIN = 256 * 1024  # of records since the snapshot, before a new snapshot
TAIL_RECORDS_MIN = 4096  # the same for small records: each takes some 50 microseconds on opening
BYTES_PER_RECORD = 256  # one more record per this many bytes of the snapshot
CLOSED_TAIL_BYTES_MIN = 16 * 1024  # TAIL_BYTES_MIN for closed documents: there may be very many
_PARTS = 10  # of the disk's time limit


class RecordSink(Protocol):
    """The part of the store that a document store uses."""

    failure: StoreFailed | None

    def append(self, document_id: str, record: Record) -> "asyncio.Future[int]":
        """Queue a record. Raises LogError."""

    def replaced(self, index: CopyIndex, base: int, bytes_: int) -> None:
        """Count the bytes that a durable snapshot replaced as obsolete."""

    def fail(self, error: Exception) -> None:
        """Stop the store after an error."""


class DocumentStore:
    """The stored copy of a room's document."""

    def __init__(self, store: RecordSink, document_id: str, index: CopyIndex) -> None:
        self.document_id = document_id
        self.index = index
        self.needs_snapshot = False  # records are refused until a snapshot is written
        self.stored = index.outline.commits  # the newest durable commit
        self.on_change: Callable[[], None] = lambda: None
        self.write_last_snapshot: Callable[[], object] = lambda: (
            None
        )  # called at the end if a snapshot is needed
        self._store = store
        self._ended = False
        self._newest: asyncio.Future[int] | None = None
        self._changed = asyncio.Event()  # wakes `durable()`

    @property
    def failure(self) -> StoreFailed | None:
        """The store's error; None if it works."""
        return self._store.failure

    @property
    def keeps(self) -> bool:
        """True if records are accepted."""
        return not self._ended and self._store.failure is None

    @property
    def wants_snapshot(self) -> bool:
        """True if a snapshot is required, or if the records since the last are slow to replay."""
        index = self.index
        return self.keeps and (
            self.needs_snapshot
            or index.tail_bytes > max(TAIL_BYTES_MIN, 2 * index.snapshot_bytes)
            or index.tail_records > max(TAIL_RECORDS_MIN, index.snapshot_bytes // BYTES_PER_RECORD)
        )

    @property
    def worth_a_snapshot(self) -> bool:
        """True if a closed document should be compacted into a snapshot."""
        return self.keeps and self.index.tail_bytes > CLOSED_TAIL_BYTES_MIN + 2 * self.index.snapshot_bytes

    def local(self, commit: int, log_id: str, payload: bytes) -> None:
        self._put(LocalCommit(self._next, commit, log_id, payload), commit)

    def assigned(self, flight: OutgoingUpdate) -> None:
        """Record an update's log id; writes nothing if it is stored already."""
        if not flight.stored:
            payload = None if flight.plain else flight.payload
            self._put(
                AssignedLogId(self._next, flight.log_id, flight.first, flight.last, payload), flight.last
            )
            flight.stored = True

    def remote(self, payload: bytes) -> None:
        self._put(RemoteUpdate(self._next, payload))

    def settled(self, log_id: str) -> None:
        self._put(AckedUpdate(self._next, log_id))

    def deleted(self) -> None:
        if not self.index.outline.deleted:
            self._put(DeletionMark(self._next))

    def require_snapshot(self) -> None:
        """Refuse further records until a snapshot is written."""
        if self.keeps and not self.needs_snapshot:
            self.needs_snapshot = True
            self.on_change()

    def snapshot(
        self, generation: int | None, replica: bytes, outbox: Iterable[PendingUpdate], commits: int
    ) -> bool:
        """Write a snapshot that replaces all earlier records; False if it must be tried again."""
        if not self.keeps:
            return True
        record = StoreSnapshot(self._next, generation, replica, tuple(outbox), commits)
        index, before = self.index, self.index.bytes
        self.needs_snapshot = False
        future = self._put(record, record.commits)
        if future is None:
            return not self.needs_snapshot

        def on_disk(done: "asyncio.Future[int]") -> None:
            if not done.cancelled() and done.exception() is None:
                self._store.replaced(index, done.result(), before)

        future.add_done_callback(on_disk)
        self._changed.set()
        return True

    async def durable(self, seconds: float) -> None:
        """Return when every record is on the disk, or when the store has failed (see `failure`).

        The time limit is counted in parts, so that a process that was suspended for longer does not blame its
        disk: the suspension uses up only one part.
        """
        for _ in range(_PARTS):
            part = asyncio.timeout(seconds / _PARTS)
            try:
                async with part:
                    await self._on_disk()
                    return
            except TimeoutError:
                if not part.expired():
                    raise
        self._store.fail(TimeoutError(f"the disk did not answer in {seconds:g} s"))

    async def _on_disk(self) -> None:
        while self.keeps:
            if self.needs_snapshot:
                self._changed.clear()
                await self._changed.wait()
            elif self._newest is not None and not self._newest.done():
                await asyncio.wait({self._newest})
            else:
                return

    def end(self) -> None:
        """Accept no more records."""
        if self.needs_snapshot and self.keeps:
            self.write_last_snapshot()
        self._ended = True
        self.wake()

    def wake(self) -> None:
        """Wake waiters after the store failed or closed."""
        self._changed.set()
        self.on_change()

    @property
    def _next(self) -> int:
        return self.index.outline.number + 1

    def _put(self, record: Record, commit: int = 0) -> "asyncio.Future[int] | None":
        """Queue a record. Called in Loro's callbacks, so it must not raise."""
        if not self.keeps or self.needs_snapshot:
            return None
        try:
            future = self._store.append(self.document_id, record)
        except (QueueFullError, DiskFullError, RuntimeError):
            # RuntimeError: a commit outside the loop's thread
            self.require_snapshot()
            return None
        except LogError as error:
            self._store.fail(error)
            return None
        self.index.add(record)
        self._newest = future
        future.add_done_callback(lambda done: self._on_done(done, commit))
        if self.wants_snapshot:
            self.on_change()
        return future

    def _on_done(self, done: "asyncio.Future[int]", commit: int) -> None:
        if done.cancelled():
            return
        if isinstance(error := done.exception(), DiskFullError):
            self.index.ahead = True
            self.require_snapshot()
        elif error is not None:
            self._store.fail(error if isinstance(error, Exception) else RuntimeError(str(error)))
        elif commit > self.stored:
            self.stored = commit
            self.on_change()
