"""Places that a JSON pointer leads to: the document's containers, and the plain values inside them.

A node resolves one token: `inside` for the next token, `get` for Loro's item, `add`, `put` and `remove` for
an edit. Loro stores a plain list or dict as one value, so an edit inside one (`PlainNode`) puts a changed
copy into the node around it. All raise only ValueProblem, TooDeep and OverBudget.
"""

import math
import re
from collections.abc import Callable
from copy import copy
from typing import Any

from loro import (
    LoroCounter,
    LoroList,
    LoroMap,
    LoroMovableList,
    LoroText,
    LoroTree,
    LoroUnknown,
    TreeID,
    ValueOrContainer,
)

from lorogo_server.sandbox.work_meter import SLOW_DIFF_UNITS, TEXT_PART_CHARS, VALUE_UNITS, Spend, cost
from lorogo_server.values.document_value import deep
from lorogo_server.values.parts import (
    Content,
    ValueProblem,
    checked_key,
    plain,
    put_new,
)
from lorogo_server.values.query import brief

TEXT_DIFF_MILLISECONDS = 25.0  # then the part between the first and last difference is rewritten
TEXT_DIFF_CHARS_MAX = 1024 * 1024  # of both texts: Loro exceeds the time limit for longer ones
TEXT_DIFFS_SLOW_MAX = 10  # in one patch; later texts are rewritten without a diff

_INDEX_DIGITS_MAX = 18
_INDEX = re.compile(r"0|[1-9][0-9]*", re.ASCII)
_KINDS = {LoroMap: "map", LoroList: "list", LoroMovableList: "movable list", LoroText: "text"}
_KINDS |= {LoroCounter: "counter", LoroTree: "tree"}


class LeafWriter:
    """Writes into texts and counters of one document, and meters the work."""

    def __init__(self, spend: Spend) -> None:
        self.spend = spend
        self._slow_diffs_left = TEXT_DIFFS_SLOW_MAX

    def keep(self, present: ValueOrContainer | None, content: Content) -> bool:
        """Write the content into an existing text or counter; return False if it does not fit."""
        if not isinstance(present, ValueOrContainer.Container):
            return False
        match present.container, content:
            case LoroText() as text, str():
                self.update_text(text, content)
            case LoroCounter() as counter, (int() | float()) if not isinstance(content, bool):
                set_counter(counter, content)
            case _:
                return False
        return True

    def update_text(self, text: LoroText, wanted: str) -> None:
        """Make a text the wanted one by a small difference."""
        present = text.to_string()
        self.spend(len(present) + len(wanted))
        if present == wanted:
            return
        if self._slow_diffs_left and len(present) + len(wanted) <= TEXT_DIFF_CHARS_MAX:
            try:
                text.update(wanted, timeout_ms=TEXT_DIFF_MILLISECONDS)
            except ValueError:  # Loro's error for a timeout
                self._slow_diffs_left -= 1
                self.spend(SLOW_DIFF_UNITS)
            else:
                return
        present = text.to_string()
        head = _common(present, wanted)
        tail = _common(present[head:][::-1], wanted[head:][::-1])
        text.delete(head, len(present) - tail - head)
        text.insert(head, wanted[head : len(wanted) - tail])


class ValueNode:
    """A container or a plain value, with items under tokens; without subclass a counter, which has none."""

    def __init__(self, container: Any, writer: LeafWriter) -> None:
        self.container = container
        self._writer = writer

    def get(self, _key: str) -> Any:
        """Return the item under a token: Loro's, or a plain value."""
        raise self._problem()

    def add(self, key: str, content: Content) -> None:
        """Insert into a list or text; set in a map."""
        self.put(key, content)

    def put(self, _key: str, _content: Content) -> None:
        """Set the existing item; keep a text or counter if the content fits."""
        raise self._problem()

    def remove(self, key: str) -> None:
        """Remove the existing item."""
        self.get(key)
        raise self._problem()

    def inside(self, key: str) -> "ValueNode":
        """Return the node of the item."""
        item = self.get(key)
        if isinstance(item, ValueOrContainer.Container):
            item = item.container
        if (kind := _NODES.get(type(item))) is not None:
            return kind(item, self._writer)
        if isinstance(item, ValueOrContainer.Value):
            item = item.value
            self._writer.spend(cost(item))
        return PlainNode(item, self._writer, self, key)

    def _problem(self) -> ValueProblem:
        return ValueProblem(f"nothing is inside a {kind_of(self.container)}")


class MapNode(ValueNode):
    """A map."""

    def get(self, key: str) -> Any:
        if (found := self.container.get(checked_key(key))) is None:
            raise ValueProblem(f"the map has no key {brief(key)}")
        return found

    def put(self, key: str, content: Content) -> None:
        if not self._writer.keep(self.container.get(checked_key(key)), content):
            put_new(self.container.insert, self.container.insert_container, key, content)

    def remove(self, key: str) -> None:
        self.get(key)
        self.container.delete(key)


class ListNode(ValueNode):
    """A list or a movable list."""

    def get(self, key: str) -> Any:
        return self.container.get(index(key, len(self.container)))

    def add(self, key: str, content: Content) -> None:
        items, at = self.container, index(key, len(self.container), end=True)
        put_new(items.insert, items.insert_container, at, content)

    def put(self, key: str, content: Content) -> None:
        items, at = self.container, index(key, len(self.container))
        if self._writer.keep(items.get(at), content):
            return
        if isinstance(items, LoroMovableList):  # the item keeps its identity, so concurrent moves of it merge
            put_new(items.set, items.set_container, at, content)
        else:
            items.delete(at, 1)
            put_new(items.insert, items.insert_container, at, content)

    def remove(self, key: str) -> None:
        self.container.delete(index(key, len(self.container)), 1)


