"""Turns for one resource: the smallest that waits is next, and now and then the one that waits longest.

A large update takes longer to decode than a small one. In the order of arrival an update of 10 KiB waits
behind one of every other document; in the order of size it waits for the one that is being decoded.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_OLDEST_EACH = 8  # of so many turns one goes to the oldest, however large it is


class ShortestFirst:
    """One turn at a time; on the event loop."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[int, asyncio.Future[None]]] = {}  # (size, its turn), by arrival
        self._arrivals = 0
        self._turns = 0
        self._taken = False

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """Enter when it is the turn of this one."""
        if self._taken:
            await self._wait(size)
        self._taken = True
        try:
            yield
        finally:
            self._next()

    def close(self) -> None:
        """Cancel all that wait."""
        for _, turn in self._waiting.values():
            turn.cancel()
        self._waiting.clear()

    async def _wait(self, size: int) -> None:
        arrival, turn = self._arrivals, asyncio.get_running_loop().create_future()
        self._arrivals += 1
        self._waiting[arrival] = (size, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if self._waiting.pop(arrival, None) is None and not turn.cancelled():
                self._next()  # it was given the turn, and does not take it
            raise

    def _next(self) -> None:
        """Give the turn to the next one."""
        self._taken = False
        while self._waiting and not self._taken:
            self._turns += 1
            if self._turns % _OLDEST_EACH == 0:
                arrival = next(iter(self._waiting))
            else:
                arrival = min(self._waiting, key=lambda one: (self._waiting[one][0], one))
            _, turn = self._waiting.pop(arrival)
            if not turn.cancelled():  # its task was, and does not know yet
                turn.set_result(None)
                self._taken = True
