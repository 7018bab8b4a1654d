"""One connection to the in-memory broker: queues in both directions, requests, faults."""

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from lorogo_protocol.grants import Subjects
from lorogo_transport.answering import Answering
from lorogo_transport.errors import (
    Disconnected,
    NoResponders,
    PermissionDenied,
    RequestTimeout,
    TooLarge,
    TransportError,
)
from lorogo_transport.headers import STATUS, encode_headers, parse_headers
from lorogo_transport.logs import get_logger
from lorogo_transport.ports import NO_HEADERS, Headers, Listening, Message, Refusal
from lorogo_transport.subjects import check_subject, matches

log = get_logger(__name__)

T = TypeVar("T")
Handler = Callable[[Message], None]


class Broker(Protocol):
    """What a connection needs of `memory.MemoryNats`."""

    max_payload: int
    broker_id: str
    ids: "itertools.count[int]"
    rng: random.Random

    def publish(self, message: Message) -> list[tuple[str, int]]: ...

    def add(self, listener: "Listener") -> None: ...

    def discard(self, listener: "Listener") -> None: ...


@dataclass(frozen=True, slots=True)
class Standing:
    """Who a connection is to the broker, as the options of `jetstream.connect` say it."""

    inbox_prefix: str = "_INBOX"
    taken_prefix: str = ""
    answering: Answering = field(default_factory=Answering)
    permissions: Subjects | None = None  # None: everything


