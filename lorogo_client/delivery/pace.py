"""Rate limit of a session in updates and bytes per second, with a burst of one second. Pure.

Updates above the limit wait in the outbox; none is dropped.
"""

_BURST_SECONDS = 1.0


class Pace:
    """The rate limit of one sender; without limits it never delays."""

    def __init__(self, updates_per_second: float | None, bytes_per_second: float | None) -> None:
        self._update_seconds = 1.0 / updates_per_second if updates_per_second else 0.0
        self._byte_seconds = 1.0 / bytes_per_second if bytes_per_second else 0.0
        self._paid_until = 0.0  # sent updates use up the rate until then

    @property
    def limited(self) -> bool:
        return bool(self._update_seconds or self._byte_seconds)

    def wait(self, now: float) -> float:
        """Return the seconds until the next update may be sent, whatever its size; 0: now."""
        return max(0.0, self._paid_until - _BURST_SECONDS - now)

    def sent(self, size: int, now: float) -> None:
        """Count a sent update of `size` bytes."""
        cost = max(self._update_seconds, size * self._byte_seconds)
        self._paid_until = max(self._paid_until, now) + cost
