"""Computes long runs of one peer in steps, because Loro's cost for a run is quadratic in its length.

The costs, and cases in which steps do not help, are in docs/decisions/0004. Callers must use `guard()`:
Loro's errors are not translated here.
"""

from collections.abc import Iterable, Iterator

from loro import ID, ContainerType, Frontiers, IdSpan, LoroDoc, VersionVector

from lorogo_protocol.loro.frontiers import ids

STEP_OPERATIONS = 5_000  # of a linear run per step
STEP_EDITS = 2_000  # operations per step if most are separate edits
_BESIDE_OPERATIONS_MAX = 200_000  # concurrent operations, which are undone first and computed again
_STEPPED = (ContainerType.Text, ContainerType.List, ContainerType.Map, ContainerType.Counter)
_MERGES_MAX = (
    8  # of concurrent changes into the run: at each, Loro starts at the fork, and the parts between are short
)


def walk(doc: LoroDoc, step: int) -> Iterator[None]:
    """Advance a detached document's state to its history in steps, if one peer's run is between them.

    Yields after each step. A caller that attaches the document between two steps ends the walk.

    Loro computes the difference of two versions at once, with a cost quadratic in the operations of one peer.
    With concurrent operations each step would start at the fork. So a few concurrent operations are undone
    first; attaching the document computes them again.
    """
    missing = doc.oplog_vv.sub_iter(doc.state_vv)
    if len(missing) != 1:
        return
    peer, at, end = missing[0].peer, missing[0].counter.start, missing[0].counter.end
    begins, before, merges, stops = None, set[tuple[int, int]](), 0, list[int]()
    for first, length, builds_on in _changes(doc, peer, at, end):
        if begins is None:
            begins = builds_on
        elif builds_on != before and (merges := merges + 1) > _MERGES_MAX:
            return
        behind = first + length
        before = {(peer, behind - 1)}
        next_stop = first + step - (first - at) % step
        here = range(next_stop, min(behind + 1, end), step)
        if here and _pays(doc, ID(peer, first), length):
            stops += here
    if not stops:
        return
    if begins is not None and begins != ids(doc.state_frontiers):
        parted = Frontiers.from_ids([ID(*one) for one in begins])
        if not is_little(doc, doc.state_vv, parted, end - at):
            return
        doc.checkout(parted)
        yield
    for reached in stops:
        if not doc.is_detached():
            return
        doc.checkout(Frontiers.from_ids([ID(peer, reached - 1)]))
        yield


def _pays(doc: LoroDoc, first: ID, length: int) -> bool:
    """Return True if steps are faster: of trees and movable lists, Loro reads all of it at each step."""
    changed = doc.get_changed_containers_in(first, length)
    kinds = [one.container_type for one in changed]  # type: ignore[attr-defined]  # of both kinds of ids
    return all(isinstance(kind, _STEPPED) for kind in kinds)


def is_little(doc: LoroDoc, vector: VersionVector, parted: Frontiers, length: int) -> bool:
    """Return True if the operations between heads and vector exceed neither `length` nor the bound."""
    begins = doc.frontiers_to_vv(parted)
    if begins is None or not begins.includes_vv(doc.shallow_since_vv):  # trimmed
        return False
    return operations(vector.sub_iter(begins)) <= min(length, _BESIDE_OPERATIONS_MAX)


def operations(spans: Iterable[IdSpan]) -> int:
    """Return the number of operations in the spans."""
    return sum(span.counter.end - span.counter.start for span in spans)


def _changes(doc: LoroDoc, peer: int, at: int, end: int) -> Iterator[tuple[int, int, set[tuple[int, int]]]]:
    """Yield the peer's changes in a range of counters: first counter, length, dependencies."""
    while at < end:
        change = doc.get_change(ID(peer, at))
        assert change is not None
        inside = at - change.id.counter
        yield at, change.len - inside, {(peer, at - 1)} if inside else ids(change.deps)
        at = change.id.counter + change.len
