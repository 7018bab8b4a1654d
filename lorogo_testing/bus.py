"""One connection to the in-memory broker: subscriptions, requests, loss and reconnect."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from lorogo_testing.broker import BrokerSubscription, ConnectionIdentity
from lorogo_testing.link import SimulatedLink
from lorogo_transport.errors import (
    Disconnected,
    NoResponders,
    PermissionDenied,
    RequestTimeout,
    TooLarge,
    TransportError,
)
from lorogo_transport.headers import STATUS, encode_headers
from lorogo_transport.listeners import Listeners
from lorogo_transport.ports import (
    NO_HEADERS,
    Handler,
    Headers,
    Message,
    PermissionViolation,
    SubjectSubscription,
)
from lorogo_transport.rpc.subject_patterns import check_subject, matches
from lorogo_transport.telemetry.logs import get_logger

if TYPE_CHECKING:
    from lorogo_testing.memory_nats import MemoryNats  # which has connections

log = get_logger(__name__)

T = TypeVar("T")

_RECONNECT_SECONDS_MAX = 2.0  # between two reconnect attempts
_CLOSE_SECONDS = 1.0


class MemoryBus:
    """A `ports.Bus`: one connection to the broker."""

    def __init__(self, world: "MemoryNats", name: str, identity: ConnectionIdentity) -> None:
        self.world = world
        self.name = name
        self.acks_to_drop = 0
        self._link = SimulatedLink(name, world.fault_model, world.context)
        self._identity = identity
        self._inbox_token = f"{name}-{next(world.ids)}"
        self._refusal_watchers: Listeners[PermissionViolation] = Listeners()
        self._connected = True
        self._closed = False
        self._last_broker_id = world.broker_id  # of the last connection
        self._attempts: asyncio.TimerHandle | None = None  # the next reconnect attempt
        self._waiting: dict[asyncio.Future[Any], asyncio.TimerHandle] = {}
        self._listeners: dict[int, BrokerSubscription] = {}
        self._leaving: dict[int, BrokerSubscription] = {}  # closed here, but not yet at the broker
        self._watchers: Listeners[bool] = Listeners()

    @property
    def max_payload(self) -> int:
        return self.world.max_payload

    @property
    def broker_id(self) -> str:
        return self.world.broker_id if self._connected else self._last_broker_id

    @property
    def connected(self) -> bool:
        return self._connected

    @property
    def problem(self) -> Exception | None:
        return None if self._connected else Disconnected("there is no connection to NATS right now")

    @property
    def unanswerable(self) -> int:
        return self._identity.answering.refused

    @property
    def users_only(self) -> bool:
        return self._identity.answering.users_only

    @property
    def guarded(self) -> bool:
        return self._identity.permissions is not None or self.users_only

    def new_inbox(self) -> str:
        return f"{self._identity.inbox_prefix}.{self._inbox_token}.{next(self.world.ids)}"

    async def publish(
        self, subject: str, data: bytes = b"", *, headers: Headers | None = None, reply: str = ""
    ) -> None:
        message = self.message(subject, data, headers, reply)
        self._require_connection()

        def serve() -> None:
            self._publish(message)

        self._link.send("publish", subject, len(data), serve)

    async def request(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Headers | None = None,
        timeout: float,
        window: bool = False,
    ) -> Message:
        inbox = f"{self._identity.inbox_prefix}.{self._inbox_token}.r.{next(self.world.ids)}"
        if window and self._identity.taken_prefix:
            # every client may publish there, so a secret token identifies the receiver's confirmation
            inbox = f"{self._identity.taken_prefix}.{self._inbox_token}.{self.world.rng.getrandbits(88):022x}"
        message = self.message(subject, data, headers, inbox)
        self._require_connection()
        done: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def on_answer(answer: Message) -> None:
            if not done.done():
                done.set_result(answer)

        listener = BrokerSubscription(self, next(self.world.ids), inbox, "", on_answer)
        self._listeners[listener.sid] = listener
        self._attach(listener)

        def serve() -> None:
            if not self._publish(message):
                self._link.receive_in_order(lambda: _fail(done, PermissionDenied(subject)))

        try:
            self._link.send("publish", subject, len(data), serve)
            answer = await self._wait(done, timeout, f"no answer on {subject!r} in time")
        finally:
            if self._listeners.pop(listener.sid, None) is not None:
                self.world.discard(listener)
        if answer.headers.get(STATUS) == "503":
            raise NoResponders(f"{subject!r} has no subscriber")
        return answer

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> SubjectSubscription:
        check_subject(subject)
        listener = BrokerSubscription(self, next(self.world.ids), self._moved(subject), queue, handler)
        self._listeners[listener.sid] = listener
        if self._connected:
            self._link.send_in_order(lambda: self._attach(listener))
        return listener

    async def barrier(self, timeout: float = 5.0) -> None:
        self._require_connection()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._link.send_in_order(lambda: self._link.receive_in_order(lambda: _succeed(done, None)))
        try:
            await self._wait(done, timeout, "no answer in time")
        except RequestTimeout:
            if not self._connected:
                raise Disconnected("the connection was lost") from None
            raise

    def watch_connection(self, listener: Callable[[bool], None]) -> Callable[[], None]:
        return self._watchers.add(listener)

    def watch_refusals(self, listener: Callable[[PermissionViolation], None]) -> Callable[[], None]:
        return self._refusal_watchers.add(listener)

    async def call(self, operation: Callable[[], T], *, timeout: float, subject: str, size: int = 0) -> T:
        """Run `operation`, a request on `subject`, at the broker, and return its result or error."""
        self._require_connection()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def serve() -> None:
            try:
                if not self._may(subject, publish=True):
                    raise PermissionDenied(subject)
                result = operation()
            except TransportError as error:
                failure = error
                self._link.receive("answer", subject, 0, lambda: _fail(done, failure))
            else:
                self._link.receive("answer", subject, 0, lambda: _succeed(done, result))

        self._link.send("ask", subject, size, serve)
        return await self._wait(done, timeout, "no answer in time")

    def deliver(self, listener: BrokerSubscription, message: Message) -> None:
        """Deliver a message to its handler."""
        if not self._connected:
            return  # this message made the broker drop the slow consumer
        self._link.receive(
            "deliver", message.subject, len(message.data), lambda: self._handle(listener, message)
        )
        if self._link.flooded:
            self.drop()

    def forget(self, listener: BrokerSubscription) -> None:
        if self._listeners.pop(listener.sid, None) is None or not self._connected:
            return
        if self.world.fault_model is None:
            self.world.discard(listener)
        else:  # as on a socket: messages that the broker routes here until then are lost
            self._leaving[listener.sid] = listener
            self._link.send_in_order(lambda: self._detach(listener))

    def cut(self) -> None:
        """Drop the connection until `heal()`."""
        self._cancel_attempts()
        if not self._connected:
            return
        self._lose()
        for waiting in self._waiting:
            _fail(waiting, RequestTimeout("the connection was lost before an answer came"))
        asyncio.get_running_loop().call_soon(
            self._watchers.notify, False, context=self._link.connection_context
        )

    def drop(self) -> None:
        """Drop the connection, and reconnect when the broker is up."""
        self.cut()
        if not self._closed:
            self._attempt_later(0)

    def partition(self, notice_seconds: float) -> None:
        """Partition the connection: nothing is delivered; both ends notice it after `notice_seconds`."""
        self._link.silent = True
        self._link.lose_outgoing()
        self._link.lose_incoming()
        self._cancel_attempts()
        if not self._closed:
            self._attempts = asyncio.get_running_loop().call_later(
                notice_seconds, self.drop, context=self._link.connection_context
            )

    def end_partition(self) -> None:
        """End a partition by a reconnect, because messages were lost."""
        if self._link.silent and not self._closed:
            self._link.silent = False
            self.drop()

    def heal(self, identity: ConnectionIdentity | None = None) -> None:
        if self._connected and self._link.silent:
            self.end_partition()
            return
        self._cancel_attempts()
        if self._connected or self._closed:
            return
        if identity is not None:
            self._identity = identity
        if self.world.down:
            self._attempt_later(0)
            return
        self._connected = True
        self._link.silent = False
        for listener in self._listeners.values():
            listener.subject = self._moved(listener.subject)
            self._attach(listener)
        asyncio.get_running_loop().call_soon(
            self._watchers.notify, True, context=self._link.connection_context
        )

    def kill(self, *, sent_arrives: bool) -> None:
        """Kill the process of the connection; messages sent before may still reach the broker."""
        self._closed = True
        self._cancel_attempts()
        if self._connected:
            self._lose(sent_arrives=sent_arrives)
        self._link.silent = True
        for deadline in self._waiting.values():
            deadline.cancel()
        self._listeners.clear()
        self._watchers.clear()
        self._refusal_watchers.clear()
        self.world.left(self)

    async def close(self) -> None:
        if self._closed:
            return
        if self._connected:
            with suppress(RequestTimeout, Disconnected):
                await self.barrier(_CLOSE_SECONDS)
        self._closed = True
        self.cut()
        self.world.left(self)

    def _lose(self, *, sent_arrives: bool = False) -> None:
        """Drop the connection at both ends."""
        self._connected = False
        self._last_broker_id = self.world.broker_id
        if not sent_arrives:
            self._link.lose_outgoing()
        self._link.lose_incoming()
        for listener in (*self._listeners.values(), *self._leaving.values()):
            self.world.discard(listener)
        self._leaving.clear()

    def _attempt_later(self, attempt: int) -> None:
        seconds = self.world.rng.uniform(0, min(_RECONNECT_SECONDS_MAX, 0.05 * 2 ** min(attempt, 10)))
        self._attempts = asyncio.get_running_loop().call_later(
            seconds, self._attempt, attempt, context=self._link.connection_context
        )

    def _attempt(self, attempt: int) -> None:
        if self.world.down or self._link.silent:
            self._attempt_later(attempt + 1)
        else:
            self.heal()

    def _cancel_attempts(self) -> None:
        if self._attempts is not None:
            self._attempts.cancel()
            self._attempts = None

    def message(self, subject: str, data: bytes, headers: Headers | None, reply: str = "") -> Message:
        """Return the message as the broker receives it. Raises TooLarge."""
        check_subject(subject)
        block = encode_headers(headers) if headers else b""
        size = len(data) + len(block)
        if size > self.world.max_payload:
            raise TooLarge(f"{size} bytes for {subject!r}, but NATS accepts at most {self.world.max_payload}")
        # the result of `parse_headers`, but cheaper
        parsed = {name: value.strip() for name, value in headers.items()} if headers else NO_HEADERS
        return Message(subject, bytes(data), parsed, reply)

    def _require_connection(self) -> None:
        if not self._connected:
            raise Disconnected("there is no connection to NATS right now")

    def _attach(self, listener: BrokerSubscription) -> None:
        # the subscription may have been closed meanwhile
        if listener.sid in self._listeners and self._may(listener.subject, publish=False):
            self.world.add(listener)

    def _detach(self, listener: BrokerSubscription) -> None:
        self._leaving.pop(listener.sid, None)
        self.world.discard(listener)

    def _moved(self, subject: str) -> str:
        """Return the subject, with the current prefix if it is an inbox of this connection."""
        rest = subject.partition(".")[2]
        return (
            f"{self._identity.inbox_prefix}.{rest}" if rest.startswith(f"{self._inbox_token}.") else subject
        )

    def _publish(self, message: Message) -> bool:
        """Publish at the broker; False if not permitted.

        Without a reply subject a stream's error is dropped.
        """
        if not self._may(message.subject, publish=True):
            return False
        with suppress(TransportError):
            self.world.publish(message, self.name)
        return True

    def _may(self, subject: str, *, publish: bool) -> bool:
        """Check the permissions; a violation is reported to the watchers."""
        allowed = self._identity.permissions
        if allowed is None or subject.startswith(f"{self._identity.taken_prefix or '-'}."):
            return True
        if any(matches(one, subject) for one in (allowed.publish if publish else allowed.subscribe)):
            return True
        refusal = PermissionViolation(subject, publish)
        self._link.receive_in_order(lambda: self._refusal_watchers.notify(refusal))
        return False

    async def _wait(self, done: "asyncio.Future[T]", timeout: float, words: str) -> T:
        deadline = asyncio.get_running_loop().call_later(timeout, _expire, done, words)
        self._waiting[done] = deadline
        try:
            return await done
        finally:
            deadline.cancel()
            self._waiting.pop(done, None)

    def _handle(self, listener: BrokerSubscription, message: Message) -> None:
        if listener.sid not in self._listeners:
            return
        reply = self._identity.answering.to(message.reply)
        if reply != message.reply:
            message = Message(message.subject, message.data, message.headers, reply)
        if self.world.observer is not None:
            self.world.observer.delivered(self.name, message)
        try:
            listener.handler(message)
        except Exception:
            log.exception("message handler failed", subject=listener.subject)


def _succeed(done: "asyncio.Future[T]", result: T) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: "asyncio.Future[Any]", error: TransportError) -> None:
    if not done.done():
        done.set_exception(error)


def _expire(done: "asyncio.Future[Any]", words: str) -> None:
    _fail(done, RequestTimeout(words))
