"""The clock: one small Protocol, so that tests and simulation can replace it."""

import time
from typing import Protocol

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Two clocks: a wall clock for display, a monotonic one for decisions."""

    def wall_ns(self) -> int:
        """Return Unix nanoseconds, for display and records only."""

    def now(self) -> float:
        """Return monotonic seconds, which advance while the machine sleeps. For every decision."""


class SystemClock:
    """The machine's clocks."""

    def wall_ns(self) -> int:
        return time.time_ns()

    def now(self) -> float:
        return time.clock_gettime(_BOOT)
