"""Sending the updates of a room, in order, stored locally before they are sent; and their replies."""

from collections import deque
from collections.abc import Callable

from lorogo_client.context import ClientContext
from lorogo_client.delivery.outbox import OutgoingUpdate
from lorogo_client.delivery.pace import Pace
from lorogo_client.delivery.replies import send
from lorogo_client.errors import StorageFull
from lorogo_client.session.mirror import Mirror
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages.replies import Reply

_TOGETHER_MAX = 64  # updates that share one wait for the local store


class Sender:
    """Sends a mirror's pending updates, and passes their replies to it."""

    def __init__(
        self, context: ClientContext, document_id: str, mirror: Mirror, on_answer: Callable[[], None]
    ) -> None:
        self._context = context
        self._document_id = document_id
        self._mirror = mirror
        self._on_answer = on_answer
        self._pace = Pace(context.settings.updates_per_second, context.settings.bytes_per_second)
        self._expected: set[str] = set()  # log ids with a registered reply callback

    async def send_ready(self, may_send: Callable[[], bool]) -> None:
        """Send until nothing is ready or `may_send` returns False.

        Raises the errors of `send`, but StorageFull.
        """
        while may_send() and not self.early() and (flights := self._next_flights()):
            if self._mirror.store_writer.document_store is None:
                await self._send(*flights)
            else:
                await self._send_all(flights, may_send)

    def early(self) -> float:
        """Return the seconds until the rate limit allows another update; 0: now."""
        return self._pace.wait(self._context.clock.now()) if self._pace.limited else 0.0

    def forget_replaced(self) -> None:
        """Unregister updates that a sync replaced."""
        for log_id in [one for one in self._expected if not self._mirror.outbox.in_flight(one)]:
            self._forget(log_id)

    def close(self) -> None:
        for log_id in list(self._expected):
            self._forget(log_id)

    def _next_flights(self) -> list[OutgoingUpdate]:
        """Return the next updates to send: one, or with a store several that share one disk write."""
        outbox, flights = self._mirror.outbox, list[OutgoingUpdate]()
        now = self._context.clock.now()
        together = self._mirror.store_writer.active and not self._pace.limited
        while len(flights) < (_TOGETHER_MAX if together else 1):
            flight = outbox.next_to_send(now, self._context.new_id)
            if flight is None:
                break
            outbox.sending(flight.log_id, now)
            flights.append(flight)
        return flights

    async def _send_all(self, flights: list[OutgoingUpdate], may_send: Callable[[], bool]) -> None:
        """Store the updates, then send them; updates that could not be sent are retried."""
        mirror, left = self._mirror, deque(flights)
        try:
            mirror.store_writer.assigned(flights)
            await mirror.store_writer.durable(self._context.settings.store_seconds)
            while left and may_send():
                flight = left.popleft()
                if mirror.outbox.in_flight(flight.log_id):  # it may have been ACKed meanwhile
                    await self._send(flight)
        finally:
            for flight in left:
                self._unsent(flight)

    async def _send(self, flight: OutgoingUpdate) -> None:
        context, outbox = self._context, self._mirror.outbox
        self._expected.add(flight.log_id)
        inbox = context.replies.expect(flight.log_id, self._on_reply)
        if self._pace.limited:
            self._pace.sent(len(flight.payload), context.clock.now())
        if context.tracing is not None:
            context.tracing.sent(self._document_id, flight)
        try:
            await send(context, self._document_id, flight, inbox)
        except StorageFull as error:
            self._unsent(flight)
            self._mirror.stalled = error
        except LorogoError:
            self._unsent(flight)
            raise
        else:
            outbox.sent(flight.log_id, context.clock.now())

    def _unsent(self, flight: OutgoingUpdate) -> None:
        context = self._context
        self._mirror.outbox.unsent(flight.log_id, context.clock.now(), context.rng.random())

    def _on_reply(self, reply: Reply) -> None:
        context = self._context
        if context.tracing is not None:
            context.tracing.answered(self._document_id, reply)
        flight = self._mirror.answered(reply, now=context.clock.now(), jitter=context.rng.random())
        if flight is not None:
            self._forget(flight.log_id)
        self._on_answer()

    def _forget(self, log_id: str) -> None:
        self._expected.discard(log_id)
        self._context.replies.forget(log_id)
        if self._context.tracing is not None:
            self._context.tracing.finished(log_id)
