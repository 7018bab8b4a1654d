"""A room's copy in the local store: taken when the room opens, kept current, given back when it closes."""

import asyncio
from collections.abc import Callable

from lorogo_client.context import ClientContext
from lorogo_client.errors import DocumentDeleted, NotStored, StoreDamaged, StoreFailed
from lorogo_client.session.mirror import Mirror
from lorogo_client.session.weak_callbacks import weakly
from lorogo_client.store.store_writer import StoreWriter
from lorogo_protocol.errors import CrdtError, LorogoError
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_AGAIN_SECONDS = 0.05  # until a full queue of the log is asked again


class RoomCopy:
    """The store's side of one room; does nothing if the client has no store."""

    def __init__(
        self, context: ClientContext, document_id: str, mirror: Mirror, *, on_change: Callable[[], None]
    ) -> None:
        self._store = context.store
        self._seconds = context.settings.store_seconds
        self._document_id = document_id
        self._mirror = mirror
        self._on_change = on_change
        self._wake = asyncio.Event()
        self._deleted = False
        self.usable = False  # the copy can be shown and edited without a server
        self.blank = False  # and it is none: the app asked for an empty one

    @property
    def failure(self) -> StoreFailed | None:
        """Why edits are not kept on this disk; None if they are, or if nobody asked for that."""
        return None if self._store is None else self._store.failure

    def why_not(self) -> LorogoError:
        """Why the document cannot be opened without a server."""
        if self._deleted:
            return DocumentDeleted(self._document_id)
        return StoreDamaged(self._document_id) if self._mirror.damaged else NotStored(self._document_id)

    async def open(self, *, create: bool) -> None:
        """Take the copy. Raises StoreFailed if there is one that cannot be read."""
        if self._store is None:
            return
        mirror = self._mirror
        shelf, kept = await self._store.take(self._document_id, read_only=mirror.read_only)
        mirror.keeping = StoreWriter(shelf)
        if shelf is not None:
            shelf.on_change, shelf.rescue = weakly(self._changed), weakly(self._rescue)
        if kept is not None:
            mirror.restore(kept)
            self._deleted = kept.deleted
            self.usable = not mirror.damaged and not kept.deleted
        elif create:
            mirror.keep_whole()
            self.usable = self.blank = True
        else:
            mirror.keeping.fall_behind()  # the first record is a snapshot, after the first sync

    async def run(self) -> None:
        """Write a snapshot whenever one is wanted. For ever; the room owns it."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            shelf = self._mirror.keeping.shelf
            while shelf is not None and shelf.wants_snapshot and (self._mirror.ready or self.usable):
                if self._mirror.keep_whole():
                    break
                await asyncio.sleep(_AGAIN_SECONDS)

    async def put_aside(self) -> None:
        """Unsaved edits that a damaged store had, and that fit nowhere, become files."""
        lost, self._mirror.lost = self._mirror.lost, []
        if lost and self._store is not None:
            places = await self._store.put_aside(self._document_id, [entry.payload for entry in lost])
            log.error("edits build on what the damaged store lost", document=self._document_id, files=places)

    async def close(self) -> None:
        """Wait for the disk, bounded, and let others take the copy."""
        shelf = self._mirror.keeping.shelf
        if self._store is None or shelf is None:
            return
        try:
            if shelf.worth_a_snapshot:
                shelf.fall_behind()
            self._rescue()
            if not shelf.behind:
                await shelf.durable(self._seconds)
        finally:
            self._store.release(shelf)

    def _rescue(self) -> None:
        """The last chance for what only a snapshot can tell."""
        shelf = self._mirror.keeping.shelf
        if shelf is not None and shelf.behind and (self.usable or self._mirror.ready):
            try:
                self._mirror.keep_whole()
            except CrdtError as error:  # a replica that broke: what was stored before stays
                log.warning("the copy could not be written", document=self._document_id, problem=str(error))

    def _changed(self) -> None:
        self._wake.set()
        self._on_change()
