"""Content to write into Loro containers, with the kind of container of each part.

A JSON object becomes a MapPart and an array a ListPart, because containers merge and plain values do not.
Content copied from a document keeps its kind: a text stays a text with its marks, a movable list stays
movable, and a plain list or dict inside a map stays plain.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loro import (
    LoroCounter,
    LoroList,
    LoroMap,
    LoroMovableList,
    LoroText,
    LoroTree,
    TextDelta,
    ValueOrContainer,
)

from lorogo_server.sandbox.work_meter import CONTAINER_UNITS, VALUE_UNITS, Spend
from lorogo_server.values.document_value import deep
from lorogo_server.values.query import brief, to_json, unpack

DEPTH_MAX = 100
KEY_CHARS_MAX = 1_024

# A plain Loro value or one of the parts below. LoroValue exists in Loro's type stub only.
Content = Any


class ValueProblem(Exception):
    """An edit failed; the message is completed by `apply_patch` with the operation."""


@dataclass(frozen=True, slots=True)
class MapPart:
    """A map container with these entries."""

    entries: dict[str, Content]


@dataclass(frozen=True, slots=True)
class ListPart:
    """A list container with these items."""

    items: list[Content]
    movable: bool = False


@dataclass(frozen=True, slots=True)
class TextPart:
    """A text container with this content."""

    text: str
    marks: list[TextDelta]


@dataclass(frozen=True, slots=True)
class CounterPart:
    """A counter container at this value."""

    value: float


def checked_key(key: object) -> str:
    """Return the key if Loro can store it. Raises ValueProblem."""
    if not isinstance(key, str):
        raise ValueProblem(f"the key {brief(key)} is not a string")
    if len(key) > KEY_CHARS_MAX:
        raise ValueProblem(f"the key {brief(key)} is longer than {KEY_CHARS_MAX} characters")
    return checked_text(key)


def checked_text(text: str) -> str:
    """Return the text if it is valid Unicode: Loro silently replaces half a surrogate pair."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueProblem(f"{brief(text)} contains half of a surrogate pair") from None
    return text


def lift(value: object, depth: int, spend: Spend) -> Content:
    """Make content from a JSON value for a target at that depth."""
    spend(CONTAINER_UNITS if isinstance(value, (dict, list)) else VALUE_UNITS)
    match value:
        case None | bool():
            return value
        case int():
            if not -(2**63) <= value < 2**63:
                raise ValueProblem("an integer does not fit in 64 bits")
            return value
        case float():
            if not math.isfinite(value):
                raise ValueProblem(f"{value} is not a JSON number")
            return value
        case str():
            spend(len(value))
            return checked_text(value)
        case list() | dict() if depth > DEPTH_MAX:
            raise ValueProblem(f"the value would be nested deeper than {DEPTH_MAX} levels")
        case list():
            return ListPart([lift(item, depth + 1, spend) for item in value])
        case dict():
            texts = (*value, value.get("$bytes"))  # keys, and base64 to decode
            spend(sum(len(text) for text in texts if isinstance(text, str)))
            try:
                special = unpack(value)
            except ValueError as error:
                raise ValueProblem(str(error)) from None
            if special is not None:
                return special
            return MapPart({checked_key(key): lift(item, depth + 1, spend) for key, item in value.items()})
        case _:
            raise ValueProblem(f"a value of type {type(value).__name__} is not JSON")


def capture(thing: object, depth: int, spend: Spend) -> Content:
    """Copy content from a document for a target at that depth."""
    if depth > DEPTH_MAX + 1:
        raise ValueProblem(f"the value would be nested deeper than {DEPTH_MAX} levels")
    match thing:
        case ValueOrContainer.Container():
            return capture(thing.container, depth, spend)
        case ValueOrContainer.Value():
            return capture(thing.value, depth, spend)
        case LoroMap():
            spend(CONTAINER_UNITS + VALUE_UNITS * len(thing))  # before Loro returns all of them
            return MapPart({key: capture(item, depth + 1, spend) for key, item in thing.items()})
        case LoroList() | LoroMovableList():
            spend(CONTAINER_UNITS)
            items = [capture(thing.get(at), depth + 1, spend) for at in range(len(thing))]
            return ListPart(items, movable=isinstance(thing, LoroMovableList))
        case LoroText():
            spend(CONTAINER_UNITS + len(thing))
            return TextPart(thing.to_string(), thing.to_delta())
        case LoroCounter():
            spend(CONTAINER_UNITS)
            return CounterPart(thing.value)
        case LoroTree():  # a copy of a tree is the list of nodes that a read returns
            return lift(to_json(deep(thing, spend=spend)), depth, spend)
        case list():  # a plain value stays plain
            spend(VALUE_UNITS)
            return [capture(item, depth + 1, spend) for item in thing]
        case dict():
            spend(VALUE_UNITS)
            return {key: capture(item, depth + 1, spend) for key, item in thing.items()}
        case str() | bytes():
            spend(VALUE_UNITS + len(thing))
            return thing
        case _:
            spend(VALUE_UNITS)
            return thing


def plain(content: Content) -> Any:
    """Return the content as a plain value, without containers."""
    match content:
        case MapPart(entries):
            return {key: plain(item) for key, item in entries.items()}
        case ListPart(items):
            return [plain(item) for item in items]
        case TextPart(text):
            return text
        case CounterPart(value):
            return value
        case _:
            return content


def as_containers(content: Content) -> Content:
    """Return the content with its outermost plain list or dict as a container."""
    match content:
        case dict():
            return MapPart(dict(content))
        case list():
            return ListPart(list(content))
        case _:
            return content


def same(left: object, right: object) -> bool:
    """Compare two JSON values by the rules of RFC 6902: 1 equals 1.0, and true equals neither."""
    match left, right:
        case (bool(), _) | (_, bool()):
            return left is right
        case dict(), dict():
            return left.keys() == right.keys() and all(same(item, right[key]) for key, item in left.items())
        case list(), list():
            return len(left) == len(right) and all(map(same, left, right))
        case _:
            return left == right


def put_new(
    put: Callable[[Any, Any], object], put_container: Callable[[Any, Any], object], at: Any, content: Content
) -> None:
    """Put a new value or a new container at a key or index, with these two methods of the container."""
    kind = _CONTAINERS.get(type(content))
    if kind is None:
        put(at, content)
        return
    new: Any = LoroMovableList if getattr(content, "movable", False) else kind
    fill(put_container(at, new()), content)


def fill(target: object, content: Content) -> None:
    """Write the content of a part into an empty container of its kind."""
    match target, content:
        case LoroMap(), MapPart(entries):
            for key, item in entries.items():
                put_new(target.insert, target.insert_container, key, item)
        case ((LoroList() | LoroMovableList()), ListPart(items)):
            for at, item in enumerate(items):
                put_new(target.insert, target.insert_container, at, item)
        case LoroText(), TextPart(_, marks):
            target.apply_delta(marks)
        case LoroText(), str():
            target.insert(0, content)
        case LoroCounter(), CounterPart(value):
            if value:
                target.increment(value)
        case _:
            raise AssertionError((target, content))


_CONTAINERS = {MapPart: LoroMap, ListPart: LoroList, TextPart: LoroText, CounterPart: LoroCounter}