class TextNode(ValueNode):
    """A text, whose items are its code points."""

    def get(self, key: str) -> Any:
        self._writer.spend(len(self.container) // TEXT_PART_CHARS)
        return self.container.char_at(index(key, len(self.container)))

    def add(self, key: str, content: Content) -> None:
        self.container.insert(index(key, len(self.container), end=True), _string(content))

    def put(self, key: str, content: Content) -> None:
        at, text = index(key, len(self.container)), _string(content)
        self.container.delete(at, 1)
        self.container.insert(at, text)

    def remove(self, key: str) -> None:
        self.get(key)
        self.container.delete(index(key, len(self.container)), 1)


class TreeNode(ValueNode):
    """The nodes of a tree below one of them, which a patch reads as a list. Only their meta can be edited."""

    def __init__(self, container: Any, writer: LeafWriter, above: TreeID | None = None) -> None:
        super().__init__(container, writer)
        self._above = above

    def get(self, key: str) -> Any:
        return below(deep(self.container, spend=self._writer.spend, above=self._above), key)

    def inside(self, key: str) -> ValueNode:
        nodes = self.container.children(self._above) or []
        self._writer.spend(VALUE_UNITS * len(nodes))
        return TreeItem(self, key, nodes[index(key, len(nodes))], self._writer)

    def _problem(self) -> ValueProblem:
        return ValueProblem("a patch can only edit the meta of a tree's nodes")


class TreeItem(TreeNode):
    """One node of a tree."""

    def __init__(self, tree: TreeNode, key: str, node: TreeID, writer: LeafWriter) -> None:
        super().__init__(tree.container, writer, node)
        self._tree, self._key, self._node = tree, key, node

    def get(self, key: str) -> Any:
        return below(self._tree.get(self._key), key)

    def inside(self, key: str) -> ValueNode:
        match key:
            case "meta":
                return MapNode(self.container.get_meta(self._node), self._writer)
            case "children":
                return TreeNode(self.container, self._writer, self._node)
            case _:
                return PlainNode(self.get(key), self._writer, self, key)


class PlainNode(ValueNode):
    """A plain value; an edit inside it puts a changed copy into the node around it."""

    def __init__(self, value: Any, writer: LeafWriter, around: ValueNode, key: str) -> None:
        super().__init__(None, writer)
        self._value, self._around, self._key = value, around, key

    def get(self, key: str) -> Any:
        return below(self._value, key)

    def add(self, key: str, content: Content) -> None:
        value = copy(self._value)
        match value:
            case dict():
                value[checked_key(key)] = plain(content)
            case list():
                value.insert(index(key, len(value), end=True), plain(content))
            case _:
                self.get(key)  # raises
        self._around.put(self._key, value)

    def put(self, key: str, content: Content) -> None:
        self.get(key)  # it must exist
        value = copy(self._value)
        value[_place(value, key)] = plain(content)
        self._around.put(self._key, value)

    def remove(self, key: str) -> None:
        self.get(key)
        value = copy(self._value)
        del value[_place(value, key)]
        self._around.put(self._key, value)


_NODES: dict[type, Callable[[Any, LeafWriter], ValueNode]] = {
    LoroMap: MapNode,
    LoroList: ListNode,
    LoroMovableList: ListNode,
    LoroText: TextNode,
    LoroTree: TreeNode,
    LoroCounter: ValueNode,
    LoroUnknown: ValueNode,
}


def _place(value: object, key: str) -> str | int:
    return index(key, len(value)) if isinstance(value, list) else key


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


def index(token: str, size: int, *, end: bool = False) -> int:
    """Parse a token as an index; with `end`, also the index after the last item."""
    if token == "-":
        if not end:
            raise ValueProblem("'-' is the index after the last item, which has no value")
        return size
    if not _INDEX.fullmatch(token):
        raise ValueProblem(f"{brief(token)} is not an index")
    # Python refuses to parse thousands of digits
    at = int(token) if len(token) <= _INDEX_DIGITS_MAX else None
    if at is None or at >= size + end:
        raise ValueProblem(f"index {brief(token if at is None else at)} is beyond the end at {size}")
    return at


def kind_of(container: object) -> str:
    """Return a container's kind for a message."""
    return _KINDS.get(type(container), "container of an unknown kind")


def set_counter(counter: LoroCounter, wanted: float) -> None:
    """Set a counter to a value by increments; the second one corrects the rounding of the first."""
    if float(wanted) != wanted:
        raise ValueProblem("a counter cannot hold this integer exactly")
    for _ in range(2):
        step = float(wanted) - counter.value
        if not math.isfinite(step):
            raise ValueProblem("the counter cannot get there by a finite step")
        if step:
            counter.increment(step)


def _string(content: Content) -> str:
    text = plain(content)
    if not isinstance(text, str):
        raise ValueProblem("only a string can go into a text")
    return text


def _common(left: str, right: str) -> int:
    """Return the length of the common prefix, by binary search."""
    same, differs = 0, min(len(left), len(right)) + 1
    while differs - same > 1:
        middle = (same + differs) // 2
        if left[same:middle] == right[same:middle]:
            same = middle
        else:
            differs = middle
    return same
