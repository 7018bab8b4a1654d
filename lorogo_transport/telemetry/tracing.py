"""Tracing of single updates by debug events and OpenTelemetry spans.

Client and server each have a `tracing` object on top of this, or None: code that handles updates checks for
None first, so that disabled tracing costs nothing (docs/decisions/0018).
"""

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from lorogo_transport.telemetry.logs import StructuredLogger

if TYPE_CHECKING:
    from lorogo_transport.telemetry.otel import Spans  # loads OpenTelemetry

T = TypeVar("T")


class OtelMissing(ImportError):
    """A tracer provider was given, but the extra `otel` is not installed."""


def spans_of(tracer_provider: object | None) -> "Spans | None":
    """Return the spans of a provider; None without one or if disabled. Raises TypeError, OtelMissing."""
    if tracer_provider is None:
        return None
    try:
        from lorogo_transport.telemetry import otel  # noqa: PLC0415 - loaded on demand
    except ModuleNotFoundError:
        raise OtelMissing("spans need OpenTelemetry: pip install 'lorogo[otel]'") from None
    return otel.spans_of(tracer_provider)


def events_of(log: StructuredLogger) -> StructuredLogger | None:
    """Return the logger if debug events are enabled; checked once, at the start of a client or server."""
    return log if log.debugging else None


class RecentEntries(Generic[T]):
    """Facts by key, of the newest unfinished entries; bounded, the oldest are dropped."""

    def __init__(self, entries_max: int = 65_536) -> None:
        self._entries_max = entries_max
        self._entries: OrderedDict[str, T] = OrderedDict()

    def get(self, key: str) -> T | None:
        return self._entries.get(key)

    def put(self, key: str, facts: T) -> None:
        self._entries[key] = facts
        if len(self._entries) > self._entries_max:
            self._entries.popitem(last=False)

    def pop(self, key: str) -> T | None:
        return self._entries.pop(key, None)

    def __len__(self) -> int:
        return len(self._entries)
