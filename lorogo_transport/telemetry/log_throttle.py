"""Rate limit for log lines about refusals, so that a flood of them does not fill the log."""

from typing import Final

BURST_LINES: Final = 20
LINES_PER_SECOND: Final = 1.0


class LogThrottle:
    """Decides which refusals are logged, and counts the suppressed ones."""

    __slots__ = ("_left", "_seen", "_suppressed", "count")

    def __init__(self) -> None:
        self._left = float(BURST_LINES)
        self._seen: float | None = None
        self._suppressed = 0
        self.count = 0

    def admit(self, now: float) -> int | None:
        """Return None to suppress the line, else the number of lines suppressed since the last one."""
        self.count += 1
        if self._seen is not None:
            self._left = min(BURST_LINES, self._left + (now - self._seen) * LINES_PER_SECOND)
        self._seen = now
        if self._left < 1:
            self._suppressed += 1
            return None
        self._left -= 1
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed
