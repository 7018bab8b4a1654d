"""A room's ties to the local store; without a store every call here does nothing."""

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
    """What a mirror tells the store."""

    def __init__(self, shelf: "DocumentStore | None" = None) -> None:
        self.shelf = shelf

    @property
    def active(self) -> bool:
        """Whether anything is kept."""
        return self.shelf is not None and self.shelf.keeps

    @property
    def failure(self) -> StoreFailed | None:
        return None if self.shelf is None else self.shelf.failure

    def stored(self, commit: int) -> bool:
        """Whether that commit and all before it are on the disk."""
        return self.shelf is not None and self.shelf.stored >= commit

    def local(self, commit: int, log_id: str, payload: bytes) -> None:
        if self.shelf is not None:
            self.shelf.local(commit, log_id, payload)

    def assigned(self, flights: Sequence[OutgoingUpdate]) -> None:
        """These are about to be sent: their ids go to the store before."""
        if self.shelf is not None:
            for flight in flights:
                self.shelf.assigned(flight)

    def remote(self, payload: bytes) -> None:
        if self.shelf is not None:
            self.shelf.remote(payload)

    def settled(self, log_id: str) -> None:
        if self.shelf is not None:
            self.shelf.settled(log_id)

    def deleted(self) -> None:
        if self.shelf is not None:
            self.shelf.deleted()

    def fall_behind(self) -> None:
        """What comes now can only be told by a snapshot."""
        if self.shelf is not None:
            self.shelf.fall_behind()

    def snapshot(self, replica: LocalReplica, outbox: Outbox, generation: int | None) -> bool:
        """Write all of the document; False if there was no room for it now."""
        if self.shelf is None or not self.shelf.keeps:
            return True
        entries = [PendingUpdate(*entry) for entry in outbox.entries()]
        if not self.shelf.snapshot(generation, replica.snapshot(), entries, outbox.commits):
            return False
        outbox.stored()
        return True

    async def durable(self, seconds: float) -> None:
        """Return when all that was told is on the disk; also when the store has failed."""
        if self.shelf is not None:
            await self.shelf.durable(seconds)
