"""Unacknowledged updates of one member of a relay: in order, each under its own log id, never merged.

Queues are independent: a refused or late update delays no other member. One task sends, from the first update
on; replies settle futures when they arrive.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from lorogo_client.context import ClientContext
from lorogo_client.delivery.outbox import Outbox, OutgoingUpdate
from lorogo_client.delivery.replies import send
from lorogo_client.delivery.retry_policy import ReplyAction
from lorogo_client.errors import StorageFull, TooLargeUpdate, UpdateRefused
from lorogo_client.session.receipt import Receipt
from lorogo_gateway.relay.errors import GivenUp
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages.reasons import ERASED, Reason
from lorogo_protocol.messages.replies import Ack, Reply
from lorogo_transport.errors import TooLarge, TransportError
from lorogo_transport.tasks import Tasks
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

Sent = asyncio.Future[Receipt]


class RelayOwner(Protocol):
    """The document's owner, as a send queue knows it."""

    def may_send(self) -> bool: ...

    @property
    def token(self) -> int:
        """The newest lease token seen."""

    @property
    def doubted_at(self) -> float:
        """Time of its last ping."""

    def note_lease(self, lease: int) -> None: ...

    def doubt(self) -> None:
        """Ping it: an answer is late."""

    def find(self) -> None:
        """Find it: it has lost the document, or is gone."""

    def deleted(self, erased: bool) -> None: ...


