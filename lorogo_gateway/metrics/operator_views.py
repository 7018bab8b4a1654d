"""Operator views: servers, the overview and its charts, refused updates, the size of a document."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lorogo_client import Client
from lorogo_client.errors import check_stored
from lorogo_client.versions import show_time
from lorogo_gateway.auth.call_token import document_of
from lorogo_gateway.auth.needs import OnDocument, Operator
from lorogo_gateway.documents.schemas import DOCUMENT_ID
from lorogo_gateway.http.operations import Operation, Parameter, ResponseSpec, checked_request, principal
from lorogo_gateway.metrics import operator_schemas as schemas
from lorogo_gateway.metrics.collector import STATES, ClusterSample, Collector, DocumentCounts
from lorogo_gateway.metrics.health import health
from lorogo_gateway.metrics.rates import ChartSample, number
from lorogo_gateway.metrics.rejected_updates import newest
from lorogo_gateway.problems import HttpProblem
from lorogo_protocol.access.grants import Access
from lorogo_transport.clock import Clock, SystemClock
from lorogo_transport.ports import StreamState
from lorogo_transport.rpc.discovery import ServerStats, is_ready
from lorogo_transport.stores import catalogue

SocketStats = Callable[[], Mapping[str, Any]]  # the counters of this gateway's WebSockets

_FRESH = {"Cache-Control": "no-store"}
_REJECTED_DEFAULT, _REJECTED_MAX = 50, 200
_SIZES_DEFAULT, _SIZES_MAX = 500, 1_000


def operations(
    client: Client, collector: Collector, *, sockets: SocketStats | None = None, clock: Clock | None = None
) -> list[Operation]:
    """Return the operator views of `/v1`."""
    facts = _Views(client, collector, sockets, clock or SystemClock())
    return [
        Operation(
            "GET",
            "/v1/servers",
            "servers",
            "List the servers that answer, with statistics and health.",
            facts.servers,
            {200: ResponseSpec("The servers, by id.", {"application/json": schemas.SERVERS})},
            group="operations",
            need=Operator(),
            audit="dashboard",
        ),
        Operation(
            "GET",
            "/v1/overview",
            "overview",
            "Read the current state: documents by state, throughput and latency of the last few seconds,"
            " sizes, takeovers, documents in ERROR.",
            facts.overview,
            {
                200: ResponseSpec(
                    "The state at `time`; null: unknown.", {"application/json": schemas.OVERVIEW}
                )
            },
            group="operations",
            need=Operator(),
            audit="dashboard",
        ),
        Operation(
            "GET",
            "/v1/overview/samples",
            "samples",
            "Read the same values over time, for charts: columns of equal length, oldest first.",
            facts.samples,
            {200: ResponseSpec("One list per value; null: unknown.", {"application/json": schemas.SAMPLES})},
            group="operations",
            need=Operator(),
            audit="dashboard",
        ),
        Operation(
            "GET",
            "/v1/rejected",
            "rejected",
            "List permanently refused updates in the stream loro-rejected, newest first.",
            facts.rejected,
            {200: ResponseSpec("The newest refused updates.", {"application/json": schemas.REJECTED})},
            (
                Parameter(
                    "limit",
                    "query",
                    "Number of updates.",
                    {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": _REJECTED_MAX,
                        "default": _REJECTED_DEFAULT,
                    },
                ),
            ),
            group="operations",
            need=Operator(),
            audit="dashboard",
        ),
        Operation(
            "GET",
            "/v1/documents/{id}/sizes",
            "sizes",
            "Read a document's number of operations over time, oldest first, and its current sizes.",
            facts.sizes,
            {
                200: ResponseSpec(
                    "Columns of equal length, and current sizes.", {"application/json": schemas.SIZES}
                )
            },
            (
                Parameter("id", "path", "The document.", DOCUMENT_ID, required=True),
                Parameter(
                    "limit",
                    "query",
                    "Maximum number of points, the newest.",
                    {"type": "integer", "minimum": 1, "maximum": _SIZES_MAX, "default": _SIZES_DEFAULT},
                ),
            ),
            group="operations",
            need=OnDocument(Access.ADMIN),
            problems=(404, 410),
        ),
    ]


class _Views:
    """The handlers."""

    def __init__(
        self, client: Client, collector: Collector, sockets: SocketStats | None, clock: Clock
    ) -> None:
        self._client = client
        self._collector = collector
        self._sockets = sockets
        self._clock = clock

    async def servers(self, _: Request) -> Response:
        self._collector.watched()
        look = await self._collector.newest()
        now_ns = self._clock.wall_ns()
        return _json({"servers": [server_facts(server, now_ns) for server in look.servers]})

    async def overview(self, _: Request) -> Response:
        self._collector.watched()
        census = await self._collector.counted()
        look = await self._collector.newest()
        samples = self._collector.samples
        shown = _overview(look, census, samples[-1] if samples and look.connected else None)
        shown["takeovers"] = [
            {
                "document": one.document,
                "from": one.before,
                "to": one.after,
                "time": show_time(one.time_ns, UTC),
            }
            for one in self._collector.takeovers
        ]
        shown["sockets"] = None if self._sockets is None else dict(self._sockets())
        return _json(shown)

    async def samples(self, _: Request) -> Response:
        self._collector.watched()
        await self._collector.newest()
        return _json(columns(list(self._collector.samples)))

    async def rejected(self, request: Request) -> Response:
        rows = await newest(self._client.transport, checked_request(request).values["limit"])
        return _json({"rejected": [{**asdict(row), "time": show_time(row.time, UTC)} for row in rows]})

    async def sizes(self, request: Request) -> Response:
        document_id, limit = checked_request(request).values["id"], checked_request(request).values["limit"]
        sight = await catalogue.read_summary(self._client.transport, document_id)
        if not sight.known:
            raise HttpProblem(404, "not-found", f"there is no document {document_id!r}")
        check_stored(sight)
        document = document_of(self._client, document_id, principal(request))
        status = await document.status()
        versions = (await document.history(limit, operations=True))[::-1]
        return _json(
            {
                "document": document_id,
                "time": [show_time(number(version, "time_ns"), UTC) for version in versions],
                "sequence": [number(version, "sequence") for version in versions],
                "operations": [version.get("operations") for version in versions],
                "operations_now": number(status, "operations"),
                **{name: number(status, name) for name in schemas.NOW},
            }
        )


def server_facts(server: ServerStats, now_ns: int) -> dict[str, object]:
    """Return a server's facts for the dashboard."""
    try:
        lines = health(server.stats, now_ns)
    except (TypeError, ValueError, AttributeError, KeyError):
        lines = ["ITS FIGURES CANNOT BE READ"]
    return {
        "server": server.server_id,
        "version": server.version,
        "started": server.started,
        "documents": number(server.stats, "documents"),
        "ready": is_ready(server.stats),
        "health": lines,
        "stats": _plain(server.stats),
    }


