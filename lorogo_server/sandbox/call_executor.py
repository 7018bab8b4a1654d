"""Runs the work of RPC calls, metered in units, without delaying other documents.

Loro and Python hold the interpreter's lock while they work, so long work is bounded and leaves the event
loop: a call first runs on the loop with `LOOP_WORK_MAX` units. If these do not suffice, it runs again in a
thread, on a private copy of the document. The thread releases the lock after every few units; otherwise
the loop waits 5 ms for it in each iteration. A unit takes about 0.1 us (0003 in docs/decisions).
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from lorogo_protocol.limits import LOOP_WORK_MAX
from lorogo_protocol.loro.crdt import Replica

VALUE_UNITS = 32  # a value; each of its characters costs one unit more
CONTAINER_UNITS = 256
OPERATION_UNITS = 128  # of a patch
TOKEN_UNITS = 16  # of a pointer
TEXT_PART_CHARS = 1024  # characters of a text per unit, for finding a position in it
SLOW_DIFF_UNITS = 256 * 1024

_LONG_MAX = 1  # threads for calls above LOOP_WORK_MAX: two would starve the loop of the lock
_SHORT_MAX = 2
_PAUSE_UNITS = 8 * 1024  # in a thread, about 1 ms
_PAUSE_SECONDS = 0.001

Spend = Callable[[int], None]
T = TypeVar("T")


class OverBudget(Exception):
    """The work is more than its budget."""


class WorkMeter:
    """Counts units of work."""

    __slots__ = ("_max", "_pause", "_pause_at", "_spent")

    def __init__(self, units_max: int | None, pause: Callable[[], None] | None = None) -> None:
        """None: any number. `pause` is called every few units."""
        self._max = units_max
        self._pause = pause
        self._pause_at = _PAUSE_UNITS
        self._spent = 0

    @property
    def spent(self) -> int:
        """The units so far."""
        return self._spent

    def spend(self, units: int) -> None:
        """Count units before the work is done. Raises OverBudget."""
        self._spent += units
        if self._max is not None and self._spent > self._max:
            raise OverBudget
        if self._pause is not None and self._spent >= self._pause_at:
            self._pause_at = self._spent + _PAUSE_UNITS
            self._pause()


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


def _pause() -> None:
    time.sleep(_PAUSE_SECONDS)


class CallExecutor:
    """Runs the work of a server's calls. Short work never waits for long work."""

    __slots__ = ("_long", "_short", "_turn")

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._long = asyncio.Semaphore(_LONG_MAX)
        self._short = asyncio.Semaphore(_SHORT_MAX)

    async def run(
        self,
        work: Callable[[Replica, WorkMeter], T],
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
                return work(on_loop(), WorkMeter(LOOP_WORK_MAX))
            except OverBudget:
                pass
            finally:
                await asyncio.sleep(0)
        return await _in_thread(self._long, lambda: partial(work, copy(), WorkMeter(units_max, _pause)))

    async def in_thread(self, work: Callable[[], T], *, units: int) -> T:
        """Return what the work returns, done in a thread. `units`: what its input cost to read."""
        return await _in_thread(self._short if units <= LOOP_WORK_MAX else self._long, lambda: work)


async def _in_thread(threads: asyncio.Semaphore, prepare: Callable[[], Callable[[], T]]) -> T:
    """Run in one of the threads what `prepare` returns on the loop, when there is a free one."""
    await threads.acquire()
    running: asyncio.Future[T] | None = None
    try:
        running = asyncio.ensure_future(asyncio.to_thread(prepare()))
        running.add_done_callback(lambda done: _ended(threads, done))
    finally:
        if running is None:
            threads.release()
    return await asyncio.shield(running)  # a cancelled call leaves its thread busy until the work ends


def _ended(threads: asyncio.Semaphore, done: "asyncio.Future[T]") -> None:
    threads.release()
    if not done.cancelled():
        done.exception()  # a cancelled call does not retrieve it
