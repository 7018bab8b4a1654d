"""The bus on real NATS: subscriptions and requests that outlive any one TCP connection.

A `NatsConnection` is one connection from handshake to loss (`connection` makes them). The bus replaces a lost
wire for ever, with jittered waits, subscribes again, and tells at once everybody who waits for an
answer. Nothing is kept to be sent later: without a wire every call says Disconnected.

Inboxes belong to the user that our token is (docs/decisions/0016). When a reconnect is made with the
token of another user, our subscriptions move to its inboxes before they are made again. So whoever
keeps an inbox keeps the subscription and asks it for its subject, each time.
"""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress

from lorogo_transport.errors import (
    Disconnected,
    NoResponders,
    NotAuthorized,
    PermissionDenied,
    RequestTimeout,
    TooLarge,
    Unreachable,
)
from lorogo_transport.headers import STATUS, encode_headers
from lorogo_transport.nats.addresses import place, why
from lorogo_transport.nats.login import inbox_prefix
from lorogo_transport.nats.wire import Handler, NatsConnection, NatsConnector, NatsOptions, NatsSubscription
from lorogo_transport.ports import Headers, Message, PermissionViolation, SubjectSubscription
from lorogo_transport.rpc.subject_patterns import check_subject
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_REFUSED_SECONDS_MAX = 10.0  # a token that is not taken now is hardly taken in a second
_REFUSALS_SAID_MAX = 1000
_CLOSE_SECONDS = 1.0
_COPY_BYTES_MAX = 16 * 1024  # larger payloads go to the socket as they are


_MAX_PAYLOAD_USUAL = 1024 * 1024  # of a nats-server that was not told otherwise, until ours has said


