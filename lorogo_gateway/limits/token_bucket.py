"""A token bucket. Pure."""


class TokenBucket:
    """A rate per second and a burst of some seconds of that rate.

    The level may drop below zero: an update larger than the whole bucket passes when the bucket is not empty,
    so the limit slows a sender down but never blocks it forever.
    """

    __slots__ = ("_at", "_full", "_level", "_rate")

    def __init__(self, rate: float, burst_seconds: float, *, now: float) -> None:
        self._rate = rate
        self._full = rate * burst_seconds
        self._level = self._full
        self._at = now

    def take(self, amount: float, *, now: float) -> bool:
        """Take the amount if the bucket is not empty; returns whether it was taken."""
        if self._filled(now) <= 0:
            return False
        self._level -= amount
        return True

    def charge(self, amount: float, *, now: float) -> None:
        """Take the amount even if the bucket is empty."""
        self._filled(now)
        self._level -= amount

    def seconds(self, *, now: float) -> float:
        """Return the seconds until the bucket holds one second of the rate."""
        return max(0.0, (min(self._rate, self._full) - self._filled(now)) / self._rate)

    def _filled(self, now: float) -> float:
        self._level = min(self._full, self._level + (now - self._at) * self._rate)
        self._at = now
        return self._level
