"""Whether a compaction of one document is due, and why."""

import random

_SPREAD_MIN = 0.5


class CompactionRequest:
    """Somebody wants a compaction, or nobody; and when one was last tried."""

    __slots__ = ("_spread", "tried_at", "why")

    def __init__(self, now: float, rng: random.Random) -> None:
        self.why = ""  # it is wanted; nothing: it is not
        self.tried_at = now  # or loaded
        self._spread = _SPREAD_MIN + rng.random()  # so that not all are compacted at once

    def want(self, why: str) -> None:
        """Compact it soon; what was wanted first stays the reason."""
        self.why = self.why or why

    def again_at(self, every_seconds: float) -> float:
        """When one is due though nobody asks for it."""
        return self.tried_at + every_seconds * self._spread

    def tried(self, now: float) -> None:
        """One is done, or failed: nobody wants it any more."""
        self.why = ""
        self.tried_at = now
