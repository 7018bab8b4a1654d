"""The LoroDoc that an app edits: reports local commits and remote changes.

Loro drops a callback when its Subscription is dropped or when it returns anything but True, and panics
when it raises: so the subscriptions are detached, and the callbacks only append.

A document with an event subscriber computes the changes of each import, even if that is the whole content:
for a long text this takes many hundred times as long. So a replica subscribes on demand (`listen()`).
"""

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from loro import (
    CounterSpan,
    DiffEvent,
    EncodedBlobMode,
    EventTriggerKind,
    ExportMode,
    IdSpan,
    LoroDoc,
    VersionVector,
)

from lorogo_client.delivery.portions import portions
from lorogo_client.rebase.rebase import apply_edits, edits_since
from lorogo_protocol.errors import OperationIdsReused
from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import Applied, Unready
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_COUNTER_MAX = 2**31 - 1

Spans = dict[int, tuple[int, int]]  # peer -> first counter, end counter (exclusive)


@dataclass(frozen=True, slots=True)
class ReplicaListeners:
    """Callbacks of a replica; Loro calls them, so they must not raise."""

    on_local: Callable[[bytes], None]
    on_remote: Callable[[DiffEvent], None]


class LocalReplica:
    """A replica that reports local commits and, if it listens, remote changes."""

    def __init__(
        self, listeners: ReplicaListeners, replica: crdt.Replica | None = None, *, listening: bool = False
    ) -> None:
        self._listeners = listeners
        self._replica = crdt.Replica() if replica is None else replica
        self._retired = False
        self._listening = False
        with crdt.guard():
            # The subscription lives as long as the document, so that an edit of a replaced document is
            # logged.
            self.doc.subscribe_local_update(_weakly_local(self)).detach()
        if listening:
            self.listen()

    def listen(self) -> None:
        """Report the changes of imports from now on. Permanent: Loro cannot stop computing them."""
        if not self._listening:
            self._listening = True
            with crdt.guard():
                self.doc.subscribe_root(_weakly_event(self)).detach()

    @property
    def listening(self) -> bool:
        return self._listening

    @property
    def doc(self) -> LoroDoc:
        return self._replica.doc

    @property
    def open_edits(self) -> int:
        """The number of uncommitted operations."""
        with crdt.guard():
            return self.doc.get_pending_txn_len()

    @property
    def blank(self) -> bool:
        """True if the document never had any operation."""
        with crdt.guard():
            return self.doc.oplog_vv.encode() == crdt.nothing_known()

    def commit(self, message: str | None = None) -> None:
        with crdt.guard():
            if message is None:
                self.doc.commit()
            else:
                self.doc.commit_with(commit_msg=message)

    def undo_local(self) -> None:
        """Undo every edit of this replica; its history keeps them. Raises CrdtError."""
        with crdt.guard():
            doc = self.doc
            doc.commit()
            others = doc.oplog_vv
            others.shrink_to_exclude(IdSpan(doc.peer_id, CounterSpan(0, _COUNTER_MAX)))
            doc.revert_to(doc.vv_to_frontiers(others))
            doc.commit()

    def version(self) -> crdt.Version:
        return self._replica.version()

    def apply(self, update: bytes) -> Applied | Unready:
        """Import an accepted update; this commits and reports open local edits."""
        return self._replica.apply(update)

    def covers(self, update: bytes) -> bool:
        return self._replica.covers(update)

    def snapshot(self) -> bytes:
        """Export everything that is committed."""
        return self._replica.snapshot()

    def merged(self, payloads: Sequence[bytes]) -> bytes:
        """Merge local updates into one."""
        with crdt.guard():
            return self.doc.export(ExportMode.UpdatesInRange(_id_spans(spans_of(payloads))))

    def lacking(self, vector: bytes, known: Iterable[bytes], unsaved: Iterable[bytes] = ()) -> list[bytes]:
        """Export the operations that a vector lacks, as updates that an owner accepts.

        Empty if the `known` updates contain all of them. Operations in `unsaved` are always included, even
        where the vector has them: the owner's vector does not prove an ACK.
        """
        with crdt.guard():
            self.doc.commit()
            theirs = VersionVector.decode(vector)
            missing = self.doc.oplog_vv.sub_iter(theirs)
            held = spans_of(known) if missing else {}
            if all(_within(span, held.get(span.peer)) for span in missing):
                return []
            for span in _id_spans(spans_of(unsaved)):
                theirs.shrink_to_exclude(span)
            theirs.merge(self.doc.shallow_since_vv)
            return portions(self.doc, theirs)

    def rebased(self, fresh: crdt.Replica, unsaved: Sequence[bytes]) -> "tuple[LocalReplica, bool]":
        """Apply the unsaved edits on top of a fresh replica, under a new peer id.

        Returns the new replica, and whether there were edits; if so, its listener has received their update.
        This replica is retired: a second rebase of the same edits would duplicate them.
        Only edits that were never ACKed are applied: ACKed edits that the owner no longer has were trimmed on
        purpose, or servers restore them, once. Edits that the owner has are omitted too, because it may have
        accepted them without the ACK reaching this client; unless the owner has other content under the same
        operation ids, from a replica with the same peer id.
        """
        assert not self._retired
        old = self.doc
        with crdt.guard():
            base = old.oplog_vv
            for span in _id_spans(spans_of(unsaved)):
                base.shrink_to_exclude(span)
            base.merge(fresh.doc.oplog_vv.intersection(old.oplog_vv))
            for span in _id_spans(spans_of(payload for payload in unsaved if _reused(fresh, payload))):
                base.shrink_to_exclude(span)
            edited = bool(unsaved) and not base.includes_vv(old.oplog_vv)
            edits = edits_since(old, old.vv_to_frontiers(base), fresh.doc) if edited else None
        self._retired = True
        replica = LocalReplica(self._listeners, fresh, listening=self._listening)
        if edits is not None:
            with crdt.guard():
                apply_edits(fresh.doc, edits)
                fresh.doc.commit()
        return replica, edited

    def retire(self) -> None:
        """Stop reporting changes of this document; later edits of it are lost."""
        self._retired = True

    def on_commit(self, update: bytes) -> None:
        """Handle Loro's event for a local commit."""
        if self._retired:
            _log_lost_edit()
        else:
            self._listeners.on_local(bytes(update))

    def on_event(self, event: DiffEvent) -> None:
        """Handle Loro's event for a change, local or imported."""
        if not self._retired and event.triggered_by == EventTriggerKind.Import:
            self._listeners.on_remote(event)


