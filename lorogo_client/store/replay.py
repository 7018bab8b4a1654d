"""What a document's records say, put together: a pure fold from the first record to the last that is there.

Whatever prefix of the records a crash leaves, the result is a state that once was: every local commit
in the prefix is in it, as part of the replica, and in the outbox unless its ACK is in the prefix too.
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
    """A document as the store holds it."""

    generation: int | None = None
    replica: bytes = b""  # a Loro snapshot
    updates: list[bytes] = field(default_factory=list)  # to apply on it, in order
    outbox: list[PendingUpdate] = field(default_factory=list)  # not ACKed, oldest first
    commits: int = 0
    number: int = -1  # of the newest record
    deleted: bool = False
    missing: int = 0  # places where records are lost
    forgotten: bool = False

    @property
    def whole(self) -> bool:
        """Whether no record is lost."""
        return not self.missing

    def unsent(self) -> int:
        """From which entry of the outbox on nothing was ever sent: updates leave in order."""
        for place, entry in enumerate(self.outbox):
            if not entry.log_id:
                return place
        return len(self.outbox)


def replay(records: Iterable[Record]) -> DocumentCopy | None:
    """The document; None if there is none."""
    kept: DocumentCopy | None = None
    for record in records:
        kept = step(kept, record)
    return None if kept is None or kept.forgotten else kept


def step(kept: DocumentCopy | None, record: Record) -> DocumentCopy:
    """One record more."""
    match record:
        case StoreSnapshot(number, generation, replica, outbox, commits):
            return DocumentCopy(generation, replica, [], list(outbox), commits, number)
        case ForgottenMark(number):
            return DocumentCopy(number=number, forgotten=True)
    if kept is None or kept.forgotten:
        kept = DocumentCopy()  # its snapshot is lost
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
            # the oldest are ACKed first: found at once, also among many
            for place, entry in enumerate(kept.outbox):
                if entry.log_id == log_id:
                    del kept.outbox[place]
                    break
        case DeletionMark():
            kept.deleted = True
    return kept


def lean(record: Record) -> Record:
    """The record without its bytes, for who only counts."""
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
    if payload is not None:  # else the commit that it speaks of is lost
        kept.outbox = [*before, PendingUpdate(first, last, log_id, payload), *after]
        kept.commits = max(kept.commits, last)
