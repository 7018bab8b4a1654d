"""JSON schemas of documents over HTTP."""

from lorogo_gateway.documents import versions
from lorogo_gateway.http.operations import Schema
from lorogo_protocol.limits import DOCUMENT_ID_CHARS_MAX
from lorogo_transport.stores.catalogue import Row

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
    "server": {"type": "string", "description": "The owner's id; empty: no owner."},
    "changed": {**_maybe(TIME), "description": "When the owner last wrote the status."},
    "lease": {**_COUNT, "description": "The fencing token; 0: no owner."},
    "deleted": {"type": "boolean"},
    "erased": {"type": "boolean", "description": "Deleted permanently."},
    "snapshot_bytes": _COUNT,
    "wal_messages": {
        **_COUNT,
        "description": "Messages in the WAL; compaction moves them into the snapshot.",
    },
    "last_edit": {**_maybe(TIME), "description": "By the stream's clock; null: never."},
}
_ROW_MORE: dict[str, Schema] = {
    "stale": {"type": "boolean", "description": "UP, but not renewed in time: the owner may have failed."},
    "retries": {**_COUNT, "description": "Attempts to load it, while STARTING."},
    "trace": {"type": "string", "description": "In ERROR: the trace id to search logs for."},
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
        "present": {**_COUNT, "description": "Clients that show presence."},
        "idle_seconds": {"type": "number"},
        "durability": {"type": "string", "enum": ["stream", "journal", "replicated"]},
    },
)
STATUS = _object(
    "Status",
    {
        **_ROW,
        "owner": {"anyOf": [OWNER, {"type": "null"}], "description": "null: the owner does not answer."},
    },
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
                "description": "The update's id in logs, journals and tables; empty: nothing changed.",
            },
        },
    ),
    "description": "The change is stored, applied and recoverable: the guarantee of an ACK.",
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
    "description": "With `path`: one list of matches per expression.",
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
        "description": "a root name without /",
    },
    "examples": [{"body": "hello", "tasks": [{"title": "write", "done": False}]}],
}
POINTER_CHARS_MAX = 65_536  # matching takes some hundred bytes of memory per slash
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
        "reset": {"type": "boolean", "description": "false: the document was not in ERROR."},
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
    """Return a row of the catalogue with times as text."""
    shown = {name: value for name, value in row.items() if not name.endswith("_ns")}
    return shown | {
        "changed": versions.show(row["changed_ns"]),
        "last_edit": versions.show(row["edited_ns"]),
    }


def owner(facts: Row | None) -> Row | None:
    """Return the owner's state of its document with times as text."""
    if facts is None:
        return None
    shown = {name: facts[name] for name in OWNER["required"] if name in facts}
    return shown | {"since": versions.show(facts["since_ns"])}
