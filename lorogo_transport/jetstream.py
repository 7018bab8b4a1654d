"""A `Transport` on real NATS: `await connect("nats://127.0.0.1:4222", name="...")`.

The one file that imports nats. From nats-py we take what is hard and rarely runs: URLs, handshake,
authentication, TLS, the parser. What runs for every message, or must hold when things break, is
ours, because (all measured with nats-py 2.16):

- its `flush()` writes PING past SUB and PUB that wait in its buffer: no barrier;
- a `flush()` that is cancelled or times out leaves a cancelled future behind, and the next PONG
  kills the reader for good;
- publishing swallows cancellation while its buffer is full, and what is buffered when the connection
  drops is sent after the reconnect, long after we said "outcome unknown";
- any `-ERR` from the server closes the client for ever;
- it keeps a task and a queue per subscription (10,000 documents have several each) and drops
  messages when that queue is full. Here handlers run straight from the reader: nothing is queued,
  nothing is dropped, and a slow process is slowed down by TCP.

So a `_Wire` is one TCP connection that never reconnects, and `JetStreamBus` owns the subscriptions
and a supervisor that makes the next wire.
"""

import asyncio
import random
import secrets
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.transport import TcpTransport

from lorogo_transport import services, streams
from lorogo_transport.addresses import parse_servers, place, why
from lorogo_transport.errors import (
    Disconnected,
    NoResponders,
    RequestTimeout,
    TooLarge,
    Unreachable,
)
from lorogo_transport.headers import STATUS, encode_headers, parse_headers
from lorogo_transport.ports import (
    NO_HEADERS,
    Headers,
    Message,
    ServiceInfo,
    StreamSpec,
    Subscription,
)
from lorogo_transport.subjects import check_subject

log = structlog.get_logger(__name__)

Handler = Callable[[Message], None]

_READ_BYTES = 256 * 1024
_OUTBOX_BYTES_MAX = 1024 * 1024  # publishers wait for the socket above this
_PING_SECONDS = 2.0
_PONG_SECONDS = 4.0  # silence after a ping that means the connection is dead
_RECONNECT_SECONDS_MAX = 2.0
_CLOSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """How to reach NATS."""

    servers: tuple[str, ...]
    name: str
    timeout: float
    credentials: str | Path | None = None  # a .creds file
    tls: ssl.SSLContext | None = None
    inbox_prefix: str = "_INBOX"
    rng: random.Random = field(default_factory=random.Random)  # spreads reconnects


async def connect(
    url: str,
    *,
    name: str = "lorogo",
    timeout: float = 5.0,
    credentials: str | Path | None = None,
    tls: ssl.SSLContext | None = None,
    inbox_prefix: str = "_INBOX",
    rng: random.Random | None = None,
) -> "JetStreamTransport":
    """A connected transport; it reconnects for ever from then on.

    `url` is one address or several with commas between, each `nats://[user:password@]host[:port]`
    or `tls://...`. Raises Unreachable, with a sentence that says why, if none answers in time.
    """
    rng = rng if rng is not None else random.Random()
    options = Options(parse_servers(url), name, timeout, credentials, tls, inbox_prefix, rng)
    bus = JetStreamBus(options)
    await bus.open()
    return JetStreamTransport(bus)


