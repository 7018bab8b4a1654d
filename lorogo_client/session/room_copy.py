"""A room's copy in the local store: opened, kept current and released with the room."""

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

_AGAIN_SECONDS = 0.05  # before a retry on a full log queue


class RoomCopy:
    """The stored copy of one room; does nothing if the client has no store."""

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
        self.usable = False  # the copy can be read and edited without a server
        self.blank = False  # there is no copy: the app opened with `create`

    @property
    def failure(self) -> StoreFailed | None:
        """The store's error; None if it works, or if there is no store."""
        return None if self._store is None else self._store.failure

    def why_not(self) -> LorogoError:
        """Return why the document cannot be opened without a server."""
        if self._deleted:
            return DocumentDeleted(self._document_id)
        return StoreDamaged(self._document_id) if self._mirror.damaged else NotStored(self._document_id)

    async def open(self, *, create: bool) -> None:
        """Load the copy. Raises StoreFailed if it exists but cannot be read."""
        if self._store is None:
            return
        mirror = self._mirror
        document_store, kept = await self._store.take(self._document_id, read_only=mirror.read_only)
        mirror.store_writer = StoreWriter(document_store)
        if document_store is not None:
            document_store.on_change, document_store.write_last_snapshot = (
                weakly(self._changed),
                weakly(self._write_last_snapshot),
            )
        if kept is not None:
            mirror.restore(kept)
            self._deleted = kept.deleted
            self.usable = not mirror.damaged and not kept.deleted
        elif create:
            mirror.store_snapshot()
            self.usable = self.blank = True
        else:
            mirror.store_writer.require_snapshot()  # the first record is a snapshot, after the first sync

    async def run(self) -> None:
        """Write a snapshot whenever one is wanted. Runs until the room cancels it."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            document_store = self._mirror.store_writer.document_store
            while (
                document_store is not None
                and document_store.wants_snapshot
                and (self._mirror.ready or self.usable)
            ):
                if self._mirror.store_snapshot():
                    break
                await asyncio.sleep(_AGAIN_SECONDS)

    async def put_aside(self) -> None:
        """Write unsaved edits of a damaged store that cannot be applied into files."""
        lost, self._mirror.lost = self._mirror.lost, []
        if lost and self._store is not None:
            places = await self._store.put_aside(self._document_id, [entry.payload for entry in lost])
            log.error(
                "unsaved edits depend on records that the damaged store lost",
                document=self._document_id,
                files=places,
            )

    async def close(self) -> None:
        """Wait for the disk, bounded, and release the copy for other sessions."""
        document_store = self._mirror.store_writer.document_store
        if self._store is None or document_store is None:
            return
        try:
            if document_store.worth_a_snapshot:
                document_store.require_snapshot()
            self._write_last_snapshot()
            if not document_store.needs_snapshot:
                await document_store.durable(self._seconds)
        finally:
            self._store.release(document_store)

    def _write_last_snapshot(self) -> None:
        """Write the snapshot that is required before the copy closes."""
        document_store = self._mirror.store_writer.document_store
        if (
            document_store is not None
            and document_store.needs_snapshot
            and (self.usable or self._mirror.ready)
        ):
            try:
                self._mirror.store_snapshot()
            except CrdtError as error:  # Loro panicked on the replica: the stored records stay
                log.warning("cannot write the stored copy", document=self._document_id, problem=str(error))

    def _changed(self) -> None:
        self._wake.set()
        self._on_change()
