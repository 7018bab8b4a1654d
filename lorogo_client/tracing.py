"""Traces of single updates in a client, as log events and spans: sent, answered, finished."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lorogo_client.delivery.outbox import OutgoingUpdate
from lorogo_protocol.messages.replies import Ack, Nack, Reply
from lorogo_transport.clock import Clock
from lorogo_transport.telemetry.logs import StructuredLogger, get_logger
from lorogo_transport.telemetry.tracing import RecentEntries, events_of, spans_of

if TYPE_CHECKING:
    from lorogo_transport.telemetry.otel import Spans

log = get_logger(__name__)


@dataclass(slots=True)
class _Sending:
    """A sampled update that has no final answer yet."""

    document_id: str
    begun_ns: int
    bytes: int
    attempts: int
    reply: Reply | None = None  # the last


class ClientTracing:
    """Events and spans of the updates of one client."""

    def __init__(self, events: StructuredLogger | None, spans: "Spans | None", clock: Clock) -> None:
        self._events = events
        self._spans = spans
        self._clock = clock
        self._sending: RecentEntries[_Sending] = RecentEntries()

    @property
    def open(self) -> int:
        """The number of sampled updates that are not finished."""
        return len(self._sending)

    def sent(self, document_id: str, flight: OutgoingUpdate) -> None:
        """Record that an update is sent, for the first time or again."""
        if self._events is not None:
            self._events.debug(
                "update sent",
                document=document_id,
                log_id=flight.log_id,
                bytes=len(flight.payload),
                attempt=flight.attempts,
            )
        if self._spans is None:
            return
        if (known := self._sending.get(flight.log_id)) is not None:
            known.attempts += 1
        elif self._spans.wanted(flight.log_id):
            begun_ns, size = self._clock.wall_ns(), len(flight.payload)
            self._sending.put(flight.log_id, _Sending(document_id, begun_ns, size, 1))

    def answered(self, document_id: str, reply: Reply) -> None:
        """Record a reply to an update, whether or not the client accepts it."""
        if self._events is not None and isinstance(reply, Ack):
            self._events.debug(
                "update ACKed",
                document=document_id,
                log_id=reply.log_id,
                sequence=reply.sequence,
                durability=reply.durability,
                lease=reply.lease,
            )
        if (sending := self._sending.get(reply.log_id)) is not None:
            sending.reply = reply

    def finished(self, log_id: str) -> None:
        """End an update's span: it is saved, refused for good, replaced or given up."""
        if self._spans is None or (sending := self._sending.pop(log_id)) is None:
            return
        facts: dict[str, str | int] = {
            "lorogo.document": sending.document_id,
            "lorogo.log_id": log_id,
            "lorogo.bytes": sending.bytes,
            "lorogo.attempts": sending.attempts,
        }
        problem = ""
        match sending.reply:
            case Ack(sequence=sequence, durability=durability, lease=lease):
                facts |= {
                    "lorogo.sequence": sequence,
                    "lorogo.durability": durability,
                    "lorogo.lease": lease,
                }
            case Nack(reason=reason, message=message):
                facts["lorogo.reason"] = reason.value
                problem = message or reason.value
            case None:
                problem = "no answer"
        self._spans.send(log_id, sending.begun_ns, self._clock.wall_ns(), facts, problem)


def tracing_of(tracer_provider: object | None, clock: Clock) -> ClientTracing | None:
    """Return the tracing of a client; None if neither logs nor spans are enabled.

    Raises TypeError, OtelMissing.
    """
    events, spans = events_of(log), spans_of(tracer_provider)
    return None if events is None and spans is None else ClientTracing(events, spans, clock)
