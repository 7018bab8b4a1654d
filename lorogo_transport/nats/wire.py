"""One connection to NATS, from handshake to loss. The only module that imports nats.

It uses nats-py for the complex and rare parts: URLs, handshake, authentication, TLS, control lines.
The code for every message and for failures is lorogo's own, because in nats-py 2.16
(docs/decisions/0006):

- its `flush()` writes PING past SUB and PUB that wait in its buffer: no barrier;
- a `flush()` that is cancelled or times out leaves a cancelled future behind, and the next PONG
  kills the reader for good;
- publishing swallows cancellation while its buffer is full, and what is buffered when the connection
  drops is sent after the reconnect, long after the caller got "outcome unknown";
- a connection that is refused during a cancellation swallows it (so does asyncio's
  `wait_for` in Python 3.11): a `close()` would hang;
- any `-ERR` from the server closes the client permanently;
- it keeps a task and a queue per subscription (10,000 documents have several each) and drops
  messages when that queue is full. Here handlers run straight from the reader: nothing is queued,
  nothing is dropped, and a slow process is slowed down by TCP.

So a `NatsConnection` never reconnects, and `bus.JetStreamBus` creates the next one.
The names that it overrides are nats-py's own: run the contract suite before using a new minor version of
it.
"""

import asyncio
import random
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client
from nats.aio.transport import TcpTransport

from lorogo_transport.errors import NotAuthorized, Unreachable
from lorogo_transport.headers import parse_headers
from lorogo_transport.nats.addresses import connect_problem, refuses_credentials
from lorogo_transport.nats.inbound import ProtocolParser
from lorogo_transport.nats.login import NatsCredentials
from lorogo_transport.ports import NO_HEADERS, Handler, Message, PermissionViolation
from lorogo_transport.rpc.reply_rule import ReplyRule
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

RECONNECT_SECONDS_MAX: Final = 2.0
_READ_BYTES = 256 * 1024
_OUTBOX_BYTES_MAX = 1024 * 1024  # publishers wait for the socket above this
_REFUSED = re.compile(
    rb"""-ERR\s+'permissions violation for (publish|subscription) to "([^"]+)\"""", re.IGNORECASE
)
_PING_SECONDS = 2.0
_PONG_SECONDS = 4.0  # without a PONG for this long, the connection is dead


@dataclass(frozen=True, slots=True)
class NatsOptions:
    """The options of a connection to NATS."""

    servers: tuple[str, ...] = field(repr=False)  # may contain passwords
    name: str
    timeout: float
    login: NatsCredentials = field(default_factory=NatsCredentials)
    tls: ssl.SSLContext | None = None
    inbox_prefix: str = "_INBOX"  # with a token, the user's prefix replaces it
    taken_prefix: str = ""  # of subjects for window confirmations; empty: inboxes
    answering: ReplyRule = field(default_factory=ReplyRule)
    rng: random.Random = field(default_factory=random.Random)  # spreads the reconnects
    reconnect_seconds_max: float = RECONNECT_SECONDS_MAX  # the maximum pause between two attempts


class SubscriptionOwner(Protocol):
    """The bus, to which a closed subscription is reported."""

    def forget(self, sid: int) -> None: ...


class NatsSubscription:
    """One subscription; it survives reconnects."""

    __slots__ = ("_bus", "handler", "queue", "sid", "subject")

    def __init__(self, bus: SubscriptionOwner, sid: int, subject: str, queue: str, handler: Handler) -> None:
        self._bus = bus
        self.sid = sid
        self.subject = subject
        self.queue = queue
        self.handler = handler

    def command(self) -> bytes:
        return f"SUB {self.subject} {self.queue} {self.sid}\r\n".encode()

    async def close(self) -> None:
        self._bus.forget(self.sid)


