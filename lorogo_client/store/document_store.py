"""One document's place in the store: what a room tells it goes into the log, in order.

Nothing here waits but `durable()`. A record that cannot be queued leaves the shelf *behind*: from then on
only a snapshot of everything helps, and the room is asked for one.
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

TAIL_BYTES_MIN = 256 * 1024  # records since the snapshot that are worth a new one
TAIL_RECORDS_MIN = 4096  # the same for small records, some 50 microseconds each when a document is opened
BYTES_PER_RECORD = 256  # and for so many bytes of a snapshot, one record more
_PARTS = 10  # of the time that a disk has to answer
CLOSED_TAIL_BYTES_MIN = 16 * 1024  # the same when a document is closed: there may be very many of those


class RecordSink(Protocol):
    """What a shelf needs of the store."""

    failure: StoreFailed | None

    def append(self, document_id: str, record: Record) -> "asyncio.Future[int]":
        """Queue a record. Raises LogError."""

    def replaced(self, place: CopyIndex, base: int, bytes_: int) -> None:
        """A snapshot is on the disk: so many bytes before it are of no use any more."""

    def fail(self, error: Exception) -> None:
        """Stop keeping anything."""


class DocumentStore:
    """Where a room keeps its document."""

    def __init__(self, store: RecordSink, document_id: str, place: CopyIndex) -> None:
        self.document_id = document_id
        self.place = place
        self.behind = False  # only a snapshot helps
        self.stored = place.outline.commits  # the newest commit that is on the disk
        self.on_change: Callable[[], None] = lambda: None
        self.rescue: Callable[[], object] = lambda: None  # writes a snapshot, if one is missing at the end
        self._store = store
        self._ended = False
        self._newest: asyncio.Future[int] | None = None
        self._told = asyncio.Event()  # something changed for `durable()`

    @property
    def failure(self) -> StoreFailed | None:
        """Why nothing is kept now, or any more."""
        return self._store.failure

    @property
    def keeps(self) -> bool:
        """Whether records are taken."""
        return not self._ended and self._store.failure is None

    @property
    def wants_snapshot(self) -> bool:
        """Whether only a snapshot helps, or the records since the last are many: reading them takes time."""
        place = self.place
        return self.keeps and (
            self.behind
            or place.tail_bytes > max(TAIL_BYTES_MIN, 2 * place.snapshot_bytes)
            or place.tail_records > max(TAIL_RECORDS_MIN, place.snapshot_bytes // BYTES_PER_RECORD)
        )

    @property
    def worth_a_snapshot(self) -> bool:
        """Whether a document that is closed should be kept in less space."""
        return self.keeps and self.place.tail_bytes > CLOSED_TAIL_BYTES_MIN + 2 * self.place.snapshot_bytes

    def local(self, commit: int, log_id: str, payload: bytes) -> None:
        self._put(LocalCommit(self._next, commit, log_id, payload), commit)

    def assigned(self, flight: OutgoingUpdate) -> None:
        """A flight gets its log id; nothing is written if the store knows it already."""
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
        if not self.place.outline.deleted:
            self._put(DeletionMark(self._next))

    def fall_behind(self) -> None:
        """What comes next can only be told by a snapshot."""
        if self.keeps and not self.behind:
            self.behind = True
            self.on_change()

    def snapshot(
        self, generation: int | None, replica: bytes, outbox: Iterable[PendingUpdate], commits: int
    ) -> bool:
        """Replace everything; False if there was no room for it now."""
        if not self.keeps:
            return True
        record = StoreSnapshot(self._next, generation, replica, tuple(outbox), commits)
        place, before = self.place, self.place.bytes
        self.behind = False
        future = self._put(record, record.commits)
        if future is None:
            return not self.behind

        def on_disk(done: "asyncio.Future[int]") -> None:
            if not done.cancelled() and done.exception() is None:
                self._store.replaced(place, done.result(), before)

        future.add_done_callback(on_disk)
        self._told.set()
        return True

    async def durable(self, seconds: float) -> None:
        """Return when all that was told is on the disk, or the store has failed (see `failure`).

        The seconds are counted in parts: a process that was stopped for longer finds its disk well, and
        has lost one part by it.
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
            if self.behind:
                self._told.clear()
                await self._told.wait()
            elif self._newest is not None and not self._newest.done():
                await asyncio.wait({self._newest})
            else:
                return

    def end(self) -> None:
        """Take nothing more."""
        if self.behind and self.keeps:
            self.rescue()
        self._ended = True
        self.wake()

    def wake(self) -> None:
        """Look again: the store has failed, or is over."""
        self._told.set()
        self.on_change()

    @property
    def _next(self) -> int:
        return self.place.outline.number + 1

    def _put(self, record: Record, commit: int = 0) -> "asyncio.Future[int] | None":
        """Queue a record. Called from within Loro's callbacks: must not raise."""
        if not self.keeps or self.behind:
            return None
        try:
            future = self._store.append(self.document_id, record)
        except (QueueFullError, DiskFullError, RuntimeError):
            # RuntimeError: a commit from outside of the loop's thread
            self.fall_behind()
            return None
        except LogError as error:
            self._store.fail(error)
            return None
        self.place.add(record)
        self._newest = future
        future.add_done_callback(lambda done: self._on_done(done, commit))
        if self.wants_snapshot:
            self.on_change()
        return future

    def _on_done(self, done: "asyncio.Future[int]", commit: int) -> None:
        if done.cancelled():
            return
        if isinstance(error := done.exception(), DiskFullError):
            self.place.ahead = True
            self.fall_behind()
        elif error is not None:
            self._store.fail(error if isinstance(error, Exception) else RuntimeError(str(error)))
        elif commit > self.stored:
            self.stored = commit
            self.on_change()
