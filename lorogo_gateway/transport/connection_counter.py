"""Connections are counted from when the system hands them over until they end, TLS handshake and all.

A connection that is one too many before its handshake is closed without a word: nothing was agreed that could
be said. Some files are kept back for NATS, keys and certificates, so that strangers cannot take the last one.
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

_TOGETHER_MAX = 32  # connections that are taken in one turn of the loop: those who are here wait for it
SPARE_FILES = 50  # that no connection gets
_PAUSE_SECONDS = 1.0  # after the system had nothing left
_WARN_SECONDS = 60.0  # at least, between two lines about that

log = get_logger(__name__)


class ConnectionSlot:
    """A connection that counts, until `leave`."""

    __slots__ = ("_entrance", "_peer", "refusal")

    def __init__(self, entrance: "ConnectionCounter", peer: str, refusal: LimitExceeded | None) -> None:
        self._entrance: ConnectionCounter | None = entrance
        self._peer = peer
        self.refusal = refusal  # it may not stay, but can be told so

    def leave(self) -> None:
        """It is over. Safe twice."""
        entrance, self._entrance = self._entrance, None
        if entrance is not None:
            entrance.left(self._peer, counted=self.refusal is None)


class ConnectionCounter:
    """Who may come in: so many in all, so many of an address, and never the last files."""

    def __init__(self, settings: GatewaySettings, limits: Limiter) -> None:
        self._most = settings.connections_max
        self._limits = limits
        self._warned_at = -_WARN_SECONDS
        self.open = 0

    def enter(self, peer: str, *, file: int, now: float) -> ConnectionSlot | None:
        """Its entry, to be given back with `leave`; None: it is cut off, and that was counted."""
        if self.open >= self._most or file >= _files_max():
            self._limits.refusals.count(LimitReason.CONNECTIONS)
            if self.open < self._most:
                self.warn_files(now=now)
            return None
        self.open += 1
        return ConnectionSlot(self, peer, self._limits.connect(peer, now=now))

    def left(self, peer: str, *, counted: bool) -> None:
        """One less."""
        self.open -= 1
        if counted:
            self._limits.disconnect(peer)

    def warn_files(self, *, now: float) -> None:
        """Say in the log that files run out, but not as often as somebody likes."""
        if now - self._warned_at >= _WARN_SECONDS:
            self._warned_at = now
            log.warning("no more connections: too few files are left; raise `ulimit -n`", here=self.open)


class Acceptor:
    """Takes the connections of a listening socket, and lets in whom the entrance lets in."""

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
        self._beginning: set[asyncio.Task[None]] = set()  # their handshakes are not over
        self._accepting = asyncio.create_task(self._accept(), name="accepting")

    async def close(self) -> None:
        """Take no more; who is in a handshake is cut off."""
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
                    continue  # it went before it came
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
        """From here on the protocol gives the entry back; if there is none, we do."""
        self._beginning.discard(task)
        if task.cancelled():
            connection.close()  # the task may not even have begun
            entry.leave()
        elif (error := task.exception()) is not None:
            entry.leave()
            if not isinstance(error, OSError):  # of TLS and of the network: anybody can make them
                log.error("a connection could not begin", problem=type(error).__name__)


def _files_max() -> int:
    """The number of the first file that no connection may have: the system gives out the lowest one."""
    if sys.platform == "win32":
        return sys.maxsize  # numbers say nothing there
    import resource  # noqa: PLC0415  # Windows has none

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return soft - min(SPARE_FILES, soft // 4)