class MemoryBus:
    """A `ports.Bus`: one connection to the broker."""

    def __init__(self, world: Broker, name: str, standing: Standing) -> None:
        self.world = world
        self.acks_to_drop = 0
        self._standing = standing
        self._own = f"{name}-{next(world.ids)}"
        self._refusal_watchers: dict[int, Callable[[Refusal], None]] = {}
        self._connected = True
        self._closed = False
        self._to_broker: deque[Callable[[], None]] = deque()
        self._from_broker: deque[Callable[[], None]] = deque()
        self._waiting: set[asyncio.Future[None]] = set()
        self._listeners: dict[int, Listener] = {}
        self._watchers: dict[int, Callable[[bool], None]] = {}

    @property
    def max_payload(self) -> int:
        return self.world.max_payload

    @property
    def broker_id(self) -> str:
        return self.world.broker_id

    @property
    def connected(self) -> bool:
        return self._connected

    @property
    def problem(self) -> Exception | None:
        return None if self._connected else Disconnected("there is no connection to NATS right now")

    @property
    def unanswerable(self) -> int:
        return self._standing.answering.refused

    @property
    def users_only(self) -> bool:
        return self._standing.answering.users_only

    @property
    def guarded(self) -> bool:
        return self._standing.permissions is not None or self.users_only

    def new_inbox(self) -> str:
        return f"{self._standing.inbox_prefix}.{self._own}.{next(self.world.ids)}"

    async def publish(
        self, subject: str, data: bytes = b"", *, headers: Headers | None = None, reply: str = ""
    ) -> None:
        message = self.message(subject, data, headers, reply)
        self._require_connection()

        def serve() -> None:
            self._publish(message)

        self._send(serve)

    async def request(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Headers | None = None,
        timeout: float,
        window: bool = False,
    ) -> Message:
        inbox = f"{self._standing.inbox_prefix}.{self._own}.r.{next(self.world.ids)}"
        if window and self._standing.taken_prefix:
            # everybody may publish there, so the receiver alone can know the word
            inbox = f"{self._standing.taken_prefix}.{self._own}.{self.world.rng.getrandbits(88):022x}"
        message = self.message(subject, data, headers, inbox)
        self._require_connection()
        answers: list[Message] = []
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_answer(answer: Message) -> None:
            answers.append(answer)
            if not done.done():
                done.set_result(None)

        listener = Listener(self, next(self.world.ids), inbox, "", on_answer)
        self._listeners[listener.sid] = listener
        self._attach(listener)

        def serve() -> None:
            if not self._publish(message):
                self._answer(lambda: None if done.done() else done.set_exception(PermissionDenied(subject)))

        try:
            self._send(serve)
            await self._wait(done, timeout, f"no answer on {subject!r} in time")
        finally:
            await listener.close()
        if answers[0].headers.get(STATUS) == "503":
            raise NoResponders(f"nobody listens on {subject!r}")
        return answers[0]

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> Listening:
        check_subject(subject)
        listener = Listener(self, next(self.world.ids), self._moved(subject), queue, handler)
        self._listeners[listener.sid] = listener
        if self._connected:
            self._send(lambda: self._attach(listener))
        return listener

    async def barrier(self, timeout: float = 5.0) -> None:
        self._require_connection()
        try:
            await self.call(lambda: None, timeout=timeout)
        except RequestTimeout:
            if not self._connected:
                raise Disconnected("the connection was lost") from None
            raise

    def watch_connection(self, listener: Callable[[bool], None]) -> Callable[[], None]:
        key = next(self.world.ids)
        self._watchers[key] = listener

        def stop() -> None:
            self._watchers.pop(key, None)

        return stop

    def watch_refusals(self, listener: Callable[[Refusal], None]) -> Callable[[], None]:
        key = next(self.world.ids)
        self._refusal_watchers[key] = listener

        def stop() -> None:
            self._refusal_watchers.pop(key, None)

        return stop

    async def call(self, operation: Callable[[], T], *, timeout: float, subject: str = "") -> T:
        """Run `operation`, which asks on `subject`, at the broker and bring its result (or error) back."""
        self._require_connection()
        results: list[T] = []
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def finish(error: TransportError | None) -> None:
            if not done.done():
                done.set_result(None) if error is None else done.set_exception(error)

        def serve() -> None:
            try:
                if subject and not self._may(subject, publish=True):
                    raise PermissionDenied(subject)
                results.append(operation())
            except TransportError as error:
                failure = error
                self._answer(lambda: finish(failure))
            else:
                self._answer(lambda: finish(None))

        self._send(serve)
        await self._wait(done, timeout, "no answer in time")
        return results[0]

    def deliver(self, listener: "Listener", message: Message) -> None:
        """Bring a message to its handler, in order."""
        self._answer(lambda: self._handle(listener, message))

    def forget(self, listener: "Listener") -> None:
        if self._listeners.pop(listener.sid, None) is not None:
            self.world.discard(listener)

    def cut(self) -> None:
        if not self._connected:
            return
        self._connected = False
        self._to_broker.clear()
        self._from_broker.clear()
        for listener in self._listeners.values():
            self.world.discard(listener)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(RequestTimeout("the connection was lost before an answer came"))
        asyncio.get_running_loop().call_soon(self._tell, False)

    def heal(self, standing: Standing | None = None) -> None:
        if self._connected or self._closed:
            return
        self._connected = True
        if standing is not None:
            self._standing = standing
        for listener in self._listeners.values():
            listener.subject = self._moved(listener.subject)
            self._attach(listener)
        asyncio.get_running_loop().call_soon(self._tell, True)

    async def close(self) -> None:
        if self._closed:
            return
        if self._connected:
            await self.barrier()
        self._closed = True
        self.cut()

    def message(self, subject: str, data: bytes, headers: Headers | None, reply: str = "") -> Message:
        """The message as the broker will see it. Raises TooLarge."""
        check_subject(subject)
        block = encode_headers(headers) if headers else b""
        size = len(data) + len(block)
        if size > self.world.max_payload:
            raise TooLarge(f"{size} bytes for {subject!r}, but NATS takes {self.world.max_payload} at most")
        return Message(subject, bytes(data), parse_headers(block) if block else NO_HEADERS, reply)

    def _require_connection(self) -> None:
        if not self._connected:
            raise Disconnected("there is no connection to NATS right now")

    def _attach(self, listener: "Listener") -> None:
        # closed meanwhile: nothing to do
        if listener.sid in self._listeners and self._may(listener.subject, publish=False):
            self.world.add(listener)

    def _moved(self, subject: str) -> str:
        """The subject; of an inbox of ours, where it is now."""
        rest = subject.partition(".")[2]
        return f"{self._standing.inbox_prefix}.{rest}" if rest.startswith(f"{self._own}.") else subject

    def _publish(self, message: Message) -> bool:
        """At the broker: whether we may. A stream's refusal has no way back without a reply."""
        if not self._may(message.subject, publish=True):
            return False
        with suppress(TransportError):
            self.world.publish(message)
        return True

    def _may(self, subject: str, *, publish: bool) -> bool:
        """Whether the broker allows it; if not, those who watch are told."""
        allowed = self._standing.permissions
        if allowed is None or subject.startswith(f"{self._standing.taken_prefix or '-'}."):
            return True
        if any(matches(one, subject) for one in (allowed.publish if publish else allowed.subscribe)):
            return True
        refusal = Refusal(subject, publish)
        for watcher in list(self._refusal_watchers.values()):
            self._answer(lambda watcher=watcher: watcher(refusal))  # type: ignore[misc]  # the watcher of this turn
        return False

    def _send(self, serve: Callable[[], None]) -> None:
        self._to_broker.append(serve)
        asyncio.get_running_loop().call_soon(self._step, self._to_broker)

    def _answer(self, arrive: Callable[[], None]) -> None:
        self._from_broker.append(arrive)
        asyncio.get_running_loop().call_soon(self._step, self._from_broker)

    def _step(self, queue: deque[Callable[[], None]]) -> None:
        if queue:  # else a cut emptied it
            queue.popleft()()

    async def _wait(self, done: "asyncio.Future[None]", timeout: float, words: str) -> None:
        self._waiting.add(done)
        deadline = asyncio.get_running_loop().call_later(timeout, _expire, done, words)
        try:
            await done
        finally:
            deadline.cancel()
            self._waiting.discard(done)

    def _handle(self, listener: "Listener", message: Message) -> None:
        if listener.sid not in self._listeners:
            return
        try:
            listener.handler(replace(message, reply=self._standing.answering.to(message.reply)))
        except Exception:
            log.exception("a message handler failed", subject=listener.subject)

    def _tell(self, connected: bool) -> None:
        for watcher in list(self._watchers.values()):
            try:
                watcher(connected)
            except Exception:
                log.exception("a connection watcher failed")


class Listener:
    """One subscription of one connection."""

    __slots__ = ("bus", "handler", "queue", "sid", "subject")

    def __init__(self, bus: MemoryBus, sid: int, subject: str, queue: str, handler: Handler) -> None:
        self.bus = bus
        self.sid = sid
        self.subject = subject
        self.queue = queue
        self.handler = handler

    async def close(self) -> None:
        self.bus.forget(self)


def _expire(done: "asyncio.Future[None]", words: str) -> None:
    if not done.done():
        done.set_exception(RequestTimeout(words))
