"""Long runs of one peer, worked out in steps: Loro takes the square of their length at once.

What it costs, and where steps do not help, is in docs/decisions/0004. Whoever calls this guards it:
Loro's errors come through as they are.
"""

from collections.abc import Iterable, Iterator

from loro import ID, ContainerType, Frontiers, IdSpan, LoroDoc, VersionVector

from lorogo_protocol.frontiers import ids

STEP_OPERATIONS = 5_000  # of a straight run between two stops
STEP_MARKS = 50  # a mark costs as much as there are ends of other marks in its range,
STEP_MARK_PAIRS = 150_000  # so the more marks an update has, the fewer are between two stops
STEP_EDITS = 2_000  # operations between two stops, where most are edits of their own
_BESIDE_OPERATIONS_MAX = 200_000  # of others beside it, which are taken back for that and worked out again
_STEPPED = (ContainerType.Text, ContainerType.List, ContainerType.Map, ContainerType.Counter)
_MERGES_MAX = 8  # of them into it: at each, Loro begins where they parted; and the parts between are shorter


def walk(doc: LoroDoc, step: int) -> Iterator[None]:
    """Bring the state of a detached document near its history in steps, if one peer's run is between them.

    Yields after each step. A caller that attaches the document between two steps ends the walk.

    Loro works out at once whatever is between two versions, and takes the square of what one peer wrote.
    Where others wrote beside it each step would begin where they parted. So if that is little, it is taken
    back first; whoever attaches the document works it out again.
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
    """Whether steps make it quicker: trees and movable lists Loro looks at whole, each time."""
    changed = doc.get_changed_containers_in(first, length)
    kinds = [one.container_type for one in changed]  # type: ignore[attr-defined]  # of both kinds of ids
    return all(isinstance(kind, _STEPPED) for kind in kinds)


def is_little(doc: LoroDoc, vector: VersionVector, parted: Frontiers, length: int) -> bool:
    """Whether there is no more between the heads and the vector than a run of that length, nor too much."""
    begins = doc.frontiers_to_vv(parted)
    if begins is None or not begins.includes_vv(doc.shallow_since_vv):  # trimmed
        return False
    return operations(vector.sub_iter(begins)) <= min(length, _BESIDE_OPERATIONS_MAX)


def operations(spans: Iterable[IdSpan]) -> int:
    """How many they are together."""
    return sum(span.counter.end - span.counter.start for span in spans)


def _changes(doc: LoroDoc, peer: int, at: int, end: int) -> Iterator[tuple[int, int, set[tuple[int, int]]]]:
    """The peer's changes from one counter to another: where each begins, its length, what it builds on."""
    while at < end:
        change = doc.get_change(ID(peer, at))
        assert change is not None
        inside = at - change.id.counter
        yield at, change.len - inside, {(peer, at - 1)} if inside else ids(change.deps)
        at = change.id.counter + change.len