def _plain(stats: Mapping[str, Any]) -> object:
    """Return the statistics as plain JSON values; empty if they cannot be encoded."""
    try:
        return json.loads(json.dumps(stats, allow_nan=False))
    except (ValueError, TypeError, RecursionError):
        return {}


def _json(content: object) -> Response:
    """Return a JSON response in ASCII: foreign strings may have unpaired surrogates."""
    return Response(json.dumps(content, separators=(",", ":")), media_type="application/json", headers=_FRESH)


def columns(samples: list[ChartSample]) -> dict[str, object]:
    """Return the samples as columns."""
    rows = [asdict(one) for one in samples]
    times = [show_time(row["time_ns"], UTC) for row in rows]
    return {"time": times, **{name: [row[name] for row in rows] for name in schemas.COLUMNS}}


def _overview(
    look: ClusterSample, census: DocumentCounts | None, last: ChartSample | None
) -> dict[str, object]:
    stats = [server.stats for server in look.servers]
    return {
        "time": show_time(look.time_ns, UTC),
        "connected": look.connected,
        "documents": dict.fromkeys(STATES) if census is None else dict(census.states),
        "servers": {"total": len(stats), "ready": sum(map(is_ready, stats))},
        "open": sum(number(one, "documents") for one in stats),
        "throughput": {
            "updates_per_second": None if last is None else last.updates_per_second,
            "bytes_per_second": None if last is None else last.bytes_per_second,
            "nacks_per_second": None if last is None else last.nacks_per_second,
        },
        "ack": {
            "p50_us": None if last is None else last.ack_p50_us,
            "p99_us": None if last is None else last.ack_p99_us,
        },
        "sync": {
            "p50_us": None if last is None else last.sync_p50_us,
            "p99_us": None if last is None else last.sync_p99_us,
        },
        "wal": _stream(look.streams.wal),
        "rejected": _stream(look.streams.rejected),
        "snapshot_bytes": None if look.streams.snapshots is None else look.streams.snapshots.bytes,
        "journal_bytes": sum(number(one, "journal_disk_bytes") for one in stats),
        "waiting": {
            name: sum(number(one, f"{name}_waiting") for one in stats)
            for name in ("journal", "intake", "acks", "loads")
        },
        "errors": [
            {"document": one.document, "trace": one.trace, "time": show_time(one.time_ns, UTC)}
            for one in (() if census is None else census.failed)
        ],
    }


def _stream(state: StreamState | None) -> dict[str, int] | None:
    if state is None:
        return None
    return {"bytes": state.bytes, "bytes_max": state.bytes_max, "messages": state.messages}
