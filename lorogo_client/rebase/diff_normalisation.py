"""Reduction of a diff that removes and recreates a container: such a diff contains the whole container.

Loro produces such diffs below tree nodes that are newer than a local edit. Applied to a document that
has the container, the diff would duplicate it. Text marks are not compared.
"""

from loro import (
    ContainerID,
    ContainerType,
    Diff,
    ListDiffItem,
    LoroCounter,
    LoroDoc,
    LoroList,
    LoroMap,
    LoroMovableList,
    LoroText,
    LoroTree,
    TextDelta,
    ValueOrContainer,
)

from lorogo_client.rebase.sequence_alignment import Key, key_of, matching

Renamed = dict[ContainerID, ContainerID]


def normalise(container: ContainerID, diff: Diff, before: LoroDoc) -> tuple[list[Diff], Renamed]:
    """Return what the diff adds to the document, and new ids of containers that it creates."""
    match diff:
        case Diff.Text(diff=parts):
            now = "".join(part.insert for part in parts if isinstance(part, TextDelta.Insert))
            return _text(before.get_text(container).to_string(), now), {}
        case Diff.List(diff=items):
            values = [v for item in items if isinstance(item, ListDiffItem.Insert) for v in item.insert]
            assert isinstance(container, ContainerID.Normal)
            movable = isinstance(container.container_type, ContainerType.MovableList)
            here = before.get_movable_list(container) if movable else before.get_list(container)
            return _list(here, values), {}
        case Diff.Map(diff=delta):
            return _map(before.get_map(container), delta.updated)
        case Diff.Counter(diff=total):
            return [Diff.Counter(total - before.get_counter(container).value)], {}
    return [diff], {}


def emptying_diffs(container: ContainerID, before: LoroDoc) -> list[Diff]:
    """Return diffs that empty a text or list."""
    assert isinstance(container, ContainerID.Normal)
    match container.container_type:
        case ContainerType.Text():
            return normalise(container, Diff.Text([]), before)[0]
        case ContainerType.List() | ContainerType.MovableList():
            return normalise(container, Diff.List([]), before)[0]
    return []


def _text(have: str, want: str) -> list[Diff]:
    doc = LoroDoc()
    doc.get_text("text").insert(0, have)
    doc.commit()
    start = doc.oplog_frontiers
    doc.get_text("text").update(want)
    doc.commit()
    return [diff for _, diff in doc.diff(start, doc.oplog_frontiers).get_diff()]


def _list(here: LoroList | LoroMovableList, values: list[ValueOrContainer]) -> list[Diff]:
    have = here.get_value()
    assert isinstance(have, list)
    kept = matching([key_of(value) for value in have], [_key(value) for value in values])
    steps: list[ListDiffItem] = []
    at = place = 0
    for next_at, next_place in [*kept, (len(have), len(values))]:
        if next_at > at:
            steps.append(ListDiffItem.Delete(next_at - at))
        if next_place > place:
            steps.append(ListDiffItem.Insert(values[place:next_place], is_move=False))
        steps.append(ListDiffItem.Retain(1))
        at, place = next_at + 1, next_place + 1
    return [Diff.List(steps[:-1])]  # without the retain at the end


def _map(here: LoroMap, updated: dict[str, ValueOrContainer | None]) -> tuple[list[Diff], Renamed]:
    have = here.get_value()
    assert isinstance(have, dict)
    doc, renamed = LoroDoc(), Renamed()
    made = doc.get_map("map")
    for key in have:
        made.insert(key, None)  # so that it can be deleted
    doc.commit()
    start = doc.oplog_frontiers
    for key, value in updated.items():
        match value:
            case None:
                if key in have:
                    made.delete(key)
            case ValueOrContainer.Container(container=new) if have.get(key) != new.id:
                renamed[new.id] = made.insert_container(key, _empty(new.id)).id
            case ValueOrContainer.Value(value=new) if key not in have or key_of(have[key]) != key_of(new):
                made.insert(key, new)
    doc.commit()
    return [
        diff for name, diff in doc.diff(start, doc.oplog_frontiers).get_diff() if name == made.id
    ], renamed


def _key(value: ValueOrContainer) -> Key:
    match value:
        case ValueOrContainer.Container(container=container):
            return container.id
        case ValueOrContainer.Value(value=plain):
            return key_of(plain)
    raise AssertionError(value)


def _empty(
    container: ContainerID,
) -> LoroText | LoroList | LoroMovableList | LoroMap | LoroTree | LoroCounter:
    assert isinstance(container, ContainerID.Normal)
    match container.container_type:
        case ContainerType.Text():
            return LoroText()
        case ContainerType.List():
            return LoroList()
        case ContainerType.MovableList():
            return LoroMovableList()
        case ContainerType.Tree():
            return LoroTree()
        case ContainerType.Counter():
            return LoroCounter()
    return LoroMap()
