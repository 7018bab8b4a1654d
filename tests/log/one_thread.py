"""A log whose work is done on the loop: no thread is started, and none may be waited for."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from lorogo_log import MemoryStorage


class LoopWorkers:
    """Work waits for the next turn of the loop; without one, until somebody calls `turn()`."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.seconds = 0.0
        self._rng = random.Random(0)

    def later(self, work: Callable[[], None], seconds: float = 0.0) -> None:
        self.waiting.append(work)
        try:
            asyncio.get_running_loop().call_later(seconds, self._do, work)
        except RuntimeError:
            return  # no loop: `turn()` does it

    def turn(self) -> None:
        """Do everything that waits, and what comes of it."""
        while self.waiting:
            self._do(self.waiting[0])

    def _do(self, work: Callable[[], None]) -> None:
        if work in self.waiting:
            self.waiting.remove(work)
            work()

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> int:
        return 1_700_000_000_000_000_000

    def random_bytes(self, size: int) -> bytes:
        return self._rng.randbytes(size)


class OneThreadStorage(MemoryStorage):
    """Memory, and who works on it."""

    def __init__(self) -> None:
        super().__init__()
        self.hands = LoopWorkers()
        self.workers = self.hands


async def here(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """`asyncio.to_thread` without the thread."""
    await asyncio.sleep(0)
    return function(*args, **options)