class JetStreamBus:
    """A `ports.Bus`: subscriptions and requests that outlive any one connection."""

    def __init__(self, options: NatsOptions, new_wire: NatsConnector) -> None:
        self._options = options
        self._new_wire = new_wire
        self._servers = list(options.servers)
        self._inbox_prefix = options.inbox_prefix
        self._own = secrets.token_hex(11)  # the second word of all our inboxes
        self._taken = f"{options.taken_prefix}.{secrets.token_hex(11)}" if options.taken_prefix else ""
        self._problem: Exception | None = None
        self._warned = False  # that there is no connection
        self._wire: NatsConnection | None = None
        self._listeners: dict[int, NatsSubscription] = {}
        self._watchers: dict[int, Callable[[bool], None]] = {}
        self._refusal_watchers: dict[int, Callable[[PermissionViolation], None]] = {}
        self._refusals_said: set[PermissionViolation] = set()
        self._requests: dict[str, _Request] = {}
        self._windows: dict[str, _Request] = {}  # apart: anybody may answer these
        self._counter = 0
        self._max_payload = 0
        self._broker_id = ""
        self._lost = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        self._closed = False
        # requests share one wildcard subscription; its listener has the first sid
        self._listen(f"{self._prefix}.r.*", "", self._on_reply)
        if self._taken:
            self._listen(f"{self._taken}.*", "", self._on_taken)

    @property
    def max_payload(self) -> int:
        return self._max_payload or _MAX_PAYLOAD_USUAL

    @property
    def broker_id(self) -> str:
        return self._broker_id

    @property
    def connected(self) -> bool:
        return self._wire is not None

    @property
    def problem(self) -> Exception | None:
        return self._problem

    @property
    def by_token(self) -> bool:
        """Whether a token says who we are: then no more is allowed than documents."""
        return self._options.login.token is not None

    @property
    def unanswerable(self) -> int:
        return self._options.answering.refused

    @property
    def users_only(self) -> bool:
        return self._options.answering.users_only

    @property
    def guarded(self) -> bool:
        login = self._options.login
        return login.token is not None or login.seed is not None

    def new_inbox(self) -> str:
        return f"{self._prefix}.{self._next()}"

    @property
    def _prefix(self) -> str:
        return f"{self._inbox_prefix}.{self._own}"

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
            self._problem = error
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
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Headers | None = None,
        timeout: float,
        window: bool = False,
    ) -> Message:
        wire = self._connected_wire()
        if wire.congested:
            wire = await self._uncongested(wire)
        if window and self._taken:
            # everybody may publish there, so the receiver alone can know the word
            waiting, word = self._windows, secrets.token_hex(11)
            reply = f"{self._taken}.{word}"
        else:
            waiting, word = self._requests, str(self._next())
            reply = f"{self._prefix}.r.{word}"
        command = self._publication(subject, data, headers, reply)
        loop = asyncio.get_running_loop()
        request = _Request(subject, loop.create_future())
        waiting[word] = request
        deadline = loop.call_later(timeout, request.fail, RequestTimeout(f"no answer on {subject!r} in time"))
        try:
            wire.send(*command)
            message = await request.answer
        finally:
            deadline.cancel()
            waiting.pop(word, None)
        if message.headers.get(STATUS) == "503":
            raise NoResponders(f"nobody listens on {subject!r}")
        return message

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> SubjectSubscription:
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

    def watch_refusals(self, listener: Callable[[PermissionViolation], None]) -> Callable[[], None]:
        key = self._next()
        self._refusal_watchers[key] = listener

        def stop() -> None:
            self._refusal_watchers.pop(key, None)

        return stop

    def renew(self) -> None:
        """Give the connection up and make another: the token that we would say now is not the one we said."""
        if self._wire is not None and not self._closed:
            self._on_lost(self._wire, Disconnected("the connection is made anew, with another token"))

    def forget(self, sid: int) -> None:
        """End a subscription (see `NatsSubscription.close`)."""
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

    def _connected_wire(self) -> NatsConnection:
        if self._wire is None:
            raise Disconnected("there is no connection to NATS right now")
        return self._wire

    async def _uncongested(self, wire: NatsConnection) -> NatsConnection:
        try:
            await wire.drain()  # ends when the socket takes more, or when the pinger gives the wire up
        except OSError as error:
            raise Disconnected("the connection was lost") from error
        return self._connected_wire()

    def _listen(self, subject: str, queue: str, handler: Handler) -> NatsSubscription:
        listener = NatsSubscription(self, self._next(), self._moved(subject), queue, handler)
        self._listeners[listener.sid] = listener
        return listener

    def _next(self) -> int:
        self._counter += 1
        return self._counter

    def _moved(self, subject: str) -> str:
        """The subject; of an inbox of ours, where it is now."""
        rest = subject.partition(".")[2]
        return f"{self._inbox_prefix}.{rest}" if rest.startswith(f"{self._own}.") else subject

    def _move_inboxes(self, token: str | None) -> None:
        """Our inboxes go where the user of this token may listen. There must be no wire."""
        prefix = self._options.inbox_prefix if token is None else inbox_prefix(token)
        if prefix != self._inbox_prefix:
            self._inbox_prefix = prefix
            for listener in self._listeners.values():
                listener.subject = self._moved(listener.subject)

    def _on_reply(self, message: Message) -> None:
        request = self._requests.get(message.subject.rpartition(".")[2])
        if request is not None:
            request.succeed(message)

    def _on_taken(self, message: Message) -> None:
        request = self._windows.get(message.subject.rpartition(".")[2])
        if request is not None:
            request.succeed(message)

    def _on_refused(self, refusal: PermissionViolation) -> None:
        """NATS does not allow it: nobody waits for what cannot come."""
        if refusal not in self._refusals_said and len(self._refusals_said) < _REFUSALS_SAID_MAX:
            self._refusals_said.add(refusal)
            what = "publish" if refusal.publish else "subscribe"
            log.warning("NATS does not allow it", name=self._options.name, what=what, subject=refusal.subject)
        if refusal.publish:
            for request in (*self._requests.values(), *self._windows.values()):
                if request.subject == refusal.subject:
                    request.fail(PermissionDenied(refusal.subject))
        for watcher in list(self._refusal_watchers.values()):
            try:
                watcher(refusal)
            except Exception:
                log.exception("a watcher of refusals failed")

    async def _dial(self, server: str) -> None:
        """One attempt at one server: connected, subscribed and answered, or Unreachable."""
        wire = self._new_wire(self._listeners, self._on_lost, self._on_refused)
        try:
            token = await self._options.login.ask(self._options.timeout)
            async with asyncio.timeout(self._options.timeout):
                self._move_inboxes(token)
                await wire.dial(server, self._options, token)
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
            self._problem = None
            self._refusals_said.clear()
            self._servers += [found for found in wire.discovered(server) if found not in self._servers]
        finally:
            if self._wire is not wire:
                wire.abort()
                await wire.ended()

    def _on_lost(self, wire: NatsConnection, error: Exception) -> None:
        """The wire is dead: say so to everybody who waits. No await, so nobody sees half of it."""
        wire.abort()
        if wire is not self._wire:
            return
        self._wire = None
        self._problem = error
        if not self._closed:
            self._warned = not isinstance(error, Disconnected)  # else we wanted it
            tell = log.warning if self._warned else log.info
            tell("connection to NATS lost", name=self._options.name, reason=str(error) or repr(error))
        for request in (*self._requests.values(), *self._windows.values()):
            request.fail(RequestTimeout("the connection was lost before an answer came"))
        self._requests.clear()
        self._windows.clear()
        self._tell(False)
        self._lost.set()

    async def _supervise(self) -> None:
        """Make the next wire whenever one is lost, for ever."""
        attempt = 0
        while True:
            await self._lost.wait()
            longest = (
                _REFUSED_SECONDS_MAX
                if isinstance(self._problem, NotAuthorized)
                else self._options.reconnect_seconds_max
            )
            bound = min(longest, 0.05 * 2 ** min(attempt, 10))
            await asyncio.sleep(self._options.rng.uniform(0, bound))
            server = self._servers[attempt % len(self._servers)]
            self._lost.clear()
            try:
                await self._dial(server)
            except Unreachable as error:
                refused = isinstance(error, NotAuthorized)
                news = refused != isinstance(self._problem, NotAuthorized)
                self._warned = self._warned or refused
                tell = log.warning if refused and news else log.debug
                tell("no connection to NATS yet", name=self._options.name, reason=str(error))
                self._problem = error
                if news:
                    self._tell(False)  # still no connection, for a reason that an app must know
                attempt += 1
                self._lost.set()
            except Exception:
                log.exception("reconnecting to NATS failed", name=self._options.name)
                attempt += 1
                self._lost.set()
            else:
                tell = log.warning if self._warned else log.info  # as loud as the loss was
                tell("connected to NATS again", name=self._options.name, server=place(server))
                self._warned = False
                attempt = 0
                self._tell(True)

    def _tell(self, connected: bool) -> None:
        for watcher in list(self._watchers.values()):
            try:
                watcher(connected)
            except Exception:
                log.exception("a connection watcher failed")


class _Request:
    """A request that waits for its answer."""

    __slots__ = ("answer", "subject")

    def __init__(self, subject: str, answer: "asyncio.Future[Message]") -> None:
        self.subject = subject
        self.answer = answer

    def succeed(self, message: Message) -> None:
        if not self.answer.done():
            self.answer.set_result(message)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