# Loro holds strong references to its callbacks, and Python's collector cannot see cycles through Loro:
# a document whose callback holds the document would never be freed.


def _weakly_local(replica: LocalReplica) -> Callable[[bytes], bool]:
    found = weakref.ref(replica)

    def local(update: bytes) -> bool:
        here = found()
        if here is None:
            _log_lost_edit()
        else:
            here.on_commit(update)
        return True

    return local


def _weakly_event(replica: LocalReplica) -> Callable[[DiffEvent], None]:
    found = weakref.ref(replica)

    def event(event: DiffEvent) -> None:
        here = found()
        if here is not None:
            here.on_event(event)

    return event


def _log_lost_edit() -> None:
    log.error("edit of a replaced document is lost; use session.doc to get the current document")


def is_shallow(payload: bytes) -> bool:
    """True for a snapshot without its whole history: only an empty document can import it."""
    with crdt.guard():
        return LoroDoc.decode_import_blob_meta(payload, False).mode == EncodedBlobMode.ShallowSnapshot


def spans_of(payloads: Iterable[bytes]) -> Spans:
    """Return the operations in the updates: first and end counter of each peer."""
    spans: Spans = {}
    with crdt.guard():
        for payload in payloads:
            meta = LoroDoc.decode_import_blob_meta(payload, False)
            for span in meta.partial_end_vv.sub_iter(meta.partial_start_vv):
                first, end = span.counter.start, span.counter.end
                known = spans.get(span.peer, (first, end))
                spans[span.peer] = (min(first, known[0]), max(end, known[1]))
    return spans


def _id_spans(spans: Spans) -> list[IdSpan]:
    return [IdSpan(peer, CounterSpan(first, end)) for peer, (first, end) in spans.items()]


def _reused(fresh: crdt.Replica, payload: bytes) -> bool:
    try:
        fresh.check_ids(payload)
    except OperationIdsReused:
        return True
    return False


def _within(span: IdSpan, known: tuple[int, int] | None) -> bool:
    return known is not None and known[0] <= span.counter.start and span.counter.end <= known[1]
