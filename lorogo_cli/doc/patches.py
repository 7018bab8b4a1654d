"""Build JSON Patches (RFC 6902): set one value, or turn an edited document into operations."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from lorogo_cli.doc.paths import is_index, pointer
from lorogo_cli.errors import CommandError
from lorogo_cli.render.values import show_count

Operation = dict[str, Any]

_ITEMS_COMPARED_MAX = 1000  # of one list; a longer middle part is replaced item by item


@dataclass(frozen=True, slots=True)
class PathAssignment:
    """Operations that set one value."""

    operations: list[Operation]
    exact: bool  # they assume that a key is missing: apply them only to the version that was read


def set_value(document: object, tokens: Sequence[str], new: object) -> PathAssignment:
    """Return operations that set a value and create missing containers on its path. Raises CommandError."""
    if not tokens:
        raise CommandError("the path is empty: write a name, like title, or a path, like tasks.0.title")
    where = document
    for depth, token in enumerate(tokens):
        last = depth == len(tokens) - 1
        path = pointer(tokens[: depth + 1])
        match where:
            case dict() if last:
                if depth == 0 and token not in where:
                    _check_root(token, new)
                return PathAssignment([_add(path, new)], exact=False)
            case dict() if token in where:
                where = where[token]
            case list() if is_index(token) and int(token) < len(where):
                if last:
                    return PathAssignment([{"op": "replace", "path": path, "value": new}], exact=False)
                where = where[int(token)]
            case list() if token in ("-", str(len(where))):
                return PathAssignment([_add(path, _nested(tokens[depth + 1 :], new))], exact=token != "-")
            case list():
                raise CommandError(
                    f"{_name(tokens[:depth])} is a list of {show_count(len(where), 'item')}:"
                    f" {token} is not an index in it; {_name([*tokens[:depth], '-'])} appends"
                )
            case dict():
                return PathAssignment([_add(path, _nested(tokens[depth + 1 :], new))], exact=True)
            case str() if last and (token == "-" or is_index(token)):
                return PathAssignment(
                    [{"op": "add" if token == "-" else "replace", "path": path, "value": new}], False
                )
            case _:
                raise CommandError(
                    f"{_name(tokens[:depth])} is {_kind(where)}: it cannot contain other values"
                )
    raise AssertionError("the last token returns")


def _check_root(name: str, new: object) -> None:
    if not isinstance(new, dict | list | str):
        raise CommandError(
            f"{_kind(new)} is not allowed at the top level of a document: put it in a map, as in {name}.value"
        )


def _nested(tokens: Sequence[str], new: object) -> object:
    for token in reversed(tokens):
        new = [new] if token in ("0", "-") else {token: new}
    return new


def _add(path: str, value: object) -> Operation:
    return {"op": "add", "path": path, "value": value}


def _name(tokens: Sequence[str]) -> str:
    return ".".join(tokens) or "the document"


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "a map"


# --- the whole document, edited as text ---------------------------------------------------------------


def difference(before: object, after: object) -> list[Operation]:
    """Return the operations that turn one document into the other; none if they are equal."""
    if not isinstance(after, dict):
        raise CommandError(f"a document must be a map at its top level, not {_kind(after)}")
    return list(_between(before, after, []))


def _between(before: object, after: object, path: list[str]) -> Iterator[Operation]:
    match before, after:
        case dict(), dict():
            for key in before:
                if key not in after:
                    yield {"op": "remove", "path": pointer([*path, key])}
            for key, value in after.items():
                if key in before:
                    yield from _between(before[key], value, [*path, key])
                else:
                    yield _add(pointer([*path, key]), value)
        case list(), list():
            yield from _between_lists(before, after, path)
        case _ if same(before, after):
            return
        case _ if len(path) == 1 and _kind(before) != _kind(after):
            # the type of a root container cannot change: remove it first
            yield {"op": "remove", "path": pointer(path)}
            yield _add(pointer(path), after)
        case _:
            yield {"op": "replace", "path": pointer(path), "value": after}


def _between_lists(before: list[Any], after: list[Any], path: list[str]) -> Iterator[Operation]:
    # from the end, so that the indexes of earlier items stay valid
    for start, end, new_start, new_end in reversed(_blocks(before, after)):
        paired = min(end - start, new_end - new_start)
        for at in range(end - 1, start + paired - 1, -1):
            yield {"op": "remove", "path": pointer([*path, str(at)])}
        for offset in range(paired):
            item = [*path, str(start + offset)]
            yield from _between(before[start + offset], after[new_start + offset], item)
        for offset in range(paired, new_end - new_start):
            yield _add(pointer([*path, str(start + offset)]), after[new_start + offset])


def _blocks(before: list[Any], after: list[Any]) -> list[tuple[int, int, int, int]]:
    """Return the ranges that differ, as start and end before, start and end after."""
    old, new = [_text(item) for item in before], [_text(item) for item in after]
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    end, new_end = len(old) - tail, len(new) - tail
    if max(end, new_end) - head > _ITEMS_COMPARED_MAX:
        return [(head, end, head, new_end)]
    matcher = SequenceMatcher(None, old[head:end], new[head:new_end], autojunk=False)
    return [
        (head + a, head + b, head + c, head + d)
        for tag, a, b, c, d in matcher.get_opcodes()
        if tag != "equal"
    ]


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def same(one: object, other: object) -> bool:
    """Return whether two JSON values are equal; true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other
