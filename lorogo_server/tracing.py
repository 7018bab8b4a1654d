"""Log events and spans of single updates at their owner: accepted, refused, ACKed."""

from typing import TYPE_CHECKING, NamedTuple

from lorogo_protocol.messages.replies import Ack, Nack, Reply
from lorogo_server.intake.decisions import (
    Accepted,
    Again,
    RefusedUpdate,
)
from lorogo_transport.clock import Clock
from lorogo_transport.telemetry.logs import StructuredLogger, get_logger
from lorogo_transport.telemetry.tracing import RecentEntries, events_of, spans_of

if TYPE_CHECKING:
    from lorogo_transport.telemetry.otel import SpanContext, Spans

log = get_logger(__name__)


class _Unsafe(NamedTuple):
    """A sampled update between its acceptance and its ACK."""

    span: "SpanContext"
    accepted_ns: int


class ServerTracing:
    """Traces the updates of all documents of one server."""

    def __init__(self, server_id: str, spans: "Spans | None", clock: Clock, *, events: bool) -> None:
        self._server_id = server_id
        self._spans = spans
        self._clock = clock
        self._events = events
        self._unsafe: RecentEntries[_Unsafe] = RecentEntries()

    @property
    def open(self) -> int:
        """Number of sampled updates without an ACK."""
        return len(self._unsafe)

    def accepted(
        self, document: StructuredLogger, document_id: str, one: Accepted, received_at: float
    ) -> None:
        """Trace an update that was imported, and given to the journal if it changed the document."""
        update = one.update
        if self._events:
            document.debug(
                "update accepted",
                log_id=update.log_id,
                sequence=update.sequence,
                epoch=one.position.epoch,
                bytes=len(update.payload),
                new=one.new,
            )
        if self._spans is None or not self._spans.wanted(update.log_id):
            return
        facts = {
            **self._facts(document_id, update.log_id),
            "lorogo.sequence": update.sequence,
            "lorogo.epoch": one.position.epoch,
            "lorogo.bytes": len(update.payload),
        }
        now_ns = self._clock.wall_ns()
        span = self._spans.accept(update.log_id, self._wall(received_at, now_ns), now_ns, facts)
        self._unsafe.put(update.log_id, _Unsafe(span, now_ns))

    def again(self, document: StructuredLogger, one: Again) -> None:
        """Trace a repeated update that is answered again."""
        if self._events:
            document.debug("update repeated", log_id=one.log_id, sequence=one.sequence)

    def refused(self, document_id: str, no: RefusedUpdate, received_at: float) -> None:
        """Trace a refused update as a span; the log has a separate event."""
        if self._spans is None or not no.log_id or not self._spans.wanted(no.log_id):
            return
        facts = {**self._facts(document_id, no.log_id), "lorogo.reason": no.reason.value}
        if no.sequences:
            facts["lorogo.sequence"] = max(no.sequences)
        now_ns = self._clock.wall_ns()
        self._spans.accept(no.log_id, self._wall(received_at, now_ns), now_ns, facts, no.message)

    def answered(self, document: StructuredLogger, document_id: str, sequence: int, reply: Reply) -> None:
        """Trace the reply to an accepted update: an ACK, or a NACK after the lease was lost."""
        if self._events and isinstance(reply, Ack):
            document.debug(
                "update ACKed", log_id=reply.log_id, sequence=sequence, durability=reply.durability
            )
        if self._spans is None or (unsafe := self._unsafe.pop(reply.log_id)) is None:
            return
        facts = {**self._facts(document_id, reply.log_id), "lorogo.sequence": sequence}
        problem = ""
        match reply:
            case Ack(durability=durability, lease=lease):
                facts |= {"lorogo.durability": durability, "lorogo.lease": lease}
            case Nack(reason=reason, message=problem):
                facts["lorogo.reason"] = reason.value
        self._spans.ack(unsafe.span, unsafe.accepted_ns, self._clock.wall_ns(), facts, problem)

    def submitted(self, document_id: str, size: int, begun_ns: int, ack: Ack) -> None:
        """Trace an update that the server made for a call, after its ACK."""
        if self._spans is None or not self._spans.wanted(ack.log_id):
            return
        facts = {
            **self._facts(document_id, ack.log_id),
            "lorogo.bytes": size,
            "lorogo.attempts": 1,
            "lorogo.sequence": ack.sequence,
            "lorogo.durability": ack.durability,
            "lorogo.lease": ack.lease,
        }
        self._spans.send(ack.log_id, begun_ns, self._clock.wall_ns(), facts)

    def _facts(self, document_id: str, log_id: str) -> dict[str, str | int]:
        return {
            "lorogo.document": document_id,
            "lorogo.log_id": log_id,
            "lorogo.server": self._server_id,
        }

    def _wall(self, at: float, now_ns: int) -> int:
        """Convert a time of the local clock to wall-clock nanoseconds."""
        return now_ns - max(0, int((self._clock.now() - at) * 1e9))


def tracing_of(server_id: str, tracer_provider: object | None, clock: Clock) -> ServerTracing | None:
    """Return the tracing; None if neither events nor spans are on. Raises TypeError, OtelMissing."""
    events, spans = events_of(log) is not None, spans_of(tracer_provider)
    return ServerTracing(server_id, spans, clock, events=events) if events or spans is not None else None
