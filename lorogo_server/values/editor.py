"""Reads and edits a Loro document at the target of a JSON pointer.

The first token names a root container; the following tokens select items of maps, lists, texts (code
points) and the `meta` maps of tree nodes. Loro stores a plain list or dict as one value, so an edit inside
one rewrites it.
"""

import math
from typing import Any

from loro import (
    LoroCounter,
    LoroDoc,
    LoroList,
    LoroMap,
    LoroMovableList,
    LoroText,
    LoroTree,
    ValueOrContainer,
)

from lorogo_server.sandbox.work_meter import SLOW_DIFF_UNITS, VALUE_UNITS, Spend
from lorogo_server.values.document_value import deep, roots_of
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
    put_entry,
    put_item,
    same,
    set_item,
)
from lorogo_server.values.pointer import (
    Path,
    below,
    checked_root_name,
    child,
    entry,
    index,
    kind_of,
    not_editable,
    plain_at,
    tree_meta,
    with_new,
    without,
)
from lorogo_server.values.query import brief, to_json

TEXT_DIFF_MILLISECONDS = 25.0  # then the part between the first and last difference is rewritten
TEXT_DIFF_CHARS_MAX = 1024 * 1024  # of both texts: Loro exceeds the time limit for longer ones
TEXT_DIFFS_SLOW_MAX = 10  # in one patch; later texts are rewritten without a diff


