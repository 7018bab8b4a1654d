"""The LoroDoc that an app edits: its commits are collected, others' edits are applied and told.

Loro forgets a callback when its Subscription is dropped, when it returns anything but True, and panics
when it raises: so the subscriptions are detached, and what they call only appends.

A document that somebody listens to works out what each import changed, also if that is the whole content:
a long text takes many hundred times as long. So a replica listens when it is asked to (`listen()`).
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
from lorogo_client.rebase.rebase import edits_since, put_on
from lorogo_protocol import crdt
from lorogo_protocol.crdt import Applied, Unready
from lorogo_protocol.errors import OperationIdsReused
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_COUNTER_MAX = 2**31 - 1

Spans = dict[int, tuple[int, int]]  # peer -> first counter and the one after the last


@dataclass(frozen=True, slots=True)
class ReplicaListeners:
    """Who hears of a replica; both are called inside Loro and must not raise."""

    on_local: Callable[[bytes], None]
    on_remote: Callable[[DiffEvent], None]


class LocalReplica:
    """A replica that tells what was committed here and, if it listens, what came from elsewhere."""

    def __init__(
        self, listeners: ReplicaListeners, replica: crdt.Replica | None = None, *, listening: bool = False
    ) -> None:
        self._listeners = listeners
        self._replica = crdt.Replica() if replica is None else replica
        self._retired = False
        self._listening = False
        with crdt.guard():
            # It lives as long as the document, not only as long as we: who edits a replaced one is told.
            self.doc.subscribe_local_update(_weakly_local(self)).detach()
        if listening:
            self.listen()

    def listen(self) -> None:
        """From now on tell what imports change. For good: Loro goes on working it out in any case."""
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
        """Operations that are not committed yet."""
        with crdt.guard():
            return self.doc.get_pending_txn_len()

    @property
    def blank(self) -> bool:
        """Whether nothing was ever in it."""
        with crdt.guard():
            return self.doc.oplog_vv.encode() == crdt.nothing_known()

    def commit(self, message: str | None = None) -> None:
        with crdt.guard():
            if message is None:
                self.doc.commit()
            else:
                self.doc.commit_with(commit_msg=message)

    def undo_local(self) -> None:
        """Take back every edit that was made in this replica; its history keeps them. Raises CrdtError."""
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
        """Import what the owner accepted; edits that are open here are committed by it, and told."""
        return self._replica.apply(update)

    def covers(self, update: bytes) -> bool:
        return self._replica.covers(update)

    def snapshot(self) -> bytes:
        """Everything that is committed."""
        return self._replica.snapshot()

    def merged(self, payloads: Sequence[bytes]) -> bytes:
        """One update that holds what these local updates hold."""
        with crdt.guard():
            return self.doc.export(ExportMode.UpdatesInRange(_id_spans(spans_of(payloads))))

    def lacking(self, vector: bytes, known: Iterable[bytes], unsaved: Iterable[bytes] = ()) -> list[bytes]:
        """What the vector lacks, as updates that an owner takes; none if those `known` hold all of it.

        What is in `unsaved` is in them too, also where the vector has it: to be here is not to be ACKed.
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
        """The fresh replica, under a new peer id, with our unsaved edits on top of its state.

        This one is retired by it: a second rebase of the same edits would make them twice. The flag
        says whether there were edits; the fresh replica's listener has heard their update then.
        Only what was never ACKed is put on top: what the owner ACKed and does not have any more was
        forgotten on purpose, or is brought back by servers, once. And what the owner has is left
        out, so that an edit which it took without our hearing of it is not made twice; unless it has
        other content under the same operation ids, of a replica that shares our peer id.
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
                put_on(fresh.doc, edits)
                fresh.doc.commit()
        return replica, edited

    def retire(self) -> None:
        """Hear no more of this document; whoever still edits it edits nothing."""
        self._retired = True

    def committed(self, update: bytes) -> None:
        """Loro tells of a local commit."""
        if self._retired:
            _tell_lost()
        else:
            self._listeners.on_local(bytes(update))

    def happened(self, event: DiffEvent) -> None:
        """Loro tells of a change, ours or an import."""
        if not self._retired and event.triggered_by == EventTriggerKind.Import:
            self._listeners.on_remote(event)


# Loro holds what it calls, and Python sees no cycle that goes through it: a document whose listener holds
# the document would never be freed.


def _weakly_local(replica: LocalReplica) -> Callable[[bytes], bool]:
    found = weakref.ref(replica)

    def local(update: bytes) -> bool:
        here = found()
        if here is None:
            _tell_lost()
        else:
            here.committed(update)
        return True

    return local


def _weakly_event(replica: LocalReplica) -> Callable[[DiffEvent], None]:
    found = weakref.ref(replica)

    def event(event: DiffEvent) -> None:
        here = found()
        if here is not None:
            here.happened(event)

    return event


def _tell_lost() -> None:
    log.error("an edit of a replaced document is lost: ask session.doc for the current one")


def is_shallow(payload: bytes) -> bool:
    """Whether it is a snapshot without its whole history: only an empty document can import it."""
    with crdt.guard():
        return LoroDoc.decode_import_blob_meta(payload, False).mode == EncodedBlobMode.ShallowSnapshot


def spans_of(payloads: Iterable[bytes]) -> Spans:
    """Which operations the updates hold, from the first to the last of each peer."""
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
