"""The kinds of containers, read from an update's bytes."""

import pytest
from loro import LoroMovableList, LoroTree

from lorogo_protocol.loro import blocks
from tests.protocol.support import everything, replica


@pytest.mark.parametrize("nested", [False, True], ids=["root", "nested"])
@pytest.mark.parametrize("base", [False, True], ids=["first change", "later change"])
def test_the_kinds_of_an_update_are_read_without_decoding_it(nested: bool, base: bool) -> None:
    """Wherever the container is, and whatever came before: Loro's encoding names its kind."""
    for kind, container in ((blocks.TREE, LoroTree), (blocks.MOVABLE_LIST, LoroMovableList)):
        writer = replica(1)
        if base:
            writer.doc.get_map("m").insert("x", 1)
            writer.doc.commit()
        before = writer.version().vector
        for number in range(50):
            writer.doc.get_text(f"t{number}").insert(0, "text")
        writer.doc.commit()
        assert kind not in blocks.contents(writer.updates_since(before)).kinds
        if nested:
            made = writer.doc.get_map("m").insert_container("c", container())
        else:
            made = writer.doc.get_tree("c") if kind == blocks.TREE else writer.doc.get_movable_list("c")
        if isinstance(made, LoroTree):
            made.create()
        else:
            assert isinstance(made, LoroMovableList)
            made.push(1)
        writer.doc.commit()
        assert kind in blocks.contents(writer.updates_since(before)).kinds


@pytest.mark.parametrize("data", [b"", b"loro", b"loro" + bytes(16) + b"\x00\x04" + b"\xff" * 50])
def test_other_bytes_have_no_kinds(data: bytes) -> None:
    """They are read before Loro has seen them: whatever they are, nothing is raised."""
    assert blocks.contents(data).kinds == frozenset()


def test_the_edits_of_an_update_are_counted() -> None:
    """A paste is one edit, however long it is; each letter elsewhere is one."""
    writer = replica(1)
    writer.doc.get_text("t").insert(0, "pasted" * 1000)
    writer.doc.commit()
    assert blocks.contents(everything(writer)).edits == 1
    before = writer.version().vector
    for number in range(5_000):
        writer.doc.get_text("t").insert(2 * number, "x")
        writer.doc.get_map("m").insert(str(number % 7), number)
    writer.doc.commit()
    assert blocks.contents(writer.updates_since(before)).edits == 10_000
