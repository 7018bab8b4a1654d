"""`/healthz`, `/readyz` and `/metrics`. Samples are cached, so requests to them cannot load NATS."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lorogo_client import Client
from lorogo_gateway.auth import NotSignedIn, Principal, TokenGuard
from lorogo_gateway.auth.needs import Operator, check
from lorogo_gateway.documents.feed import Feeds
from lorogo_gateway.http.failures import problem_of
from lorogo_gateway.metrics.collector import ClusterSample, Collector
from lorogo_gateway.metrics.operator_views import SocketStats
from lorogo_gateway.metrics.prometheus import GatewayFigures, families
from lorogo_protocol.access.tokens import TokenRefused
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages.subjects import WAL_STREAM
from lorogo_transport.rpc.discovery import is_ready

PATHS = ("/healthz", "/readyz", "/metrics")

_READY_AGE_SECONDS = 1.0  # maximum age of the sample
_READY_SECONDS = 3.0  # timeout
_NO_STORE = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class NotReadyReason:
    """A reason why the gateway is not ready."""

    code: str
    detail: str


def routes(
    client: Client,
    collector: Collector,
    *,
    feeds: Feeds | None = None,
    sockets: SocketStats | None = None,
    refused: Callable[[], Mapping[str, int]] | None = None,
    responses: Callable[[], Mapping[str, int]] | None = None,
    guard: TokenGuard | None = None,
    metrics_open: bool = False,
) -> list[Route]:
    """Return the three routes.

    With keys, details of `/readyz` are for operators; so is `/metrics` unless `metrics_open` is set.
    """
    probes = _Probes(
        client,
        collector,
        feeds,
        sockets,
        refused,
        responses,
        guard or TokenGuard(),
        metrics_open=metrics_open,
    )
    handlers = probes.healthz, probes.readyz, probes.metrics
    return [Route(path, handler) for path, handler in zip(PATHS, handlers, strict=True)]


class _Probes:
    """The handlers."""

    def __init__(
        self,
        client: Client,
        collector: Collector,
        feeds: Feeds | None,
        sockets: SocketStats | None,
        refused: Callable[[], Mapping[str, int]] | None,
        responses: Callable[[], Mapping[str, int]] | None,
        guard: TokenGuard,
        *,
        metrics_open: bool,
    ) -> None:
        self._guard = guard
        self._metrics_open = metrics_open
        self._bus = client.transport.bus
        self._collector = collector
        self._feeds = feeds
        self._sockets = sockets
        self._refused = refused
        self._responses = responses
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    async def healthz(self, _: Request) -> Response:
        """The process answers."""
        return JSONResponse({"alive": True}, headers=_NO_STORE)

    async def readyz(self, request: Request) -> Response:
        """Report whether edits through this gateway can be ACKed; details of reasons are for operators."""
        wrong = await self._reasons()
        detailed = self._is_operator(request)
        reasons = [
            {"code": one.code, "detail": one.detail} if detailed else {"code": one.code} for one in wrong
        ]
        body = {"ready": not wrong, "reasons": reasons}
        return JSONResponse(body, 503 if wrong else 200, headers=_NO_STORE)

    async def _reasons(self) -> list[NotReadyReason]:
        if not self._bus.connected:
            return [_DISCONNECTED]
        try:
            async with asyncio.timeout(_READY_SECONDS):
                look = await self._collector.newest(_READY_AGE_SECONDS, asked=False)
        except TimeoutError:
            return [NotReadyReason("no-answer", f"NATS and servers did not answer in {_READY_SECONDS:g} s")]
        wrong = not_ready(look, self._bus.max_payload)
        return wrong if self._guard.ready else [*wrong, _UNCHECKED]

    async def metrics(self, request: Request) -> Response:
        """Return Prometheus text, or OpenMetrics if the client accepts it."""
        if not self._metrics_open:
            try:
                check(Operator(), self._authenticate(request), {})
            except LorogoError as error:
                problem = problem_of(error)
                assert problem is not None
                return problem.response()
        census = await self._collector.counted()
        look = await self._collector.newest()
        encoder, content_type = choose_encoder(request.headers.get("accept", ""))
        found = [*self._process.collect(), *families(look, census, self._own())]
        return Response(encoder(_SingleScrape(found)), headers={"Content-Type": content_type, **_NO_STORE})

    def _authenticate(self, request: Request) -> Principal:
        """Return the principal, and attach it for the limits middleware. Raises NotSignedIn, TokenRefused."""
        found = request.state.principal = self._guard.needed(request.headers)
        return found

    def _is_operator(self, request: Request) -> bool:
        try:
            return self._authenticate(request).operator
        except (NotSignedIn, TokenRefused):
            return False

    def _own(self) -> GatewayFigures:
        feeds, sockets = self._feeds, self._sockets
        return GatewayFigures(
            0 if feeds is None else feeds.open,
            0 if feeds is None else feeds.opened,
            0 if feeds is None else feeds.events_sent,
            None if sockets is None else sockets(),
            {} if self._refused is None else self._refused(),
            {} if self._responses is None else self._responses(),
        )


class _SingleScrape(CollectorRegistry):
    """A registry of metrics that were created for one scrape."""

    def __init__(self, found: Iterable[Metric]) -> None:
        super().__init__()
        self._found = list(found)

    def collect(self) -> Iterator[Metric]:
        return iter(self._found)


_UNCHECKED = NotReadyReason(
    "tokens-unchecked",
    "the list of revoked tokens is incomplete, so every token is refused; wait for a server to complete it,"
    " or run `lorogo token complete`",
)
_DISCONNECTED = NotReadyReason("nats-disconnected", "NATS is not connected")


def not_ready(look: ClusterSample, message_bytes_max: int) -> list[NotReadyReason]:
    """Return the reasons why an edit could not be ACKed; empty if ready."""
    if not look.connected:
        return [_DISCONNECTED]
    wrong: list[NotReadyReason] = []
    wal = look.streams.wal
    if wal is None:
        wrong.append(
            NotReadyReason("wal-missing", f"the stream {WAL_STREAM} does not exist or does not answer")
        )
    elif 0 < wal.bytes_max < wal.bytes + min(message_bytes_max, wal.bytes_max // 50):
        wrong.append(
            NotReadyReason("wal-full", f"the stream {WAL_STREAM} has {wal.bytes} of {wal.bytes_max} bytes")
        )
    if not look.servers:
        wrong.append(NotReadyReason("no-server", "no server answers: start one with `lorogo serve`"))
    elif not any(is_ready(server.stats) for server in look.servers):
        names = ", ".join(
            f"{server.server_id} (journal: {str(server.stats.get('journal', 'none'))[:200]})"
            for server in look.servers[:10]
        )
        wrong.append(NotReadyReason("no-server-ready", f"no server is ready: {names}"))
    return wrong
