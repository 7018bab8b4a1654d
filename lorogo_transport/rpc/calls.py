"""Calls to the owner of a document or to a server, both ends, with requests and replies of any length.

    caller ── chunks on loro.doc.{verb}.{id}, reply = inbox ──▶ responder
           ◀── chunks on the inbox, or one message with LORO_REASON ──

The receiver of a chunk with a reply subject confirms it with an empty message: one in every window, so that
neither end is flooded. A request without chunk headers is complete.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from lorogo_protocol import limits
from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.messages import calls, chunks, subjects
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.chunks import Assembled, AssemblyRejected, ChunkAssembler, Repeated
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import sentence
from lorogo_transport.clock import Clock
from lorogo_transport.errors import (
    Disconnected,
    NoResponders,
    PermissionDenied,
    RequestTimeout,
    TransportError,
)
from lorogo_transport.headers import STATUS
from lorogo_transport.ports import Bus, Message, PermissionViolation, SubjectSubscription
from lorogo_transport.tasks import Tasks, Work, within
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

Served = Callable[[str, dict[str, object]], Awaitable[calls.Body]]  # (verb, arguments) -> facts


@dataclass(frozen=True, slots=True)
class CallRequest:
    """The subject, reply subject and token of one request message."""

    subject: str
    reply: str
    token: str = field(default="", repr=False)


Admission = Callable[[CallRequest], Served]  # returns the function that serves a request; raises Refused

_UNFINISHED_CALLS_MAX: Final = 64
_WINDOW_ANSWER_SECONDS: Final = 10.0
_REPLY_SECONDS_MAX: Final = 300.0
_SENDING_MAX: Final = 256  # concurrent short answers of one responder; more are dropped


async def send_chunked(
    bus: Bus, subject: str, payload: bytes, call_id: str, *, reply: str = "", token: str = ""
) -> None:
    """Publish a payload in chunks; after each window, wait until the receiver confirms it."""
    size = chunks.chunk_bytes(bus.max_payload - len(token))
    sent = 0
    more = {h.TOKEN: token} if token else {}
    for chunk in chunks.split(payload, call_id, chunk_bytes_max=size):
        sent += len(chunk.data)
        headers = {**chunk.headers(), **more}
        if sent < limits.WINDOW_BYTES or chunk.final:
            answer_to = reply if chunk.final else ""
            await bus.publish(subject, chunk.data, headers=headers, reply=answer_to)
            continue
        sent = 0
        await bus.request(subject, chunk.data, headers=headers, timeout=_WINDOW_ANSWER_SECONDS, window=True)


@dataclass(slots=True)
class _Waiting:
    """A call that waits for its reply."""

    subject: str
    assembler: ChunkAssembler
    outcome: bytes | LorogoError | None = None
    progress: asyncio.Event = field(default_factory=asyncio.Event)  # a message arrived, or the call ended

    def end(self, outcome: bytes | LorogoError) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self.progress.set()


class Caller:
    """Makes calls, with one inbox subscription for all of them."""

    def __init__(self, bus: Bus, clock: Clock, new_id: Callable[[], str]) -> None:
        self._bus = bus
        self._clock = clock
        self._new_id = new_id
        self._waiting: dict[str, _Waiting] = {}
        self._subscription: SubjectSubscription | None = None
        self._unwatch: Callable[[], None] | None = None
        self._confirmations = Tasks(lambda error: log.error("cannot confirm a window", exc_info=error))

    async def start(self) -> None:
        """Subscribe for replies."""
        self._subscription = await self._bus.subscribe(f"{self._bus.new_inbox()}.*", self._on_reply)
        self._unwatch = self._bus.watch_refusals(self._on_refusal)

    async def close(self) -> None:
        """Stop; pending calls end with Disconnected."""
        if self._unwatch is not None:
            self._unwatch()
        if self._subscription is not None:
            await self._subscription.close()
        for waiting in self._waiting.values():
            waiting.end(Disconnected("the caller was closed"))
        await self._confirmations.close()

    async def call(
        self,
        verb: str,
        document_id: str,
        body: calls.Body | None = None,
        *,
        timeout: float,
        token: str = "",
    ) -> dict[str, object]:
        """Call the owner and return its answer. `timeout` limits the time between messages, not the call.

        `token` identifies the caller to an owner that has keys. Raises Refused with the owner's reason,
        NoResponders, RequestTimeout, Disconnected, PermissionDenied (NATS denies the request).
        """
        subject = subjects.call(verb, document_id)
        return await self.ask(
            subject, body, timeout=timeout, whom=f"the owner of {document_id} (call {verb})", token=token
        )

    async def ask(
        self,
        subject: str,
        body: calls.Body | None = None,
        *,
        timeout: float,
        whom: str = "the responder",
        token: str = "",
    ) -> dict[str, object]:
        """Call the responder on a subject and return its answer; raises as `call()`."""
        assert self._subscription is not None, "not started"
        call_id = self._new_id()
        payload = calls.encode(body or {})
        if len(payload) > calls.CALL_BYTES_MAX:  # before a byte is sent, and before a document is created
            raise Refused(
                Reason.TOO_LARGE,
                f"the call has {len(payload)} bytes and may have {calls.CALL_BYTES_MAX}; send smaller parts",
            )
        waiting = _Waiting(
            subject,
            ChunkAssembler(
                update_bytes_max=calls.REPLY_BYTES_MAX,
                unfinished_bytes_max=calls.REPLY_BYTES_MAX,
                unfinished_seconds=timeout,
            ),
        )
        self._waiting[call_id] = waiting
        try:
            reply = f"{self._subscription.subject.removesuffix('*')}{call_id}"
            await send_chunked(self._bus, subject, payload, call_id, reply=reply, token=token)
            while waiting.outcome is None:
                waiting.progress.clear()
                if not await within(timeout, waiting.progress.wait()):
                    raise RequestTimeout(f"{whom} did not answer in {timeout:g} s")
        finally:
            del self._waiting[call_id]
        if isinstance(waiting.outcome, LorogoError):
            raise waiting.outcome
        return calls.decode(waiting.outcome)

    def _on_refusal(self, refusal: PermissionViolation) -> None:
        if refusal.publish:
            for waiting in self._waiting.values():
                if waiting.subject == refusal.subject:
                    waiting.end(PermissionDenied(refusal.subject))

    def _on_reply(self, message: Message) -> None:
        waiting = self._waiting.get(message.subject.rpartition(".")[2])
        if waiting is None or waiting.outcome is not None:
            return
        waiting.progress.set()
        headers = message.headers
        if headers.get(STATUS) == "503":
            waiting.end(NoResponders("the subject has no subscriber"))
            return
        if (code := headers.get(h.REASON)) is not None:
            waiting.end(_refusal(code, headers.get(h.MESSAGE, "")))
            return
        try:
            chunk = chunks.parse(headers, message.data)
        except MalformedMessage as error:
            waiting.end(error)
            return
        if message.reply:
            self._confirmations.spawn(_confirm_window(self._bus, message.reply))
        match waiting.assembler.add(chunk, sequence=chunk.index + 1, now=self._clock.now()):
            case Assembled(payload=payload):
                waiting.end(payload)
            case AssemblyRejected(message=why):
                waiting.end(MalformedMessage(f"the reply was damaged: {why}"))
            case Repeated() | None:
                pass


def _refusal(code: str, message: str) -> LorogoError:
    try:
        return Refused(Reason(code), message)
    except ValueError:
        return MalformedMessage(f"unknown reason {code[:40]!r}: {message}")


async def _confirm_window(bus: Bus, subject: str) -> None:
    try:
        await bus.publish(subject)
    except TransportError as error:
        log.debug("cannot confirm a window", problem=str(error))


class ReplyBudget:
    """Limits the bytes of replies in flight; further replies wait."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def holding(self, size: int) -> AsyncIterator[None]:
        """Wait for free bytes; a reply above the whole budget is sent alone."""
        wanted = min(size, self._bytes_max)
        async with self._changed:
            await self._changed.wait_for(lambda: self._held + wanted <= self._bytes_max)
            self._held += wanted
        try:
            yield
        finally:
            async with self._changed:
                self._held -= wanted
                self._changed.notify_all()


