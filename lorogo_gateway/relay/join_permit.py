"""A turn among joins: so many answers of owners are in memory at once, however large."""

import asyncio


class JoinPermit:
    """One place among those of a semaphore.

    A join takes it when its owner is known and about to be asked, so a document that nobody serves holds up
    no other; it gives it back if no answer comes. Whoever asked for the join gives it back after the answer.
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
        """Somebody else's turn; giving it back twice changes nothing."""
        if self._held:
            self._held = False
            self._places.release()
