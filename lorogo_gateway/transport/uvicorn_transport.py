"""A frame writer on uvicorn's socket, without a queue and a task.

An unmasked server frame is the same bytes for every client, so it is written to the socket directly: 6 us of
CPU per client, where a queue, a task and ASGI's `send` take 15. `uvicorn_options()` installs this protocol
class as uvicorn's `ws`. On other servers `AsgiLine` is used.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from starlette.types import Scope
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request
from websockets.protocol import State

from lorogo_gateway.limits.token_bucket import TokenBucket
from lorogo_gateway.settings import GatewaySettings
from lorogo_gateway.transport.transport import PONGS_MAX

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent

_EXTENSION = "lorogo.line"
UNSEEN_PER_SECOND: Final = 20.0  # PINGs, PONGs and small continuation frames, which the app does not see
_UNSEEN_BURST_SECONDS = 5.0
_PART_BYTES_MIN = 1024  # parsed at once: some hundred frames
_PART_BYTES_MAX = 8 * 1024
_PART_FRAMES = 16  # frames per part above which they count as tiny
_TINY_SECONDS = 0.05  # between two parts of tiny frames, once the close frame is sent
_PIECE_BYTES_MIN = 256
_BINARY, _TEXT = 0x82, 0x81  # final frames of RFC 6455


def uvicorn_options(settings: GatewaySettings) -> dict[str, Any]:
    """Return the options of uvicorn.Config for WebSockets."""
    return {
        "ws": type("Bounded", (GatewayWebSocket,), {"unread_bytes_max": settings.unread_bytes_max}),
        "ws_max_size": settings.frame_bytes_max,
        "ws_per_message_deflate": False,  # updates are already compressed; its state takes 64 KiB each
        "ws_ping_interval": settings.ping_seconds,
        "ws_ping_timeout": settings.ping_seconds,
    }


def frame_writer_of(scope: Scope, cut: Callable[[], None]) -> "UvicornFrameWriter | None":
    """Return the writer of this connection; None on another server.

    `cut` is called when the connection is aborted because of frames that the app does not see.
    """
    writer = (scope.get("extensions") or {}).get(_EXTENSION)
    if not isinstance(writer, UvicornFrameWriter):
        return None
    writer.on_cut(cut)
    return writer


class GatewayWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with a direct writer, limits on control frames, and no close code 1011.

    The npm client takes 1011 as final, but a laptop that wakes up must reconnect.

    One read may contain 40,000 frames. They are parsed a few at a time, once the app has taken earlier ones.
    Frames that the app does not see (PING, PONG, messages in small continuation frames) have a rate of their
    own. A connection above it is aborted: no regular client reaches it.
    """

    unread_bytes_max: ClassVar[int]
    pongs = 0  # since the client last read everything
    gone: Callable[[], None] | None = None  # called once when the connection has ended
    cut: Callable[[], None] | None = None  # called when the connection is aborted because of its frames
    _rest: memoryview = memoryview(b"")  # received but not parsed
    _part_bytes = _PART_BYTES_MIN  # parsed at once
    _frames_parsed = 0  # of the current part
    _unseen: TokenBucket | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection."""
        if self.gone is not None:
            self.gone()
        self._rest = memoryview(b"")
        super().connection_lost(exc)

    # --- reading

    def data_received(self, data: bytes) -> None:
        """Buffer received bytes and parse what the app can take."""
        self._rest = memoryview(bytes(self._rest) + data if self._rest else data)
        self.feed()

    async def receive(self) -> "ASGIReceiveEvent":
        """Return the next message; parse and read more once the app has taken all parsed ones."""
        if self.queue.empty():
            self.feed()
        return await self.queue.get()

    def feed(self) -> None:
        """Parse until there is a message for the app or nothing is left; then resume reading."""
        while self._rest and not self.transport.is_closing():
            if self.close_sent:  # the client's close frame follows everything that it sent before
                self._parse()
                if self._rest:
                    self._hold()
                    tiny = self._frames_parsed > _PART_FRAMES
                    self.loop.call_later(_TINY_SECONDS if tiny else 0.0, self.feed)
                    return
            elif self.queue.empty():
                self._parse()
            else:
                self._hold()
                return
        if self.read_paused and (self.close_sent or self.queue.empty()) and not self.transport.is_closing():
            self.read_paused = False
            self.transport.resume_reading()

    def _parse(self) -> None:
        """Parse one part; parts are smaller while frames are tiny and larger within a large frame."""
        part, self._rest = self._rest[: self._part_bytes], self._rest[self._part_bytes :]
        self._frames_parsed = 0
        super().data_received(bytes(part))
        if self._frames_parsed == 0:
            self._part_bytes = min(2 * self._part_bytes, _PART_BYTES_MAX)
        elif self._frames_parsed > _PART_FRAMES:
            self._part_bytes = _PART_BYTES_MIN

    def _hold(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def handle_text(self, event: Frame) -> None:
        """Count a text frame."""
        self._frames_parsed += 1
        super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        """Count a binary frame."""
        self._frames_parsed += 1
        super().handle_bytes(event)

    def handle_cont(self, event: Frame) -> None:
        """Count a continuation frame; small ones are limited, since empty ones could go on without end.

        Browsers send large messages in continuation frames.
        """
        self._frames_parsed += 1
        if len(event.data) < _PIECE_BYTES_MIN and not self._may_send_unseen():
            return
        super().handle_cont(event)

    def handle_pong(self, event: Frame) -> None:
        """Count a PONG, solicited or not."""
        if self._may_send_unseen():
            super().handle_pong(event)

    def _may_send_unseen(self) -> bool:
        """Count a frame that the app does not see; above the rate abort the connection and return False."""
        self._frames_parsed += 1
        now = self.loop.time()
        if self._unseen is None:
            self._unseen = TokenBucket(UNSEEN_PER_SECOND, _UNSEEN_BURST_SECONDS, now=now)
        if self.transport.is_closing():
            return False
        if self._unseen.take(1, now=now):
            return True
        if self.cut is not None:
            self.cut()
        self.transport.abort()
        return False

    # --- handshake, pings and keepalive

    def handle_connect(self, event: Request) -> None:
        """Start the app with the writer in its scope."""
        super().handle_connect(event)
        if self.handshake_initiated and not self.handshake_complete:
            extensions = cast("dict[str, object]", self.scope["extensions"])
            extensions[_EXTENSION] = UvicornFrameWriter(self)

    def handle_ping(self) -> None:
        """Answer a PING; abort the connection if the client does not read the PONGs."""
        if not self._may_send_unseen():
            return
        super().handle_ping()
        self.pongs = 0 if self.writable.is_set() else self.pongs + 1
        if self.pongs > PONGS_MAX or self.transport.get_write_buffer_size() > self.unread_bytes_max:
            self.transport.abort()

    def keepalive_timeout(self) -> None:
        """Abort the connection after a missing PONG, unless the gateway itself has paused reading."""
        if self.read_paused and self.ping_timeout is not None:
            self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)
            return
        self.pong_timer = None
        self.pending_ping_payload = None
        self.transport.abort()


class UvicornFrameWriter:
    """Writes WebSocket frames to the socket of one connection."""

    __slots__ = ("_protocol", "_transport")

    def __init__(self, protocol: GatewayWebSocket) -> None:
        self._protocol = protocol
        self._transport = protocol.transport

    def on_cut(self, callback: Callable[[], None]) -> None:
        """Call back when the connection is aborted because of its frames."""
        self._protocol.cut = callback

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
        protocol.feed()
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
    """Return the header of an unmasked frame."""
    if size < 126:
        return bytes((kind, size))
    if size < 1 << 16:
        return bytes((kind, 126, size >> 8, size & 0xFF))
    return bytes((kind, 127)) + size.to_bytes(8, "big")
