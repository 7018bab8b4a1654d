"""The border to OpenTelemetry: finished spans of updates, with ids derived from the log id.

    lorogo.send     client    from the first attempt until the reply; its span id is derived from the log id
      └ lorogo.accept owner   from its arrival until it is applied and queued for the journal, or refused.
        └ lorogo.ack  owner   until it is on the disk and the ACK is sent

A span is created when it has ended: no span is open in between, and an update that is not sampled costs one
call of the sampler. docs/decisions/0018 explains why no trace data is on the wire. Needs `lorogo[otel]`.
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

from lorogo_protocol.messages.tracing import send_span_id, trace_id
from lorogo_transport.release import release

__all__ = ["SpanContext", "Spans", "spans_of"]

Facts = Mapping[str, str | int]

SEND: Final = "lorogo.send"
ACCEPT: Final = "lorogo.accept"
ACK: Final = "lorogo.ack"

_KINDS = {SEND: SpanKind.PRODUCER, ACCEPT: SpanKind.CONSUMER, ACK: SpanKind.INTERNAL}
_NOWHERE = Context()  # else the current span of the app's task would be the parent
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def spans_of(provider: object) -> "Spans | None":
    """Return the spans of this TracerProvider; None if disabled (OTEL_SDK_DISABLED). Raises TypeError."""
    if not isinstance(provider, TracerProvider):
        raise TypeError(
            f"tracer_provider must be a TracerProvider of opentelemetry-sdk, not {type(provider).__name__}"
        )
    tracer = provider.get_tracer("lorogo", release())
    return Spans(tracer) if isinstance(tracer, Tracer) else None


class Spans:
    """Creates spans of updates on one tracer."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        given = tracer.id_generator  # this tracer has lorogo's name, so no other code uses it
        self._ids = given if isinstance(given, _Ids) else _Ids(given)
        tracer.id_generator = self._ids

    def wanted(self, log_id: str) -> bool:
        """Return whether the sampler wants this update.

        A sampler that decides by trace id decides alike in client and server.
        """
        verdict = self._tracer.sampler.should_sample(_NOWHERE, trace_id(log_id), SEND)
        return verdict.decision is Decision.RECORD_AND_SAMPLE

    def send(self, log_id: str, begun_ns: int, ended_ns: int, facts: Facts, problem: str = "") -> None:
        """Emit the span of an update that was sent, and answered or given up."""
        self._ids.next_ids = (trace_id(log_id), send_span_id(log_id))
        try:
            self._emit(SEND, _NOWHERE, begun_ns, ended_ns, facts, problem)
        finally:
            self._ids.next_ids = None

    def accept(
        self, log_id: str, begun_ns: int, ended_ns: int, facts: Facts, problem: str = ""
    ) -> SpanContext:
        """Emit the span of an accepted or refused update; return its context for the ACK's span."""
        parent = SpanContext(trace_id(log_id), send_span_id(log_id), is_remote=True, trace_flags=_SAMPLED)
        return self._emit(ACCEPT, _within(parent), begun_ns, ended_ns, facts, problem)

    def ack(self, parent: SpanContext, begun_ns: int, ended_ns: int, facts: Facts, problem: str = "") -> None:
        """Emit the span of an ACK that was sent, or could not be sent."""
        self._emit(ACK, _within(parent), begun_ns, ended_ns, facts, problem)

    def _emit(
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
    """Generates the ids in `next_ids` for the next span of a thread, else the provider's own."""

    def __init__(self, own: IdGenerator) -> None:
        self._own = own
        self._here = threading.local()

    @property
    def next_ids(self) -> tuple[int, int] | None:
        return getattr(self._here, "next_ids", None)

    @next_ids.setter
    def next_ids(self, ids: tuple[int, int] | None) -> None:
        self._here.next_ids = ids

    def generate_trace_id(self) -> int:
        return self._own.generate_trace_id() if self.next_ids is None else self.next_ids[0]

    def generate_span_id(self) -> int:
        return self._own.generate_span_id() if self.next_ids is None else self.next_ids[1]
