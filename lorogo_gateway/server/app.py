"""Assembly of the gateway: one Starlette app with all routes, and its background tasks."""

from types import TracebackType
from typing import Self

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from lorogo_client import Client
from lorogo_gateway.auth import TokenGuard, TokenVerifier
from lorogo_gateway.documents import operations as documents
from lorogo_gateway.documents.feed import Feeds
from lorogo_gateway.http.routes import router
from lorogo_gateway.limits.limiter import Limiter
from lorogo_gateway.limits.middleware import LimitMiddleware
from lorogo_gateway.metrics import operator_views, probes
from lorogo_gateway.metrics.collector import Collector
from lorogo_gateway.metrics.response_counts import ResponseCountMiddleware, ResponseCounts
from lorogo_gateway.server.host_check import HostCheckMiddleware
from lorogo_gateway.server.pages import Pages
from lorogo_gateway.server.response_headers import ResponseHeadersMiddleware
from lorogo_gateway.server.sign_in import SessionOperations
from lorogo_gateway.settings import GatewaySettings
from lorogo_gateway.websocket import Sockets


class Gateway:
    """The HTTP and WebSocket app of one client. Enter it before serving `app`, leave it after."""

    def __init__(
        self,
        client: Client,
        settings: GatewaySettings,
        authority: TokenVerifier | None = None,
        *,
        pages: Pages | None = None,
    ) -> None:
        """`authority`: verifies tokens; None: there are no keys, and every client may do everything."""
        self.guard = TokenGuard(authority)
        self.limiter = Limiter(settings)
        self.responses = ResponseCounts()
        self.sockets = Sockets(client, settings, self.guard, self.limiter)
        self.feeds = Feeds(client, settings, self.guard, self.limiter)
        self.collector = Collector(client.transport, settings)
        operations = (
            *documents.operations(client, settings),
            *operator_views.operations(client, self.collector, sockets=self.sockets.stats),
            *self.feeds.operations(),
            *SessionOperations(self.guard, self.limiter).operations(),
        )
        probe_routes = probes.routes(
            client,
            self.collector,
            feeds=self.feeds,
            sockets=self.sockets.stats,
            refused=self.limiter.refusals.facts,
            responses=self.responses.facts,
            guard=self.guard,
            metrics_open=settings.metrics_open,
        )
        self.app = Starlette(
            routes=[
                *self.sockets.routes(),
                *router(operations, settings, self.guard, self.limiter),
                *probe_routes,
                *(pages or Pages(read_only=settings.read_only)).routes(),
            ],
            middleware=[
                Middleware(ResponseCountMiddleware, self.responses, probes.PATHS),
                Middleware(LimitMiddleware, self.limiter, tokens=not self.guard.open),
                Middleware(ResponseHeadersMiddleware, settings),
                Middleware(HostCheckMiddleware, settings),
                *_cors(settings),
            ],
        )

    async def __aenter__(self) -> Self:
        self.collector.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.guard.close()
        await self.collector.close()

    async def disconnect_all(self) -> None:
        """End feeds, and close WebSockets after outstanding ACKs."""
        await self.feeds.close()
        await self.sockets.close()


def _cors(settings: GatewaySettings) -> list[Middleware]:
    """Return the CORS middleware for the configured origins; none without origins."""
    if not settings.origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "PUT", "POST", "PATCH", "DELETE"],
            allow_headers=["authorization", "content-type", "if-match", "if-none-match", "last-event-id"],
            expose_headers=["etag", "retry-after", "www-authenticate"],
        )
    ]
