"""Resolves one token of a JSON pointer in the roots, a container or a plain value.

`where` is a Loro container, or the dict of the document's roots by name. All functions raise only Problem.
"""

import re
from collections.abc import Sequence
from typing import Any

from loro import (
    LoroCounter,
    LoroList,
    LoroMap,
    LoroMovableList,
    LoroText,
    LoroTree,
    TreeID,
    ValueOrContainer,
)

from lorogo_server.sandbox.work_meter import TEXT_PART_CHARS, VALUE_UNITS, Spend
from lorogo_server.values.document_value import deep
from lorogo_server.values.parts import ValueProblem, checked_key
from lorogo_server.values.query import brief

MERGEABLE_PREFIX = "\N{HANDSHAKE}:"  # Loro's own roots behind `ensure_mergeable_*`

Path = Sequence[str]
_INDEX_DIGITS_MAX = 18
_INDEX = re.compile(r"0|[1-9][0-9]*", re.ASCII)


def child(where: Any, key: str, spend: Spend) -> Any:
    """Return Loro's item under a key of a container. Raises ValueProblem if there is none."""
    match where:
        case dict():
            if key not in where:
                raise ValueProblem(f"the document has no root {brief(key)}")
            return where[key]
        case LoroMap():
            if (found := entry(where, key)) is None:
                raise ValueProblem(f"the map has no key {brief(key)}")
            return found
        case LoroList() | LoroMovableList():
            return where.get(index(key, len(where)))
        case LoroText():
            spend(len(where) // TEXT_PART_CHARS)
            return where.char_at(index(key, len(where)))
        case LoroTree():
            return below(deep(where, spend=spend), key)
        case _:
            raise ValueProblem(f"nothing is inside a {kind_of(where)}")


def entry(where: LoroMap, key: str) -> ValueOrContainer | None:
    """Return a map's item under a key, or None."""
    return where.get(checked_key(key))


def tree_meta(tree: LoroTree, path: Path, spend: Spend) -> tuple[LoroMap | None, int]:
    """Return the meta map of the node at the path, and the number of tokens used."""
    node: TreeID | None = None
    at = 0
    while True:
        nodes = tree.children(node) or []
        spend(VALUE_UNITS * len(nodes))
        node = nodes[index(path[at], len(nodes))]
        match path[at + 1 : at + 3]:
            case ["children", _]:
                at += 2
            case ["meta", _]:
                return tree.get_meta(node), at + 2
            case _:
                return None, 0


def plain_at(where: Any, key: str, spend: Spend) -> Any:
    """Return the plain value under a key, for an edit inside it."""
    if isinstance(where, LoroTree):
        raise not_editable(where)
    found = child(where, key, spend)
    return found if isinstance(where, LoroText) else deep(found, spend=spend)


def below(value: object, token: str) -> Any:
    """Return the item under a token of a plain value."""
    match value:
        case dict():
            if token not in value:
                raise ValueProblem(f"the map has no key {brief(token)}")
            return value[token]
        case list():
            return value[index(token, len(value))]
        case _:
            raise ValueProblem(f"nothing is inside a {'string' if isinstance(value, str) else 'plain value'}")


def with_new(value: Any, path: Path, new: object, *, insert: bool) -> Any:
    """Return a copy of a plain value with an item added or replaced inside it."""
    token, *rest = path
    if rest:
        return _changed(value, token, with_new(below(value, token), rest, new, insert=insert))
    match value:
        case dict() if insert:
            return value | {checked_key(token): new}
        case list() if insert:
            at = index(token, len(value), end=True)
            return [*value[:at], new, *value[at:]]
        case _:
            below(value, token)
            return _changed(value, token, new)


def without(value: Any, path: Path) -> Any:
    """Return a copy of a plain value with an item removed inside it."""
    token, *rest = path
    inner = below(value, token)
    if rest:
        return _changed(value, token, without(inner, rest))
    if isinstance(value, dict):
        return {key: item for key, item in value.items() if key != token}
    at = index(token, len(value))
    return [*value[:at], *value[at + 1 :]]


def _changed(value: Any, token: str, new: object) -> Any:
    if isinstance(value, dict):
        return value | {token: new}
    at = index(token, len(value))
    return [*value[:at], new, *value[at + 1 :]]


def index(token: str, size: int, *, end: bool = False) -> int:
    """Parse a token as an index; with `end`, also the index after the last item."""
    if token == "-":
        if not end:
            raise ValueProblem("'-' is the index after the last item, which has no value")
        return size
    if not _INDEX.fullmatch(token):
        raise ValueProblem(f"{brief(token)} is not an index")
    at = (
        int(token) if len(token) <= _INDEX_DIGITS_MAX else None
    )  # Python refuses to parse thousands of digits
    if at is None or at >= size + end:
        raise ValueProblem(f"index {brief(token if at is None else at)} is beyond the end at {size}")
    return at


def kind_of(where: object) -> str:
    """Return a container's kind for a message."""
    names = {LoroMap: "map", LoroList: "list", LoroMovableList: "movable list", LoroText: "text"}
    names |= {LoroCounter: "counter", LoroTree: "tree"}
    return names.get(type(where), "container of an unknown kind")


def not_editable(where: object) -> ValueProblem:
    """Return the error for an edit inside a container that has no editable items."""
    if isinstance(where, LoroTree):
        return ValueProblem("a patch can only edit the meta of a tree's nodes")
    return ValueProblem(f"nothing is inside a {kind_of(where)}")


def checked_root_name(name: str) -> str:
    """Return the name if it is valid for a root: Loro panics on other names. Raises ValueProblem."""
    if not name or "/" in name or "\0" in name or name.startswith(MERGEABLE_PREFIX):
        raise ValueProblem(f"{brief(name)} cannot name a root")
    return checked_key(name)
