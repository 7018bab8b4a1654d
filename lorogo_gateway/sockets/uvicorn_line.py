"""The line to a client through uvicorn, without a queue and a task of our own.

A frame from a server is the same bytes for every client, so it is written to the socket at once: 6 us of CPU
for each reader, where a queue, a task and ASGI's `send` take 15. uvicorn takes a class of one's own for `ws`;
`uvicorn_options()` gives it this one. Without, `AsgiLine` does the same job.
"""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, cast

from starlette.types import Scope
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request
from websockets.protocol import State

from lorogo_gateway.settings import GatewaySettings
from lorogo_gateway.sockets.line import PONGS_MAX

_EXTENSION = "lorogo.line"
_BINARY, _TEXT = 0x82, 0x81  # final frames of RFC 6455


def uvicorn_options(settings: GatewaySettings) -> dict[str, Any]:
    """What uvicorn must be told (uvicorn.Config) for the WebSocket door."""
    return {
        "ws": type("Bounded", (GatewayWebSocket,), {"unread_bytes_max": settings.unread_bytes_max}),
        "ws_max_size": settings.frame_bytes_max,
        "ws_per_message_deflate": False,  # updates are compressed already, and its state costs 64 KiB each
        "ws_ping_interval": settings.ping_seconds,
        "ws_ping_timeout": settings.ping_seconds,
    }


def line_of(scope: Scope) -> "UvicornLine | None":
    """The line that came with this connection, if uvicorn was asked for it."""
    line = (scope.get("extensions") or {}).get(_EXTENSION)
    return line if isinstance(line, UvicornLine) else None


class GatewayWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's own, that hands its line to the app, bounds its pongs, and never closes with 1011.

    To the npm client 1011 is final. A laptop that wakes up must come back.
    """

    unread_bytes_max: ClassVar[int]
    pongs = 0  # since the client last took what was sent
    gone: Callable[[], None] | None = None  # told once when the connection is over

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        if self.gone is not None:
            self.gone()
        super().connection_lost(exc)

    def handle_connect(self, event: Request) -> None:
        """The handshake came: the app is started with the line in its scope."""
        super().handle_connect(event)
        if self.handshake_initiated and not self.handshake_complete:
            extensions = cast("dict[str, object]", self.scope["extensions"])
            extensions[_EXTENSION] = UvicornLine(self)

    def handle_ping(self) -> None:
        """It is answered; who pings and does not read is cut off, as a close frame would not be read."""
        if self.transport.is_closing():
            return
        super().handle_ping()
        self.pongs = 0 if self.writable.is_set() else self.pongs + 1
        if self.pongs > PONGS_MAX or self.transport.get_write_buffer_size() > self.unread_bytes_max:
            self.transport.abort()

    def keepalive_timeout(self) -> None:
        """No pong came: the connection is cut, unless it is us who do not read."""
        if self.read_paused and self.ping_timeout is not None:
            self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)
            return
        self.pong_timer = None
        self.pending_ping_payload = None
        self.transport.abort()


class UvicornLine:
    """Writes WebSocket frames to the socket of one connection."""

    __slots__ = ("_protocol", "_transport")

    def __init__(self, protocol: GatewayWebSocket) -> None:
        self._protocol = protocol
        self._transport = protocol.transport

    @property
    def unread_bytes(self) -> int:
        protocol = self._protocol
        return 0 if protocol.writable.is_set() else self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        if self._open():
            self._transport.write(_head(_BINARY, len(data)) + data)

    def write_text(self, text: str) -> None:
        data = text.encode()
        if self._open():
            self._transport.write(_head(_TEXT, len(data)) + data)

    async def writable(self) -> None:
        await self._protocol.writable.wait()

    async def close(self, code: int, reason: str, *, seconds: float) -> None:
        protocol = self._protocol
        if not self._open():
            return
        protocol.stop_keepalive()
        protocol.conn.send_close(code, reason)
        self._transport.write(b"".join(protocol.conn.data_to_send()))
        protocol.close_sent = True
        if protocol.read_paused:
            protocol.read_paused = False
            self._transport.resume_reading()
        protocol.close_timer = protocol.loop.call_later(seconds, self._transport.abort)
        protocol.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        await asyncio.sleep(0)

    def _open(self) -> bool:
        protocol = self._protocol
        return (
            protocol.handshake_complete
            and not protocol.close_sent
            and not protocol.disconnected
            and protocol.conn.state is State.OPEN
            and not self._transport.is_closing()
        )


def _head(kind: int, size: int) -> bytes:
    """The head of an unmasked frame."""
    if size < 126:
        return bytes((kind, size))
    if size < 1 << 16:
        return bytes((kind, 126, size >> 8, size & 0xFF))
    return bytes((kind, 127)) + size.to_bytes(8, "big")
