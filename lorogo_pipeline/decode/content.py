"""What a document says, in one form: its value as JSON, the hash of that, and its texts.

    value = read(replica)          plain Python values; no document is too deep for the process
    canonical(value)               {"notes":"abc","todo":[{"done":true}]}: keys sorted, no spaces
    content_hash(value)            SHA-256 of it, in hex: the same for two documents that read the same

JSON has no bytes and no infinities, and Loro has both: b"ab" is written as {"$bytes": "YWI="}, and
numbers that are none as "NaN", "Infinity", "-Infinity".

A root container that is empty is not part of the content: Loro shows it or not depending on how a
replica came to its version (one that was checked out shows the roots of its future, empty).
"""

import base64
import hashlib
import json
import math

from lorogo_protocol.crdt import Replica
from lorogo_server.values import document_value
from lorogo_server.values.document_value import DEPTH_MAX, TooDeep

_NODE = {"id", "parent", "index", "fractional_index", "meta", "children"}  # of a tree, as Loro writes it
_EDITOR_NODE = {"nodeName", "attributes", "children"}  # of rich text, as loro-prosemirror writes it
_EDITOR_ROOT, _AUTHORS = "doc", "people"  # of the editor: its text, and the names of authors by peer
_LINE_BREAK = "hard_break"


def read(replica: Replica) -> dict[str, object]:
    """The document's content as plain Python values. Raises TooDeep, CrdtError."""
    return filled(document_value.document_value(replica.settled()))


def filled(value: dict[str, object]) -> dict[str, object]:
    """The same without empty roots: an empty text, list, map or tree, a counter at zero."""
    return {name: root for name, root in value.items() if root not in ("", [], {}, 0)}


def plain(value: object, depth: int = 0) -> object:
    """The value with nothing in it that JSON cannot say. Raises TooDeep."""
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
    """The value as JSON, written in the one way that is hashed. Raises TooDeep."""
    return json.dumps(plain(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def content_hash(value: object) -> str:
    """SHA-256 of the canonical JSON, in hex. Raises TooDeep."""
    return hash_of(canonical(value))


def hash_of(text: str) -> str:
    """SHA-256, in hex, of JSON that is canonical already."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def text(value: dict[str, object]) -> str:
    """The document's text as its readers see it, one block or text a line. Raises TooDeep.

    The editor keeps the names of authors beside its text; they are not part of it.
    """
    edited = _is_editor_node(value.get(_EDITOR_ROOT))
    seen = {name: root for name, root in value.items() if not (edited and name == _AUTHORS)}
    return "\n".join(texts(seen))


def texts(value: object, depth: int = 0) -> list[str]:
    """Every text in it that people wrote, in order: lists as they are, maps by key. Raises TooDeep.

    Not what stands there for Loro, for JSON or for an editor: the ids and positions of a tree's nodes,
    bytes, the names and attributes of an editor's nodes.
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
    """The texts below an editor's node: the pieces of one block joined, a hard break as a newline."""
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
