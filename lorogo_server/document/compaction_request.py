"""Request for a compaction of one document: reason and time of the last attempt."""

import random

_SPREAD_MIN = 0.5


class CompactionRequest:
    """The pending request, if any, and the time of the last attempt."""

    __slots__ = ("_spread", "tried_at", "why")

    def __init__(self, now: float, rng: random.Random) -> None:
        self.why = ""  # reason of the request; empty: none
        self.tried_at = now  # or the time of the load
        self._spread = _SPREAD_MIN + rng.random()  # spreads compactions over time

    def want(self, why: str) -> None:
        """Request a compaction; the first reason is kept."""
        self.why = self.why or why

    def again_at(self, every_seconds: float) -> float:
        """Time of the next compaction without a request."""
        return self.tried_at + every_seconds * self._spread

    def tried(self, now: float) -> None:
        """Clear the request after an attempt, successful or not."""
        self.why = ""
        self.tried_at = now
