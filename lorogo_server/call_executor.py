"""Work of calls, counted in units, and done where no other document waits for it.

Loro and Python hold the interpreter's lock while they work, so long work is bounded and leaves the event
loop: a call first runs on the loop with `LOOP_WORK_MAX` units. If these do not suffice, it runs once more,
in a thread, on a copy of the document that only this call has. A thread gives the lock up every 5 ms and
between two calls of Loro. A unit takes about 0.1 us (docs/decisions/0003).
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from lorogo_protocol.crdt import Replica
from lorogo_protocol.limits import LOOP_WORK_MAX

VALUE_UNITS = 32  # a value, beside its characters: one unit each
CONTAINER_UNITS = 256
OPERATION_UNITS = 128  # of a patch
TOKEN_UNITS = 16  # of a pointer
TEXT_PART_CHARS = 1024  # of a text, for which finding a position in it costs a unit
SLOW_DIFF_UNITS = 256 * 1024

_THREADS_MAX = 2

Spend = Callable[[int], None]
T = TypeVar("T")


class OverBudget(Exception):
    """The work is more than its budget."""


class Meter:
    """Counts units of work."""

    __slots__ = ("_left",)

    def __init__(self, units_max: int | None) -> None:
        """None: any number."""
        self._left = units_max

    def spend(self, units: int) -> None:
        """Call this before the work is done. Raises OverBudget."""
        if self._left is not None:
            self._left -= units
            if self._left < 0:
                raise OverBudget


def unmetered(_: int) -> None:
    """Spend without a budget."""


def cost(value: object) -> int:
    """The units of a plain value that is read or written."""
    match value:
        case dict():
            return VALUE_UNITS + sum(len(key) + cost(item) for key, item in value.items())
        case list():
            return VALUE_UNITS + sum(map(cost, value))
        case str() | bytes():
            return VALUE_UNITS + len(value)
        case _:
            return VALUE_UNITS


class CallExecutor:
    """Runs the work of a server's calls."""

    __slots__ = ("_threads", "_turn")

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._threads = asyncio.Semaphore(_THREADS_MAX)

    async def run(
        self,
        work: Callable[[Replica, Meter], T],
        *,
        on_loop: Callable[[], Replica],
        copy: Callable[[], Replica],
        units_max: int | None = None,
    ) -> T:
        """Return what the work returns, done on the loop or, with a `copy`, in a thread.

        Raises OverBudget beyond `units_max`, and what the work raises.
        """
        async with self._turn:  # one call between two turns of the loop
            try:
                return work(on_loop(), Meter(LOOP_WORK_MAX))
            except OverBudget:
                pass
            finally:
                await asyncio.sleep(0)
        async with self._threads:
            return await asyncio.to_thread(work, copy(), Meter(units_max))

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Return what the work returns, done in a thread."""
        async with self._threads:
            return await asyncio.to_thread(work)
