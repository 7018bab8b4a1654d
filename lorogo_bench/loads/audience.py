"""Readers of one document in one process: the times when the last of them has each character."""

import asyncio
import os
import time

from lorogo_bench.results.last_reader import SlowestReader


class Audience:
    """A number of readers, identified by index."""

    def __init__(self, readers: int, seen_fd: int) -> None:
        """For each item that all readers have, a byte is written to `seen_fd`."""
        self.readers = readers
        self._everyone = SlowestReader(readers)
        self._seen_fd = seen_fd
        self._seen_ns: list[int] = []  # of each item that was not taken yet
        self._more = asyncio.Event()

    def has(self, reader: int, count: int) -> None:
        """Record the number of items that a reader has."""
        fresh = self._everyone.has(reader, count)
        if fresh:
            self._seen_ns += [time.monotonic_ns()] * fresh
            os.write(self._seen_fd, bytes(fresh))
            self._more.set()

    async def take(self, count: int) -> list[int]:
        """Return the times when the last reader had each of the next items."""
        while len(self._seen_ns) < count:
            self._more.clear()
            await self._more.wait()
        taken, self._seen_ns = self._seen_ns[:count], self._seen_ns[count:]
        return taken
