"""How fast a session sends: so many updates and bytes a second, with a second's worth at once. Pure.

What is too early waits in the outbox; nothing is dropped.
"""

_BURST_SECONDS = 1.0


class Pace:
    """The pace of one sender; without limits it never waits."""

    def __init__(self, updates_per_second: float | None, bytes_per_second: float | None) -> None:
        self._update_seconds = 1.0 / updates_per_second if updates_per_second else 0.0
        self._byte_seconds = 1.0 / bytes_per_second if bytes_per_second else 0.0
        self._paid_until = 0.0  # what was sent is worth the time until then

    @property
    def limited(self) -> bool:
        return bool(self._update_seconds or self._byte_seconds)

    def wait(self, now: float) -> float:
        """Seconds until the next update may leave, however large it is; 0: at once."""
        return max(0.0, self._paid_until - _BURST_SECONDS - now)

    def sent(self, size: int, now: float) -> None:
        """An update of so many bytes left."""
        cost = max(self._update_seconds, size * self._byte_seconds)
        self._paid_until = max(self._paid_until, now) + cost
