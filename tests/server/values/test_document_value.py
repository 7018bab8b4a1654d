"""A document's value, read with its levels counted."""

import pytest
from loro import LoroDoc, LoroMap

from lorogo_protocol.loro.crdt import Replica
from lorogo_server.values.document_value import DEPTH_MAX, TooDeep, document_value
from lorogo_server.values.parts import CounterPart, ListPart, MapPart, TextPart, fill


def nested(levels: int) -> LoroDoc:
    doc = Replica().doc
    inner = doc.get_map("map")
    for _ in range(levels - 1):
        deeper = inner.insert_container("k", LoroMap())
        assert isinstance(deeper, LoroMap)
        inner = deeper
    doc.commit()
    return doc


def test_the_value_is_loros_own() -> None:
    """Every kind of container reads as Loro reads it, trees with their meta included."""
    doc = Replica().doc
    content = MapPart(
        {
            "list": ListPart([1, "a", None, {"plain": [b"x"]}]),
            "movable": ListPart([MapPart({}), ListPart([])], movable=True),
            "text": TextPart("", []),
            "counter": CounterPart(2.0),
        }
    )
    fill(doc.get_map("map"), content)
    fill(doc.get_text("text"), "é😀")
    fill(doc.get_counter("counter"), CounterPart(1.5))
    tree = doc.get_tree("tree")
    first = tree.create()
    tree.create()
    tree.create_at(0, first)
    fill(tree.get_meta(tree.create_at(0, first)), MapPart({"title": "x", "inner": content}))
    doc.commit()
    assert document_value(doc) == doc.get_deep_value()
    assert document_value(doc)["tree"] == tree.get_value_with_meta()


def test_an_empty_document_has_no_roots() -> None:
    """Reading creates nothing."""
    doc = Replica().doc
    assert document_value(doc) == {}
    doc.get_text("opened")
    assert document_value(doc) == {"opened": ""}


@pytest.mark.parametrize("text_first", [True, False])
def test_of_two_roots_with_one_name_the_one_with_content_is_read(text_first: bool) -> None:
    """A root of another type that a client merely opened does not hide the content."""
    doc = Replica().doc
    if text_first:
        doc.get_text("x")
    doc.get_map("x").insert("k", 1)
    if not text_first:
        doc.get_text("x")
    assert document_value(doc) == {"x": {"k": 1}}


def test_levels_are_counted() -> None:
    """Two hundred levels are read; ten thousand, which overflow Loro's own reading, are an error."""
    assert document_value(nested(DEPTH_MAX)) == nested(DEPTH_MAX).get_deep_value()
    for levels in (DEPTH_MAX + 1, 10_000):
        with pytest.raises(TooDeep, match="deeper than 200"):
            document_value(nested(levels))


def test_levels_of_a_tree_are_counted() -> None:
    """A tree whose nodes go down without end is an error too."""
    doc = Replica().doc
    tree = doc.get_tree("tree")
    node = tree.create()
    for _ in range(1_000):
        node = tree.create(node)
    with pytest.raises(TooDeep):
        document_value(doc)
