"""Changing a text or a list into what it is elsewhere, with few edits: what is alike stays.

What only the other list has needs a place here, and nothing more: None stands for it.
"""

import json
from collections import defaultdict, deque
from itertools import pairwise

from loro import ContainerID, Diff, LoroDoc, LoroList, LoroMovableList, LoroText, TextDelta

_COMPARED_MAX = 50_000  # characters or elements; more take too long
_FIRST_SIGN = 0x10000  # from here on every number is a character

Key = ContainerID | str  # of an element: a container's id, or what the value is, as JSON


def align_text(text: LoroText, other: LoroText) -> None:
    """Character by character, or by lines if it is long."""
    now = other.to_string()
    if max(len(now), text.len_unicode) > _COMPARED_MAX:
        text.update_by_line(now)
    else:
        text.update(now)


def align_list(items: LoroList, other: LoroList) -> None:
    """Element by element."""
    have, want = _keys(items), _keys(other)
    there = {key: place for place, key in enumerate(want) if isinstance(key, ContainerID)}
    # no element of a list overtakes another: at the containers that both have, both can be split
    shared = [
        (at, there[key]) for at, key in enumerate(have) if isinstance(key, ContainerID) and key in there
    ]
    kept = dict(shared)
    for (left, other_left), (right, other_right) in pairwise([(-1, -1), *shared, (len(have), len(want))]):
        for at, place in alike(have[left + 1 : right], want[other_left + 1 : other_right]):
            kept[left + 1 + at] = other_left + 1 + place
    for at in reversed(range(len(have))):
        if at not in kept:
            items.delete(at, 1)
    for place in sorted(set(range(len(want))) - set(kept.values())):
        items.insert(place, None)


def align_movable_list(items: LoroMovableList, other: LoroMovableList) -> None:
    """Element by element; one that has another place there is moved."""
    have, want = _keys(items), _keys(other)
    source_of = {place: at for at, place in alike(have, want)}
    staying = set(source_of.values())
    left: defaultdict[Key, deque[int]] = defaultdict(deque)
    for at, key in enumerate(have):
        if at not in staying:
            left[key].append(at)
    for place, key in enumerate(want):
        if place not in source_of and left[key]:
            source_of[place] = left[key].popleft()
    order: list[int | None] = [*sorted(source_of.values())]  # what is in `items`, by where it was
    for at in sorted(set(range(len(have))) - set(source_of.values()), reverse=True):
        items.delete(at, 1)
    here = 0  # what is before it has its place, or will be moved behind it
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


def alike(have: list[Key], want: list[Key]) -> list[tuple[int, int]]:
    """Where elements that are alike stand in the one and in the other, in the same order.

    Loro compares texts quickly: so both are spelled, with a character for each element.
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
