"""Replay of a document's records into its state: a pure fold.

Any prefix of the records, as a crash may leave it, yields a state that existed: every local commit
in the prefix is in the replica, and in the outbox unless the prefix has its ACK.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from lorogo_client.store.records import (
    AckedUpdate,
    AssignedLogId,
    DeletionMark,
    ForgottenMark,
    LocalCommit,
    PendingUpdate,
    Record,
    RemoteUpdate,
    StoreSnapshot,
)


@dataclass(slots=True)
class DocumentCopy:
    """A document's stored state."""

    generation: int | None = None
    replica: bytes = b""  # a Loro snapshot
    updates: list[bytes] = field(default_factory=list)  # to apply to the replica, in order
    outbox: list[PendingUpdate] = field(default_factory=list)  # not ACKed, oldest first
    commits: int = 0
    number: int = -1  # of the newest record
    deleted: bool = False
    missing: int = 0  # gaps in the record numbers
    forgotten: bool = False

    @property
    def whole(self) -> bool:
        """True if no record is missing."""
        return not self.missing

    def unsent(self) -> int:
        """Return the outbox index of the first entry that was never sent: updates are sent in order."""
        for place, entry in enumerate(self.outbox):
            if not entry.log_id:
                return place
        return len(self.outbox)


def replay(records: Iterable[Record]) -> DocumentCopy | None:
    """Return the document's state; None without records or after Forgotten."""
    kept: DocumentCopy | None = None
    for record in records:
        kept = apply_record(kept, record)
    return None if kept is None or kept.forgotten else kept


def apply_record(kept: DocumentCopy | None, record: Record) -> DocumentCopy:
    """Apply one record to the state."""
    match record:
        case StoreSnapshot(number, generation, replica, outbox, commits):
            return DocumentCopy(generation, replica, [], list(outbox), commits, number)
        case ForgottenMark(number):
            return DocumentCopy(number=number, forgotten=True)
    if kept is None or kept.forgotten:
        kept = DocumentCopy()  # the snapshot is missing
    kept.missing += record.number != kept.number + 1
    kept.number = record.number
    match record:
        case LocalCommit(_, commit, log_id, payload):
            kept.updates.append(payload)
            kept.outbox.append(PendingUpdate(commit, commit, log_id, payload))
            kept.commits = commit
        case AssignedLogId(_, log_id, first, last, payload):
            _assign(kept, log_id, first, last, payload)
        case RemoteUpdate(_, payload):
            kept.updates.append(payload)
        case AckedUpdate(_, log_id):
            # usually the oldest is ACKed first, so the search is short
            for place, entry in enumerate(kept.outbox):
                if entry.log_id == log_id:
                    del kept.outbox[place]
                    break
        case DeletionMark():
            kept.deleted = True
    return kept


def without_payloads(record: Record) -> Record:
    """Return the record without its payload, for counting."""
    match record:
        case StoreSnapshot(outbox=outbox):
            entries = tuple(replace(entry, payload=b"") for entry in outbox)
            return replace(record, replica=b"", outbox=entries)
        case LocalCommit() | RemoteUpdate():
            return replace(record, payload=b"")
        case AssignedLogId(payload=bytes()):
            return replace(record, payload=b"")
        case _:
            return record


def _assign(kept: DocumentCopy, log_id: str, first: int, last: int, payload: bytes | None) -> None:
    before: list[PendingUpdate] = []
    after: list[PendingUpdate] = []
    for entry in kept.outbox:
        if not (first <= entry.first and entry.last <= last):
            (before if entry.first < first else after).append(entry)
        elif payload is None:
            payload = entry.payload
    if payload is not None:  # else the record of the commit is missing
        kept.outbox = [*before, PendingUpdate(first, last, log_id, payload), *after]
        kept.commits = max(kept.commits, last)
