"""uvicorn's HTTP with bounds: who sends half a request, or takes no answer, is cut off.

uvicorn closes what is idle between two requests, and nothing else; it reads heads of any size.
"""

import asyncio
from typing import ClassVar

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from lorogo_gateway.settings import GatewaySettings

_PIPELINE_MAX = 32  # requests that wait for the answer to one before them


def http_protocol(settings: GatewaySettings) -> type[HttpToolsProtocol]:
    """What uvicorn.Config takes for `http`."""

    class Bounded(GatewayHttp):
        bounds = settings

    return Bounded


class GatewayHttp(HttpToolsProtocol):
    """One connection, until it ends or becomes a WebSocket."""

    bounds: ClassVar[GatewaySettings]

    _request: asyncio.TimerHandle | None = None  # until the head of the next one is whole
    _stalled: asyncio.TimerHandle | None = None  # while an answer waits for its reader
    _answering: RequestResponseCycle | None = None
    _head_bytes = 0  # of this request; its body allows as much again for chunks and trailers

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Somebody is here; one too many is gone at once. WebSockets are counted, too."""
        super().connection_made(transport)
        if len(self.connections) > self.bounds.connections_max:
            transport.abort()
            return
        self._await_request(self.bounds.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """The end; the request that is being answered is told, which may not be the last one."""
        self._stop_timers()
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        """From here on it is not ours."""
        self._stop_timers()
        super().handle_websocket_upgrade()

    def data_received(self, data: bytes) -> None:
        """Some bytes of requests."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > self.bounds.head_bytes_max:
            self.transport.abort()

    def on_message_begin(self) -> None:
        """The first byte of a request; what came with it counts as of the one before."""
        super().on_message_begin()
        self._head_bytes = 0
        self._await_request(self.bounds.head_seconds)

    def on_headers_complete(self) -> None:
        """The head is whole; bodies have their own deadline."""
        _stop(self._request)
        super().on_headers_complete()
        if len(self.pipeline) > _PIPELINE_MAX:
            self.transport.abort()

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
        self._stalled = self.loop.call_later(self.bounds.stall_seconds, self.transport.abort)

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
        else:
            self.transport.abort()

    def _stop_timers(self) -> None:
        _stop(self._request)
        _stop(self._stalled)


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
