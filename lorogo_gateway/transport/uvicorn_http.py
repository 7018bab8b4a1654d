"""uvicorn's HTTP with bounds: who sends half a request, or takes no answer, is cut off.

uvicorn closes what is idle between two requests, and nothing else; it reads heads of any size.
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

_PIPELINE_MAX = 32  # requests that wait for the answer to one before them


_FINAL_MESSAGE = "lorogo.final_message"
_PROBLEM = (
    b"HTTP/1.1 %d %b\r\nContent-Type: application/problem+json\r\n%bContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%b"
)


def http_protocol(settings: GatewaySettings, limiter: Limiter) -> type[HttpToolsProtocol]:
    """What uvicorn.Config takes for `http`."""

    class Bounded(GatewayHttp):
        bounds = settings
        limits = limiter

    return Bounded


class FinalMessage:
    """What is still said to a reader who takes nothing, before the end: behind all that it left unread."""

    __slots__ = ("_protocol", "sent", "text", "why")

    def __init__(self, protocol: "GatewayHttp") -> None:
        self._protocol = protocol
        self.text = b""  # none: the connection is cut
        self.why = LimitReason.SLOW_READER
        self.sent = False

    def send(self) -> None:
        """End the connection with them, in a moment. Safe twice."""
        if not self.sent:
            self.sent = True
            self._protocol.end_with(self.text, self.why)


def final_message(scope: Scope) -> FinalMessage | None:
    """Those of the connection that this request came on, if it is ours."""
    found = (scope.get("extensions") or {}).get(_FINAL_MESSAGE)
    return found if isinstance(found, FinalMessage) else None


class GatewayHttp(HttpToolsProtocol):
    """One connection, until it ends or becomes a WebSocket."""

    bounds: ClassVar[GatewaySettings]
    limits: ClassVar[Limiter]

    _final: FinalMessage | None = None
    _request: asyncio.TimerHandle | None = None  # until the head of the next one is whole
    _stalled: asyncio.TimerHandle | None = None  # while an answer waits for its reader
    _answering: RequestResponseCycle | None = None
    _within_request = True  # its head has begun, or the connection was just made
    _large = False  # the head was, and the parser has stopped
    _seen_bytes = 0  # of this head, parsed
    _head_bytes = 0  # of this request; its body allows as much again for chunks and trailers

    def __init__(self, *, entry: ConnectionSlot, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._entry = entry  # counts the connection, since it was accepted

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Somebody is here, after TLS; whose address has too many is told so."""
        super().connection_made(transport)
        if self._entry.refusal is not None:
            self._turn_away(self._entry.refusal)
            return
        self._await_request(self.bounds.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """The end; the request that is being answered is told, which may not be the last one."""
        self._stop_timers()
        self._entry.leave()
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        """From here on it is not ours; but the connection still counts until it ends."""
        self._stop_timers()
        super().handle_websocket_upgrade()
        protocol = self.transport.get_protocol()
        if isinstance(protocol, GatewayWebSocket):
            protocol.gone = self._entry.leave
        else:  # another class is tried by tests only, or the handshake was refused
            self._entry.leave()

    def data_received(self, data: bytes) -> None:
        """Some bytes of requests."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > self.bounds.head_bytes_max and not self.transport.is_closing():
            self._head_too_large()

    def on_url(self, url: bytes) -> None:
        """Some bytes of the address."""
        super().on_url(url)
        self._grew(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        super().on_header(name, value)
        self._grew(len(name) + len(value) + 4)

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP, or too much of it."""
        if self._large:
            self._head_too_large()
        elif self._in_answer:
            self.transport.abort()  # it would stand in the middle of an answer
        else:
            super().send_400_response(msg)

    def _grew(self, size: int) -> None:
        """However it came: one read may bring a whole head, and more than one may have."""
        self._seen_bytes += size
        if self._seen_bytes > self.bounds.head_bytes_max:
            self._large = True
            raise ValueError("the head is too large")  # ends the parser, which asks for a 400

    def _head_too_large(self) -> None:
        most = self.bounds.head_bytes_max
        self.limits.refusals.count(LimitReason.HEAD_BYTES)
        self._stop_timers()
        self._answer(HttpProblem(431, "head-too-large", f"the head of a request has at most {most} bytes"))

    def on_message_begin(self) -> None:
        """The first byte of a request; what came with it counts as of the one before."""
        super().on_message_begin()
        self._head_bytes = self._seen_bytes = 0
        self._within_request = True
        self._await_request(self.bounds.head_seconds)

    def on_headers_complete(self) -> None:
        """The head is whole; bodies have their own deadline."""
        _stop(self._request)
        self._within_request = False
        super().on_headers_complete()
        self._final = FinalMessage(self)
        extensions = cast("dict[str, object]", self.scope.setdefault("extensions", {}))
        extensions[_FINAL_MESSAGE] = self._final
        if len(self.pipeline) > _PIPELINE_MAX and not self.transport.is_closing():
            self._cut(LimitReason.PIPELINE)

    def on_body(self, body: bytes) -> None:
        """Some bytes of a body."""
        self._head_bytes -= 2 * len(body)
        super().on_body(body)

    def on_response_complete(self) -> None:
        """An answer was handed to the system; closing waits for its reader, but not for ever."""
        if not self.pipeline:
            self._await_request(self.bounds.idle_seconds)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The reader is slower than we are."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self.bounds.stall_seconds, self._too_slow)

    def resume_writing(self) -> None:
        """The reader took what was waiting."""
        _stop(self._stalled)
        super().resume_writing()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _await_request(self, seconds: float) -> None:
        _stop(self._request)
        self._request = self.loop.call_later(seconds, self._too_late)

    def _too_late(self) -> None:
        if self.flow.read_paused:  # it is we who do not read
            self._await_request(self.bounds.head_seconds)
        elif self._within_request:
            self._cut(LimitReason.HEAD_SECONDS)
        else:
            self.transport.abort()  # it was only idle

    def _too_slow(self) -> None:
        final = self._pending_message()
        if final is not None and final.text:
            final.send()
        else:
            self._cut(LimitReason.SLOW_READER)

    def _pending_message(self) -> FinalMessage | None:
        return None if self._answering is None else final_message(cast("Scope", self._answering.scope))

    def end_with(self, text: bytes, why: LimitReason) -> None:
        """Put this behind what the reader left unread, and end; a reader who comes back in time sees it."""
        self.limits.refusals.count(why)
        cycle = self._answering
        if self.transport.is_closing():
            return
        if cycle is not None and not cycle.response_complete:
            if cycle.chunked_encoding:
                text = b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text)
            cycle.disconnected = True  # nothing more goes out behind it
            cycle.message_event.set()
            self.transport.write(text)
        _stop(self._stalled)
        self._stalled = self.loop.call_later(self.bounds.close_seconds, self.transport.abort)
        self.transport.close()

    def _turn_away(self, no: LimitExceeded) -> None:
        """An answer before the question: a connection too many costs one write."""
        self._answer(rate_limited(no))

    @property
    def _in_answer(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _answer(self, problem: HttpProblem) -> None:
        """Say so and end, without the app; unless it is in the middle of an answer."""
        if self._in_answer:
            self.transport.abort()
            return
        body = bytes(problem.response().body)
        final = HTTPStatus(problem.status).phrase.encode()
        headers = b"".join(f"{name}: {value}\r\n".encode() for name, value in problem.headers.items())
        self.transport.write(_PROBLEM % (problem.status, final, headers, len(body), body))
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
