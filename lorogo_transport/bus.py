"""The bus on real NATS: subscriptions and requests that outlive any one TCP connection.

A `Wire` is one connection from handshake to loss (`jetstream` makes them). The bus replaces a lost
wire for ever, with jittered waits, subscribes again, and tells at once everybody who waits for an
answer. Nothing is kept to be sent later: without a wire every call says Disconnected.
"""

import asyncio
import random
import secrets
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from lorogo_transport.addresses import place, why
from lorogo_transport.errors import (
    Disconnected,
    NoResponders,
    RequestTimeout,
    TooLarge,
    Unreachable,
)
from lorogo_transport.headers import STATUS, encode_headers
from lorogo_transport.logs import get_logger
from lorogo_transport.ports import Headers, Message, Subscription
from lorogo_transport.subjects import check_subject

log = get_logger(__name__)

Handler = Callable[[Message], None]

_RECONNECT_SECONDS_MAX = 2.0
_CLOSE_SECONDS = 1.0
_COPY_BYTES_MAX = 16 * 1024  # larger payloads go to the socket as they are


@dataclass(frozen=True, slots=True)
class Options:
    """How to reach NATS."""

    servers: tuple[str, ...]
    name: str
    timeout: float
    credentials: str | Path | None = None  # a .creds file
    tls: ssl.SSLContext | None = None
    inbox_prefix: str = "_INBOX"
    rng: random.Random = field(default_factory=random.Random)  # spreads the reconnects


class Wire(Protocol):
    """One connection, from handshake to loss."""

    last_problem: Exception | None

    @property
    def max_payload(self) -> int: ...

    @property
    def broker_id(self) -> str: ...

    @property
    def congested(self) -> bool:
        """Whether the socket is behind: publishers should `drain()` first."""

    @property
    def dead(self) -> bool: ...

    async def dial(self, server: str, options: Options) -> None:
        """Connect and authenticate, or raise Unreachable."""

    def discovered(self, server: str) -> list[str]:
        """Other servers of the cluster."""

    def send(self, *parts: bytes) -> None:
        """Queue for the socket, in order."""

    async def drain(self) -> None:
        """Wait until the socket takes more. Raises OSError when the wire is lost."""

    def ping(self) -> "asyncio.Future[bool]":
        """A future: True when everything sent before was processed, False when the wire is lost first."""

    def abort(self) -> None:
        """End at once. Safe twice."""

    async def ended(self) -> None:
        """Wait for the wire's tasks after `abort()`."""


class Forgets(Protocol):
    """Where a subscription ends."""

    def forget(self, sid: int) -> None: ...


class Listener:
    """One subscription: survives wires."""

    __slots__ = ("_bus", "handler", "queue", "sid", "subject")

    def __init__(self, bus: Forgets, sid: int, subject: str, queue: str, handler: Handler) -> None:
        self._bus = bus
        self.sid = sid
        self.subject = subject
        self.queue = queue
        self.handler = handler

    def command(self) -> bytes:
        return f"SUB {self.subject} {self.queue} {self.sid}\r\n".encode()

    async def close(self) -> None:
        self._bus.forget(self.sid)


class NewWire(Protocol):
    """Makes a wire that hands messages to `listeners` and reports its loss."""

    def __call__(
        self, listeners: Mapping[int, Listener], on_lost: Callable[[Wire, Exception], None]
    ) -> Wire: ...


_MAX_PAYLOAD_USUAL = 1024 * 1024  # of a nats-server that was not told otherwise, until ours has said


class JetStreamBus:
    """A `ports.Bus`: subscriptions and requests that outlive any one connection."""

    def __init__(self, options: Options, new_wire: NewWire) -> None:
        self._options = options
        self._new_wire = new_wire
        self._servers = list(options.servers)
        self._prefix = f"{options.inbox_prefix}.{secrets.token_hex(11)}"
        self._wire: Wire | None = None
        self._listeners: dict[int, Listener] = {}
        self._watchers: dict[int, Callable[[bool], None]] = {}
        self._requests: dict[str, asyncio.Future[Message]] = {}
        self._counter = 0
        self._max_payload = 0
        self._broker_id = ""
        self._lost = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        self._closed = False
        # requests share one wildcard subscription; its listener has the first sid
        self._listen(f"{self._prefix}.r.*", "", self._on_reply)

    @property
    def max_payload(self) -> int:
        return self._max_payload or _MAX_PAYLOAD_USUAL

    @property
    def broker_id(self) -> str:
        return self._broker_id

    @property
    def connected(self) -> bool:
        return self._wire is not None

    def new_inbox(self) -> str:
        return f"{self._prefix}.{self._next()}"

    async def open(self) -> None:
        """Make the first connection, or raise Unreachable."""
        await self._first_round()
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise(), name="nats-supervisor")

    async def open_anyway(self, wait_seconds: float) -> None:
        """Try the first connection, not longer than this; whatever comes of it, go on trying for ever."""
        try:
            async with asyncio.timeout(wait_seconds):
                await self._first_round()
        except (TimeoutError, Unreachable) as error:
            reason = str(error) or f"no answer in {wait_seconds:g} s"
            log.warning("no connection to NATS yet, trying on", name=self._options.name, reason=reason)
            self._lost.set()
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise(), name="nats-supervisor")

    async def _first_round(self) -> None:
        """One attempt at each server, until one answers. Raises Unreachable."""
        failure: Unreachable | None = None
        for server in self._options.rng.sample(self._servers, len(self._servers)):
            try:
                await self._dial(server)
            except Unreachable as error:
                failure = error
            else:
                return
        assert failure is not None
        raise failure

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
        """End a subscription (see `Listener.close`)."""
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
        if len(data) <= _COPY_BYTES_MAX:
            return (line + data + b"\r\n",)
        return (line, data, b"\r\n")

    def _connected_wire(self) -> Wire:
        if self._wire is None:
            raise Disconnected("there is no connection to NATS right now")
        return self._wire

    async def _uncongested(self, wire: Wire) -> Wire:
        try:
            await wire.drain()  # ends when the socket takes more, or when the pinger gives the wire up
        except OSError as error:
            raise Disconnected("the connection was lost") from error
        return self._connected_wire()

    def _listen(self, subject: str, queue: str, handler: Handler) -> Listener:
        listener = Listener(self, self._next(), subject, queue, handler)
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
        wire = self._new_wire(self._listeners, self._on_lost)
        try:
            async with asyncio.timeout(self._options.timeout):
                await wire.dial(server, self._options)
                subscribed = dict(self._listeners)
                for listener in subscribed.values():
                    wire.send(listener.command())
                if not await wire.ping() or wire.dead:
                    raise Unreachable(f"{place(server)} closed the connection")
        except TimeoutError as error:
            problem = wire.last_problem or error
            raise Unreachable(why(server, problem, self._options.timeout)) from error
        else:
            # no await from here on: what was subscribed or closed while we waited is brought in line
            for sid in self._listeners.keys() - subscribed.keys():
                wire.send(self._listeners[sid].command())
            for sid in subscribed.keys() - self._listeners.keys():
                wire.send(b"UNSUB %d\r\n" % sid)
            self._max_payload = wire.max_payload
            self._broker_id = wire.broker_id
            self._wire = wire
            self._servers += [found for found in wire.discovered(server) if found not in self._servers]
        finally:
            if self._wire is not wire:
                wire.abort()
                await wire.ended()

    def _on_lost(self, wire: Wire, error: Exception) -> None:
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


def _expire(answer: "asyncio.Future[Message]", subject: str) -> None:
    if not answer.done():
        answer.set_exception(RequestTimeout(f"no answer on {subject!r} in time"))
