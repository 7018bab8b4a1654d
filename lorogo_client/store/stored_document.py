"""The index of a store: facts about its documents without their contents."""

from dataclasses import dataclass, field

from lorogo_client.store.records import Record, StoreSnapshot, size_of
from lorogo_client.store.replay import DocumentCopy, apply_record, without_payloads


@dataclass(slots=True)
class CopyIndex:
    """One document's index entry: position, sizes and state without payloads."""

    base: int = 0  # sequence of the record to read from
    snapshot_bytes: int = 0
    tail_bytes: int = 0  # of the records since the snapshot
    tail_records: int = 0
    outline: DocumentCopy = field(default_factory=DocumentCopy)  # without payloads
    ahead: bool = False  # counts records that a full disk refused

    @property
    def kept(self) -> bool:
        """True if the store has a copy."""
        return self.outline.number >= 0 and not self.outline.forgotten

    @property
    def bytes(self) -> int:
        return self.snapshot_bytes + self.tail_bytes

    def add(self, record: Record) -> None:
        """Count a record."""
        self.outline = apply_record(self.outline, without_payloads(record))
        if isinstance(record, StoreSnapshot):
            self.snapshot_bytes, self.tail_bytes, self.tail_records = size_of(record), 0, 0
        else:
            self.tail_bytes += size_of(record)
            self.tail_records += 1


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document in the store, as listed for users."""

    document_id: str
    unsaved: int  # updates without an ACK
    deleted: bool  # on the server; unsaved edits are still stored
    damaged: bool  # records are missing: only a server can complete it
    bytes: int


def stored_document(document_id: str, index: CopyIndex) -> StoredDocument:
    """Return the listing of an index entry."""
    return StoredDocument(
        document_id,
        unsaved=len(index.outline.outbox),
        deleted=index.outline.deleted,
        damaged=not index.outline.whole,
        bytes=index.bytes,
    )
