"""JSON Patch on a document of every kind of container, and JSONPath questions to it.

A patch is refused with its own error, or gives a document that others can import. Where the document is plain
and the library `jsonpatch` takes the patch as well, both must come to the same.
"""

import copy
import importlib.util
import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from loro import ExportMode, LoroCounter, LoroDoc, LoroMap, LoroMovableList, LoroText

from lorogo_server.values.document_value import TooDeep, document_value
from lorogo_server.values.parts import CounterPart, ListPart, MapPart, fill, same
from lorogo_server.values.patch import PatchError, apply_patch
from lorogo_server.values.query import QueryError, query, to_json
from tests.fuzz.source import Source
from tests.fuzz.target import Target

#: a second opinion, if there is one
jsonpatch: Any = importlib.import_module("jsonpatch") if importlib.util.find_spec("jsonpatch") else None

_POINTERS = (
    "",
    "/map",
    "/map/one",
    "/map/text",
    "/map/text/1",
    "/map/counter",
    "/map/movable/0",
    "/map/plain/list/1/deep",
    "/map/map",
    "/list",
    "/list/0",
    "/list/-",
    "/list/1/k",
    "/movable/2",
    "/movable/-",
    "/text/2",
    "/text/-",
    "/counter",
    "/tree/0/meta",
    "/tree",
    "/new",
    "/a~1b",
)
_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")
_KEYS = ("$bytes", "$float", "NaN", "YWI=", "k", "op")


@cache
def _snapshot() -> bytes:
    doc = LoroDoc()
    doc.peer_id = 1
    inner = doc.get_map("map")
    inner.insert("one", 1)
    inner.insert("plain", {"list": [1, {"deep": "x"}], "b": b"ab"})
    fill(inner.insert_container("text", LoroText()), "abc")
    fill(inner.insert_container("counter", LoroCounter()), CounterPart(2.0))
    fill(inner.insert_container("movable", LoroMovableList()), ListPart(["x", "y"]))
    fill(inner.insert_container("map", LoroMap()), MapPart({"k": "v"}))
    fill(doc.get_list("list"), ListPart(["a", MapPart({"k": 1}), "c"]))
    fill(doc.get_movable_list("movable"), ListPart(["a", "b", "c", "d"], movable=True))
    fill(doc.get_text("text"), "hé😀o")
    fill(doc.get_counter("counter"), CounterPart(3.0))
    tree = doc.get_tree("tree")
    tree.get_meta(tree.create()).insert("name", "node")
    doc.commit()
    return doc.export(ExportMode.Snapshot())


def _document() -> LoroDoc:
    doc = LoroDoc()
    doc.peer_id = 2
    doc.import_(_snapshot())
    return doc


def _plain_document() -> LoroDoc:
    doc = LoroDoc()
    doc.peer_id = 2
    fill(doc.get_map("map"), MapPart({"one": 1, "map": MapPart({"k": "v"}), "movable": ListPart([1, 2])}))
    fill(doc.get_list("list"), ListPart(["a", MapPart({"k": 1}), ListPart([1.5, None])]))
    doc.commit()
    return doc


def _operation(source: Source) -> object:
    if source.byte() % 16 == 0:
        return source.value()
    made: dict[str, object] = {"op": source.pick(_OPERATIONS), "path": _pointer(source)}
    if source.byte() % 8:
        made["value"] = source.value(_KEYS)
    if made["op"] in ("move", "copy"):
        made["from"] = _pointer(source)
    return made


def _pointer(source: Source) -> object:
    base = source.pick(_POINTERS)
    match source.byte() % 4:
        case 0:
            return base + "/" + source.text()
        case 1:
            return base + "/" + source.pick(("0", "1", "-", "-1", "00", "99", "k", "~2", "1" * 30))
        case _:
            return base


