"""The shapes that documents have over HTTP, as JSON Schema."""

from lorogo_client.inspection.overview import Row
from lorogo_gateway.documents import versions
from lorogo_gateway.http.operations import Schema
from lorogo_protocol.limits import DOCUMENT_ID_CHARS_MAX

_ANY_CHARS = "A-Za-z0-9_="
DOCUMENT_ID: Schema = {
    "type": "string",
    "pattern": f"^(?!_kv)[{_ANY_CHARS}][{_ANY_CHARS}-]*$",
    "minLength": 1,
    "maxLength": DOCUMENT_ID_CHARS_MAX,
    "description": "A-Z a-z 0-9 _ - =, beginning with neither - nor _kv",
    "examples": ["minutes"],
}
VERSION: Schema = {"type": "string", "pattern": "^v[A-Za-z0-9_-]+$", "description": "v..."}
TIME: Schema = {"type": "string", "format": "date-time"}
_COUNT: Schema = {"type": "integer", "minimum": 0}


def _maybe(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _object(title: str, required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {
        "title": title,
        "type": "object",
        "required": list(required),
        "properties": required | (optional or {}),
    }


_ROW: dict[str, Schema] = {
    "document": DOCUMENT_ID,
    "state": {"type": "string", "enum": ["DOWN", "STARTING", "UP", "ERROR"]},
    "server": {"type": "string", "description": "Who owns it; empty: nobody."},
    "changed": {**_maybe(TIME), "description": "When its owner last said so."},
    "lease": {**_COUNT, "description": "The fencing token; 0: nobody owns it."},
    "deleted": {"type": "boolean"},
    "erased": {"type": "boolean", "description": "Deleted for good."},
    "snapshot_bytes": _COUNT,
    "wal_messages": {**_COUNT, "description": "Not yet in the snapshot."},
    "last_edit": {**_maybe(TIME), "description": "By the clock of the stream; null: never."},
}
_ROW_MORE: dict[str, Schema] = {
    "stale": {"type": "boolean", "description": "UP, and not renewed for too long: its server may be gone."},
    "retries": {**_COUNT, "description": "While STARTING."},
    "trace": {"type": "string", "description": "In ERROR: where its logs are."},
}
SUMMARY = _object("Summary", _ROW, _ROW_MORE)
PAGE = _object(
    "Page",
    {
        "documents": {"type": "array", "items": SUMMARY},
        "next": {
            "type": ["string", "null"],
            "description": "`after` of the next page; null: this is the last.",
        },
    },
)
OWNER = _object(
    "Owner",
    {
        "server": {"type": "string"},
        "since": TIME,
        "sequence": _COUNT,
        "generation": _COUNT,
        "operations": _COUNT,
        "changes": _COUNT,
        "wal_bytes": _COUNT,
        "present": {**_COUNT, "description": "How many have told their presence."},
        "idle_seconds": {"type": "number"},
        "durability": {"type": "string", "enum": ["stream", "journal", "replicated"]},
    },
)
STATUS = _object(
    "Status",
    {**_ROW, "owner": {"anyOf": [OWNER, {"type": "null"}], "description": "null: it does not answer."}},
    _ROW_MORE,
)
RECEIPT = {
    **_object(
        "Receipt",
        {
            "document": DOCUMENT_ID,
            "version": VERSION,
            "sequence": _COUNT,
            "lease": _COUNT,
            "durability": {"type": "string", "enum": ["stream", "journal", "replicated"]},
            "log_id": {
                "type": "string",
                "description": "Of the update in logs, journals and tables; empty: nothing was to change.",
            },
        },
    ),
    "description": "The change is stored, applied and recoverable: the promise of an ACK.",
}
VALUE: Schema = {
    "title": "Value",
    "type": "object",
    "description": "The document's roots by name.",
    "additionalProperties": True,
}
MATCHES: Schema = {
    "title": "Matches",
    "type": "array",
    "description": "With `path`: for each of them the values that it selects.",
    "items": {"type": "array"},
}
CONTENT: Schema = {
    "title": "Content",
    "type": "object",
    "description": "Roots by name: an object becomes a map, an array a list, a string a text.",
    "additionalProperties": {"type": ["object", "array", "string"]},
    "maxProperties": 10_000,
    "propertyNames": {
        "pattern": "^[^/\\x00]+$",
        "maxLength": 1_024,
        "description": "names of roots are: no / in it",
    },
    "examples": [{"body": "hello", "tasks": [{"title": "write", "done": False}]}],
}
POINTER_CHARS_MAX = 65_536  # to match one takes memory, some hundred bytes for each of its slashes
_POINTER: Schema = {
    "type": "string",
    "pattern": "^(/[^~/]*(~[01][^~/]*)*)*$",
    "maxLength": POINTER_CHARS_MAX,
    "description": "a JSON pointer (RFC 6901)",
}
PATCH: Schema = {
    "title": "Patch",
    "type": "array",
    "description": "A JSON Patch (RFC 6902).",
    "maxItems": 10_000,
    "items": {
        "anyOf": [
            {
                "type": "object",
                "required": ["op", "path", "value"],
                "properties": {
                    "op": {"type": "string", "enum": ["add", "replace", "test"]},
                    "path": _POINTER,
                    "value": {},
                },
            },
            {
                "type": "object",
                "required": ["op", "path"],
                "properties": {"op": {"type": "string", "enum": ["remove"]}, "path": _POINTER},
            },
            {
                "type": "object",
                "required": ["op", "path", "from"],
                "properties": {
                    "op": {"type": "string", "enum": ["move", "copy"]},
                    "path": _POINTER,
                    "from": _POINTER,
                },
            },
        ]
    },
    "examples": [[{"op": "add", "path": "/body", "value": "hello"}]],
}
FORK: Schema = {
    "title": "Fork",
    "type": "object",
    "required": ["to"],
    "properties": {"to": DOCUMENT_ID, "at": versions.SCHEMA},
    "additionalProperties": False,
    "examples": [{"to": "minutes-copy"}],
}
REVERT: Schema = {
    "title": "Revert",
    "type": "object",
    "required": ["at"],
    "properties": {"at": versions.SCHEMA},
    "additionalProperties": False,
    "examples": [{"at": "10m"}],
}
FORKED = _object("Forked", {"document": DOCUMENT_ID, "forked_from": DOCUMENT_ID})
DELETED = _object(
    "Deleted", {"document": DOCUMENT_ID, "deleted": {"type": "boolean"}, "erased": {"type": "boolean"}}
)
RESTORED = _object("Restored", {"document": DOCUMENT_ID, "restored": {"type": "boolean"}})
RESET = _object(
    "Reset",
    {
        "document": DOCUMENT_ID,
        "reset": {"type": "boolean", "description": "false: it was not in ERROR."},
    },
)
HISTORY = _object(
    "History",
    {
        "document": DOCUMENT_ID,
        "versions": {
            "type": "array",
            "items": _object("DatedVersion", {"version": VERSION, "time": TIME, "sequence": _COUNT}),
        },
    },
)
SNAPSHOT: Schema = {"type": "string", "format": "binary", "description": "A Loro snapshot."}


def summary(row: Row) -> Row:
    """A row of the overview as HTTP shows it: times as text."""
    shown = {name: value for name, value in row.items() if not name.endswith("_ns")}
    return shown | {
        "changed": versions.show(row["changed_ns"]),
        "last_edit": versions.show(row["edited_ns"]),
    }


def owner(facts: Row | None) -> Row | None:
    """What an owner says of its document, as HTTP shows it."""
    if facts is None:
        return None
    shown = {name: facts[name] for name in OWNER["required"] if name in facts}
    return shown | {"since": versions.show(facts["since_ns"])}
