"""How much a connection may send: a token bucket. Pure."""


class TokenBucket:
    """So much per second, and so many seconds' worth at once.

    It may go below zero once: an update larger than the whole bucket passes when the bucket is not empty, so
    a limit slows a sender and never shuts one out.
    """

    __slots__ = ("_at", "_full", "_level", "_rate")

    def __init__(self, rate: float, burst_seconds: float, *, now: float) -> None:
        self._rate = rate
        self._full = rate * burst_seconds
        self._level = self._full
        self._at = now

    def take(self, amount: float, *, now: float) -> bool:
        """Whether it may pass; if not, nothing is taken."""
        if self._filled(now) <= 0:
            return False
        self._level -= amount
        return True

    def charge(self, amount: float, *, now: float) -> None:
        """It has passed already: it is paid back by those who come next."""
        self._filled(now)
        self._level -= amount

    def seconds(self, *, now: float) -> float:
        """How long until a second's worth may pass again."""
        return max(0.0, (min(self._rate, self._full) - self._filled(now)) / self._rate)

    def _filled(self, now: float) -> float:
        self._level = min(self._full, self._level + (now - self._at) * self._rate)
        self._at = now
        return self._level