class ValueEditor:
    """Reads and edits one document by paths. Raises only Problem and OverBudget.

    Each operation spends the units for reading and creating values before it writes.
    """

    def __init__(self, doc: LoroDoc, spend: Spend) -> None:
        self._doc = doc
        self.spend = spend
        self._slow_diffs_left = TEXT_DIFFS_SLOW_MAX
        self._roots = roots_of(doc)

    # ------------------------------------------------------------------------------------ reading

    def read(self, path: Path) -> object:
        """Return the JSON value at the path."""
        if not path:
            value: object = {name: deep(root, 1, self.spend) for name, root in self._roots.items()}
        else:
            where, rest = self._descend(path)
            value = self._deep_at(where, rest[0])
            for token in rest[1:]:
                value = below(value, token)
        return to_json(value)

    def lift_out(self, path: Path, depth: int) -> Content:
        """Return the content at the path, with its containers, for a target at that depth."""
        if not path:
            entries = {name: capture(root, depth + 1, self.spend) for name, root in self._roots.items()}
            return MapPart(entries)
        where, rest = self._descend(path)
        found = child(where, rest[0], self.spend)
        if len(rest) > 1:
            found = deep(found, spend=self.spend) if isinstance(found, ValueOrContainer) else found
            for token in rest[1:]:
                found = below(found, token)
        return capture(found, depth, self.spend)

    # ------------------------------------------------------------------------------------ editing

    def add(self, path: Path, content: Content) -> None:
        """Insert into a list or text, set in a map, fill a root, or set the whole document."""
        if not path:
            self._put_document(content)
            return
        where, rest = self._descend(path)
        key = rest[0]
        if len(rest) > 1:
            self._put(
                where, key, with_new(plain_at(where, key, self.spend), rest[1:], plain(content), insert=True)
            )
            return
        match where:
            case LoroList() | LoroMovableList():
                put_item(where, index(key, len(where), end=True), content)
            case LoroText():
                where.insert(index(key, len(where), end=True), _string(content))
            case _:
                self._put(where, key, content)

    def replace(self, path: Path, content: Content) -> None:
        """Replace the existing value at the path."""
        if not path:
            self._put_document(content)
            return
        where, rest = self._descend(path)
        key = rest[0]
        if len(rest) > 1:
            content = with_new(plain_at(where, key, self.spend), rest[1:], plain(content), insert=False)
        else:
            child(where, key, self.spend)  # it must exist
        self._put(where, key, content)

    def remove(self, path: Path) -> None:
        """Remove the value at the path."""
        if not path:
            raise ValueProblem("the whole document cannot be removed")
        where, rest = self._descend(path)
        key = rest[0]
        if len(rest) > 1:
            self._put(where, key, without(plain_at(where, key, self.spend), rest[1:]))
            return
        child(where, key, self.spend)  # it must exist
        match where:
            case dict():
                self._drop_root(key)
            case LoroMap():
                where.delete(key)
            case LoroList() | LoroMovableList() | LoroText():
                where.delete(index(key, len(where)), 1)
            case _:
                raise not_editable(where)

    def move(self, source: Path, target: Path) -> None:
        """Move a value; an item that moves inside one movable list keeps its identity."""
        if list(source) == list(target):
            self.lift_out(source, len(target))  # it must exist
            return
        if list(target[: len(source)]) == list(source):
            raise ValueProblem("a value cannot move into itself")
        if list(source[:-1]) == list(target[:-1]):
            where, rest = self._descend(source)
            if isinstance(where, LoroMovableList) and len(rest) == 1:
                size = len(where)
                where.mov(index(source[-1], size), index(target[-1], size - 1, end=True))
                return
        content = self.lift_out(source, len(target))
        self.remove(source)
        self.add(target, content)

    # -------------------------------------------------------------------------------------- paths

    def _descend(self, path: Path) -> tuple[Any, Path]:
        """Return the innermost container on the path, and the tokens below it (at least one).

        A dict stands for the roots.
        """
        where: Any = self._roots
        at = 0
        while at < len(path) - 1:
            if isinstance(where, LoroTree):
                meta, used = tree_meta(where, path[at:], self.spend)
                if meta is None:
                    break
                where, at = meta, at + used
                continue
            below = child(where, path[at], self.spend)
            if isinstance(below, ValueOrContainer.Container):
                where = below.container
            elif isinstance(where, dict):
                where = below
            else:
                break
            at += 1
        return where, path[at:]

    def _deep_at(self, where: Any, key: str) -> object:
        below = child(where, key, self.spend)
        return below if isinstance(where, (LoroText, LoroTree)) else deep(below, spend=self.spend)

    # ------------------------------------------------------------------------------------- writes

    def _put(self, where: Any, key: str, content: Content) -> None:
        """Set the value under a key; keep an existing text or counter if the content fits."""
        match where:
            case dict():
                self._put_root(key, content)
            case LoroMap():
                if not self._keep(entry(where, checked_key(key)), content):
                    put_entry(where, key, content)
            case LoroList() | LoroMovableList():
                at = index(key, len(where))
                if self._keep(where.get(at), content):
                    return
                if isinstance(where, LoroMovableList):
                    set_item(where, at, content)
                else:
                    where.delete(at, 1)
                    put_item(where, at, content)
            case LoroText():
                at = index(key, len(where))
                text = _string(content)
                where.delete(at, 1)
                where.insert(at, text)
            case _:
                raise not_editable(where)

    def _keep(self, present: ValueOrContainer | None, content: Content) -> bool:
        """Write the content into an existing text or counter; return False if it does not fit."""
        if not isinstance(present, ValueOrContainer.Container):
            return False
        match present.container, content:
            case LoroText() as text, str():
                self._update_text(text, content)
            case LoroCounter() as counter, (int() | float()) if not isinstance(content, bool):
                _set_counter(counter, content)
            case _:
                return False
        return True

    def _update_text(self, text: LoroText, wanted: str) -> None:
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

    # -------------------------------------------------------------------------------------- roots

    def _put_document(self, content: Content) -> None:
        content = as_containers(content)
        if not isinstance(content, MapPart):
            raise ValueProblem("the whole document can only be an object")
        for name in [name for name in self._roots if name not in content.entries]:
            self._drop_root(name)
        for name, item in content.entries.items():
            self._put_root(name, item)

    def _put_root(self, name: str, content: Content) -> None:
        content = as_containers(content)
        root = self._roots.get(checked_root_name(name))
        match root, content:
            case LoroMap(), MapPart(entries):
                self._overwrite_map(root, entries)
            case ((LoroList() | LoroMovableList()), ListPart(items)):
                self._overwrite_list(root, items)
            case LoroText(), str():
                self._update_text(root, content)
            case LoroText(), TextPart(text):
                self.spend(len(text))
                root.delete(0, len(root))
                fill(root, content)
            case LoroCounter(), CounterPart(value):
                _set_counter(root, value)
            case LoroCounter(), (int() | float()) if not isinstance(content, bool):
                _set_counter(root, content)
            case _:
                self._new_root(name, content)

    def _new_root(self, name: str, content: Content) -> None:
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
        if (old := self._roots.get(name)) is not None:
            if deep(old, spend=self.spend) not in ({}, [], "", 0.0):
                raise ValueProblem(
                    f"the root {brief(name)} is a {kind_of(old)}, which apps open as that:"
                    " remove it before it becomes something else"
                )
            self._drop_root(name)
        self._roots[name] = root = opened(name)
        fill(root, content)

    def _drop_root(self, name: str) -> None:
        self._doc.delete_root_container(self._roots.pop(name).id)

    def _overwrite_map(self, target: LoroMap, entries: dict[str, Content]) -> None:
        self.spend(VALUE_UNITS * len(target))
        for key in list(target.keys()):
            if key not in entries:
                target.delete(key)
        for key, item in entries.items():
            present = entry(target, key)
            if present is not None and self._equal(present, item):
                continue
            if not self._keep(present, item):
                put_entry(target, key, item)

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
            put_item(target, at, items[at])

    def _equal(self, present: ValueOrContainer | None, content: Content) -> bool:
        value = to_json(deep(present, spend=self.spend))
        return same(value, to_json(plain(content)))


def _string(content: Content) -> str:
    text = plain(content)
    if not isinstance(text, str):
        raise ValueProblem("only a string can go into a text")
    return text


def _set_counter(counter: LoroCounter, wanted: float) -> None:
    """Set a counter to a value by increments; the second one corrects the rounding of the first."""
    if float(wanted) != wanted:
        raise ValueProblem("a counter cannot hold this integer exactly")
    for _ in range(2):
        step = float(wanted) - counter.value
        if not math.isfinite(step):
            raise ValueProblem("the counter cannot get there by a finite step")
        if step:
            counter.increment(step)


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
