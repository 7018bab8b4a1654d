"""Who looks at single updates: debug events, spans of OpenTelemetry, or nobody.

Client and server each have a `tracing` of their own on top of this, or None: whoever handles updates asks
`is None`, and does nothing more where nobody looks (docs/decisions/0018).
"""

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from lorogo_transport.telemetry.logs import StructuredLogger

if TYPE_CHECKING:
    from lorogo_transport.telemetry.otel import Spans  # loads OpenTelemetry

T = TypeVar("T")


class OtelMissing(ImportError):
    """A tracer provider was given, and the extra is not installed."""


def spans_of(tracer_provider: object | None) -> "Spans | None":
    """Spans for a provider; None without one, or where it is switched off. Raises TypeError, OtelMissing."""
    if tracer_provider is None:
        return None
    try:
        from lorogo_transport.telemetry import otel  # noqa: PLC0415 - only where it is asked for
    except ModuleNotFoundError:
        raise OtelMissing("spans need OpenTelemetry: pip install 'lorogo[otel]'") from None
    return otel.spans_of(tracer_provider)


def events_of(log: StructuredLogger) -> StructuredLogger | None:
    """The logger, if it says debug events; looked at once, when a client or server begins."""
    return log if log.debugging else None


class RecentEntries(Generic[T]):
    """Facts by key, of the newest that are not over: bounded, whatever is never heard of again."""

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
