"""The store of a client that is running: one log for all its documents, locked against other processes."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lorogo_client.errors import StoreFailed, StoreFull, StoreLocked
from lorogo_client.store.cleaner import Cleaner
from lorogo_client.store.document_store import DocumentStore
from lorogo_client.store.records import (
    ForgottenMark,
    Record,
    StoreSnapshot,
    UnreadableRecord,
    decode,
    encode,
    size_of,
)
from lorogo_client.store.replay import DocumentCopy, replay
from lorogo_client.store.stored_document import CopyIndex, StoredDocument, stored_document
from lorogo_log import (
    DamageError,
    DiskFullError,
    FileStorage,
    LockedError,
    Log,
    LogError,
    RecoveryMode,
    Storage,
    WriteFailure,
    replace_file,
)
from lorogo_protocol.digest import digest
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

SEGMENT_BYTES = 2 * 1024 * 1024
_AHEAD_BYTES = 64 * 1024
ASIDE = "aside"  # a folder beside the segments


class LocalStore:
    """Copies of documents on this disk, or on a storage. `connect(store=path)` makes one."""

    def __init__(self, path: str | os.PathLike[str], storage: Storage | None = None) -> None:
        self.path = os.fspath(path)
        self.failure: StoreFailed | None = None  # for good, or StoreFull while the disk is
        self.damage: list[str] = []  # what was wrong with the files, in words
        self._storage: Storage = storage or FileStorage()
        self._log = Log.open(
            path,
            segment_bytes=SEGMENT_BYTES,
            ahead_bytes=_AHEAD_BYTES,
            storage=self._storage,
            recovery=RecoveryMode.SALVAGE,
            failure=WriteFailure(full=self._on_full),
            on_damage=self._on_damage,
        )
        self._places: dict[str, CopyIndex] = {}
        self._shelves: dict[
            str, tuple[DocumentStore, bool]
        ] = {}  # who keeps a document now, and if to read only
        self._cleaner = Cleaner(self._log, self._places)

    async def open(self) -> None:
        """Lock the directory and look what is there. Raises StoreLocked, StoreFailed."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._log.__aenter__()
        except LockedError:
            raise StoreLocked(self.path) from None
        except (LogError, OSError) as error:
            raise StoreFailed(f"the store {self.path} cannot be opened: {error}") from error
        opened = False
        try:
            await self._survey()
            opened = True
        except (LogError, OSError, UnreadableRecord) as error:
            raise StoreFailed(f"the store {self.path} cannot be read: {error}") from error
        finally:
            if not opened:
                await self._log.close()
        self._cleaner.start()
        damaged = [one.document_id for one in self.documents() if one.damaged]
        if self.damage or damaged:
            log.error("the store is damaged", path=self.path, problems=self.damage, documents=damaged)

    async def close(self) -> None:
        """Write what is queued, and let others open it."""
        for shelf, _ in list(self._shelves.values()):
            shelf.end()
        await self._cleaner.close()
        try:
            await self._log.close()
        except (LogError, OSError, TimeoutError) as error:
            self.fail(error)

    # --- what is in it

    def documents(self) -> list[StoredDocument]:
        """Every document that is kept."""
        return [
            stored_document(document_id, place)
            for document_id, place in sorted(self._places.items())
            if place.kept
        ]

    def has(self, document_id: str) -> bool:
        place = self._places.get(document_id)
        return place is not None and place.kept

    async def take(
        self, document_id: str, *, read_only: bool
    ) -> tuple[DocumentStore | None, DocumentCopy | None]:
        """A shelf for whoever opens the document, and what is on it.

        A writer takes it over from a reader. A reader gets no shelf, only a look, while somebody
        writes or something is unsaved: what is not its own is not its to keep.
        """
        holder = self._shelves.get(document_id)
        if holder is not None and not read_only:
            self.release(holder[0])  # a reader, or a room that failed or is about to be closed
            holder = None
        await self._reread(document_id)
        kept = await self._load(document_id) if self.has(document_id) else None
        if read_only and (holder is not None or (kept is not None and (kept.outbox or not kept.whole))):
            return None, kept
        if (now := self._shelves.get(document_id)) is not None:  # while we read
            if read_only:
                return None, kept
            self.release(now[0])
        shelf = DocumentStore(self, document_id, self._places.setdefault(document_id, CopyIndex()))
        self._shelves[document_id] = (shelf, read_only)
        return shelf, kept

    def release(self, shelf: DocumentStore) -> None:
        """The document is closed."""
        shelf.end()
        holder = self._shelves.get(shelf.document_id)
        if holder is not None and holder[0] is shelf:
            del self._shelves[shelf.document_id]
            if shelf.place.outline.number < 0:
                self._places.pop(shelf.document_id, None)  # nothing was ever written

    async def forget(self, document_id: str) -> bool:
        """Drop the copy, unsaved edits included; False if there is none. Raises StoreFailed."""
        if not self.has(document_id):
            return False
        if document_id in self._shelves:
            raise StoreFailed(f"{document_id} is open: close it before it is forgotten")
        if self.failure is not None:
            raise self.failure
        await self._reread(document_id)
        place = self._places.get(document_id)
        if place is None:
            return False
        before = place.bytes
        record = ForgottenMark(place.outline.number + 1)
        try:
            place.base = await self.append(document_id, record)
        except DiskFullError as error:
            raise StoreFull(self.path, str(error)) from error
        except LogError as error:
            self.fail(error)
            raise StoreFailed(f"{document_id} is not forgotten: {error}") from error
        place.add(record)
        place.snapshot_bytes = place.tail_bytes = 0
        self._cleaner.useless(before)
        return True

    async def put_aside(self, document_id: str, payloads: Sequence[bytes]) -> list[str]:
        """Keep bytes that fit nowhere as files beside the log; their names."""

        def write() -> list[str]:
            folder = self._storage.directory(f"{self.path}/{ASIDE}", create=True)
            names = []
            for payload in payloads:
                name = f"{document_id}.{digest(payload)}.update"
                replace_file(folder, name, payload)
                names.append(f"{folder.path}/{name}")
            return names

        try:
            return await asyncio.to_thread(write)
        except (LogError, OSError) as error:
            self.fail(error)
            return []

    # --- what shelves ask for

    def append(self, document_id: str, record: Record) -> "asyncio.Future[int]":
        return self._log.append_nowait(encode(record), key=document_id.encode())

    def replaced(self, place: CopyIndex, base: int, bytes_: int) -> None:
        place.base, place.ahead = base, False
        self._cleaner.useless(bytes_)

    def fail(self, error: Exception) -> None:
        if self.failure is None or isinstance(self.failure, StoreFull):
            self.failure = StoreFailed(
                f"the store {self.path} has stopped, edits are only in memory until they are ACKed: {error}"
            )
            log.error("the store has stopped", path=self.path, problem=str(error))
            for shelf, _ in list(self._shelves.values()):
                shelf.wake()

    # --- a full disk

    def _on_full(self, error: DiskFullError | None) -> None:
        """Called from the log's thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._filled, error)

    def _filled(self, error: DiskFullError | None) -> None:
        """The disk is full, or (None) has room again: every open document is then written whole."""
        if self.failure is not None and not isinstance(self.failure, StoreFull):
            return
        shelves = [shelf for shelf, _ in self._shelves.values()]
        if error is not None:
            self.failure = StoreFull(self.path, str(error))
            log.error("the store waits for room", path=self.path, problem=str(error))
        elif self.failure is not None:
            self.failure = None
            log.info("the store goes on", path=self.path)
            for shelf in shelves:
                shelf.fall_behind()
        for shelf in shelves:
            shelf.wake()

    async def _reread(self, document_id: str) -> None:
        """Know again what is on the disk of a document, where records were counted that found no room."""
        known = self._places.get(document_id)
        if known is None or not known.ahead:
            return
        place = CopyIndex(base=known.base)
        async with self._cleaner.paused():
            try:
                async for _, _, record in self._records(from_seq=known.base, key=document_id.encode()):
                    place.add(record)
            except (LogError, OSError, UnreadableRecord) as error:
                raise StoreFailed(f"{document_id} cannot be read from {self.path}: {error}") from error
        if place.outline.number < 0:
            self._places.pop(document_id, None)
        else:
            self._places[document_id] = place

    # --- inside

    def _on_damage(self, damage: DamageError) -> None:
        """Called from any thread."""
        self.damage.append(f"{Path(damage.path).name} at byte {damage.offset}: {damage.reason}")

    async def _survey(self) -> None:
        """Read everything once: where each document begins, and what is of no use any more."""
        total = 0
        async for sequence, document_id, record in self._records(from_seq=0):
            place = self._places.get(document_id)
            if place is None:
                place = self._places[document_id] = CopyIndex(base=sequence)
            place.add(record)
            if isinstance(record, StoreSnapshot | ForgottenMark):
                place.base = sequence
            total += size_of(record)
        self._cleaner.useless(total - sum(place.bytes for place in self._places.values()))

    async def _load(self, document_id: str) -> DocumentCopy | None:
        async with self._cleaner.paused():
            try:
                if self.failure is None:
                    with suppress(DiskFullError):  # nothing is queued then
                        await self._log.flush()
                base = self._places[document_id].base
                records = self._records(from_seq=base, key=document_id.encode())
                return replay([record async for _, _, record in records])
            except (LogError, OSError, UnreadableRecord) as error:
                raise StoreFailed(f"{document_id} cannot be read from {self.path}: {error}") from error

    async def _records(self, **where: Any) -> AsyncIterator[tuple[int, str, Record]]:
        async for batch in self._log.read(damaged="skip", **where):
            for found in batch.records():
                yield found.sequence, found.key.decode(), decode(found.value)
