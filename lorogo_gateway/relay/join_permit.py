"""Permit of one join: bounds the number of owners' answers in memory."""

import asyncio


class JoinPermit:
    """One place among those of a semaphore.

    A join takes it when its owner is known, just before the request, so a document without an owner delays no
    other. The join gives it back if no answer comes; the caller gives it back after the answer.
    """

    __slots__ = ("_held", "_places")

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._held = False

    async def take(self) -> None:
        """Wait for a place; taking it twice changes nothing. The caller has the deadline."""
        if not self._held:
            await self._places.acquire()
            self._held = True

    def give_back(self) -> None:
        """Release the place for another join; giving it back twice changes nothing."""
        if self._held:
            self._held = False
            self._places.release()
