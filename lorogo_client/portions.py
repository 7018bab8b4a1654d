"""What an owner lacks, as updates that it takes: one, or several in causal order if it is of many peers.

An owner refuses an update of too many peers (docs/PROTOCOL.md). A copy of a long-lived document may have
more than that to send: after a loss it holds what others wrote, too.
"""

from collections.abc import Iterable, Iterator

from loro import ID, CounterSpan, ExportMode, IdSpan, LoroDoc, VersionVector

from lorogo_protocol import crdt
from lorogo_protocol.limits import UPDATE_PEER_CHANGES_MAX, UPDATE_PEERS_MAX

Span = tuple[int, int, int]  # peer, first counter, the counter behind the last


def portions(
    doc: LoroDoc,
    theirs: VersionVector,
    *,
    peers_max: int = UPDATE_PEERS_MAX,
    peer_changes_max: int = UPDATE_PEER_CHANGES_MAX,
) -> list[bytes]:
    """Everything committed that the vector lacks. Raises CrdtError."""
    with crdt.guard():
        missing = doc.oplog_vv.sub_iter(theirs)
        if len(missing) <= peers_max and doc.len_changes * len(missing) <= peer_changes_max:
            return [doc.export(ExportMode.Updates(theirs))]
        return [
            doc.export(ExportMode.UpdatesInRange(group))
            for group in _groups(_in_causal_order(doc, missing), peers_max, peer_changes_max)
        ]


def _in_causal_order(doc: LoroDoc, missing: Iterable[IdSpan]) -> list[Span]:
    """The changes of these spans, each after all that it builds on: that has a lower Lamport time."""
    found: list[tuple[int, Span]] = []
    for span in missing:
        at, end = span.counter.start, span.counter.end
        while at < end:
            change = doc.get_change(ID(span.peer, at))
            assert change is not None
            behind = min(change.id.counter + change.len, end)
            found.append((change.lamport + at - change.id.counter, (span.peer, at, behind)))
            at = behind
    return [span for _, span in sorted(found)]


def _groups(changes: Iterable[Span], peers_max: int, peer_changes_max: int) -> Iterator[list[IdSpan]]:
    group: dict[int, tuple[int, int]] = {}  # a peer's changes come one after another
    count = 0
    for peer, first, behind in changes:
        peers = len(group) + (peer not in group)
        if group and (peers > peers_max or peers * (count + 1) > peer_changes_max):
            yield _spans(group)
            group, count = {}, 0
        group[peer] = (group[peer][0] if peer in group else first, behind)
        count += 1
    yield _spans(group)


def _spans(group: dict[int, tuple[int, int]]) -> list[IdSpan]:
    return [IdSpan(peer, CounterSpan(first, behind)) for peer, (first, behind) in group.items()]
