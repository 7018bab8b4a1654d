"""JSON schemas of the operator views."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from lorogo_gateway.http.operations import Schema
from lorogo_gateway.metrics.collector import STATES
from lorogo_gateway.metrics.rates import ChartSample

#: the fields of `Sample` that become columns: all but its time
COLUMNS: Final = tuple(field.name for field in fields(ChartSample) if field.name != "time_ns")
#: current sizes of a document, beside the points over time
NOW: Final = ("changes", "snapshot_bytes", "wal_bytes", "wal_messages")

_TEXT: Final[Schema] = {"type": "string"}
_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_MAYBE: Final[Schema] = {"type": ["number", "null"]}


def _map(properties: Mapping[str, Schema], *, nullable: bool = False) -> Schema:
    kind: object = ["object", "null"] if nullable else "object"
    return {"type": kind, "properties": dict(properties), "required": list(properties)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_STREAM: Final = _map({"bytes": _COUNT, "bytes_max": {"type": "integer"}, "messages": _COUNT}, nullable=True)
SERVERS: Final = _map(
    {
        "servers": _list(
            _map(
                {
                    "server": _TEXT,
                    "version": _TEXT,
                    "started": _TEXT,
                    "documents": _COUNT,
                    "ready": {"type": "boolean"},
                    "health": _list(_TEXT),
                    "stats": {"type": "object"},
                }
            )
        )
    }
)
OVERVIEW: Final = _map(
    {
        "time": _TIME,
        "connected": {"type": "boolean"},
        "documents": _map(dict.fromkeys(STATES, _MAYBE)),
        "servers": _map({"total": _COUNT, "ready": _COUNT}),
        "open": _COUNT,
        "throughput": _map(
            {"updates_per_second": _MAYBE, "bytes_per_second": _MAYBE, "nacks_per_second": _MAYBE}
        ),
        "ack": _map({"p50_us": _MAYBE, "p99_us": _MAYBE}),
        "sync": _map({"p50_us": _MAYBE, "p99_us": _MAYBE}),
        "wal": _STREAM,
        "rejected": _STREAM,
        "snapshot_bytes": _MAYBE,
        "journal_bytes": _COUNT,
        "waiting": _map({"journal": _COUNT, "intake": _COUNT, "acks": _COUNT, "loads": _COUNT}),
        "errors": _list(_map({"document": _TEXT, "trace": _TEXT, "time": _TIME})),
        "takeovers": _list(_map({"document": _TEXT, "from": _TEXT, "to": _TEXT, "time": _TIME})),
        "sockets": {"type": ["object", "null"]},
    }
)
SAMPLES: Final = _map({"time": _list(_TIME), **{name: _list(_MAYBE) for name in COLUMNS}})
REJECTED: Final = _map(
    {
        "rejected": _list(
            _map(
                {
                    "sequence": _COUNT,
                    "document": _TEXT,
                    "time": _TIME,
                    "reason": _TEXT,
                    "message": _TEXT,
                    "log_id": _TEXT,
                    "wal_sequence": _COUNT,
                    "bytes": _COUNT,
                }
            )
        )
    }
)
SIZES: Final = _map(
    {
        "document": _TEXT,
        "time": _list(_TIME),
        "sequence": _list(_COUNT),
        "operations": _list(_MAYBE),
        "operations_now": _COUNT,
        **dict.fromkeys(NOW, _COUNT),
    }
)
