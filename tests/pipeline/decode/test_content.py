"""The content of a document in one form: JSON, hash, texts."""

import hashlib
import json
import math

import pytest
from loro import ExportMode, LoroDoc, VersionVector

from lorogo_pipeline.decode import content
from lorogo_protocol.loro.crdt import Replica
from lorogo_server.values.document_value import TooDeep


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (3.0, "3.0"),
        (2**60, "1152921504606846976"),
        ("grün ☂", '"grün ☂"'),
        (b"ab", '{"$bytes":"YWI="}'),
        (math.nan, '"NaN"'),
        (math.inf, '"Infinity"'),
        (-math.inf, '"-Infinity"'),
        ({"b": [1, b""], "a": {"z": None, "y": "x"}}, '{"a":{"y":"x","z":null},"b":[1,{"$bytes":""}]}'),
        ((1, 2), "[1,2]"),
        (object, '{"$container":"<class \'object\'>"}'),
    ],
)
def test_one_way_to_write(value: object, text: str) -> None:
    """Keys are sorted, nothing is spaced or escaped without need, and the hash is that of the text."""
    assert content.canonical(value) == text
    assert content.content_hash(value) == hashlib.sha256(text.encode()).hexdigest()
    assert content.canonical(json.loads(text)) == text, "what was read back is written the same"


def test_too_deep() -> None:
    """A value that is nested too deep is an error, and is not walked."""
    assert content.canonical(nested(200))
    for function in (content.plain, content.canonical, content.content_hash, content.texts):
        with pytest.raises(TooDeep):
            function(nested(5000))
    deep = node("paragraph", "x")
    for _ in range(5000):
        deep = node("blockquote", deep)
    with pytest.raises(TooDeep):
        content.text({"doc": deep})


def test_texts() -> None:
    """Texts come in document order, without what Loro and JSON put beside them."""
    node: dict[str, object] = {
        "id": "5@1",
        "parent": None,
        "index": 0,
        "fractional_index": "80",
        "children": [],
    }
    value = {
        "z": ["one", {"b": "two", "a": "zero"}],
        "a": "first",
        "tree": [{**node, "meta": {"title": "root"}, "children": [{**node, "meta": {"title": "leaf"}}]}],
        "raw": b"xx",
        "plain": {"$bytes": "eHg="},
        "number": 4,
        "empty": "",
    }
    assert content.texts(value) == ["first", "root", "leaf", "one", "zero", "two"]
    assert content.texts(content.plain(value)) == content.texts(value)


def node(name: str, *children: object, **attributes: object) -> dict[str, object]:
    """A node of rich text, as loro-prosemirror writes it."""
    return {"nodeName": name, "attributes": attributes, "children": list(children)}


@pytest.mark.parametrize(
    ("root", "seen"),
    [
        (
            node("doc", node("heading", "Launch plan", level=1), node("paragraph", "soon")),
            "Launch plan\nsoon",
        ),
        (node("doc", node("paragraph", "one ", "line")), "one line"),
        (node("doc", node("paragraph", "a", node("hard_break"), "b")), "a\nb"),
        (node("doc", node("paragraph", ""), node("horizontal_rule"), node("paragraph")), ""),
        (
            node("doc", node("bullet_list", *[node("list_item", node("paragraph", x)) for x in "xy"])),
            "x\ny",
        ),
        (node("doc", node("code_block", "def f():\n    pass", params="python")), "def f():\n    pass"),
        ({"nodeName": "doc"}, ""),
        ({"nodeName": "doc", "children": "odd"}, ""),
    ],
)
def test_the_text_of_an_editor_is_what_its_readers_see(root: dict[str, object], seen: str) -> None:
    """A block a line, without the names and attributes of nodes, and without the names of authors."""
    value: dict[str, object] = {"doc": root, "people": {"5113970442817366021": "Ana"}}
    assert content.text(value) == seen
    assert content.text({**value, "notes": "by hand"}) == "\n".join(filter(None, [seen, "by hand"]))


def test_maps_of_other_programs_are_no_nodes() -> None:
    """A map that only has a key of that name is read whole, and so is a root `people` beside no editor."""
    value: dict[str, object] = {"doc": {"nodeName": "n", "title": "t"}, "people": {"1": "Ana"}}
    assert content.text(value) == "n\nt\nAna"


def test_the_same_however_a_replica_came_there() -> None:
    """A version reads the same from updates, from snapshots, trimmed ones too, and checked out of later."""
    doc = LoroDoc()
    doc.get_text("text").insert(0, "abc")
    doc.get_map("gone").insert("key", 1)
    doc.commit()
    doc.get_map("gone").delete("key")
    doc.commit()
    then, frontiers = content.content_hash(content.read(Replica(doc.fork()))), doc.oplog_frontiers.encode()
    assert content.read(Replica(doc.fork())) == {"text": "abc"}
    doc.get_list("later").push(True)
    doc.get_counter("count").increment(2)
    doc.get_tree("tree").create(None)
    doc.commit()
    modes = [
        ExportMode.Snapshot(),
        ExportMode.Updates(VersionVector()),
        ExportMode.ShallowSnapshot(doc.oplog_frontiers),
    ]
    copies = []
    for mode in modes:
        copies.append(Replica())
        copies[-1].doc.import_(doc.export(mode))
    hashes = {content.content_hash(content.read(copy)) for copy in copies}
    assert hashes == {content.content_hash(content.read(Replica(doc)))}
    for copy in copies[:2]:
        assert content.content_hash(content.read(copy.at(frontiers))) == then
