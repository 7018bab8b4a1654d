"""uvicorn's HTTP protocol with limits: incomplete requests and stalled responses end the connection.

uvicorn itself only closes connections that are idle between requests, and reads heads of any size.
"""

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar, cast

from starlette.types import Scope
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from lorogo_gateway.limits.limiter import Limiter, LimitExceeded
from lorogo_gateway.limits.middleware import rate_limited
from lorogo_gateway.limits.reasons import LimitReason
from lorogo_gateway.problems import HttpProblem
from lorogo_gateway.settings import GatewaySettings
from lorogo_gateway.transport.connection_counter import ConnectionSlot
from lorogo_gateway.transport.uvicorn_transport import GatewayWebSocket

_PIPELINE_MAX = 32  # pipelined requests that wait for an earlier response
_FINAL_MESSAGE = "lorogo.final_message"
_PROBLEM = (
    b"HTTP/1.1 %d %b\r\nContent-Type: application/problem+json\r\n%bContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%b"
)


def http_protocol(settings: GatewaySettings, limiter: Limiter) -> type[HttpToolsProtocol]:
    """Return the protocol class for `http` in uvicorn.Config."""

    class Bounded(GatewayHttp):
        bounds = settings
        limits = limiter

    return Bounded


class FinalMessage:
    """The last bytes for a client that stopped reading, sent after its unread data before the close."""

    __slots__ = ("_protocol", "sent", "text", "why")

    def __init__(self, protocol: "GatewayHttp") -> None:
        self._protocol = protocol
        self.text = b""  # empty: the connection is aborted
        self.why = LimitReason.SLOW_READER
        self.sent = False

    def send(self) -> None:
        """Send the text and close the connection. Idempotent."""
        if not self.sent:
            self.sent = True
            self._protocol.end_with(self.text, self.why)


def final_message(scope: Scope) -> FinalMessage | None:
    """Return the final message of this request's connection; None on another server."""
    found = (scope.get("extensions") or {}).get(_FINAL_MESSAGE)
    return found if isinstance(found, FinalMessage) else None


