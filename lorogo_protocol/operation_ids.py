"""Operation ids that two replicas used for different content: Loro keeps what came first, without a word.

That happens when two replicas edit under one peer id, as after a client's disk was set back. `contradicts`
compares the operations of an update with those of a document that have the same ids. Of a long overlap only
both ends are compared: replicas that went apart do not agree on their last operations.
"""

import json

from loro import CounterSpan, ExportMode, IdSpan, ImportBlobMetadata, LoroDoc, VersionVector

from lorogo_protocol.frontiers import heads

_COMPARED_MAX = 4096  # operations at each end of an overlap, of all its peers together
_BELOW_MAX = 100_000  # operations of the document that are copied for that
_PEERS_MAX = 1000  # of the history that an update builds on; above it nothing is compared


Overlap = list[tuple[int, int, int]]  # (peer, first counter, the counter behind the last)


def overlap(doc: LoroDoc, meta: ImportBlobMetadata) -> Overlap:
    """The operation ids of the update that the document has, but for those of trimmed history."""
    shared = doc.oplog_vv.intersection(meta.partial_end_vv).sub_iter(meta.partial_start_vv)
    if not shared:
        return []  # as almost always
    trimmed = {span.peer: span.counter.end for span in doc.shallow_since_vv.sub_iter(VersionVector())}
    found = [
        (span.peer, max(span.counter.start, trimmed.get(span.peer, 0)), span.counter.end) for span in shared
    ]
    return [(peer, first, end) for peer, first, end in found if first < end]


def contradicts(
    doc: LoroDoc, update: bytes, meta: ImportBlobMetadata, shared: Overlap, *, exact: bool
) -> bool | None:
    """Whether the document has other content under the shared ids; None: unknown.

    The update is decoded on stand-ins for what it builds on. Loro looks up the elements that operations of
    movable lists name, and raises its errors; `exact`: decode it on the document's own history.
    """
    have = doc.oplog_vv
    if not all(have.includes_id(head) for head in heads(meta.start_frontiers)):
        return True  # operations that are here build on nothing that is not here
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
    """Any operations with the ids of a peer up to there: only their ids are referred to."""
    doc = LoroDoc()
    doc.peer_id = peer
    doc.get_text("x").insert(0, " " * end)
    doc.commit()
    return doc.export(ExportMode.Updates(VersionVector()))


def _same(ours: LoroDoc, theirs: LoroDoc, peer: int, first: int, end: int) -> bool:
    """Whether the operations are equal; runs may be cut differently, so halves are compared, too."""
    span = IdSpan(peer, CounterSpan(first, end))
    if _operations(ours, span) == _operations(theirs, span):
        return True
    if end - first == 1:
        return False
    middle = (first + end) // 2
    return _same(ours, theirs, peer, first, middle) and _same(ours, theirs, peer, middle, end)


def _operations(doc: LoroDoc, span: IdSpan) -> list[object]:
    return [op for change in json.loads(doc.export_json_in_id_span(span)) for op in change["ops"]]