class SendQueue:
    """The send queue of one member."""

    def __init__(
        self, context: ClientContext, document_id: str, owner: RelayOwner, *, on_stuck: Callable[[str], None]
    ) -> None:
        self._context = context
        self._document_id = document_id
        self._owner = owner
        self._on_stuck = on_stuck  # only a join of the member can help
        self._outbox = Outbox(context.settings, remembered_max=0)
        self._futures: dict[str, Sent] = {}
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._tasks = Tasks(self._broke)
        self._running = False

    @property
    def unacked(self) -> int:
        return len(self._futures)

    @property
    def unacked_bytes(self) -> int:
        return self._outbox.unsaved_bytes

    def send(self, payload: bytes, log_id: str) -> Sent:
        """Send it after all earlier updates; the future is its receipt."""
        future: Sent = asyncio.get_running_loop().create_future()
        limit = self._context.settings.update_bytes_max
        if len(payload) > limit:
            why = f"it has {len(payload)} bytes, at most {limit} are allowed"
            fail(future, TooLargeUpdate(log_id, Reason.TOO_LARGE, why))
            return future
        self._futures[log_id] = future
        self._outbox.add(payload, log_id)
        if self._outbox.full:
            self._on_stuck("too much waits to be sent")
            return future
        if not self._running:
            self._running = True
            self._tasks.spawn(self._run(), name=f"send queue {self._document_id}")
        self._wake.set()
        return future

    async def drained(self, updates_max: int, bytes_max: int) -> None:
        """Return when fewer updates and fewer bytes than this have no answer."""
        while self._futures and not (self.unacked < updates_max and self.unacked_bytes < bytes_max):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def wake(self) -> None:
        """Continue: the owner may be there."""
        self._wake.set()

    def resend(self) -> None:
        """Resend unacknowledged updates to another owner."""
        self._outbox.resend(self._context.clock.now())
        self._soon()

    def give_up(self, error: LorogoError) -> None:
        """Fail every unacknowledged update."""
        futures, self._futures = self._futures, {}
        self._outbox.clear()
        for log_id, future in futures.items():
            self._over(log_id)
            fail(future, error)
        self._progress()

    async def close(self) -> None:
        await self._tasks.close()
        self.give_up(GivenUp("the member has left"))
        if self._timer is not None:
            self._timer.cancel()

    # --- the sender

    async def _run(self) -> None:
        context, outbox, owner = self._context, self._outbox, self._owner
        while True:
            self._wake.clear()
            now = context.clock.now()
            while owner.may_send() and (flight := outbox.next_to_send(now, context.new_id)) is not None:
                outbox.sending(flight.log_id, now)
                await self._send(flight)
            if self._timer is None:
                self._check_late(context.clock.now())
            await self._wake.wait()

    async def _send(self, flight: OutgoingUpdate) -> None:
        context = self._context
        inbox = context.replies.expect(flight.log_id, self._on_reply)
        if context.tracing is not None:
            context.tracing.sent(self._document_id, flight)
        try:
            await send(context, self._document_id, flight, inbox)
        except StorageFull as error:
            self._settle(flight.log_id, error)
        except TooLarge as error:
            self._settle(flight.log_id, TooLargeUpdate(flight.log_id, Reason.TOO_LARGE, str(error)))
        except TransportError as error:
            log.info(
                "an update was not sent",
                document=self._document_id,
                log_id=flight.log_id,
                problem=str(error),
            )
            self._outbox.unsent(flight.log_id, context.clock.now(), context.rng.random())
            self._owner.doubt()
            self._soon()
        else:
            if flight.attempts > 1 or len(flight.payload) > context.settings.chunk_bytes_max:
                self._outbox.sent(flight.log_id, context.clock.now())  # it took a while

    def _check_late(self, now: float) -> None:
        """Check for late answers, and set the timer of the next check."""
        outbox, context = self._outbox, self._context
        if overdue := outbox.overdue(now):
            for flight in overdue:
                outbox.unsent(flight.log_id, now, context.rng.random(), unanswered=True)
            self._owner.find()
        elif outbox.ping_due(now):
            self._owner.doubt()
            outbox.second_try(now, context.rng.random())
        due = outbox.next_deadline(after=max(self._owner.doubted_at, now if outbox.ping_due(now) else 0.0))
        if due is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, due - now), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._wake.set()

    def _soon(self) -> None:
        """Check again now: work may be due earlier than the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake.set()

    # --- answers

    def _on_reply(self, reply: Reply) -> None:
        context = self._context
        if context.tracing is not None:
            context.tracing.answered(self._document_id, reply)
        if isinstance(reply, Ack):
            self._owner.note_lease(reply.lease)
        again = not self._outbox.awaits_reply(reply.log_id)
        verdict, flight = self._outbox.answer(
            reply, token=self._owner.token, now=context.clock.now(), jitter=context.rng.random()
        )
        if flight is None:
            return
        if isinstance(reply, Ack):
            if verdict is ReplyAction.SETTLED:
                receipt = Receipt(reply.sequence, reply.lease, reply.durability, b"", reply.log_id)
                self._settle(flight.log_id, receipt)
            else:
                self._owner.find()
                self._soon()
            return
        log.info("refused", document=self._document_id, log_id=flight.log_id, reason=reply.reason.value)
        match verdict:
            case ReplyAction.SYNC if again:
                pass  # an answer to the first try, and the second is about to go out
            case ReplyAction.SYNC if flight.attempts > 1:
                self._on_stuck("the owner lacks dependencies of an update")
            case ReplyAction.SYNC:  # an earlier update was lost, or one of another client is on its way
                self._outbox.resend(flight.due)
                self._soon()
            case ReplyAction.FIND_OWNER:
                self._owner.find()
                self._soon()
            case ReplyAction.DELETED:
                self._owner.deleted(reply.message == ERASED)
            case ReplyAction.FULL:
                self._settle(flight.log_id, StorageFull(reply.message))
            case ReplyAction.REFUSED | ReplyAction.REBASE:
                kind = TooLargeUpdate if reply.reason is Reason.TOO_LARGE else UpdateRefused
                self._settle(flight.log_id, kind(flight.log_id, reply.reason, reply.message))
            case _:
                self._soon()

    def _settle(self, log_id: str, outcome: Receipt | LorogoError) -> None:
        self._outbox.drop(log_id)
        self._over(log_id)
        future = self._futures.pop(log_id, None)
        if future is not None:
            if isinstance(outcome, Receipt):
                if not future.done():
                    future.set_result(outcome)
            else:
                fail(future, outcome)
        self._progress()
        if self._outbox.queued:
            self._wake.set()  # the window may be open again

    def _over(self, log_id: str) -> None:
        self._context.replies.forget(log_id)
        if self._context.tracing is not None:
            self._context.tracing.finished(log_id)

    def _progress(self) -> None:
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _broke(self, error: Exception) -> None:
        log.error("a send queue failed", document=self._document_id, exc_info=error)
        self._running = False
        self._on_stuck(f"{type(error).__name__}: {error}")


def fail(future: Sent, error: LorogoError) -> None:
    """End the future with the error."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # else asyncio logs an exception that was never retrieved