class GatewayHttp(HttpToolsProtocol):
    """One connection, until it ends or becomes a WebSocket."""

    bounds: ClassVar[GatewaySettings]
    limits: ClassVar[Limiter]

    _final: FinalMessage | None = None
    _request: asyncio.TimerHandle | None = None  # until the next head is complete
    _stalled: asyncio.TimerHandle | None = None  # while a response waits for the client to read
    _answering: RequestResponseCycle | None = None
    _within_request = True  # a head has begun, or the connection is new
    _large = False  # the head is too large, and the parser has stopped
    _seen_bytes = 0  # of this head, parsed
    _head_bytes = 0  # of this request; each body byte allows as much again for chunk framing and trailers

    def __init__(self, *, entry: ConnectionSlot, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._entry = entry  # counts the connection, since it was accepted

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Start the timer of the first request, or refuse the connection because of a limit."""
        super().connection_made(transport)
        if self._entry.refusal is not None:
            self._refuse(self._entry.refusal)
            return
        self._await_request(self.bounds.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection and notify the request that is being answered."""
        self._stop_timers()
        self._entry.leave()
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection to the WebSocket protocol; it stays counted until it ends."""
        self._stop_timers()
        super().handle_websocket_upgrade()
        protocol = self.transport.get_protocol()
        if isinstance(protocol, GatewayWebSocket):
            protocol.gone = self._entry.leave
        else:  # a refused handshake, or another class (in tests)
            self._entry.leave()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > self.bounds.head_bytes_max and not self.transport.is_closing():
            self._head_too_large()

    def on_url(self, url: bytes) -> None:
        """Count a part of the URL."""
        super().on_url(url)
        self._grew(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        super().on_header(name, value)
        self._grew(len(name) + len(value) + 4)

    def send_400_response(self, msg: str) -> None:
        """Answer malformed HTTP, or a head that is too large."""
        if self._large:
            self._head_too_large()
        elif self._in_answer:
            self.transport.abort()  # a 400 would corrupt the response in progress
        else:
            super().send_400_response(msg)

    def _grew(self, size: int) -> None:
        """Count bytes of a head: one read may have several heads, one head several reads."""
        self._seen_bytes += size
        if self._seen_bytes > self.bounds.head_bytes_max:
            self._large = True
            raise ValueError("the head is too large")  # ends the parser, which calls send_400_response

    def _head_too_large(self) -> None:
        most = self.bounds.head_bytes_max
        self.limits.refusals.count(LimitReason.HEAD_BYTES)
        self._stop_timers()
        self._answer(HttpProblem(431, "head-too-large", f"the head of a request has at most {most} bytes"))

    def on_message_begin(self) -> None:
        """Start counting a head; the rest of the same read counts for the previous request."""
        super().on_message_begin()
        self._head_bytes = self._seen_bytes = 0
        self._within_request = True
        self._await_request(self.bounds.head_seconds)

    def on_headers_complete(self) -> None:
        """Stop the head's timer; bodies have their own deadline."""
        _stop(self._request)
        self._within_request = False
        super().on_headers_complete()
        self._final = FinalMessage(self)
        extensions = cast("dict[str, object]", self.scope.setdefault("extensions", {}))
        extensions[_FINAL_MESSAGE] = self._final
        if len(self.pipeline) > _PIPELINE_MAX and not self.transport.is_closing():
            self._cut(LimitReason.PIPELINE)

    def on_body(self, body: bytes) -> None:
        """Count a part of the body."""
        self._head_bytes -= 2 * len(body)
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Start the idle timer after a response."""
        if not self.pipeline:
            self._await_request(self.bounds.idle_seconds)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Start the stall timer: the client does not keep up."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self.bounds.stall_seconds, self._too_slow)

    def resume_writing(self) -> None:
        """Stop the stall timer: the client has caught up."""
        _stop(self._stalled)
        super().resume_writing()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _await_request(self, seconds: float) -> None:
        _stop(self._request)
        self._request = self.loop.call_later(seconds, self._too_late)

    def _too_late(self) -> None:
        if self.flow.read_paused:  # the gateway has paused reading
            self._await_request(self.bounds.head_seconds)
        elif self._within_request:
            self._cut(LimitReason.HEAD_SECONDS)
        else:
            self.transport.abort()  # idle: not counted as a refusal

    def _too_slow(self) -> None:
        final = self._pending_message()
        if final is not None and final.text:
            final.send()
        else:
            self._cut(LimitReason.SLOW_READER)

    def _pending_message(self) -> FinalMessage | None:
        return None if self._answering is None else final_message(cast("Scope", self._answering.scope))

    def end_with(self, text: bytes, why: LimitReason) -> None:
        """Append the text to the unread data and close; a client that resumes reading in time receives it."""
        self.limits.refusals.count(why)
        cycle = self._answering
        if self.transport.is_closing():
            return
        if cycle is not None and not cycle.response_complete:
            if cycle.chunked_encoding:
                text = b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text)
            cycle.disconnected = True  # nothing is sent after it
            cycle.message_event.set()
            self.transport.write(text)
        _stop(self._stalled)
        self._stalled = self.loop.call_later(self.bounds.close_seconds, self.transport.abort)
        self.transport.close()

    def _refuse(self, no: LimitExceeded) -> None:
        """Respond before any request: a refused connection costs one write."""
        self._answer(rate_limited(no))

    @property
    def _in_answer(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _answer(self, problem: HttpProblem) -> None:
        """Send the problem without the app and close; abort if a response is in progress."""
        if self._in_answer:
            self.transport.abort()
            return
        body = bytes(problem.response().body)
        phrase = HTTPStatus(problem.status).phrase.encode()
        headers = b"".join(f"{name}: {value}\r\n".encode() for name, value in problem.headers.items())
        self.transport.write(_PROBLEM % (problem.status, phrase, headers, len(body), body))
        self.transport.close()
        _stop(self._stalled)
        self._stalled = self.loop.call_later(self.bounds.close_seconds, self.transport.abort)

    def _cut(self, why: LimitReason) -> None:
        self.limits.refusals.count(why)
        self.transport.abort()

    def _stop_timers(self) -> None:
        _stop(self._request)
        _stop(self._stalled)


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
