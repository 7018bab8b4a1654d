"""Conversion of a text or list into another version of it with few edits, so that common elements stay.

Elements that only the other list has need just a position here: None is their placeholder.
"""

import json
from collections import defaultdict, deque
from itertools import pairwise

from loro import ContainerID, Diff, LoroDoc, LoroList, LoroMovableList, LoroText, TextDelta

_COMPARED_MAX = 50_000  # characters or elements; longer sequences are not compared
_FIRST_SIGN = 0x10000  # from here on every code point is valid

Key = ContainerID | str  # of an element: a container's id, or its value as JSON


def align_text(text: LoroText, other: LoroText) -> None:
    """Align by characters, or by lines if the text is long."""
    now = other.to_string()
    if max(len(now), text.len_unicode) > _COMPARED_MAX:
        text.update_by_line(now)
    else:
        text.update(now)


def align_list(items: LoroList, other: LoroList) -> None:
    """Align element by element."""
    have, want = _keys(items), _keys(other)
    there = {key: place for place, key in enumerate(want) if isinstance(key, ContainerID)}
    # elements of a list never swap: split both at their common containers
    shared = [
        (at, there[key]) for at, key in enumerate(have) if isinstance(key, ContainerID) and key in there
    ]
    kept = dict(shared)
    for (left, other_left), (right, other_right) in pairwise([(-1, -1), *shared, (len(have), len(want))]):
        for at, place in matching(have[left + 1 : right], want[other_left + 1 : other_right]):
            kept[left + 1 + at] = other_left + 1 + place
    for at in reversed(range(len(have))):
        if at not in kept:
            items.delete(at, 1)
    for place in sorted(set(range(len(want))) - set(kept.values())):
        items.insert(place, None)


def align_movable_list(items: LoroMovableList, other: LoroMovableList) -> None:
    """Align element by element; elements at another position are moved."""
    have, want = _keys(items), _keys(other)
    source_of = {place: at for at, place in matching(have, want)}
    staying = set(source_of.values())
    left: defaultdict[Key, deque[int]] = defaultdict(deque)
    for at, key in enumerate(have):
        if at not in staying:
            left[key].append(at)
    for place, key in enumerate(want):
        if place not in source_of and left[key]:
            source_of[place] = left[key].popleft()
    order: list[int | None] = [
        *sorted(source_of.values())
    ]  # current elements of `items`, by their original index
    for at in sorted(set(range(len(have))) - set(source_of.values()), reverse=True):
        items.delete(at, 1)
    here = 0  # elements before it are in place, or move behind it later
    for place in range(len(want)):
        source = source_of.get(place)
        if source is None:
            items.insert(here, None)
            order.insert(here, None)
        elif source in staying:
            here = order.index(source, here)
        elif order[here : here + 1] != [source]:
            now_at = order.index(source)
            here -= now_at < here
            items.mov(now_at, here)
            order.insert(here, order.pop(now_at))
        here += 1


def _keys(items: LoroList | LoroMovableList) -> list[Key]:
    values = items.get_value()
    assert isinstance(values, list)
    return [key_of(value) for value in values]


def key_of(value: object) -> Key:
    return value if isinstance(value, ContainerID) else json.dumps(value, sort_keys=True, default=repr)


def matching(have: list[Key], want: list[Key]) -> list[tuple[int, int]]:
    """Return index pairs of matching elements, in the same order in both lists.

    Loro diffs texts fast, so each distinct element is mapped to one character.
    """
    if max(len(have), len(want)) > _COMPARED_MAX:
        first = next((at for at, key in enumerate(have) if want[at : at + 1] != [key]), len(have))
        return [(at, at) for at in range(first)]
    signs: dict[Key, str] = {}
    spelled, other = (
        "".join(signs.setdefault(key, chr(_FIRST_SIGN + len(signs))) for key in keys) for keys in (have, want)
    )
    doc = LoroDoc()
    text = doc.get_text("elements")
    text.insert(0, spelled)
    doc.commit()
    before = doc.oplog_frontiers
    text.update(other)
    doc.commit()
    found: list[tuple[int, int]] = []
    at = place = 0
    for _, diff in doc.diff(before, doc.oplog_frontiers).get_diff():
        assert isinstance(diff, Diff.Text)
        for step in diff.diff:
            match step:
                case TextDelta.Retain(retain=count):
                    found += zip(range(at, at + count), range(place, place + count), strict=True)
                    at, place = at + count, place + count
                case TextDelta.Delete(delete=count):
                    at += count
                case TextDelta.Insert(insert=signs_of_new):
                    place += len(signs_of_new)
    return [*found, *zip(range(at, len(have)), range(place, len(want)), strict=True)]
