"""Access to a store without a client: list and export its documents. Changes and locks nothing.

store = Store.open(path)            # also while the app is running
for document in store.documents():
    print(document.document_id, document.unsaved)
snapshot = store.export("minutes")  # a Loro snapshot, unsaved edits included
"""

import os
from collections.abc import Iterator

from lorogo_client.errors import ClientError, StoreFailed
from lorogo_client.store.records import Record, UnreadableRecord, decode
from lorogo_client.store.replay import DocumentCopy, replay
from lorogo_client.store.restored_replica import restore
from lorogo_client.store.stored_document import CopyIndex, StoredDocument, stored_document
from lorogo_log import DamageError, LogError, Reader, TornError

__all__ = ["Store", "StoredDocument"]


class Store:
    """The documents of a store, read from its files on every call."""

    def __init__(self, path: str | os.PathLike[str], reader: Reader, damage: list[DamageError]) -> None:
        self.path = os.fspath(path)
        self._reader = reader
        self._damage = damage

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Store":
        """Open a store. Raises StoreFailed if there is none."""
        damage: list[DamageError] = []
        try:
            return cls(path, Reader.open(path, on_damage=damage.append), damage)
        except (LogError, OSError) as error:
            raise StoreFailed(f"{os.fspath(path)} is not a store: {error}") from error

    def documents(self) -> list[StoredDocument]:
        """List the documents by id."""
        indexes: dict[str, CopyIndex] = {}
        for document_id, record in self._records():
            indexes.setdefault(document_id, CopyIndex()).add(record)
        return [
            stored_document(document_id, index)
            for document_id, index in sorted(indexes.items())
            if index.kept
        ]

    def export(self, document_id: str) -> bytes:
        """Return a Loro snapshot of the copy with unsaved edits; of a damaged copy, what can be applied."""
        return restore(self._kept(document_id)).replica.snapshot()

    def unsaved(self, document_id: str) -> list[bytes]:
        """Return the updates without an ACK, oldest first."""
        return [entry.payload for entry in self._kept(document_id).outbox]

    def problems(self) -> list[str]:
        """Describe the damage found by the calls so far."""
        return [str(found) for found in self._damage]

    def _kept(self, document_id: str) -> DocumentCopy:
        kept = replay(record for _, record in self._records(document_id))
        if kept is None:
            raise ClientError(f"{document_id} is not in the store {self.path}")
        return kept

    def _records(self, document_id: str | None = None) -> Iterator[tuple[str, Record]]:
        key = None if document_id is None else document_id.encode()
        try:
            for batch in self._reader.read(key=key, damaged="skip"):
                for found in batch.records():
                    yield found.key.decode(), decode(found.value)
        except TornError:
            return  # the app is writing this record
        except (LogError, OSError, UnreadableRecord) as error:
            raise StoreFailed(f"the store {self.path} cannot be read: {error}") from error
