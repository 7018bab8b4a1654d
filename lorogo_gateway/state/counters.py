"""Counters of WebSocket activity, for `/metrics` and the dashboard."""

from collections import Counter
from dataclasses import dataclass, field

from lorogo_gateway.frames import Status


@dataclass(slots=True)
class GatewayCounters:
    """Counters since the gateway was started."""

    opened: int = 0
    updates_in: int = 0
    updates_out: int = 0  # one per update and member, whatever its number of frames
    bytes_in: int = 0
    bytes_out: int = 0
    rejoins: int = 0  # suggested
    joins: int = 0
    joins_refused: int = 0  # because of the token
    slow_readers: int = 0
    acks: Counter[Status] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)  # by reason

    def facts(self) -> dict[str, object]:
        """Return the counters as plain values."""
        return {
            "opened": self.opened,
            "joins": self.joins,
            "joins_refused": self.joins_refused,
            "rejoins": self.rejoins,
            "updates_in": self.updates_in,
            "updates_out": self.updates_out,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "acks": {status.name.lower(): self.acks[status] for status in Status},
            "closed": dict(self.closed),
            "slow_readers_dropped": self.slow_readers,
        }
