"""Export of the operations that an owner lacks: one update, or several in causal order.

An owner refuses an update of too many peers or operations (docs/PROTOCOL.md). The copy of a long-lived
document may have more than that to send: after a data loss it also holds edits of other clients.
"""

from collections.abc import Iterable, Iterator

from loro import ID, CounterSpan, ExportMode, IdSpan, LoroDoc, VersionVector

from lorogo_protocol.limits import (
    EDITS_BESIDE_MAX,
    TREE_BESIDE_OPERATIONS_MAX,
    UPDATE_PEER_CHANGES_MAX,
    UPDATE_PEERS_MAX,
)
from lorogo_protocol.loro import blocks, crdt, steps

_SLOW_KINDS = {blocks.TREE, blocks.MOVABLE_LIST}
_SLOW_OPERATIONS_MAX = TREE_BESIDE_OPERATIONS_MAX // 2

Span = tuple[int, int, int]  # peer, first counter, the counter behind the last


def portions(
    doc: LoroDoc,
    theirs: VersionVector,
    *,
    peers_max: int = UPDATE_PEERS_MAX,
    peer_changes_max: int = UPDATE_PEER_CHANGES_MAX,
    operations_max: int | None = None,
) -> list[bytes]:
    """Export every committed operation that the vector lacks. Raises CrdtError.

    `operations_max`: of one update; by default it depends on what the operations change.
    """
    with crdt.guard():
        missing = doc.oplog_vv.sub_iter(theirs)
        whole = doc.export(ExportMode.Updates(theirs))
        if operations_max is None:
            operations_max = _operations_max(whole)
        few_peers = len(missing) <= peers_max and doc.len_changes * len(missing) <= peer_changes_max
        if few_peers and steps.operations(missing) <= operations_max:
            return [whole]
        return [
            doc.export(ExportMode.UpdatesInRange(group))
            for group in _groups(
                _in_causal_order(doc, missing, operations_max), peers_max, peer_changes_max, operations_max
            )
        ]


def is_cut(update: bytes) -> bool:
    """True if `portions` would split this update because of its operations."""
    return sum(behind - first for _, first, behind in crdt.spans(update)) > _operations_max(update)


def _operations_max(update: bytes) -> int:
    contents = blocks.contents(update)
    slow = contents.marks or not contents.kinds.isdisjoint(_SLOW_KINDS)
    return _SLOW_OPERATIONS_MAX if slow else EDITS_BESIDE_MAX


def _in_causal_order(doc: LoroDoc, missing: Iterable[IdSpan], length_max: int) -> list[Span]:
    """Return the changes of these spans in causal order, by Lamport time.

    Changes of more than `length_max` operations are split.
    """
    found: list[tuple[int, Span]] = []
    for span in missing:
        at, end = span.counter.start, span.counter.end
        while at < end:
            change = doc.get_change(ID(span.peer, at))
            assert change is not None
            behind = min(change.id.counter + change.len, end, at + length_max)
            found.append((change.lamport + at - change.id.counter, (span.peer, at, behind)))
            at = behind
    return [span for _, span in sorted(found)]


def _groups(
    changes: Iterable[Span], peers_max: int, peer_changes_max: int, operations_max: int
) -> Iterator[list[IdSpan]]:
    group: dict[int, tuple[int, int]] = {}  # the changes of one peer are contiguous
    count = operations = 0
    for peer, first, behind in changes:
        peers, operations = len(group) + (peer not in group), operations + behind - first
        if group and (
            peers > peers_max or peers * (count + 1) > peer_changes_max or operations > operations_max
        ):
            yield _spans(group)
            group, count, operations = {}, 0, behind - first
        group[peer] = (group[peer][0] if peer in group else first, behind)
        count += 1
    yield _spans(group)


def _spans(group: dict[int, tuple[int, int]]) -> list[IdSpan]:
    return [IdSpan(peer, CounterSpan(first, behind)) for peer, (first, behind) in group.items()]
