"""Restore of a stored document into an editable replica, under a new Loro peer id."""

from dataclasses import dataclass, field

from lorogo_client.store.records import PendingUpdate
from lorogo_client.store.replay import DocumentCopy
from lorogo_protocol.errors import CrdtError
from lorogo_protocol.loro import crdt


@dataclass(slots=True)
class RestoredReplica:
    """A replica, and its updates without an ACK."""

    replica: crdt.Replica
    sent: list[PendingUpdate] = field(default_factory=list)  # may have been sent: id and bytes stay the same
    unsent: list[PendingUpdate] = field(default_factory=list)
    loose: list[PendingUpdate] = field(default_factory=list)  # cannot be applied to the replica
    whole: bool = True


def restore(kept: DocumentCopy) -> RestoredReplica:
    """Restore the document; of a damaged one, every update that can be applied."""
    replica, whole = _base(kept)
    if not (whole and _applied_at_once(replica, kept.updates)):
        replica, whole = _one_by_one(kept)
    here = [entry for entry in kept.outbox if whole or _covered(replica, entry)]
    loose = [] if whole else [entry for entry in kept.outbox if entry not in here]
    unsent = kept.unsent()
    restored = RestoredReplica(replica, loose=loose, whole=whole)
    for place, entry in enumerate(kept.outbox):
        if whole or entry in here:
            (restored.sent if place < unsent else restored.unsent).append(entry)
    return restored


def _base(kept: DocumentCopy) -> tuple[crdt.Replica, bool]:
    if not kept.replica:
        return crdt.Replica(), kept.whole
    try:
        return crdt.Replica.from_snapshot(kept.replica), kept.whole
    except CrdtError:
        return crdt.Replica(), False


def _applied_at_once(replica: crdt.Replica, updates: list[bytes]) -> bool:
    """Import all updates in one batch, which is many times faster; on False the replica is unusable."""
    if not updates:
        return True
    try:
        with crdt.guard():
            return replica.doc.import_batch(updates).pending is None
    except CrdtError:
        return False


def _one_by_one(kept: DocumentCopy) -> tuple[crdt.Replica, bool]:
    """Import every update that applies; skip those on which Loro panics, which can be valid ones."""
    replica, whole = _base(kept)
    taken: list[bytes] = []
    for update in kept.updates:
        try:
            fits = not isinstance(replica.apply(update), crdt.Unready)
        except crdt.CrdtPanic:
            fits = False
            replica, _ = _base(kept)
            for before in taken:
                replica.apply(before)
        except CrdtError:
            fits = False
        if fits:
            taken.append(update)
        whole &= fits
    return replica, whole


def _covered(replica: crdt.Replica, entry: PendingUpdate) -> bool:
    try:
        return replica.covers(entry.payload)
    except CrdtError:
        return False
