"""An alarm for whoever waits for an event or a time, and finds both out anew whenever it wakes.

Times mostly move on with each event. So an alarm that is set stays if it goes off early, and whoever is woken
sets the next one: that is once in a while, where a timeout would be made and taken back for each wait.
"""

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls `ring` at the time that was asked for, or before it."""

    __slots__ = ("_at", "_handle", "_ring")

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._at = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at: float, now: float) -> None:
        """Ring at this time at the latest; both are of the clock that the caller decides by."""
        if self._handle is not None:
            if self._at <= at:
                return
            self._handle.cancel()
        self._at = at
        self._handle = asyncio.get_running_loop().call_later(max(0.0, at - now), self._rings)

    def cancel(self) -> None:
        """Do not ring."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _rings(self) -> None:
        self._handle = None
        self._ring()
