"""How often a refusal is told: a flood of them must not fill the log."""

from typing import Final

TOLD_AT_ONCE: Final = 20
TOLD_PER_SECOND: Final = 1.0


class LogThrottle:
    """Which refusals are told, and how many were not since the last that was."""

    __slots__ = ("_left", "_seen", "_untold", "count")

    def __init__(self) -> None:
        self._left = float(TOLD_AT_ONCE)
        self._seen: float | None = None
        self._untold = 0
        self.count = 0

    def tell(self, now: float) -> int | None:
        """None: say nothing. Else how many were kept back before this one."""
        self.count += 1
        if self._seen is not None:
            self._left = min(TOLD_AT_ONCE, self._left + (now - self._seen) * TOLD_PER_SECOND)
        self._seen = now
        if self._left < 1:
            self._untold += 1
            return None
        self._left -= 1
        untold, self._untold = self._untold, 0
        return untold
