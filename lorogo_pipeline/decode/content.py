"""Canonical content of a document: its value as JSON, the hash of the JSON, and its texts.

    value = read(replica)          plain Python values; no document is too deep for the process
    canonical(value)               {"notes":"abc","todo":[{"done":true}]}: keys sorted, no spaces
    content_hash(value)            SHA-256 of the canonical JSON, in hex

JSON has no bytes and no infinities, Loro has both: b"ab" becomes {"$bytes": "YWI="}, and non-finite numbers
become "NaN", "Infinity" and "-Infinity".

Empty root containers are not part of the content: whether Loro shows them depends on how the replica reached
its version (a replica that was checked out shows the roots of its future, empty).
"""

import base64
import hashlib
import json
import math

from lorogo_protocol.loro.crdt import Replica
from lorogo_server.values import document_value
from lorogo_server.values.document_value import DEPTH_MAX, TooDeep

_NODE = {"id", "parent", "index", "fractional_index", "meta", "children"}  # of a tree, as Loro writes it
_EDITOR_NODE = {"nodeName", "attributes", "children"}  # of rich text, as loro-prosemirror writes it
_EDITOR_ROOT, _AUTHORS = "doc", "people"  # of the editor: its text, and the names of authors by peer
_LINE_BREAK = "hard_break"


def read(replica: Replica) -> dict[str, object]:
    """Return the document's content as plain Python values. Raises TooDeep, CrdtError."""
    return filled(document_value.document_value(replica.settled()))


def filled(value: dict[str, object]) -> dict[str, object]:
    """Remove empty roots: an empty text, list, map or tree, a counter at zero."""
    return {name: root for name, root in value.items() if root not in ("", [], {}, 0)}


def plain(value: object, depth: int = 0) -> object:
    """Replace everything that JSON cannot represent. Raises TooDeep."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _name(value)
        case bytes():
            return {"$bytes": base64.b64encode(value).decode("ascii")}
        case _ if depth > DEPTH_MAX:
            raise TooDeep
        case dict():
            return {str(key): plain(item, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [plain(item, depth + 1) for item in value]
        case _:
            return {"$container": str(value)}


def canonical(value: object) -> str:
    """Return the value as canonical JSON. Raises TooDeep."""
    return json.dumps(plain(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def content_hash(value: object) -> str:
    """SHA-256 of the canonical JSON, in hex. Raises TooDeep."""
    return hash_of(canonical(value))


def hash_of(text: str) -> str:
    """SHA-256 of canonical JSON, in hex."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def text(value: dict[str, object]) -> str:
    """Return the document's text as readers see it, one block or text per line. Raises TooDeep.

    Names of authors, which the editor stores beside its text, are left out.
    """
    edited = _is_editor_node(value.get(_EDITOR_ROOT))
    seen = {name: root for name, root in value.items() if not (edited and name == _AUTHORS)}
    return "\n".join(texts(seen))


def texts(value: object, depth: int = 0) -> list[str]:
    """Return every text of the value, in order: lists as they are, maps by key. Raises TooDeep.

    Structural strings are left out: ids and positions of tree nodes, bytes, names and attributes of an
    editor's nodes.
    """
    if depth > DEPTH_MAX:
        raise TooDeep
    match value:
        case str():
            return [value] if value else []
        case {"$bytes": str(), **rest} if not rest:
            return []
        case dict() if value.keys() == _NODE:
            return [*texts(value["meta"], depth + 1), *texts(value["children"], depth + 1)]
        case dict() if _is_editor_node(value):
            return _blocks(value.get("children"), depth + 1)
        case dict():
            return [text for key in sorted(value) for text in texts(value[key], depth + 1)]
        case list() | tuple():
            return [text for item in value for text in texts(item, depth + 1)]
        case _:
            return []


def _is_editor_node(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("nodeName"), str) and value.keys() <= _EDITOR_NODE


def _blocks(children: object, depth: int) -> list[str]:
    """Return the texts below an editor's node: one per block, a hard break as a newline."""
    found, block = [], ""
    for child in children if isinstance(children, list | tuple) else ():
        match child:
            case str():
                block += child
            case {"nodeName": name} if name == _LINE_BREAK:
                block += "\n"
            case _:
                found += [block, *texts(child, depth + 1)]
                block = ""
    return [one for one in (*found, block) if one]


def _name(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
