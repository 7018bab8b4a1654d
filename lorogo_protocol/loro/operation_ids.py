"""Detects operation ids that two replicas used for different content; Loro silently keeps the first one.

This happens when two replicas edit under the same peer id, for example after a client's disk was restored
from a backup. `contradicts` compares the operations of an update with those of a document with the same ids.
Of a long overlap it compares both ends only: diverged replicas differ in their last operations.
"""

import json

from loro import CounterSpan, ExportMode, IdSpan, ImportBlobMetadata, LoroDoc, VersionVector

from lorogo_protocol.loro.frontiers import heads

_COMPARED_MAX = 4096  # operations at each end of an overlap, over all peers
_BELOW_MAX = 100_000  # operations of the document that are copied for an exact comparison
_PEERS_MAX = 1000  # peers in the history that an update depends on; above it nothing is compared


Overlap = list[tuple[int, int, int]]  # (peer, first counter, counter after the last)


def overlap(doc: LoroDoc, meta: ImportBlobMetadata) -> Overlap:
    """Return the operation ids of the update that the document has, without trimmed history."""
    shared = doc.oplog_vv.intersection(meta.partial_end_vv).sub_iter(meta.partial_start_vv)
    if not shared:
        return []  # the common case
    trimmed = {span.peer: span.counter.end for span in doc.shallow_since_vv.sub_iter(VersionVector())}
    found = [
        (span.peer, max(span.counter.start, trimmed.get(span.peer, 0)), span.counter.end) for span in shared
    ]
    return [(peer, first, end) for peer, first, end in found if first < end]


def contradicts(
    doc: LoroDoc, update: bytes, meta: ImportBlobMetadata, shared: Overlap, *, exact: bool
) -> bool | None:
    """Return True if the document has other content under the shared ids; None if unknown.

    The update is decoded on stand-ins of its dependencies. For operations of movable lists, Loro looks up
    their elements there and raises errors; `exact`: decode on the document's own history.
    """
    have = doc.oplog_vv
    if not all(have.includes_id(head) for head in heads(meta.start_frontiers)):
        return True  # operations that the document has cannot depend on missing ones
    if (theirs := _decoded(doc, update, meta, exact)) is None:
        return None
    most = max(1, _COMPARED_MAX // len(shared))
    for peer, first, end in shared:
        ends = [(first, end)] if end - first <= 2 * most else [(first, first + most), (end - most, end)]
        if not all(_same(doc, theirs, peer, *part) for part in ends):
            return True
    return False


def _decoded(doc: LoroDoc, update: bytes, meta: ImportBlobMetadata, exact: bool) -> LoroDoc | None:
    below = doc.frontiers_to_vv(meta.start_frontiers)
    if below is None:
        return None
    below.merge(meta.partial_start_vv)
    needed = {span.peer: span.counter.end for span in below.sub_iter(VersionVector())}
    for span in meta.partial_end_vv.sub_iter(meta.partial_start_vv):
        needed[span.peer] = span.counter.start
    needed = {peer: end for peer, end in needed.items() if end}
    if len(needed) > _PEERS_MAX or (exact and (doc.is_shallow() or sum(needed.values()) > _BELOW_MAX)):
        return None
    history = LoroDoc()
    history.detach()
    if exact and needed:
        spans = [IdSpan(peer, CounterSpan(0, end)) for peer, end in needed.items()]
        history.import_(doc.export(ExportMode.UpdatesInRange(spans)))
    elif needed:
        history.import_batch([_stand_in(peer, end) for peer, end in needed.items()])
    return history if history.import_(update).pending is None else None


def _stand_in(peer: int, end: int) -> bytes:
    """Make arbitrary operations with a peer's ids up to `end`: only the ids matter."""
    doc = LoroDoc()
    doc.peer_id = peer
    doc.get_text("x").insert(0, " " * end)
    doc.commit()
    return doc.export(ExportMode.Updates(VersionVector()))


def _same(ours: LoroDoc, theirs: LoroDoc, peer: int, first: int, end: int) -> bool:
    """Return True if the operations are equal; compare halves, since runs may be split differently."""
    span = IdSpan(peer, CounterSpan(first, end))
    if _operations(ours, span) == _operations(theirs, span):
        return True
    if end - first == 1:
        return False
    middle = (first + end) // 2
    return _same(ours, theirs, peer, first, middle) and _same(ours, theirs, peer, middle, end)


def _operations(doc: LoroDoc, span: IdSpan) -> list[object]:
    return [op for change in json.loads(doc.export_json_in_id_span(span)) for op in change["ops"]]
