"""Where time comes in: one small Protocol, so that tests and simulation can bring their own."""

import time
from typing import Protocol

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Two clocks: one for people, one for decisions."""

    def wall_ns(self) -> int:
        """Unix nanoseconds, for people and records. No decision rests on it."""

    def now(self) -> float:
        """Seconds that only go forward, also while the machine sleeps. For every decision."""


class SystemClock:
    """The machine's clocks."""

    def wall_ns(self) -> int:
        return time.time_ns()

    def now(self) -> float:
        return time.clock_gettime(_BOOT)
