"""What is under a token: of the roots, of a container, of a plain value.

`where` is a Loro container, or the dict of the document's roots by name. Every error is a Problem.
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

from lorogo_server.sandbox.call_executor import TEXT_PART_CHARS, VALUE_UNITS, Spend
from lorogo_server.values.document_value import deep
from lorogo_server.values.parts import ValueProblem, checked_key
from lorogo_server.values.query import brief

MERGEABLE_PREFIX = "\N{HANDSHAKE}:"  # Loro's own roots behind `ensure_mergeable_*`

Path = Sequence[str]
_INDEX_DIGITS_MAX = 18
_INDEX = re.compile(r"0|[1-9][0-9]*", re.ASCII)


def child(where: Any, key: str, spend: Spend) -> Any:
    """What is under a key of a container, as Loro gives it; a Problem if nothing is."""
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
    """What a map has under a key, or None."""
    return where.get(checked_key(key))


def tree_meta(tree: LoroTree, path: Path, spend: Spend) -> tuple[LoroMap | None, int]:
    """The meta map of the node that the path names, and how many tokens that took."""
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
    """The plain value under a key, below which an edit goes."""
    if isinstance(where, LoroTree):
        raise not_editable(where)
    found = child(where, key, spend)
    return found if isinstance(where, LoroText) else deep(found, spend=spend)


def below(value: object, token: str) -> Any:
    """What is under a token of a plain value."""
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
    """A plain value with something added or replaced below it."""
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
    """A plain value with something removed below it."""
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
    """The index that a token names; with `end`, also the place behind the last."""
    if token == "-":
        if not end:
            raise ValueProblem("'-' names the place behind the last item, where nothing is")
        return size
    if not _INDEX.fullmatch(token):
        raise ValueProblem(f"{brief(token)} is not an index")
    at = int(token) if len(token) <= _INDEX_DIGITS_MAX else None  # Python reads no number of thousands
    if at is None or at >= size + end:
        raise ValueProblem(f"index {brief(token if at is None else at)} is beyond the end at {size}")
    return at


def kind_of(where: object) -> str:
    """What to call a container in a message."""
    names = {LoroMap: "map", LoroList: "list", LoroMovableList: "movable list", LoroText: "text"}
    names |= {LoroCounter: "counter", LoroTree: "tree"}
    return names.get(type(where), "container of an unknown kind")


def not_editable(where: object) -> ValueProblem:
    """Why there is nothing to edit inside this container."""
    if isinstance(where, LoroTree):
        return ValueProblem("a tree can only be read here, but for the meta of its nodes")
    return ValueProblem(f"nothing is inside a {kind_of(where)}")


def checked_root_name(name: str) -> str:
    """The name, if Loro allows it for a root: it panics on others."""
    if not name or "/" in name or "\0" in name or name.startswith(MERGEABLE_PREFIX):
        raise ValueProblem(f"{brief(name)} cannot name a root")
    return checked_key(name)
