"""A to-do list as a Loro document: a list `items` of maps, each with a `text` and whether it is `done`."""

from loro import LoroDoc, LoroMap


def rows(doc: LoroDoc) -> list[dict[str, object]]:
    """What is on the list, from top to bottom."""
    return doc.get_movable_list("items").get_deep_value()


def add(doc: LoroDoc, text: str) -> None:
    """One more, at the end."""
    item = doc.get_movable_list("items").push_container(LoroMap())
    item.insert("text", text)
    item.insert("done", False)


def done(doc: LoroDoc, number: int) -> None:
    """The item with this number, counted from 1, is done."""
    item = doc.get_movable_list("items").get(index(doc, number))
    item.container.insert("done", True)


def move(doc: LoroDoc, number: int, to: int) -> None:
    """The item takes that place; it stays the same item, whoever edits it meanwhile."""
    doc.get_movable_list("items").mov(index(doc, number), index(doc, to))


def remove(doc: LoroDoc, number: int) -> None:
    """The item leaves the list."""
    doc.get_movable_list("items").delete(index(doc, number), 1)


def index(doc: LoroDoc, number: int) -> int:
    """Where the item is, counted from 0."""
    length = len(doc.get_movable_list("items"))
    if not 1 <= number <= length:
        raise ValueError(f"there is no item {number}: the list has {length}")
    return number - 1
