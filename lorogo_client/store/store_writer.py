"""Access of a mirror to the local store; without a store every call does nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lorogo_client.delivery.outbox import Outbox, OutgoingUpdate
from lorogo_client.errors import StoreFailed
from lorogo_client.replica import LocalReplica
from lorogo_client.store.records import PendingUpdate

if TYPE_CHECKING:
    from lorogo_client.store.document_store import (
        DocumentStore,
    )  # loads the log, which a client without a store does not need


class StoreWriter:
    """Writes a mirror's records to the store."""

    def __init__(self, document_store: "DocumentStore | None" = None) -> None:
        self.document_store = document_store

    @property
    def active(self) -> bool:
        """True if records are stored."""
        return self.document_store is not None and self.document_store.keeps

    @property
    def failure(self) -> StoreFailed | None:
        return None if self.document_store is None else self.document_store.failure

    def stored(self, commit: int) -> bool:
        """True if this commit and all before it are on the disk."""
        return self.document_store is not None and self.document_store.stored >= commit

    def local(self, commit: int, log_id: str, payload: bytes) -> None:
        if self.document_store is not None:
            self.document_store.local(commit, log_id, payload)

    def assigned(self, flights: Sequence[OutgoingUpdate]) -> None:
        """Record the log ids of updates before they are sent."""
        if self.document_store is not None:
            for flight in flights:
                self.document_store.assigned(flight)

    def remote(self, payload: bytes) -> None:
        if self.document_store is not None:
            self.document_store.remote(payload)

    def settled(self, log_id: str) -> None:
        if self.document_store is not None:
            self.document_store.settled(log_id)

    def deleted(self) -> None:
        if self.document_store is not None:
            self.document_store.deleted()

    def require_snapshot(self) -> None:
        """Refuse further records until a snapshot is written."""
        if self.document_store is not None:
            self.document_store.require_snapshot()

    def snapshot(self, replica: LocalReplica, outbox: Outbox, generation: int | None) -> bool:
        """Write a snapshot of the document; False if the log's queue is full."""
        if self.document_store is None or not self.document_store.keeps:
            return True
        entries = [PendingUpdate(*entry) for entry in outbox.entries()]
        if not self.document_store.snapshot(generation, replica.snapshot(), entries, outbox.commits):
            return False
        outbox.stored()
        return True

    async def durable(self, seconds: float) -> None:
        """Return when every record is on the disk, or when the store has failed."""
        if self.document_store is not None:
            await self.document_store.durable(seconds)
