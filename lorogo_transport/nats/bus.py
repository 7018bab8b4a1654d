"""The bus on real NATS: subscriptions and requests that survive reconnects.

A `NatsConnection` is one connection from handshake to loss (`wire`). The bus replaces a
lost one without limit, with jittered pauses, subscribes again, and fails all pending requests
at once. Nothing is buffered for later: without a connection every call raises Disconnected.

Inboxes belong to the user of the token (docs/decisions/0016). When a reconnect uses the
token of another user, the bus moves its inbox subscriptions to that user before it subscribes again. So
code that uses an inbox must read its current subject from the subscription.
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
from lorogo_transport.listeners import Listeners
from lorogo_transport.nats.addresses import connect_problem, display_address
from lorogo_transport.nats.login import inbox_prefix
from lorogo_transport.nats.wire import NatsConnection, NatsOptions, NatsSubscription
from lorogo_transport.ports import Handler, Headers, Message, PermissionViolation, SubjectSubscription
from lorogo_transport.rpc.subject_patterns import check_subject
from lorogo_transport.tasks import cancel
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_REFUSED_SECONDS_MAX = 10.0  # a refused token is unlikely to be accepted soon
_REFUSALS_LOGGED_MAX = 1000
_CLOSE_SECONDS = 1.0
_COPY_BYTES_MAX = 16 * 1024  # larger payloads are not copied


_MAX_PAYLOAD_USUAL = 1024 * 1024  # nats-server's default, until INFO arrives


class JetStreamBus:
    """A `ports.Bus`: subscriptions and requests that survive reconnects."""

    def __init__(
        self, options: NatsOptions, new_wire: Callable[..., NatsConnection] = NatsConnection
    ) -> None:
        self._options = options
        self._new_wire = new_wire
        self._servers = list(options.servers)
        self._inbox_prefix = options.inbox_prefix
        self._own = secrets.token_hex(11)  # the second token of all inboxes of this bus
        self._taken = f"{options.taken_prefix}.{secrets.token_hex(11)}" if options.taken_prefix else ""
        self._problem: Exception | None = None
        self._warned = False  # a warning about the lost connection was logged
        self._wire: NatsConnection | None = None
        self._listeners: dict[int, NatsSubscription] = {}
        self._watchers: Listeners[bool] = Listeners()
        self._refusal_watchers: Listeners[PermissionViolation] = Listeners()
        self._refusals_logged: set[PermissionViolation] = set()
        self._requests: dict[str, _Request] = {}  # by reply subject
        self._counter = 0
        self._max_payload = 0
        self._broker_id = ""
        self._lost = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        self._closed = False
        # requests share one wildcard subscription; it has the first sid
        self._listen(f"{self._prefix}.r.*", "", self._on_reply)
        if self._taken:
            self._listen(f"{self._taken}.*", "", self._on_reply)

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

    async def open(self, wait_seconds: float | None = None) -> None:
        """Open the first connection, or raise Unreachable; with a time, then continue in the background."""
        try:
            async with asyncio.timeout(wait_seconds):
                await self._first_round()
        except (TimeoutError, Unreachable) as error:
            if wait_seconds is None:
                raise
            reason = str(error) or f"no answer in {wait_seconds:g} s"
            log.warning("no connection to NATS yet, retrying", name=self._options.name, reason=reason)
            self._problem = error
            self._lost.set()
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise(), name="nats-supervisor")

    async def _first_round(self) -> None:
        """Try each server once, until one answers. Raises Unreachable."""
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
        """Flush, then close the connection. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            with suppress(RequestTimeout, Disconnected):
                await self.barrier(_CLOSE_SECONDS)
        finally:
            await cancel(self._supervisor)
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
            # every client may publish there, so a secret token identifies the receiver's confirmation
            reply = f"{self._taken}.{secrets.token_hex(11)}"
        else:
            reply = f"{self._prefix}.r.{self._next()}"
        command = self._publication(subject, data, headers, reply)
        loop = asyncio.get_running_loop()
        request = _Request(subject, loop.create_future())
        self._requests[reply] = request
        deadline = loop.call_later(timeout, request.fail, RequestTimeout(f"no answer on {subject!r} in time"))
        try:
            wire.send(*command)
            message = await request.answer
        finally:
            deadline.cancel()
            self._requests.pop(reply, None)
        if message.headers.get(STATUS) == "503":
            raise NoResponders(f"{subject!r} has no subscriber")
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
        await asyncio.wait({pong}, timeout=timeout)  # does not cancel the future: the PONG may still arrive
        if not pong.done():
            raise RequestTimeout("NATS did not answer a ping in time")
        if not pong.result():
            raise Disconnected("the connection was lost")

    def watch_connection(self, listener: Callable[[bool], None]) -> Callable[[], None]:
        return self._watchers.add(listener)

    def watch_refusals(self, listener: Callable[[PermissionViolation], None]) -> Callable[[], None]:
        return self._refusal_watchers.add(listener)

    def renew(self) -> None:
        """Reconnect, because the token has changed."""
        if self._wire is not None and not self._closed:
            self._on_lost(self._wire, Disconnected("reconnecting with another token"))

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
            raise TooLarge(f"{size} bytes for {subject!r}, but NATS accepts at most {self._max_payload}")
        if len(data) <= _COPY_BYTES_MAX:
            return (line + data + b"\r\n",)
        return (line, data, b"\r\n")

    def _connected_wire(self) -> NatsConnection:
        if self._wire is None:
            raise Disconnected("there is no connection to NATS right now")
        return self._wire

    async def _uncongested(self, wire: NatsConnection) -> NatsConnection:
        try:
            # returns when the buffer has space, or when the ping task aborts the connection
            await wire.drain()
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
        """Return the subject, with the current prefix if it is an inbox of this bus."""
        rest = subject.partition(".")[2]
        return f"{self._inbox_prefix}.{rest}" if rest.startswith(f"{self._own}.") else subject

    def _move_inboxes(self, token: str | None) -> None:
        """Move the inboxes to the prefix of the token's user. There must be no connection."""
        prefix = self._options.inbox_prefix if token is None else inbox_prefix(token)
        if prefix != self._inbox_prefix:
            self._inbox_prefix = prefix
            for listener in self._listeners.values():
                listener.subject = self._moved(listener.subject)

    def _on_reply(self, message: Message) -> None:
        request = self._requests.get(message.subject)
        if request is not None:
            request.succeed(message)

    def _on_refused(self, refusal: PermissionViolation) -> None:
        """Log a permission violation, and fail the requests that it affects."""
        if refusal not in self._refusals_logged and len(self._refusals_logged) < _REFUSALS_LOGGED_MAX:
            self._refusals_logged.add(refusal)
            what = "publish" if refusal.publish else "subscribe"
            log.warning(
                "NATS permission violation", name=self._options.name, what=what, subject=refusal.subject
            )
        if refusal.publish:
            for request in self._requests.values():
                if request.subject == refusal.subject:
                    request.fail(PermissionDenied(refusal.subject))
        self._refusal_watchers.notify(refusal)

    async def _dial(self, server: str) -> None:
        """Try one server once: connect, subscribe and ping, or raise Unreachable."""
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
                    raise Unreachable(f"{display_address(server)} closed the connection")
        except TimeoutError as error:
            problem = wire.last_problem or error
            raise Unreachable(connect_problem(server, problem, self._options.timeout)) from error
        else:
            # no await from here on: subscriptions changed during the handshake are brought up to date
            for sid in self._listeners.keys() - subscribed.keys():
                wire.send(self._listeners[sid].command())
            for sid in subscribed.keys() - self._listeners.keys():
                wire.send(b"UNSUB %d\r\n" % sid)
            self._max_payload = wire.max_payload
            self._broker_id = wire.broker_id
            self._wire = wire
            self._problem = None
            self._refusals_logged.clear()
            self._servers += [found for found in wire.discovered(server) if found not in self._servers]
        finally:
            if self._wire is not wire:
                wire.abort()
                await wire.ended()

    def _on_lost(self, wire: NatsConnection, error: Exception) -> None:
        """Fail all pending requests of a dead connection. No await, so that the change is atomic."""
        wire.abort()
        if wire is not self._wire:
            return
        self._wire = None
        self._problem = error
        if not self._closed:
            self._warned = not isinstance(error, Disconnected)  # Disconnected: the bus closed it on purpose
            emit = log.warning if self._warned else log.info
            emit("connection to NATS lost", name=self._options.name, reason=str(error) or repr(error))
        for request in self._requests.values():
            request.fail(RequestTimeout("the connection was lost before an answer came"))
        self._requests.clear()
        self._watchers.notify(False)
        self._lost.set()

    async def _supervise(self) -> None:
        """Reconnect whenever a connection is lost. Runs until cancelled."""
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
                emit = log.warning if refused and news else log.debug
                emit("no connection to NATS yet", name=self._options.name, reason=str(error))
                self._problem = error
                if news:
                    # still no connection, but for a reason that the app must know
                    self._watchers.notify(False)
            except Exception:
                log.exception("reconnecting to NATS failed", name=self._options.name)
            else:
                emit = log.warning if self._warned else log.info  # the same level as the loss
                emit("connected to NATS again", name=self._options.name, server=display_address(server))
                self._warned = False
                attempt = 0
                self._watchers.notify(True)
                continue
            attempt += 1
            self._lost.set()


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