class Responder:
    """Answers the calls of one document or server, one task per call, bounded."""

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        admit: Admission,
        *,
        spawn: Callable[[Work], None],
        budget: ReplyBudget,
        calls_max: int = 64,
        on_refused: Callable[[Reason], None] | None = None,
        room: chunks.MemoryBudget | None = None,
    ) -> None:
        """`admit` is called for every message, and returns the function that executes the call."""
        self._bus = bus
        self._clock = clock
        self._admit = admit
        self._on_refused = on_refused or (lambda _: None)
        self._sending = 0
        self._spawn = spawn
        self._budget = budget
        self._calls_max = calls_max
        self._running = 0
        self._assembler = ChunkAssembler(
            update_bytes_max=calls.CALL_BYTES_MAX,
            unfinished_bytes_max=2 * calls.CALL_BYTES_MAX,
            unfinished_updates_max=_UNFINISHED_CALLS_MAX,
            room=room,
        )

    @property
    def unfinished_bytes(self) -> int:
        """The buffered bytes of incomplete calls."""
        return self._assembler.unfinished_bytes

    def expire(self) -> None:
        """Drop calls that have waited too long for chunks."""
        self._assembler.expire(self._clock.now())

    def on_message(self, message: Message) -> None:
        """Handle a message of `loro.doc.*.{id}`, or of another subject with the verb as its third token."""
        verb = message.subject.split(".")[2]
        request = CallRequest(message.subject, message.reply, message.headers.get(h.TOKEN, ""))
        try:
            serve = self._admit(request)
        except Refused as no:
            self._reject(message.reply, no.reason, str(no))
            return
        if h.LOG_ID not in message.headers:
            self._begin(serve, verb, "plain", message.data, message.reply)
            return
        now = self._clock.now()
        self._assembler.expire(now)
        try:
            chunk = chunks.parse(message.headers, message.data)
        except MalformedMessage as error:
            self._reject(message.reply, Reason.INVALID_REQUEST, str(error))
            return
        if not chunk.final and message.reply:
            self._send_soon(_confirm_window(self._bus, message.reply))
        match self._assembler.add(_isolated(chunk, request), sequence=chunk.index + 1, now=now):
            case Assembled(payload=payload):
                self._begin(serve, verb, chunk.log_id, payload, message.reply)
            case AssemblyRejected(reason=reason, message=why):
                self._reject(message.reply, reason, why)
            case Repeated() | None:
                pass

    def _begin(self, serve: Served, verb: str, call_id: str, payload: bytes, reply: str) -> None:
        if not reply:
            return
        if self._running >= self._calls_max:
            self._reject(reply, Reason.BUSY, f"{self._running} calls are running")
            return
        self._running += 1
        self._spawn(self._answer(serve, verb, call_id, payload, reply))

    def _reject(self, reply: str, reason: Reason, message: str) -> None:
        self._on_refused(reason)
        if reply:
            self._send_soon(self._refuse(reply, reason, message))

    def _send_soon(self, message: Work) -> None:
        """Send a short message; beyond the bound it is dropped, so that floods are not amplified."""
        if self._sending >= _SENDING_MAX:
            message.close()
            return
        self._sending += 1
        self._spawn(self._send(message))

    async def _send(self, message: Work) -> None:
        try:
            await message
        finally:
            self._sending -= 1

    async def _answer(self, serve: Served, verb: str, call_id: str, payload: bytes, reply: str) -> None:
        try:
            facts = await serve(verb, calls.decode(payload))
            async with asyncio.timeout(_REPLY_SECONDS_MAX), self._budget.holding(_size(facts)):
                await send_chunked(self._bus, reply, calls.encode(facts), call_id)
        except TimeoutError:
            await self._fail(reply, Reason.BUSY, "the reply could not be sent in time")
        except Refused as no:
            await self._fail(reply, no.reason, str(no))
        except MalformedMessage as error:
            await self._fail(reply, Reason.INVALID_REQUEST, str(error))
        except TransportError as error:
            log.warning("cannot answer a call", verb=verb, problem=str(error))
            await self._fail(reply, Reason.FAILED, str(error))
        except Exception as error:
            log.exception("call failed", verb=verb)
            await self._fail(reply, Reason.FAILED, f"{type(error).__name__}: {error}")
        finally:
            self._running -= 1

    async def _fail(self, reply: str, reason: Reason, message: str) -> None:
        self._on_refused(reason)
        await self._refuse(reply, reason, message)

    async def _refuse(self, reply: str, reason: Reason, message: str) -> None:
        if not reply:
            return
        try:
            await self._bus.publish(
                reply, headers={h.REASON: reason.value, h.MESSAGE: sentence(message) or reason.value}
            )
        except TransportError as error:
            log.debug("cannot send a refusal", problem=str(error))


def _isolated(chunk: chunks.Chunk, request: CallRequest) -> chunks.Chunk:
    """Prefix the chunk's log id with its subject and token, to separate chunks of different calls."""
    owner = hashlib.sha256(f"{request.subject} {request.token}".encode(errors="replace")).hexdigest()
    return replace(chunk, log_id=f"{owner}.{chunk.log_id}")


def _size(facts: calls.Body) -> int:
    """Return the approximate size of a reply: its long members."""
    if isinstance(facts, calls.EncodedBody):
        return len(facts.packed)
    return 1024 + sum(len(value) for value in facts.values() if isinstance(value, bytes | str))
