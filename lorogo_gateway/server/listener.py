"""The gateway's listening socket: uvicorn inside the process's event loop, without its signals and logs."""

import asyncio
import logging
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from lorogo_gateway.limits.limiter import Limiter
from lorogo_gateway.server.tls import Certificate, keep_fresh
from lorogo_gateway.settings import GatewaySettings
from lorogo_gateway.transport.connection_counter import Acceptor, ConnectionCounter, ConnectionSlot
from lorogo_gateway.transport.uvicorn_http import http_protocol
from lorogo_gateway.transport.uvicorn_transport import uvicorn_options
from lorogo_protocol.errors import LorogoError
from lorogo_transport.telemetry.logs import get_logger

_BACKLOG = 2048
_NO_NEWS = (
    "without completing handshake",  # for each WebSocket refused with a status, as 421
    "Invalid HTTP request received",
    "Unsupported upgrade request",
    "No supported WebSocket library",
)
_OTHER_FILES = 100  # other than connections

log = get_logger(__name__)


class CannotListen(LorogoError):
    """The gateway cannot listen on its address."""

    code = "cannot-listen"


class _Uvicorn(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        settings: GatewaySettings,
        limiter: Limiter,
        secure: ssl.SSLContext | None,
    ) -> None:
        super().__init__(config)
        self._settings = settings
        self._entrance = ConnectionCounter(settings, limiter)
        self._secure = secure
        self._acceptors: list[Acceptor] = []
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen through our own acceptors: they count connections before TLS and reload certificates."""
        assert sockets is not None
        await self.lifespan.startup()
        self.servers = []  # uvicorn's own listeners
        self._acceptors = [
            Acceptor(one, self._entrance, self._settings, self._secure, self._protocol) for one in sockets
        ]
        self.started = True
        self.listens.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, then shut down as uvicorn does."""
        for one in self._acceptors:
            await one.close()
        await super().shutdown(sockets)

    def _protocol(self, entry: ConnectionSlot) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        made: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state, entry=entry
        )
        return made

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command, which stops the gateway in its own order."""
        yield


@asynccontextmanager
async def listening(
    app: ASGIApp, settings: GatewaySettings, limiter: Limiter | None = None
) -> AsyncIterator[str]:
    """Serve the app; yields its URL. Raises CannotListen, TlsUnusable."""
    certificate: Certificate | None = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        certificate = await asyncio.to_thread(Certificate, settings.tls_cert, settings.tls_key)
    make_room(settings.connections_max)
    listener = _bind(settings.host, settings.port)
    secure = None if certificate is None else certificate.context
    limits = limiter or Limiter(settings)
    server = _Uvicorn(_config(app, settings, limits), settings, limits, secure)
    fresh = (
        None
        if certificate is None
        else asyncio.create_task(keep_fresh(certificate, settings.tls_check_seconds), name="certificate")
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="uvicorn")
    listens = asyncio.create_task(server.listens.wait())
    try:
        await asyncio.wait({serving, listens}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
            raise CannotListen("the HTTP server stopped during startup; see the log for the reason")
        yield _address(listener, "http" if secure is None else "https")
    finally:
        listens.cancel()
        if fresh is not None:
            fresh.cancel()
            await asyncio.gather(fresh, return_exceptions=True)
        server.should_exit = True
        await serving


def _config(app: ASGIApp, settings: GatewaySettings, limiter: Limiter) -> uvicorn.Config:
    uvicorn_log = logging.getLogger("uvicorn.error")
    uvicorn_log.setLevel(logging.WARNING)
    uvicorn_log.addFilter(_is_news)
    return uvicorn.Config(
        app,
        http=http_protocol(settings, limiter),
        **uvicorn_options(settings),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # uvicorn would trust every local peer; lorogo_gateway.addresses decides
        backlog=_BACKLOG,
        timeout_keep_alive=max(1, round(settings.idle_seconds)),
        timeout_graceful_shutdown=max(1, round(settings.close_seconds)),
    )


def _is_news(record: logging.LogRecord) -> bool:
    """Return False for log lines that any client can trigger without limit."""
    message = str(record.msg)
    return not any(words in message for words in _NO_NEWS)


def make_room(connections: int) -> int:
    """Raise the limit of open files for so many connections; returns the resulting limit."""
    if sys.platform == "win32":
        return connections + _OTHER_FILES
    import resource  # noqa: PLC0415  # Windows has none

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if most > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < wanted:
        log.warning("`ulimit -n` is too low for connections_max: raise it", files=most, wanted=wanted)
    return max(most, soft)


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return listener


def _address(listener: socket.socket, scheme: str) -> str:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}"
