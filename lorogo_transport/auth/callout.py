"""The auth callout service: nats-server asks who a connection is, and a token answers (docs/decisions/0016).

    async with Callout(auth.bus, authority, signer, clock):
        ...

Requests wait in a short queue and are answered one after the other: verifying and signing are computation
and take about a millisecond. Addresses take turns, and users behind each, so whoever connects very often
makes only itself late. What nobody waits for any more is dropped. Nothing here writes a token anywhere.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Self

from lorogo_protocol import callout, tokens
from lorogo_protocol.callout import Allowed, Denied, Request, Signer
from lorogo_protocol.errors import MalformedMessage
from lorogo_transport.auth.accounts import ANSWER_SECONDS
from lorogo_transport.auth.authority import Authority
from lorogo_transport.auth.fair_queue import FairQueue
from lorogo_transport.clock import Clock
from lorogo_transport.errors import TransportError
from lorogo_transport.ports import Bus, Message, Subscription
from lorogo_transport.telemetry.log_throttle import LogThrottle
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

WAITING_MAX: Final = 1_000
LATE_SECONDS: Final = 0.75 * ANSWER_SECONDS  # an answer that begins later would not be waited for
_PROOFS_MAX: Final = 12  # other services are asked as well
_PROOFS_FAILED: Final = 2  # that many of our own answers in vain, and it is not for being late


@dataclass(frozen=True, slots=True)
class _Waiting:
    came: float
    request: Request
    reply: str


@dataclass(frozen=True, slots=True)
class CalloutCounters:
    """What became of the requests so far."""

    allowed: int
    denied: int
    dropped: int  # too many at once, or too late


class Callout:
    """Answers nats-server, in a queue group with others of its kind. `async with`."""

    def __init__(self, bus: Bus, authority: Authority, signer: Signer, clock: Clock) -> None:
        """`bus` is in the account AUTH, and answers to NATS's own inboxes."""
        self._bus = bus
        self._authority = authority
        self._signer = signer
        self._clock = clock
        self._waiting: FairQueue[_Waiting] = FairQueue(WAITING_MAX)
        self._more = asyncio.Event()
        self._refusals = LogThrottle()
        self._allowed = 0
        self._denied = 0
        self._dropped = 0
        self._proof = (
            ""  # the token of a connection of our own, by which we see whether NATS takes our answers
        )
        self._proved = 0  # how often it was answered
        self._task: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None

    @property
    def counts(self) -> CalloutCounters:
        return CalloutCounters(self._allowed, self._denied, self._dropped)

    async def heeded(self, knock: Callable[[str], Awaitable[bool]]) -> bool | None:
        """Whether NATS takes our answers; None if that could not be seen, as others answered.

        `knock` connects with a token, and says whether it was let in. We answer it, and nobody else can,
        with a user who may do nothing.
        """
        self._proved = 0
        try:
            for _ in range(_PROOFS_MAX):
                self._proof = secrets.token_urlsafe(32)
                if await knock(self._proof):
                    return True
                if self._proved >= _PROOFS_FAILED:
                    return False
        finally:
            self._proof = ""
        return None

    async def __aenter__(self) -> Self:
        self._subscription = await self._bus.subscribe(callout.SUBJECT, self._on_request, queue=callout.QUEUE)
        self._task = asyncio.create_task(self._work(), name="auth-callout")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._subscription is not None:
            await self._subscription.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _on_request(self, message: Message) -> None:
        try:
            request = callout.parse_request(message.data)
        except MalformedMessage as error:
            self._refused(Denied("malformed-message", str(error)), "")
            return
        if not message.reply:
            self._drop("no reply subject")
            return
        waiting = _Waiting(self._clock.now(), request, message.reply)
        if self._waiting.put(request.address, tokens.user_of(request.token), waiting) is not None:
            self._drop("too many at once")
        self._more.set()

    async def _work(self) -> None:
        while True:
            await self._more.wait()
            while self._waiting:
                waiting = self._waiting.take()
                if self._clock.now() - waiting.came > LATE_SECONDS:
                    self._drop("too late")
                    continue
                try:
                    await self._answer(waiting.request, waiting.reply)
                except TransportError as error:
                    self._drop(error.code)
                except Exception:  # one request that we cannot take must not end the service
                    log.exception("an authorization request failed")
                await asyncio.sleep(0)  # others have their turn
            self._more.clear()

    async def _answer(self, request: Request, reply: str) -> None:
        now = self._clock.wall_ns() / 1e9
        if self._proof and secrets.compare_digest(
            request.token.encode(errors="replace"), self._proof.encode()
        ):
            self._proved += 1
            await self._bus.publish(reply, callout.prove(request, self._signer, now=now))
            return
        decided = callout.decide(request, self._authority.verify, now=now)
        answer = b""
        if isinstance(decided, Allowed):
            answer = callout.allow(request, decided, self._signer, now=now)
            if len(answer) > self._bus.max_payload:
                decided = Denied("too-large", "its rights do not fit into an answer: name fewer documents")
        match decided:
            case Allowed(token):
                self._allowed += 1
                log.debug("let in", subject=token.subject, token_id=token.token_id, address=request.address)
            case Denied(code):
                answer = callout.deny(request, code, self._signer, now=now)
                self._refused(decided, request.address)
        await self._bus.publish(reply, answer)

    def _refused(self, denied: Denied, address: str) -> None:
        self._denied += 1
        untold = self._refusals.tell(self._clock.now())
        if untold is not None:
            log.warning(
                "a connection to NATS was refused",
                reason=denied.code,
                problem=denied.problem,
                address=address,
                untold=untold,
            )

    def _drop(self, reason: str) -> None:
        self._dropped += 1
        untold = self._refusals.tell(self._clock.now())
        if untold is not None:
            log.warning("a connection to NATS got no answer", reason=reason, untold=untold)
