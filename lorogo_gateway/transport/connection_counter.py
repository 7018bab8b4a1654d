"""Counts connections from accept to close, TLS handshakes included.

A TLS connection above a limit is closed before its handshake, without a response. Some file descriptors are
reserved for NATS, keys and certificates, so that clients cannot use up all of them.
"""

import asyncio
import socket
import ssl
import sys
from collections.abc import Callable
from typing import Any

from lorogo_gateway.limits.limiter import Limiter, LimitExceeded
from lorogo_gateway.limits.reasons import LimitReason
from lorogo_gateway.settings import GatewaySettings
from lorogo_transport.telemetry.logs import get_logger

_TOGETHER_MAX = 32  # connections accepted in one turn of the loop, while open ones wait
SPARE_FILES = 50  # file descriptors that connections cannot use
_PAUSE_SECONDS = 1.0  # after accept has failed
_WARN_SECONDS = 60.0  # minimum between two warnings about that

log = get_logger(__name__)


class ConnectionSlot:
    """A counted connection, until `leave`."""

    __slots__ = ("_entrance", "_peer", "refusal")

    def __init__(self, entrance: "ConnectionCounter", peer: str, refusal: LimitExceeded | None) -> None:
        self._entrance: ConnectionCounter | None = entrance
        self._peer = peer
        self.refusal = refusal  # above a limit: respond with it and close

    def leave(self) -> None:
        """Release the connection. Idempotent."""
        entrance, self._entrance = self._entrance, None
        if entrance is not None:
            entrance.left(self._peer, counted=self.refusal is None)


class ConnectionCounter:
    """Limits connections in total, per address and by file descriptors."""

    def __init__(self, settings: GatewaySettings, limits: Limiter) -> None:
        self._most = settings.connections_max
        self._limits = limits
        self._warned_at = -_WARN_SECONDS
        self.open = 0

    def enter(self, peer: str, *, file: int, now: float) -> ConnectionSlot | None:
        """Count a connection; pair with `leave`. None: close it without a response."""
        if self.open >= self._most or file >= _files_max():
            self._limits.refusals.count(LimitReason.CONNECTIONS)
            if self.open < self._most:
                self.warn_files(now=now)
            return None
        self.open += 1
        return ConnectionSlot(self, peer, self._limits.connect(peer, now=now))

    def left(self, peer: str, *, counted: bool) -> None:
        """Release a connection; called by `ConnectionSlot.leave`."""
        self.open -= 1
        if counted:
            self._limits.disconnect(peer)

    def warn_files(self, *, now: float) -> None:
        """Log that file descriptors run out, at a limited rate."""
        if now - self._warned_at >= _WARN_SECONDS:
            self._warned_at = now
            log.warning("connection refused: too few file descriptors; raise `ulimit -n`", open=self.open)


class Acceptor:
    """Accepts the connections of a listening socket within the limits."""

    def __init__(
        self,
        listener: socket.socket,
        entrance: ConnectionCounter,
        settings: GatewaySettings,
        secure: ssl.SSLContext | None,
        make: Callable[[ConnectionSlot], asyncio.Protocol],
    ) -> None:
        self._listener = listener
        self._entrance = entrance
        self._make = make
        self._secure = secure
        self._tls: dict[str, Any] = {}
        if secure is not None:
            self._tls = {
                "ssl": secure,
                "ssl_handshake_timeout": settings.head_seconds,
                "ssl_shutdown_timeout": settings.close_seconds,
            }
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[None]] = set()  # connections in their handshake
        self._accepting = asyncio.create_task(self._accept(), name="accepting")

    async def close(self) -> None:
        """Stop accepting; abort handshakes in progress."""
        tasks = [self._accepting, *self._beginning]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self) -> None:
        while True:
            for _ in range(_TOGETHER_MAX):
                try:
                    connection, address = await self._loop.sock_accept(self._listener)
                except ConnectionError:
                    continue  # the client disconnected before accept
                except OSError:
                    self._entrance.warn_files(now=self._loop.time())
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                self._accepted(connection, str(address[0]) if address else "")
            await asyncio.sleep(0)

    def _accepted(self, connection: socket.socket, peer: str) -> None:
        entry = self._entrance.enter(peer, file=connection.fileno(), now=self._loop.time())
        if entry is None:
            connection.close()
        elif entry.refusal is not None and self._secure is not None:
            entry.leave()
            connection.close()
        else:
            task = asyncio.create_task(self._begin(connection, entry), name="beginning")
            self._beginning.add(task)
            task.add_done_callback(lambda task: self._begun(task, connection, entry))

    async def _begin(self, connection: socket.socket, entry: ConnectionSlot) -> None:
        await self._loop.connect_accepted_socket(lambda: self._make(entry), connection, **self._tls)

    def _begun(self, task: asyncio.Task[None], connection: socket.socket, entry: ConnectionSlot) -> None:
        """Release the entry if the handshake failed; else the protocol releases it."""
        self._beginning.discard(task)
        if task.cancelled():
            connection.close()  # the task may not even have begun
            entry.leave()
        elif (error := task.exception()) is not None:
            entry.leave()
            if not isinstance(error, OSError):  # any client can trigger errors of TLS and of the network
                log.error("starting a connection failed", problem=type(error).__name__)


def _files_max() -> int:
    """Return the first descriptor number that is reserved: the system assigns the lowest free one."""
    if sys.platform == "win32":
        return sys.maxsize  # handles are not numbered like that
    import resource  # noqa: PLC0415  # Windows has none

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return soft - min(SPARE_FILES, soft // 4)
