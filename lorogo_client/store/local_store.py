"""The store of a running client: one log for all its documents, locked against other processes."""

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
from lorogo_protocol.messages.digest import digest
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

SEGMENT_BYTES = 2 * 1024 * 1024
_AHEAD_BYTES = 64 * 1024
ASIDE = "aside"  # a folder next to the segments


class LocalStore:
    """Copies of documents on the disk or another storage. `connect(store=path)` creates it."""

    def __init__(self, path: str | os.PathLike[str], storage: Storage | None = None) -> None:
        self.path = os.fspath(path)
        self.failure: StoreFailed | None = None  # permanent, or StoreFull while the disk is full
        self.damage: list[str] = []  # descriptions of damaged files
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
        self._indexes: dict[str, CopyIndex] = {}
        self._open: dict[str, tuple[DocumentStore, bool]] = {}  # by document; the flag: read-only
        self._cleaner = Cleaner(self._log, self._indexes)

    async def open(self) -> None:
        """Lock the directory and scan its records. Raises StoreLocked, StoreFailed."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._log.__aenter__()
        except LockedError:
            raise StoreLocked(self.path) from None
        except (LogError, OSError) as error:
            raise StoreFailed(f"the store {self.path} cannot be opened: {error}") from error
        opened = False
        try:
            await self._scan()
            opened = True
        except (LogError, OSError, UnreadableRecord) as error:
            raise StoreFailed(f"the store {self.path} cannot be read: {error}") from error
        finally:
            if not opened:
                await self._log.close()
        self._cleaner.start()
        damaged = [one.document_id for one in self.documents() if one.damaged]
        if self.damage or damaged:
            log.error("store is damaged", path=self.path, problems=self.damage, documents=damaged)

    async def close(self) -> None:
        """Flush the queue and release the lock."""
        for document_store, _ in list(self._open.values()):
            document_store.end()
        await self._cleaner.close()
        try:
            await self._log.close()
        except (LogError, OSError, TimeoutError) as error:
            self.fail(error)

    # --- contents

    def documents(self) -> list[StoredDocument]:
        """List the stored documents."""
        return [
            stored_document(document_id, index)
            for document_id, index in sorted(self._indexes.items())
            if index.kept
        ]

    def has(self, document_id: str) -> bool:
        index = self._indexes.get(document_id)
        return index is not None and index.kept

    async def take(
        self, document_id: str, *, read_only: bool
    ) -> tuple[DocumentStore | None, DocumentCopy | None]:
        """Return the document store for a session that opens the document, and the stored copy.

        A writer takes the document store over from a reader. A reader gets only the copy, no document store,
        while a writer has it or edits are unsaved: it must not store edits of other sessions.
        """
        current = self._open.get(document_id)
        if current is not None and not read_only:
            self.release(current[0])  # of a reader, or of a room that failed or is closing
            current = None
        await self._reread(document_id)
        kept = await self._load(document_id) if self.has(document_id) else None
        if read_only and (current is not None or (kept is not None and (kept.outbox or not kept.whole))):
            return None, kept
        if (now := self._open.get(document_id)) is not None:  # opened during the read
            if read_only:
                return None, kept
            self.release(now[0])
        document_store = DocumentStore(self, document_id, self._indexes.setdefault(document_id, CopyIndex()))
        self._open[document_id] = (document_store, read_only)
        return document_store, kept

    def release(self, document_store: DocumentStore) -> None:
        """Release a document store when its document is closed."""
        document_store.end()
        current = self._open.get(document_store.document_id)
        if current is not None and current[0] is document_store:
            del self._open[document_store.document_id]
            if document_store.index.outline.number < 0:
                self._indexes.pop(document_store.document_id, None)  # nothing was ever written

    async def forget(self, document_id: str) -> bool:
        """Delete the copy, unsaved edits included; False if there is none. Raises StoreFailed."""
        if not self.has(document_id):
            return False
        if document_id in self._open:
            raise StoreFailed(f"{document_id} is open: close it before you forget it")
        if self.failure is not None:
            raise self.failure
        await self._reread(document_id)
        index = self._indexes.get(document_id)
        if index is None:
            return False
        before = index.bytes
        record = ForgottenMark(index.outline.number + 1)
        try:
            index.base = await self.append(document_id, record)
        except DiskFullError as error:
            raise StoreFull(self.path, str(error)) from error
        except LogError as error:
            self.fail(error)
            raise StoreFailed(f"cannot forget {document_id}: {error}") from error
        index.add(record)
        index.snapshot_bytes = index.tail_bytes = 0
        self._cleaner.obsolete(before)
        return True

    async def put_aside(self, document_id: str, payloads: Sequence[bytes]) -> list[str]:
        """Write updates that cannot be applied as files next to the log; return their paths."""

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

    # --- for document stores

    def append(self, document_id: str, record: Record) -> "asyncio.Future[int]":
        return self._log.append_nowait(encode(record), key=document_id.encode())

    def replaced(self, index: CopyIndex, base: int, bytes_: int) -> None:
        index.base, index.ahead = base, False
        self._cleaner.obsolete(bytes_)

    def fail(self, error: Exception) -> None:
        if self.failure is None or isinstance(self.failure, StoreFull):
            self.failure = StoreFailed(
                f"the store {self.path} has stopped, edits are only in memory until they are ACKed: {error}"
            )
            log.error("store stopped", path=self.path, problem=str(error))
            for document_store, _ in list(self._open.values()):
                document_store.wake()

    # --- a full disk

    def _on_full(self, error: DiskFullError | None) -> None:
        """Handle a full disk, or (None) free space. Called from the log's thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._filled, error)

    def _filled(self, error: DiskFullError | None) -> None:
        """Record that the disk is full; on free space (None) request a snapshot of every open document."""
        if self.failure is not None and not isinstance(self.failure, StoreFull):
            return
        stores = [document_store for document_store, _ in self._open.values()]
        if error is not None:
            self.failure = StoreFull(self.path, str(error))
            log.error("store waits for disk space", path=self.path, problem=str(error))
        elif self.failure is not None:
            self.failure = None
            log.info("store resumed", path=self.path)
            for document_store in stores:
                document_store.require_snapshot()
        for document_store in stores:
            document_store.wake()

    async def _reread(self, document_id: str) -> None:
        """Rebuild a document's index from the disk if it counts records that a full disk refused."""
        known = self._indexes.get(document_id)
        if known is None or not known.ahead:
            return
        index = CopyIndex(base=known.base)
        async with self._cleaner.paused():
            try:
                async for _, _, record in self._records(from_seq=known.base, key=document_id.encode()):
                    index.add(record)
            except (LogError, OSError, UnreadableRecord) as error:
                raise StoreFailed(f"{document_id} cannot be read from {self.path}: {error}") from error
        if index.outline.number < 0:
            self._indexes.pop(document_id, None)
        else:
            self._indexes[document_id] = index

    # --- internals

    def _on_damage(self, damage: DamageError) -> None:
        """Record damage. Called from any thread."""
        self.damage.append(f"{Path(damage.path).name} at byte {damage.offset}: {damage.reason}")

    async def _scan(self) -> None:
        """Read all records once: index each document, and count obsolete bytes."""
        total = 0
        async for sequence, document_id, record in self._records(from_seq=0):
            index = self._indexes.get(document_id)
            if index is None:
                index = self._indexes[document_id] = CopyIndex(base=sequence)
            index.add(record)
            if isinstance(record, StoreSnapshot | ForgottenMark):
                index.base = sequence
            total += size_of(record)
        self._cleaner.obsolete(total - sum(index.bytes for index in self._indexes.values()))

    async def _load(self, document_id: str) -> DocumentCopy | None:
        async with self._cleaner.paused():
            try:
                if self.failure is None:
                    with suppress(DiskFullError):  # then the queue is empty
                        await self._log.flush()
                base = self._indexes[document_id].base
                records = self._records(from_seq=base, key=document_id.encode())
                return replay([record async for _, _, record in records])
            except (LogError, OSError, UnreadableRecord) as error:
                raise StoreFailed(f"{document_id} cannot be read from {self.path}: {error}") from error

    async def _records(self, **where: Any) -> AsyncIterator[tuple[int, str, Record]]:
        async for batch in self._log.read(damaged="skip", **where):
            for found in batch.records():
                yield found.sequence, found.key.decode(), decode(found.value)
