"""One connection to the in-memory broker: queues in both directions, requests, faults."""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol, TypeVar

from lorogo_transport.answering import answerable
from lorogo_transport.errors import Disconnected, NoResponders, RequestTimeout, TooLarge, TransportError
from lorogo_transport.headers import STATUS, encode_headers, parse_headers
from lorogo_transport.logs import get_logger
from lorogo_transport.ports import NO_HEADERS, Headers, Message, Subscription
from lorogo_transport.subjects import check_subject

log = get_logger(__name__)

T = TypeVar("T")
Handler = Callable[[Message], None]


class Broker(Protocol):
    """What a connection needs of `memory.MemoryNats`."""

    max_payload: int
    broker_id: str
    ids: "itertools.count[int]"

    def publish(self, message: Message) -> list[tuple[str, int]]: ...

    def add(self, listener: "Listener") -> None: ...

    def discard(self, listener: "Listener") -> None: ...


class MemoryBus:
    """A `ports.Bus`: one connection to the broker."""

    def __init__(self, world: Broker, name: str) -> None:
        self.world = world
        self.acks_to_drop = 0
        self._prefix = f"_INBOX.{name}-{next(world.ids)}"
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

    def new_inbox(self) -> str:
        return f"{self._prefix}.{next(self.world.ids)}"

    async def publish(
        self, subject: str, data: bytes = b"", *, headers: Headers | None = None, reply: str = ""
    ) -> None:
        message = self.message(subject, data, headers, reply)
        self._require_connection()

        def serve() -> None:
            with suppress(TransportError):  # a stream's refusal has no way back without a reply
                self.world.publish(message)

        self._send(serve)

    async def request(
        self, subject: str, data: bytes = b"", *, headers: Headers | None = None, timeout: float
    ) -> Message:
        inbox = f"{self._prefix}.r.{next(self.world.ids)}"
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
        self.world.add(listener)

        def serve() -> None:
            with suppress(TransportError):
                self.world.publish(message)

        try:
            self._send(serve)
            await self._wait(done, timeout, f"no answer on {subject!r} in time")
        finally:
            await listener.close()
        if answers[0].headers.get(STATUS) == "503":
            raise NoResponders(f"nobody listens on {subject!r}")
        return answers[0]

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        check_subject(subject)
        listener = Listener(self, next(self.world.ids), subject, queue, handler)
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

    async def call(self, operation: Callable[[], T], *, timeout: float) -> T:
        """Run `operation` at the broker and bring its result (or error) back."""
        self._require_connection()
        results: list[T] = []
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def finish(error: TransportError | None) -> None:
            if not done.done():
                done.set_result(None) if error is None else done.set_exception(error)

        def serve() -> None:
            try:
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

    def heal(self) -> None:
        if self._connected or self._closed:
            return
        self._connected = True
        for listener in self._listeners.values():
            self.world.add(listener)
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
        if listener.sid in self._listeners:  # not closed meanwhile
            self.world.add(listener)

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
            listener.handler(replace(message, reply=answerable(message.reply)))
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
