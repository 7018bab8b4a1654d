"""What a document's records say, put together: a pure fold from the first record to the last that is there.

Whatever prefix of the records a crash leaves, the result is a state that once was: every local commit
in the prefix is in it, as part of the replica, and in the outbox unless its ACK is in the prefix too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from lorogo_client.store.records import (
    Assigned,
    Deleted,
    Forgotten,
    Local,
    Pending,
    Record,
    Remote,
    Settled,
    Snapshot,
)


@dataclass(slots=True)
class Kept:
    """A document as the store holds it."""

    generation: int | None = None
    replica: bytes = b""  # a Loro snapshot
    updates: list[bytes] = field(default_factory=list)  # to apply on it, in order
    outbox: list[Pending] = field(default_factory=list)  # not ACKed, oldest first
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


def replay(records: Iterable[Record]) -> Kept | None:
    """The document; None if there is none."""
    kept: Kept | None = None
    for record in records:
        kept = step(kept, record)
    return None if kept is None or kept.forgotten else kept


def step(kept: Kept | None, record: Record) -> Kept:
    """One record more."""
    match record:
        case Snapshot(number, generation, replica, outbox, commits):
            return Kept(generation, replica, [], list(outbox), commits, number)
        case Forgotten(number):
            return Kept(number=number, forgotten=True)
    if kept is None or kept.forgotten:
        kept = Kept()  # its snapshot is lost
    kept.missing += record.number != kept.number + 1
    kept.number = record.number
    match record:
        case Local(_, commit, log_id, payload):
            kept.updates.append(payload)
            kept.outbox.append(Pending(commit, commit, log_id, payload))
            kept.commits = commit
        case Assigned(_, log_id, first, last, payload):
            _assign(kept, log_id, first, last, payload)
        case Remote(_, payload):
            kept.updates.append(payload)
        case Settled(_, log_id):
            # the oldest are ACKed first: found at once, also among many
            for place, entry in enumerate(kept.outbox):
                if entry.log_id == log_id:
                    del kept.outbox[place]
                    break
        case Deleted():
            kept.deleted = True
    return kept


def lean(record: Record) -> Record:
    """The record without its bytes, for who only counts."""
    match record:
        case Snapshot(outbox=outbox):
            entries = tuple(replace(entry, payload=b"") for entry in outbox)
            return replace(record, replica=b"", outbox=entries)
        case Local() | Remote():
            return replace(record, payload=b"")
        case Assigned(payload=bytes()):
            return replace(record, payload=b"")
        case _:
            return record


def _assign(kept: Kept, log_id: str, first: int, last: int, payload: bytes | None) -> None:
    before: list[Pending] = []
    after: list[Pending] = []
    for entry in kept.outbox:
        if not (first <= entry.first and entry.last <= last):
            (before if entry.first < first else after).append(entry)
        elif payload is None:
            payload = entry.payload
    if payload is not None:  # else the commit that it speaks of is lost
        kept.outbox = [*before, Pending(first, last, log_id, payload), *after]
        kept.commits = max(kept.commits, last)