class JetStreamTransport:
    """A `ports.Transport`: the bus, and JetStream streams over it."""

    def __init__(self, bus: "JetStreamBus") -> None:
        self._bus = bus

    @property
    def bus(self) -> "JetStreamBus":
        return self._bus

    def stream(self, name: str) -> streams.JetStreamStream:
        return streams.JetStreamStream(self._bus, name)

    async def ensure(self, spec: StreamSpec) -> list[str]:
        return await streams.ensure(self._bus, spec)

    async def announce(self, info: ServiceInfo, stats: Callable[[], Mapping[str, object]]) -> Subscription:
        return await services.announce(
            self._bus, info, stats, service_id=secrets.token_hex(11), started=datetime.now(UTC)
        )

    async def close(self) -> None:
        await self._bus.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class JetStreamBus:
    """A `ports.Bus`: subscriptions and requests that outlive any one connection."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._servers = list(options.servers)
        self._prefix = f"{options.inbox_prefix}.{secrets.token_hex(11)}"
        self._wire: _Wire | None = None
        self._listeners: dict[int, _Listener] = {}
        self._watchers: dict[int, Callable[[bool], None]] = {}
        self._requests: dict[str, asyncio.Future[Message]] = {}
        self._counter = 0
        self._max_payload = 0
        self._lost = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        self._closed = False
        # requests share one wildcard subscription; its listener has the first sid
        self._listen(f"{self._prefix}.r.*", "", self._on_reply)

    @property
    def max_payload(self) -> int:
        return self._max_payload

    @property
    def connected(self) -> bool:
        return self._wire is not None

    def new_inbox(self) -> str:
        return f"{self._prefix}.{self._next()}"

    async def open(self) -> None:
        """Make the first connection, or raise Unreachable."""
        failure: Unreachable | None = None
        for server in self._options.rng.sample(self._servers, len(self._servers)):
            try:
                await self._dial(server)
                break
            except Unreachable as error:
                failure = error
        else:
            assert failure is not None
            raise failure
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise(), name="nats-supervisor")

    async def close(self) -> None:
        """Send what is waiting, then end the connection. Safe twice."""
        if self._closed:
            return
        self._closed = True
        try:
            with suppress(RequestTimeout, Disconnected):
                await self.barrier(_CLOSE_SECONDS)
        finally:
            if self._supervisor is not None:
                self._supervisor.cancel()
                await asyncio.gather(self._supervisor, return_exceptions=True)
            wire = self._wire
            if wire is not None:
                self._on_lost(wire, Disconnected("the connection was closed"))
                await wire.ended()

    async def publish(
        self, subject: str, data: bytes = b"", *, headers: Headers | None = None, reply: str = ""
    ) -> None:
        command = self._publication(subject, data, headers, reply)
        wire = self._connected_wire()
        if wire.congested:
            wire = await self._uncongested(wire)
        wire.send(*command)

    async def request(
        self, subject: str, data: bytes = b"", *, headers: Headers | None = None, timeout: float
    ) -> Message:
        token = str(self._next())
        command = self._publication(subject, data, headers, f"{self._prefix}.r.{token}")
        wire = self._connected_wire()
        if wire.congested:
            wire = await self._uncongested(wire)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Message] = loop.create_future()
        self._requests[token] = answer
        deadline = loop.call_later(timeout, _expire, answer, subject)
        try:
            wire.send(*command)
            message = await answer
        finally:
            deadline.cancel()
            self._requests.pop(token, None)
        if message.headers.get(STATUS) == "503":
            raise NoResponders(f"nobody listens on {subject!r}")
        return message

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        check_subject(subject)
        if queue:
            check_subject(queue)
        listener = self._listen(subject, queue, handler)
        if self._wire is not None:
            self._wire.send(listener.command())
        return listener

    async def barrier(self, timeout: float = 5.0) -> None:
        wire = self._connected_wire()
        pong = wire.ping()
        await asyncio.wait({pong}, timeout=timeout)  # leaves the future alone: the PONG is still coming
        if not pong.done():
            raise RequestTimeout("NATS did not answer a ping in time")
        if not pong.result():
            raise Disconnected("the connection was lost")

    def watch_connection(self, listener: Callable[[bool], None]) -> Callable[[], None]:
        key = self._next()
        self._watchers[key] = listener

        def stop() -> None:
            self._watchers.pop(key, None)

        return stop

    def forget(self, sid: int) -> None:
        """End a subscription (see `_Listener.close`)."""
        if self._listeners.pop(sid, None) is not None and self._wire is not None:
            self._wire.send(b"UNSUB %d\r\n" % sid)

    def _publication(
        self, subject: str, data: bytes, headers: Headers | None, reply: str
    ) -> tuple[bytes, ...]:
        check_subject(subject)
        if reply:
            check_subject(reply)
        size = len(data)
        if headers:
            block = encode_headers(headers)
            size += len(block)
            line = f"HPUB {subject} {reply} {len(block)} {size}\r\n".encode() + block
        else:
            line = f"PUB {subject} {reply} {size}\r\n".encode()
        if size > self._max_payload > 0:
            raise TooLarge(f"{size} bytes for {subject!r}, but NATS takes {self._max_payload} at most")
        if len(data) < 16 * 1024:
            return (line + data + b"\r\n",)
        return (line, data, b"\r\n")  # big payloads are not copied

    def _connected_wire(self) -> "_Wire":
        if self._wire is None:
            raise Disconnected("there is no connection to NATS right now")
        return self._wire

    async def _uncongested(self, wire: "_Wire") -> "_Wire":
        try:
            await wire.drain()  # ends when the socket takes more, or when the pinger gives the wire up
        except OSError as error:
            raise Disconnected("the connection was lost") from error
        return self._connected_wire()

    def _listen(self, subject: str, queue: str, handler: Handler) -> "_Listener":
        listener = _Listener(self, self._next(), subject, queue, handler)
        self._listeners[listener.sid] = listener
        return listener

    def _next(self) -> int:
        self._counter += 1
        return self._counter

    def _on_reply(self, message: Message) -> None:
        answer = self._requests.get(message.subject.rpartition(".")[2])
        if answer is not None and not answer.done():
            answer.set_result(message)

    async def _dial(self, server: str) -> None:
        """One attempt at one server: connected, subscribed and answered, or Unreachable."""
        wire = _Wire(self._listeners, self._on_lost)
        try:
            async with asyncio.timeout(self._options.timeout):
                await wire.dial(server, self._options)
                for listener in self._listeners.values():
                    wire.send(listener.command())
                if not await wire.ping():
                    raise Unreachable(f"{place(server)} closed the connection")
        except TimeoutError:
            error = wire.last_problem or TimeoutError()
            raise Unreachable(why(server, error, self._options.timeout)) from error
        except (OSError, nats.errors.Error, ValueError) as error:
            problem = wire.last_problem or error
            raise Unreachable(why(server, problem, self._options.timeout)) from error
        else:
            self._max_payload = wire.max_payload
            self._wire = wire
            for address in wire.discovered(server):
                if address not in self._servers:
                    self._servers.append(address)
        finally:
            if self._wire is not wire:
                wire.abort()
                await wire.ended()

    def _on_lost(self, wire: "_Wire", error: Exception) -> None:
        """The wire is dead: say so to everybody who waits. No await, so nobody sees half of it."""
        wire.abort()
        if wire is not self._wire:
            return
        self._wire = None
        if not self._closed:
            log.warning("connection to NATS lost", name=self._options.name, reason=str(error) or repr(error))
        requests, self._requests = self._requests, {}
        for answer in requests.values():
            if not answer.done():
                answer.set_exception(RequestTimeout("the connection was lost before an answer came"))
        self._tell(False)
        self._lost.set()

    async def _supervise(self) -> None:
        """Make the next wire whenever one is lost, for ever."""
        attempt = 0
        while True:
            await self._lost.wait()
            bound = min(_RECONNECT_SECONDS_MAX, 0.05 * 2 ** min(attempt, 10))
            await asyncio.sleep(self._options.rng.uniform(0, bound))
            server = self._servers[attempt % len(self._servers)]
            self._lost.clear()
            try:
                await self._dial(server)
            except Unreachable as error:
                log.debug("no connection to NATS yet", name=self._options.name, reason=str(error))
                attempt += 1
                self._lost.set()
            except Exception:
                log.exception("reconnecting to NATS failed", name=self._options.name)
                attempt += 1
                self._lost.set()
            else:
                log.info("connected to NATS again", name=self._options.name, server=place(server))
                attempt = 0
                self._tell(True)

    def _tell(self, connected: bool) -> None:
        for watcher in list(self._watchers.values()):
            try:
                watcher(connected)
            except Exception:
                log.exception("a connection watcher failed")


class _Listener:
    """One subscription: survives wires."""

    __slots__ = ("_bus", "handler", "queue", "sid", "subject")

    def __init__(self, bus: JetStreamBus, sid: int, subject: str, queue: str, handler: Handler) -> None:
        self._bus = bus
        self.sid = sid
        self.subject = subject
        self.queue = queue
        self.handler = handler

    def command(self) -> bytes:
        return f"SUB {self.subject} {self.queue} {self.sid}\r\n".encode()

    async def close(self) -> None:
        self._bus.forget(self.sid)


class _Wire(Client):
    """One TCP connection from handshake to loss; nats-py's Client with its hot and fragile parts replaced."""

    def __init__(
        self, listeners: Mapping[int, _Listener], on_lost: Callable[["_Wire", Exception], None]
    ) -> None:
        super().__init__()
        self._listeners = listeners
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._socket_bytes = 0  # what the socket had not taken when we last looked
        self._dead = False
        self.last_problem: Exception | None = None

    async def dial(self, server: str, options: Options) -> None:
        """Connect and authenticate; raises what nats-py raises."""
        await self.connect(
            [server],
            name=options.name,
            error_cb=self._on_problem,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=options.timeout,  # type: ignore[arg-type]  # annotated int, used as float
            user_credentials=options.credentials,
            tls=options.tls,
        )

    def discovered(self, server: str) -> list[str]:
        """The other servers of the cluster, with the same scheme and login as `server`."""
        known = urlsplit(server)
        login, at, _ = known.netloc.rpartition("@")
        return [f"{known.scheme}://{login}{at}{found.netloc}" for found in self.discovered_servers]

    @property
    def congested(self) -> bool:
        return self._outbox_bytes + self._socket_bytes > _OUTBOX_BYTES_MAX

    def send(self, *parts: bytes) -> None:
        """Queue for the socket; everything queued within one turn of the loop is one write."""
        if not self._outbox:
            self._loop.call_soon(self._write_outbox)
        self._outbox.extend(parts)
        for part in parts:
            self._outbox_bytes += len(part)

    async def drain(self) -> None:
        self._write_outbox()
        writer = self._writer()
        if writer is not None:
            await writer.drain()
            self._socket_bytes = writer.transport.get_write_buffer_size()

    def ping(self) -> "asyncio.Future[bool]":
        """A future: True when everything sent before was processed, False when the wire is lost first."""
        pong: asyncio.Future[bool] = self._loop.create_future()
        if self._dead:
            pong.set_result(False)
            return pong
        self._pongs.append(pong)
        self.send(b"PING\r\n")
        return pong

    def abort(self) -> None:
        """End at once, without a word to the peer. Safe twice."""
        if self._dead:
            return
        self._dead = True
        self._outbox.clear()
        for task in (self._reading_task, self._ping_interval_task, self._flusher_task):
            if task is not None:
                task.cancel()
        for pong in self._pongs:
            if not pong.done():
                pong.set_result(False)
        writer = self._writer()
        if writer is not None:
            writer.transport.abort()  # close() would wait for a dead peer to take what is buffered

    async def ended(self) -> None:
        """Wait for the wire's tasks after `abort()`."""
        tasks = (self._reading_task, self._ping_interval_task, self._flusher_task)
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)

    def _write_outbox(self) -> None:
        outbox, self._outbox, self._outbox_bytes = self._outbox, [], 0
        writer = self._writer()
        if outbox and not self._dead and writer is not None:
            writer.writelines(outbox)
            self._socket_bytes = writer.transport.get_write_buffer_size()

    def _writer(self) -> asyncio.StreamWriter | None:
        transport = self._transport
        if not isinstance(transport, TcpTransport):
            return None
        return transport._io_writer  # noqa: SLF001  # nats-py has no other way to the socket's buffer

    async def _on_problem(self, error: Exception) -> None:
        self.last_problem = error  # nats-py would print it; only a failed first connection is news

    # What follows replaces methods of nats-py's Client; the names are its own.

    async def _read_loop(self) -> None:
        assert self._transport is not None
        try:
            while data := await self._transport.read(_READ_BYTES):
                await self._ps.parse(data)
            self._on_lost(self, ConnectionError("NATS closed the connection"))
        except Exception as error:  # noqa: BLE001  # a socket error, bytes that are not NATS: it is over
            self._on_lost(self, error)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        listener = self._listeners.get(sid)
        if listener is None:
            return
        try:
            listener.handler(
                Message(
                    subject.decode(),
                    data,
                    parse_headers(headers) if headers else NO_HEADERS,
                    reply.decode() if reply else "",
                )
            )
        except Exception:
            log.exception("a message handler failed", subject=listener.subject)

    async def _process_ping(self) -> None:
        self.send(b"PONG\r\n")

    async def _process_pong(self) -> None:
        if self._pongs:
            pong = self._pongs.pop(0)
            if not pong.done():
                pong.set_result(True)

    async def _process_err(self, err_msg: str) -> None:
        if "permissions violation" in err_msg:
            log.warning("NATS refuses", reason=err_msg)  # the connection stays
            return
        self._on_lost(self, nats.errors.Error(f"NATS says {err_msg}"))

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
        """Nothing to do: `send` writes."""


def _expire(answer: "asyncio.Future[Message]", subject: str) -> None:
    if not answer.done():
        answer.set_exception(RequestTimeout(f"no answer on {subject!r} in time"))
