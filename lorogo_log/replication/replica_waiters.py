"""Who waits until so many replicas have a record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from lorogo_log.errors import LogError


@dataclass(slots=True, eq=False)
class _Waiter:
    sequence: int
    count: int
    done: asyncio.Future[None]


class Waiters:
    """Those who wait, each until enough replicas have its record. `have(sequence)` says how many do."""

    def __init__(self, have: Callable[[int], int]) -> None:
        self._have = have
        self._waiters: set[_Waiter] = set()

    def __len__(self) -> int:
        return len(self._waiters)

    async def wait(self, sequence: int, count: int, timeout: float) -> None:
        """Return when so many have it. Raises TimeoutError, and whatever `refuse` says."""
        if self._have(sequence) >= count:
            return
        waiter = _Waiter(sequence, count, asyncio.get_running_loop().create_future())
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter.done
        finally:
            self._waiters.discard(waiter)

    def settle(self) -> None:
        """A replica has more than before: whoever waited for that goes on."""
        for waiter in self._waiters:
            if not waiter.done.done() and self._have(waiter.sequence) >= waiter.count:
                waiter.done.set_result(None)

    def refuse(self, kind: type[LogError], why: str) -> None:
        """Nobody needs to wait any more: to each an error of this kind."""
        for waiter in self._waiters:
            if not waiter.done.done():
                waiter.done.set_exception(kind(why))
