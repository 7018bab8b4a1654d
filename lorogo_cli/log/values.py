"""Records as lossless JSON: values that JSON does not have are objects with a `$` name.

    bytes                      {"$bytes": "base64"}; cut short: {"$bytes": "base64...", "$length": n}
    a map with other keys      {"$pairs": [[key, value], ...]}    (also one whose keys begin with `$`)
    nan, inf                   {"$float": "nan"}
    a msgpack extension        {"$extension": code, "$bytes": "base64"}
    a payload that is not msgpack  {"$payload": "base64"}

A key is text if it is printable UTF-8, else {"$bytes": ...}; none is null.
"""

import base64
import math
from dataclasses import dataclass
from typing import Any

import msgpack

from lorogo_cli.render.values import show_json
from lorogo_client.versions import show_time_down
from lorogo_log.format.batch import Record

_SHORT_BYTES = 24


@dataclass(frozen=True, slots=True)
class _Pairs:
    items: list[tuple[Any, Any]]


def line(record: Record, *, short: bool) -> str:
    """Return a record as one line of JSON."""
    return show_json(
        {
            "sequence": record.sequence,
            "time": show_time_down(record.time),
            "time_ns": record.time,
            "key": key(record.key, short=short),
            "value": value(record.payload, short=short),
        }
    )


def human(record: Record) -> str:
    """Return a record as one line for people."""
    shown = key(record.key, short=True)
    name = "-" if shown is None else shown if isinstance(shown, str) else show_json(shown)
    content = show_json(value(record.payload, short=True))
    return f"{show_time_down(record.time)}  {record.sequence}  {name}  {content}"


def key(raw: bytes, *, short: bool) -> object:
    """Return a key as text, or as base64 if it is not printable."""
    if not raw:
        return None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return _bytes("$bytes", raw, short=short)
    return text if text.isprintable() else _bytes("$bytes", raw, short=short)


def value(payload: bytes, *, short: bool) -> object:
    """Return a payload as a JSON value."""
    try:
        shown = _plain(msgpack.unpackb(payload, strict_map_key=False, object_pairs_hook=_Pairs), short=short)
        show_json(shown)
    except (ValueError, RecursionError, msgpack.UnpackException):
        return _bytes("$payload", payload, short=short)
    return shown


def _plain(item: Any, *, short: bool) -> object:
    match item:
        case bytes():
            return _bytes("$bytes", item, short=short)
        case float() if not math.isfinite(item):
            return {"$float": str(item)}
        case list():
            return [_plain(part, short=short) for part in item]
        case _Pairs(items):
            pairs = [(_plain(name, short=short), _plain(part, short=short)) for name, part in items]
            if all(isinstance(name, str) and not name.startswith("$") for name, _ in pairs):
                return {str(name): part for name, part in pairs}
            return {"$pairs": [list(pair) for pair in pairs]}
        case msgpack.ExtType():
            return {"$extension": item.code, **_bytes("$bytes", item.data, short=short)}
        case msgpack.Timestamp():
            return {"$extension": -1, **_bytes("$bytes", item.to_bytes(), short=short)}
        case _:
            return item  # text, a number, true, false, null


def _bytes(name: str, raw: bytes, *, short: bool) -> dict[str, object]:
    if short and len(raw) > _SHORT_BYTES:
        return {name: base64.b64encode(raw[:_SHORT_BYTES]).decode() + "...", "$length": len(raw)}
    return {name: base64.b64encode(raw).decode()}