def _patch(doc: LoroDoc, operations: Any) -> None:
    before = doc.oplog_vv
    shown = document_value(doc)
    fork = doc.fork()
    apply_patch(fork, operations)
    value = document_value(fork)
    to_json(value)
    other = LoroDoc()
    other.import_(fork.export(ExportMode.Snapshot()))
    assert same(_filled(to_json(document_value(other))), _filled(to_json(value))), (
        "a snapshot has the same value"
    )
    assert document_value(doc) == shown or shown != shown, "only the fork was edited"  # noqa: PLR0124 - NaN
    doc.import_(fork.export(ExportMode.Updates(before)))


def _filled(document: object) -> dict[str, object]:
    """Without empty roots, which a replica may or may not show."""
    assert isinstance(document, dict)
    return {name: root for name, root in document.items() if root not in ({}, [], "", 0.0)}


def _second_opinion(operations: list[object]) -> None:
    doc = _plain_document()
    before: Any = document_value(doc)
    _patch(doc, copy.deepcopy(operations))
    if not jsonpatch or not all(map(_comparable, operations)):
        return
    try:
        expected = jsonpatch.apply_patch(before, copy.deepcopy(operations))
    except Exception:  # noqa: BLE001 - it has errors of many kinds, and takes less than the standard
        return
    if isinstance(expected, dict) and all(isinstance(root, (dict, list)) for root in expected.values()):
        found = {name: root for name, root in document_value(doc).items() if root not in ({}, [])}
        expected = {name: root for name, root in expected.items() if root not in ({}, [])}
        assert same(found, expected), (operations, found, expected)


def _comparable(operation: object) -> bool:
    """True if both libraries give the operation the same meaning: no `$` maps, and no root, which has a type
    in lorogo and stays.
    """
    if not isinstance(operation, dict) or "$" in json.dumps(operation):
        return False
    paths = [operation.get(member, "/a/b") for member in ("path", "from")]
    return all(isinstance(path, str) and path.count("/") > 1 for path in paths)


def _question(source: Source) -> None:
    text = source.rest().decode("utf-8", "surrogateescape")
    found = query(document_value(_document()), [text])
    json.dumps(found, allow_nan=False)


def run(data: bytes) -> None:
    """The first byte chooses."""
    source = Source(data)
    match source.byte() % 4:
        case 0:
            _patch(_document(), [_operation(source) for _ in range(1 + source.below(5))])
        case 1:
            _second_opinion([_operation(source) for _ in range(1 + source.below(5))])
        case 2:
            try:
                operations = json.loads(source.rest())
            except (ValueError, RecursionError):
                return
            _patch(_document(), operations)
        case _:
            _question(source)


def seeds() -> Iterable[bytes]:
    for operations in (
        [{"op": "add", "path": "/map/new", "value": {"a": [1, "x", {"$bytes": "YWI="}]}}],
        [{"op": "move", "from": "/list/0", "path": "/movable/-"}, {"op": "remove", "path": "/list/0"}],
        [
            {"op": "replace", "path": "/text", "value": "hello"},
            {"op": "add", "path": "/text/2", "value": "é"},
        ],
        [
            {"op": "test", "path": "/counter", "value": 3},
            {"op": "replace", "path": "/counter", "value": -1.5},
        ],
        [{"op": "copy", "from": "/map", "path": "/new"}],
        [{"op": "replace", "path": "", "value": {"list": [1], "map": {}}}],
        [{"op": "replace", "path": "/tree/0/meta/name", "value": "other"}],
        [{"op": "replace", "path": "/map/plain/list/1/deep", "value": None}],
    ):
        yield b"\x02" + json.dumps(operations).encode()
    for text in ("$", "$..*", "$.list[?@.k == 1].k", "$['map','list'][0:2:-1]", "$.map[?length(@.text) > 1]"):
        yield b"\x03" + text.encode()
    yield bytes([0, 2, 1, 0, 1, 2, 1, 5, 0, 2, *b"xy", 1, 3, 10, 2, 0, 13, 2])
    yield bytes([1, 1, 1, 0, 2, 2, 1, 9, 2, 2, 0, 1, 0, 5, 0, 1, *b"x", 1, 1, 8, 2, 1])


TARGET = Target(run, seeds, (PatchError, QueryError, TooDeep), bytes_max=2048)
