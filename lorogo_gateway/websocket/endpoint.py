"""The route `/ws`: all WebSocket connections of a gateway, and their shutdown."""

import asyncio
from functools import partial

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send

from lorogo_client import Client
from lorogo_gateway.auth import UNCHECKED, NotSignedIn, TokenGuard, presented
from lorogo_gateway.frames import Crdt
from lorogo_gateway.limits.limiter import Limiter
from lorogo_gateway.limits.reasons import LimitReason
from lorogo_gateway.limits.request_quota import request_quota
from lorogo_gateway.origins import origin_allowed
from lorogo_gateway.problems import HttpProblem
from lorogo_gateway.settings import GatewaySettings
from lorogo_gateway.state.gateway_state import GatewayState
from lorogo_gateway.transport.transport import AsgiFrameWriter, FrameWriter
from lorogo_gateway.transport.uvicorn_transport import frame_writer_of
from lorogo_gateway.websocket.connection import TOKEN_ENDED, WebSocketConnection
from lorogo_protocol.access.tokens import TokenRefused
from lorogo_transport.tasks import Tasks
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_REASON_CHARS_MAX = 120  # of a close frame, which has room for 123 bytes


class Sockets:
    """The WebSocket connections of a gateway. Close it before the HTTP server is stopped."""

    def __init__(
        self,
        client: Client,
        settings: GatewaySettings,
        guard: TokenGuard | None = None,
        limiter: Limiter | None = None,
    ) -> None:
        self._settings = settings
        self._guard = guard or TokenGuard()
        self._gateway = GatewayState(
            client, settings, Tasks(_broke), self._guard, limiter or Limiter(settings)
        )
        self._connections: set[WebSocketConnection] = set()
        self._closing = False
        self._all_gone = asyncio.Event()
        self._all_gone.set()

    def routes(self) -> list[BaseRoute]:
        """Return the Starlette routes."""
        return [WebSocketRoute("/ws", _Endpoint(self)), Route("/ws", _not_a_socket)]

    def stats(self) -> dict[str, object]:
        """Return current values, and counters since the start."""
        rooms = [key for connection in self._connections for key in connection.rooms]
        unread = [connection.writer.unread_bytes for connection in self._connections]
        return {
            "connections": len(self._connections),
            "rooms": len(set(rooms)),
            "members": len(rooms),
            "documents": len({name for crdt, name in rooms if crdt is Crdt.LORO}),
            "unacked": sum(connection.unacked for connection in self._connections),
            "unfinished_bytes": self._gateway.unfinished.bytes,
            "unread_bytes": sum(unread),
            "unread_bytes_worst": max(unread, default=0),
            **self._gateway.counters.facts(),
        }

    async def close(self) -> None:
        """Stop reading, wait up to `close_seconds` for outstanding ACKs, then close with 1001."""
        self._closing = True
        for connection in self._connections:
            connection.stop_reading()
        try:
            async with asyncio.timeout(self._settings.close_seconds):
                for connection in list(self._connections):
                    await connection.settled()
        except TimeoutError:
            log.warning("connections closed with unacknowledged updates", updates=self.stats()["unacked"])
        for connection in list(self._connections):
            connection.close(1001, "the gateway is shutting down; reconnect", "shutdown")
        try:
            async with asyncio.timeout(self._settings.close_seconds):
                await self._all_gone.wait()
                await self._gateway.tasks.idle()
        except TimeoutError:
            log.warning("closing connections timed out", connections=len(self._connections))
        await self._gateway.tasks.close()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, from its handshake to its end."""
        if (await receive())["type"] != "websocket.connect":
            return
        headers = Headers(scope=scope)
        if not origin_allowed(headers, self._settings.origins) or self._is_forged(headers):
            self._gateway.counters.closed["origin"] += 1
            await send({"type": "websocket.close", "code": 4403})  # before accept: becomes HTTP 403
            return
        await send({"type": "websocket.accept"})
        if self._closing or len(self._connections) >= self._settings.connections_max:
            await self._too_many(send)
            return
        request = request_quota(scope, self._gateway.limiter)
        try:
            principal = self._guard.known(headers)
        except (NotSignedIn, TokenRefused) as error:
            self._gateway.counters.closed["token"] += 1
            if error.code != UNCHECKED:
                request.failed()
            code = 1013 if error.code == UNCHECKED else TOKEN_ENDED
            reason = f"{error.code}: {error}"[:_REASON_CHARS_MAX]
            await send({"type": "websocket.close", "code": code, "reason": reason})
            return
        quota = request.for_connection()
        user = None if principal is None or principal.token is None else principal.token.user
        if quota.open(user) is not None:
            await self._too_many(send)
            return
        writer: FrameWriter | None = frame_writer_of(
            scope, partial(self._gateway.limiter.refusals.count, LimitReason.FRAMES)
        )
        sender: asyncio.Task[None] | None = None
        if writer is None:
            writer = queued = AsgiFrameWriter(send)
            sender = asyncio.create_task(queued.run())
        connection = WebSocketConnection(
            self._gateway, writer, principal, quota, now=asyncio.get_running_loop().time()
        )
        self._connections.add(connection)
        self._all_gone.clear()
        self._gateway.counters.opened += 1
        try:
            await connection.run(receive)
        finally:
            self._connections.discard(connection)
            if not self._connections:
                self._all_gone.set()
            if sender is not None:
                sender.cancel()
                await asyncio.gather(sender, return_exceptions=True)

    async def _too_many(self, send: Send) -> None:
        self._gateway.counters.closed["too_many"] += 1
        await send(
            {"type": "websocket.close", "code": 1013, "reason": "too many connections; reconnect later"}
        )

    def _is_forged(self, headers: Headers) -> bool:
        """Return whether the handshake has a cookie but no Origin, which every browser sends."""
        return (
            not self._guard.open and "origin" not in headers and "cookie" in headers and _by_cookie(headers)
        )


def _by_cookie(headers: Headers) -> bool:
    try:
        found = presented(headers)
    except NotSignedIn:
        return False  # refused later because of the token
    return found is not None and found.place == "cookie"


class _Endpoint:
    """An ASGI app for WebSocketRoute that bypasses Starlette's WebSocket object."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._sockets.serve(scope, receive, send)


async def _not_a_socket(_request: Request) -> Response:
    """Answer a plain HTTP request, as of curl or a browser, with 426."""
    detail = (
        "this path serves WebSocket clients of the loro-protocol, for example the npm package loro-websocket"
    )
    headers = {"upgrade": "websocket", "connection": "upgrade"}
    return HttpProblem(426, "upgrade-required", detail, headers=headers).response()


def _broke(error: Exception) -> None:
    log.error("WebSocket task failed", exc_info=error)
