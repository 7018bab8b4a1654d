"""The auth callout service: decides by token which clients nats-server admits (docs/decisions/0016).

    async with Callout(auth.bus, authority, signer, clock):
        ...

Requests wait in a short queue and are answered one after the other: verifying and signing are computation
and take about a millisecond. The queue is fair to addresses, and to users behind each, so that a client which
connects very often delays only itself. Requests that have timed out are dropped. Tokens are never logged.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Self

from lorogo_protocol.access import callout, tokens
from lorogo_protocol.access.callout import Allowed, Denied, Request, Signer
from lorogo_protocol.errors import MalformedMessage
from lorogo_transport.auth.accounts import ANSWER_SECONDS
from lorogo_transport.auth.authority import Authority
from lorogo_transport.auth.fair_queue import FairQueue
from lorogo_transport.clock import Clock
from lorogo_transport.errors import TransportError
from lorogo_transport.ports import Bus, Message, Subscription
from lorogo_transport.tasks import cancel
from lorogo_transport.telemetry.log_throttle import LogThrottle
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

WAITING_MAX: Final = 1_000
LATE_SECONDS: Final = 0.75 * ANSWER_SECONDS  # a later answer would arrive after nats-server's timeout
_PROOFS_MAX: Final = 12  # other instances answer some of the requests
_PROOFS_FAILED: Final = 2  # this many rejected answers prove that NATS does not accept them


@dataclass(frozen=True, slots=True)
class _Waiting:
    came: float
    request: Request
    reply: str


class Callout:
    """Answers nats-server, in a queue group with other instances. `async with`."""

    def __init__(self, bus: Bus, authority: Authority, signer: Signer, clock: Clock) -> None:
        """`bus` is in the account AUTH, and answers to inboxes of nats-servers."""
        self._bus = bus
        self._authority = authority
        self._signer = signer
        self._clock = clock
        self._waiting: FairQueue[_Waiting] = FairQueue(WAITING_MAX)
        self._more = asyncio.Event()
        self._refusals = LogThrottle()
        self.allowed = 0
        self.denied = 0
        self.dropped = 0  # too many at once, or timed out
        self._proof = ""  # the token of the service's test connection
        self._proved = 0  # answers to the test connection
        self._task: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None

    async def answers_accepted(self, connect_with: Callable[[str], Awaitable[bool]]) -> bool | None:
        """Return whether NATS accepts this service's answers; None if other instances answered.

        `connect_with` connects with a token and returns whether NATS admitted it. Only this service can
        answer that request, with a user without permissions.
        """
        self._proved = 0
        try:
            for _ in range(_PROOFS_MAX):
                self._proof = secrets.token_urlsafe(32)
                if await connect_with(self._proof):
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
        await cancel(self._task)

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
                except Exception:  # one bad request must not end the service
                    log.exception("authorization request failed")
                await asyncio.sleep(0)  # yield to other tasks
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
                decided = Denied(
                    "too-large", "its permissions do not fit into an answer: name fewer documents"
                )
        match decided:
            case Allowed(token):
                self.allowed += 1
                log.debug(
                    "client admitted", subject=token.subject, token_id=token.token_id, address=request.address
                )
            case Denied(code):
                answer = callout.deny(request, code, self._signer, now=now)
                self._refused(decided, request.address)
        await self._bus.publish(reply, answer)

    def _refused(self, denied: Denied, address: str) -> None:
        self.denied += 1
        suppressed = self._refusals.admit(self._clock.now())
        if suppressed is not None:
            log.warning(
                "NATS connection refused",
                reason=denied.code,
                problem=denied.problem,
                address=address,
                suppressed=suppressed,
            )

    def _drop(self, reason: str) -> None:
        self.dropped += 1
        suppressed = self._refusals.admit(self._clock.now())
        if suppressed is not None:
            log.warning("authorization request dropped", reason=reason, suppressed=suppressed)
