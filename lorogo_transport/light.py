"""Small forms of what asyncio has, for state that each of many documents keeps."""

import asyncio
from collections.abc import Callable

from lorogo_transport.clock import Clock


class Event:
    """As asyncio.Event, in 48 bytes instead of 900: nobody waits for most of them, most of the time."""

    __slots__ = ("_set", "_waiting")

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[asyncio.Future[None]] | None = None

    def is_set(self) -> bool:
        """Whether it is set now."""
        return self._set

    def set(self) -> None:
        """Let all go on that wait, and nobody wait from now on."""
        self._set = True
        waiting, self._waiting = self._waiting, None
        for one in waiting or ():
            if not one.done():
                one.set_result(None)

    def clear(self) -> None:
        """Let those wait who come from now on; who was let go goes."""
        self._set = False

    async def wait(self) -> None:
        """Until it is set."""
        if self._set:
            return
        one = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = [one]
        else:
            self._waiting.append(one)
        try:
            await one
        finally:
            self._forget(one)

    def _forget(self, one: "asyncio.Future[None]") -> None:
        """It waits no more, perhaps because it gave up."""
        if self._waiting is not None and one in self._waiting:
            self._waiting.remove(one)


class Timer:
    """Rings at the earliest of the times that it was asked for since it rang last.

    For whoever waits for an event or a time, and finds both out anew when it wakes: times mostly move on with
    each event, and a timeout would be made and taken back for each wait.
    """

    __slots__ = ("_at", "_clock", "_handle", "_ring")

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0  # when that rings, by our own clock

    def ring_at(self, at: float) -> None:
        """Ring then, or before: what is set already stays, since setting it costs much."""
        if self._handle is None or at < self._at:
            self.stop()
            delay = at - self._clock.now()
            self._at = at
            self._handle = asyncio.get_running_loop().call_later(delay, self._on_time)

    def stop(self) -> None:
        """Do not ring."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _on_time(self) -> None:
        self._handle = None
        self._ring()
