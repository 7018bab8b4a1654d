"""Reads and edits a Loro document at the target of a JSON pointer.

The first token names a root container; the following tokens select items of maps, lists, texts (code
points) and the `meta` maps of tree nodes (`nodes.py`).
"""

from collections.abc import Sequence
from typing import Any

from loro import (
    LoroCounter,
    LoroDoc,
    LoroList,
    LoroMap,
    LoroMovableList,
    LoroText,
    ValueOrContainer,
)

from lorogo_server.sandbox.work_meter import VALUE_UNITS, Spend
from lorogo_server.values.document_value import deep, roots_of
from lorogo_server.values.nodes import LeafWriter, ValueNode, index, kind_of, set_counter
from lorogo_server.values.parts import (
    Content,
    CounterPart,
    ListPart,
    MapPart,
    TextPart,
    ValueProblem,
    as_containers,
    capture,
    checked_key,
    fill,
    plain,
    put_new,
    same,
)
from lorogo_server.values.query import brief, to_json

MERGEABLE_PREFIX = "\N{HANDSHAKE}:"  # Loro's own roots behind `ensure_mergeable_*`

Path = Sequence[str]


class ValueEditor:
    """Reads and edits one document by paths. Raises only ValueProblem, TooDeep and OverBudget.

    Each operation spends the units for reading and creating values before it writes.
    """

    def __init__(self, doc: LoroDoc, spend: Spend) -> None:
        self.spend = spend
        self._roots = RootsNode(doc, LeafWriter(spend))

    def read(self, path: Path) -> object:
        """Return the JSON value at the path."""
        if not path:
            roots = self._roots.by_name.items()
            return to_json({name: deep(root, 1, self.spend) for name, root in roots})
        return to_json(deep(self._around(path).get(path[-1]), spend=self.spend))

    def lift_out(self, path: Path, depth: int) -> Content:
        """Return the content at the path, with its containers, for a target at that depth."""
        if not path:
            roots = self._roots.by_name.items()
            return MapPart({name: capture(root, depth + 1, self.spend) for name, root in roots})
        return capture(self._around(path).get(path[-1]), depth, self.spend)

    def add(self, path: Path, content: Content) -> None:
        """Insert into a list or text, set in a map, fill a root, or set the whole document."""
        if path:
            self._around(path).add(path[-1], content)
        else:
            self._roots.put_all(content)

    def replace(self, path: Path, content: Content) -> None:
        """Replace the existing value at the path."""
        if not path:
            self._roots.put_all(content)
            return
        node = self._around(path)
        node.get(path[-1])  # it must exist
        node.put(path[-1], content)

    def remove(self, path: Path) -> None:
        """Remove the value at the path."""
        if not path:
            raise ValueProblem("the whole document cannot be removed")
        self._around(path).remove(path[-1])

    def move(self, source: Path, target: Path) -> None:
        """Move a value; an item that moves inside one movable list keeps its identity."""
        if list(source) == list(target):
            self.lift_out(source, len(target))  # it must exist
            return
        if list(target[: len(source)]) == list(source):
            raise ValueProblem("a value cannot move into itself")
        if list(source[:-1]) == list(target[:-1]):
            items = self._around(source).container
            if isinstance(items, LoroMovableList):
                size = len(items)
                items.mov(index(source[-1], size), index(target[-1], size - 1, end=True))
                return
        content = self.lift_out(source, len(target))
        self.remove(source)
        self.add(target, content)

    def _around(self, path: Path) -> ValueNode:
        """Return the node that has the last token of the path."""
        node: ValueNode = self._roots
        for token in path[:-1]:
            node = node.inside(token)
        return node


class RootsNode(ValueNode):
    """The document: an object whose members are root containers."""

    def __init__(self, doc: LoroDoc, writer: LeafWriter) -> None:
        super().__init__(None, writer)
        self._doc = doc
        self.by_name = roots_of(doc)

    def get(self, key: str) -> Any:
        if key not in self.by_name:
            raise ValueProblem(f"the document has no root {brief(key)}")
        return self.by_name[key]

    def put_all(self, content: Content) -> None:
        """Make the content the whole document."""
        content = as_containers(content)
        if not isinstance(content, MapPart):
            raise ValueProblem("the whole document can only be an object")
        for name in [name for name in self.by_name if name not in content.entries]:
            self.remove(name)
        for name, item in content.entries.items():
            self.put(name, item)

    def put(self, key: str, content: Content) -> None:
        content = as_containers(content)
        root = self.by_name.get(_checked_root_name(key))
        match root, content:
            case LoroMap(), MapPart(entries):
                self._overwrite_map(root, entries)
            case ((LoroList() | LoroMovableList()), ListPart(items)):
                self._overwrite_list(root, items)
            case LoroText(), str():
                self._writer.update_text(root, content)
            case LoroText(), TextPart(text):
                self._writer.spend(len(text))
                root.delete(0, len(root))
                fill(root, content)
            case LoroCounter(), CounterPart(value):
                set_counter(root, value)
            case LoroCounter(), (int() | float()) if not isinstance(content, bool):
                set_counter(root, content)
            case _:
                self._put_new(key, content)

    def remove(self, key: str) -> None:
        self._doc.delete_root_container(self.get(key).id)
        del self.by_name[key]

    def _put_new(self, name: str, content: Content) -> None:
        doc = self._doc
        opened = {
            MapPart: doc.get_map,
            ListPart: doc.get_movable_list if getattr(content, "movable", False) else doc.get_list,
            TextPart: doc.get_text,
            str: doc.get_text,
            CounterPart: doc.get_counter,
        }.get(type(content))
        if opened is None:
            raise ValueProblem("a root is a map, a list or a text: put this value inside a map")
        if (old := self.by_name.get(name)) is not None:
            if deep(old, spend=self._writer.spend) not in ({}, [], "", 0.0):
                raise ValueProblem(
                    f"the root {brief(name)} is a {kind_of(old)}, which apps open as that:"
                    " remove it before it becomes something else"
                )
            self.remove(name)
        self.by_name[name] = root = opened(name)
        fill(root, content)

    def _overwrite_map(self, target: LoroMap, entries: dict[str, Content]) -> None:
        self._writer.spend(VALUE_UNITS * len(target))
        for key in list(target.keys()):
            if key not in entries:
                target.delete(key)
        for key, item in entries.items():
            present = target.get(checked_key(key))
            if present is not None and self._equal(present, item):
                continue
            if not self._writer.keep(present, item):
                put_new(target.insert, target.insert_container, key, item)

    def _overwrite_list(self, target: LoroList | LoroMovableList, items: list[Content]) -> None:
        """Rewrite the part between the equal beginning and the equal end."""
        size, wanted = len(target), len(items)
        shorter = min(size, wanted)
        head = tail = 0
        while head < shorter and self._equal(target.get(head), items[head]):
            head += 1
        while tail < shorter - head and self._equal(target.get(size - 1 - tail), items[wanted - 1 - tail]):
            tail += 1
        if head + tail < size:
            target.delete(head, size - head - tail)
        for at in range(head, wanted - tail):
            put_new(target.insert, target.insert_container, at, items[at])

    def _equal(self, present: ValueOrContainer | None, content: Content) -> bool:
        value = to_json(deep(present, spend=self._writer.spend))
        return same(value, to_json(plain(content)))


def _checked_root_name(name: str) -> str:
    """Return the name if it is valid for a root: Loro panics on other names. Raises ValueProblem."""
    if not name or "/" in name or "\0" in name or name.startswith(MERGEABLE_PREFIX):
        raise ValueProblem(f"{brief(name)} cannot name a root")
    return checked_key(name)
