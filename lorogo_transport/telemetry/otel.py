"""The border to OpenTelemetry: finished spans of updates, under ids that follow from the log id.

    lorogo.send     client    from the first try until the answer; its span id follows from the log id, too
    └ lorogo.accept owner     from its arrival until it is applied and given to the journal, or refused
      └ lorogo.ack  owner     until the disk has it and the ACK is out

A span is made when it is over: nothing is open meanwhile, and an update that nobody wants to see costs one
question to the sampler. docs/decisions/0018 says why nothing of this is on the wire. Needs `lorogo[otel]`.
"""

import threading
from collections.abc import Mapping
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import Tracer, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from lorogo_protocol.tracing import send_span_id, trace_id
from lorogo_transport.release import release

__all__ = ["SpanContext", "Spans", "spans_of"]

Facts = Mapping[str, str | int]

SEND: Final = "lorogo.send"
ACCEPT: Final = "lorogo.accept"
ACK: Final = "lorogo.ack"

_KINDS = {SEND: SpanKind.PRODUCER, ACCEPT: SpanKind.CONSUMER, ACK: SpanKind.INTERNAL}
_NOWHERE = Context()  # else what the app's task happens to be doing would be the parent
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def spans_of(provider: object) -> "Spans | None":
    """Spans for this TracerProvider; None if it is switched off (OTEL_SDK_DISABLED). Raises TypeError."""
    if not isinstance(provider, TracerProvider):
        raise TypeError(
            f"tracer_provider must be a TracerProvider of opentelemetry-sdk, not {type(provider).__name__}"
        )
    tracer = provider.get_tracer("lorogo", release())
    return Spans(tracer) if isinstance(tracer, Tracer) else None


class Spans:
    """Tells spans to one tracer."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        given = tracer.id_generator  # of a tracer that is ours alone: it goes by our name
        self._ids = given if isinstance(given, _Ids) else _Ids(given)
        tracer.id_generator = self._ids

    def wanted(self, log_id: str) -> bool:
        """Whether the sampler wants to see this update.

        A sampler that goes by the trace id says the same at every end.
        """
        verdict = self._tracer.sampler.should_sample(_NOWHERE, trace_id(log_id), SEND)
        return verdict.decision is Decision.RECORD_AND_SAMPLE

    def send(self, log_id: str, begun_ns: int, ended_ns: int, facts: Facts, problem: str = "") -> None:
        """An update was sent, and is answered or given up."""
        self._ids.told = (trace_id(log_id), send_span_id(log_id))
        try:
            self._tell(SEND, _NOWHERE, begun_ns, ended_ns, facts, problem)
        finally:
            self._ids.told = None

    def accept(
        self, log_id: str, begun_ns: int, ended_ns: int, facts: Facts, problem: str = ""
    ) -> SpanContext:
        """An owner took an update, or refused it; gives the place of what follows from it."""
        parent = SpanContext(trace_id(log_id), send_span_id(log_id), is_remote=True, trace_flags=_SAMPLED)
        return self._tell(ACCEPT, _within(parent), begun_ns, ended_ns, facts, problem)

    def ack(self, parent: SpanContext, begun_ns: int, ended_ns: int, facts: Facts, problem: str = "") -> None:
        """The ACK is out, or cannot be said."""
        self._tell(ACK, _within(parent), begun_ns, ended_ns, facts, problem)

    def _tell(
        self, name: str, context: Context, begun_ns: int, ended_ns: int, facts: Facts, problem: str
    ) -> SpanContext:
        span = self._tracer.start_span(
            name, context, kind=_KINDS[name], attributes=facts, start_time=begun_ns
        )
        if problem:
            span.set_status(Status(StatusCode.ERROR, problem))
        span.end(end_time=max(begun_ns, ended_ns))
        return span.get_span_context()


def _within(parent: SpanContext) -> Context:
    return set_span_in_context(NonRecordingSpan(parent), _NOWHERE)


class _Ids(IdGenerator):
    """Ids that the next span is told to have, and the provider's own else; each thread has its next."""

    def __init__(self, own: IdGenerator) -> None:
        self._own = own
        self._here = threading.local()

    @property
    def told(self) -> tuple[int, int] | None:
        return getattr(self._here, "told", None)

    @told.setter
    def told(self, ids: tuple[int, int] | None) -> None:
        self._here.told = ids

    def generate_trace_id(self) -> int:
        return self._own.generate_trace_id() if self.told is None else self.told[0]

    def generate_span_id(self) -> int:
        return self._own.generate_span_id() if self.told is None else self.told[1]
