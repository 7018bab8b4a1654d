"""Value of a document as plain Python values, read with a bound on its depth.

Loro's own `get_deep_value` is recursive: a document with some thousand nested levels, which a client can send
in one small update, overflows the stack and ends the process. This module counts the levels. If two roots
have the same name, it reads the one with content, where Loro shows either.
"""

from typing import Any

from loro import (
    LoroCounter,
    LoroDoc,
    LoroList,
    LoroMap,
    LoroMovableList,
    LoroText,
    LoroTree,
    TreeID,
    ValueOrContainer,
)

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.loro import crdt
from lorogo_server.sandbox.work_meter import CONTAINER_UNITS, VALUE_UNITS, Spend, cost, unmetered

DEPTH_MAX = 200


class TooDeep(LorogoError):
    """The document is nested deeper than the server reads."""

    code = "too-large"

    def __init__(self) -> None:
        super().__init__(f"the document is nested deeper than {DEPTH_MAX} levels")


def document_value(doc: LoroDoc, spend: Spend = unmetered) -> dict[str, object]:
    """Return the document as plain Python values. Raises TooDeep, CrdtError, and the errors of `spend`."""
    with crdt.guard():
        return {name: deep(root, 1, spend) for name, root in roots_of(doc).items()}


def roots_of(doc: LoroDoc) -> dict[str, Any]:
    """Return the root containers by name; of two with the same name, the one with content.

    Getting a missing root from Loro would create it, so this lists the roots twice: with empty ones and
    without.
    """
    doc.set_hide_empty_root_containers(False)
    everything: Any = doc.get_value()
    doc.set_hide_empty_root_containers(True)
    filled: Any = doc.get_value()
    doc.set_hide_empty_root_containers(False)
    return {name: doc.get_container(cid) for name, cid in (everything | filled).items()}


def deep(thing: object, depth: int = 0, spend: Spend = unmetered, *, above: TreeID | None = None) -> Any:
    """Return the plain value of a container or of an item. Raises TooDeep and the errors of `spend`.

    `above`: of a tree only the nodes below this one.
    """
    if depth > DEPTH_MAX:
        raise TooDeep
    match thing:
        case ValueOrContainer.Value():
            value = thing.value
            spend(cost(value))
            return value
        case ValueOrContainer.Container():
            return deep(thing.container, depth, spend)
        case LoroMap():
            spend(CONTAINER_UNITS + VALUE_UNITS * len(thing))  # before Loro returns all of them
            return {key: deep(item, depth + 1, spend) for key, item in thing.items()}
        case LoroList() | LoroMovableList():
            spend(CONTAINER_UNITS)
            return [deep(thing.get(at), depth + 1, spend) for at in range(len(thing))]
        case LoroText():
            spend(CONTAINER_UNITS + len(thing))
            return thing.to_string()
        case LoroCounter():
            spend(CONTAINER_UNITS)
            return thing.value
        case LoroTree():
            spend(CONTAINER_UNITS)
            return _nodes(thing, above, depth, spend)
        case None | dict() | list() | str() | int() | float() | bytes():
            return thing
        case _:  # a type of a newer Loro: only its id is readable
            return {"$unknown": str(getattr(thing, "id", thing))}


def _nodes(tree: LoroTree, parent: TreeID | None, depth: int, spend: Spend) -> list[object]:
    """Return the nodes below a node, in the format of Loro's own value."""
    if depth > DEPTH_MAX:
        raise TooDeep
    spend(CONTAINER_UNITS * (tree.children_num(parent) or 0))  # before Loro returns all of them
    nodes = tree.children(parent) or []
    return [
        {
            "id": _name(node),
            "parent": None if parent is None else _name(parent),
            "index": index,
            "fractional_index": tree.fractional_index(node),
            "meta": deep(tree.get_meta(node), depth + 2, spend),
            "children": _nodes(tree, node, depth + 2, spend),
        }
        for index, node in enumerate(nodes)
    ]


def _name(node: TreeID) -> str:
    return f"{node.counter}@{node.peer}"