class NatsConnection(Client):
    """One TCP connection from handshake to loss; overrides the hot and fragile parts of nats-py's Client."""

    def __init__(
        self,
        listeners: Mapping[int, NatsSubscription],
        on_lost: Callable[["NatsConnection", Exception], None],
        on_refused: Callable[[PermissionViolation], None],
    ) -> None:
        super().__init__()
        self._listeners = listeners
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._answering = ReplyRule()
        self._inbound = ProtocolParser(self._on_message)
        self._loop = asyncio.get_running_loop()
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._socket_bytes = 0  # in the socket's buffer at the last check
        self._tls_wanted = False
        self.dead = False
        self.last_problem: Exception | None = None

    async def dial(self, server: str, options: NatsOptions, token: str | None) -> None:
        self._answering = options.answering
        self._tls_wanted = urlsplit(server).scheme == "tls" or options.tls is not None
        try:
            await self.connect(
                [server],
                name=options.name,
                error_cb=self._on_problem,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=options.timeout,  # type: ignore[arg-type]  # annotated int, used as float
                tls=options.tls,
                **_identity(options.login, token),
            )
        except ImportError as error:
            raise NotAuthorized(
                f"nkeys need the extra `tokens`: pip install 'lorogo[tokens]' ({error})"
            ) from None
        except (OSError, nats.errors.Error, ValueError) as error:
            _raise_cancellation()
            problem = self.last_problem or error
            kind = NotAuthorized if refuses_credentials(problem) else Unreachable
            raise kind(connect_problem(server, problem, options.timeout)) from error
        except Exception:
            if options.login.seed is None:
                raise
            # nkeys has its own errors, and nats-py imports it on demand
            raise NotAuthorized("the nkey seed is invalid: it is a line that starts with SU") from None
        _raise_cancellation()

    @property
    def broker_id(self) -> str:
        return str(self._server_info.get("server_id", ""))

    def discovered(self, server: str) -> list[str]:
        """Return the other servers of the cluster, with the scheme and login of `server`."""
        known = urlsplit(server)
        login, at, _ = known.netloc.rpartition("@")
        return [f"{known.scheme}://{login}{at}{found.netloc}" for found in self.discovered_servers]

    @property
    def congested(self) -> bool:
        return self._outbox_bytes + self._socket_bytes > _OUTBOX_BYTES_MAX

    def send(self, *parts: bytes) -> None:
        """Queue bytes for the socket; everything queued within one turn of the loop is one write."""
        if not self._outbox:
            self._loop.call_soon(self._write_outbox)
        self._outbox.extend(parts)
        for part in parts:
            self._outbox_bytes += len(part)

    async def drain(self) -> None:
        self._write_outbox()
        self._check_alive()
        writer = self._writer()
        if writer is not None:
            await writer.drain()
            self._check_alive()
            self._socket_bytes = writer.transport.get_write_buffer_size()

    def ping(self) -> "asyncio.Future[bool]":
        """Return a future: True when NATS has processed everything sent before, False after a loss."""
        pong: asyncio.Future[bool] = self._loop.create_future()
        if self.dead:
            pong.set_result(False)
            return pong
        self._pongs.append(pong)
        self.send(b"PING\r\n")
        return pong

    def abort(self) -> None:
        """End the connection at once, without flushing. Idempotent."""
        if self.dead:
            return
        self.dead = True
        self._outbox.clear()
        for task in (self._reading_task, self._ping_interval_task, self._flusher_task):
            if task is not None:
                task.cancel()
        for pong in self._pongs:
            if not pong.done():
                pong.set_result(False)
        writer = self._writer()
        if writer is not None:
            writer.transport.abort()  # close() would wait for a dead peer to read the buffer

    async def ended(self) -> None:
        """Wait for the connection's tasks after `abort()`."""
        tasks = (self._reading_task, self._ping_interval_task, self._flusher_task)
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)

    def _write_outbox(self) -> None:
        outbox, self._outbox, self._outbox_bytes = self._outbox, [], 0
        writer = self._writer()
        if outbox and not self.dead and writer is not None:
            try:
                writer.writelines(outbox)
                self._socket_bytes = writer.transport.get_write_buffer_size()
            # uvloop raises it for a reset socket, possibly before the read loop notices
            except RuntimeError as error:
                self._on_lost(self, ConnectionError(f"the connection was lost: {error}"))

    def _check_alive(self) -> None:
        if self.dead:
            raise ConnectionError("the connection was lost")

    def _writer(self) -> asyncio.StreamWriter | None:
        transport = self._transport
        if not isinstance(transport, TcpTransport):
            return None
        return transport._io_writer  # noqa: SLF001  # nats-py has no public access to the socket's buffer

    def _connect_command(self) -> bytes:
        if self._tls_wanted and not self._server_info.get("tls_required"):
            raise nats.errors.SecureConnWantedError  # before the password is sent
        command: bytes = super()._connect_command()
        return command

    def _on_message(self, sid: int, subject: str, reply: str, headers: bytes, data: bytes) -> None:
        listener = self._listeners.get(sid)
        if listener is None:
            return
        try:
            listener.handler(
                Message(
                    subject,
                    data,
                    parse_headers(headers) if headers else NO_HEADERS,
                    self._answering.to(reply) if reply else "",
                )
            )
        except Exception:
            log.exception("message handler failed", subject=listener.subject)

    async def _on_problem(self, error: Exception) -> None:
        self.last_problem = error  # nats-py would print it; only a failed first connection matters

    # The following methods override those of nats-py's Client; the names are its own.

    async def _read_loop(self) -> None:
        assert self._transport is not None
        try:
            while data := await self._transport.read(_READ_BYTES):
                for line in self._inbound.feed(data):
                    await self._ps.parse(line)
            self._on_lost(self, ConnectionError("NATS closed the connection"))
        except Exception as error:  # noqa: BLE001  # a socket or protocol error ends the connection
            self._on_lost(self, error)

    async def _process_ping(self) -> None:
        self.send(b"PONG\r\n")

    async def _process_pong(self) -> None:
        if self._pongs:
            pong = self._pongs.pop(0)
            if not pong.done():
                pong.set_result(True)

    async def _process_err(self, err_msg: str) -> None:
        if "permissions violation" in err_msg:  # the connection stays
            # nats-py passes the error in lower case; its parser still has the original
            violation = _REFUSED.match(self._ps.buf) or _REFUSED.match(f"-ERR {err_msg}\r\n".encode())
            if violation is None:
                log.warning("NATS permission violation", reason=err_msg)
            else:
                self._on_refused(
                    PermissionViolation(violation[2].decode(), publish=violation[1].lower() == b"publish")
                )
            return
        self._on_lost(self, nats.errors.Error(f"NATS error: {err_msg}"))

    async def _process_op_err(self, e: Exception) -> None:
        self._on_lost(self, e)

    async def _ping_interval(self) -> None:
        while True:
            await asyncio.sleep(_PING_SECONDS)
            pong = self.ping()
            await asyncio.wait({pong}, timeout=_PONG_SECONDS)
            if not pong.done():
                self._on_lost(self, TimeoutError(f"no answer from NATS for {_PONG_SECONDS:g} s"))
                return

    async def _flusher(self) -> None:
        """Do nothing: `send` writes."""


def _identity(login: NatsCredentials, token: str | None) -> dict[str, Any]:
    """Return the credentials as nats-py's arguments."""
    if token is None:
        return {"nkeys_seed_str": login.seed}
    if login.documents:
        return {"user": ",".join(login.documents), "password": token}
    return {"token": token}


def _raise_cancellation() -> None:
    """Raise CancelledError if the task is being cancelled and a callee swallowed the exception."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
