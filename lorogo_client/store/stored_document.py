"""What a store knows of its documents without reading them."""

from dataclasses import dataclass, field

from lorogo_client.store.records import Record, StoreSnapshot, size_of
from lorogo_client.store.replay import DocumentCopy, lean, step


@dataclass(slots=True)
class CopyIndex:
    """What the store knows of a document without reading it."""

    base: int = 0  # sequence of the record to read from
    snapshot_bytes: int = 0
    tail_bytes: int = 0  # of the records since the snapshot
    tail_records: int = 0
    outline: DocumentCopy = field(default_factory=DocumentCopy)  # without bytes
    ahead: bool = False  # it counts records that found no room on the disk

    @property
    def kept(self) -> bool:
        """Whether there is a copy."""
        return self.outline.number >= 0 and not self.outline.forgotten

    @property
    def bytes(self) -> int:
        return self.snapshot_bytes + self.tail_bytes

    def add(self, record: Record) -> None:
        """Note a record that follows."""
        self.outline = step(self.outline, lean(record))
        if isinstance(record, StoreSnapshot):
            self.snapshot_bytes, self.tail_bytes, self.tail_records = size_of(record), 0, 0
        else:
            self.tail_bytes += size_of(record)
            self.tail_records += 1


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document in the store, for people and for lists in an app."""

    document_id: str
    unsaved: int  # updates without an ACK
    deleted: bool  # the server said so; what is unsaved is still here
    damaged: bool  # records are lost: only a server can complete it
    bytes: int


def stored_document(document_id: str, place: CopyIndex) -> StoredDocument:
    """What a place says."""
    return StoredDocument(
        document_id,
        unsaved=len(place.outline.outbox),
        deleted=place.outline.deleted,
        damaged=not place.outline.whole,
        bytes=place.bytes,
    )
