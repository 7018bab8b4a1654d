"""A to-do list as a Loro document: a list `items` of maps with `text` and `done`."""

from loro import LoroDoc, LoroMap


def rows(doc: LoroDoc) -> list[dict[str, object]]:
    """Return the items, from top to bottom."""
    return doc.get_movable_list("items").get_deep_value()


def add(doc: LoroDoc, text: str) -> None:
    """Append an item."""
    item = doc.get_movable_list("items").push_container(LoroMap())
    item.insert("text", text)
    item.insert("done", False)


def done(doc: LoroDoc, number: int) -> None:
    """Mark the item with this number, counted from 1, as done."""
    item = doc.get_movable_list("items").get(index(doc, number))
    item.container.insert("done", True)


def move(doc: LoroDoc, number: int, to: int) -> None:
    """Move the item; it keeps its identity, so concurrent edits of it still apply."""
    doc.get_movable_list("items").mov(index(doc, number), index(doc, to))


def remove(doc: LoroDoc, number: int) -> None:
    """Remove the item."""
    doc.get_movable_list("items").delete(index(doc, number), 1)


def index(doc: LoroDoc, number: int) -> int:
    """Return the index of the item, counted from 0."""
    length = len(doc.get_movable_list("items"))
    if not 1 <= number <= length:
        raise ValueError(f"item {number} does not exist: the list has {length}")
    return number - 1
