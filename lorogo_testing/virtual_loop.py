"""An event loop on virtual time: it never waits, it moves its clock to the next timer.

One thread, no sockets, no files. Work for threads runs on the loop after a short delay. When nothing can
run any more and no timer is set, that is a deadlock, and an error.
"""

import asyncio
import heapq
import random
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast

from lorogo_testing.process import CURRENT, SimulatedCrash, SimulatedProcess

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

BEGIN = 1000.0
#: duration of a callback, so that waits below the clock's resolution end
_TURN_SECONDS = 1e-7
_THREAD_SECONDS = 0.002  # maximum duration of work in a thread


class Deadlock(Exception):
    """No callback is ready and no timer is set."""


class TurnLimitExceeded(Exception):
    """The run exceeded its limit of callbacks, probably in an endless loop."""


class SimLoop(asyncio.BaseEventLoop):
    """An event loop on virtual time, with processes that can be paused or dropped."""

    # attributes of asyncio's class that its type stubs lack
    _ready: deque[Any]  # of Handle
    _scheduled: list[Any]  # a heap of (when, order, TimerHandle)
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self, rng: random.Random, *, turns_max: int = 3_000_000) -> None:
        super().__init__()
        self.rng = rng
        self.turns = 0
        self.uncaught: list[dict[str, Any]] = []  # uncaught exceptions
        self._turns_max = turns_max
        self._now = BEGIN
        self._order = 0
        self.set_task_factory(_make_task)
        self.set_exception_handler(self._on_uncaught)

    def time(self) -> float:
        return self._now

    # --- one turn ----------------------------------------------------------------------------------

    def _run_once(self) -> None:
        ready = self._ready
        if not ready and not self._stopping:
            self._to_the_next_timer()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            owner: SimulatedProcess | None = handle._context.get(CURRENT)
            if owner is not None and not owner.runs:
                owner.hold(handle)
                continue
            self.turns += 1
            handle._run()
            self._now += _TURN_SECONDS
        if self.turns > self._turns_max:
            raise TurnLimitExceeded(f"{self.turns} callbacks without an end")

    def _to_the_next_timer(self) -> None:
        scheduled = self._scheduled
        while scheduled:
            handle = heapq.heappop(scheduled)[2]
            handle._scheduled = False
            if handle._cancelled:
                self._timer_cancelled_count -= 1
                continue
            owner: SimulatedProcess | None = handle._context.get(CURRENT)
            if owner is not None and not owner.alive:
                continue
            self._now = max(self._now, handle._when)
            self._ready.append(handle)
            # all other due timers, in the order of their times
            while scheduled and scheduled[0][0] <= self._now:
                other = heapq.heappop(scheduled)[2]
                other._scheduled = False
                if other._cancelled:
                    self._timer_cancelled_count -= 1
                else:
                    self._ready.append(other)
            return
        raise Deadlock("nothing can run, and no timer is set")

    def resume(self, process: SimulatedProcess) -> None:
        """Resume a paused process."""
        self._ready.extend(process.resume())

    # --- the interface of asyncio ------------------------------------------------------------------

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> events.TimerHandle:
        """Like asyncio's, but equal times keep their order, and comparing timers is cheap."""
        timer: Any = events.TimerHandle(when, callback, args, self, context)
        self._order += 1
        heapq.heappush(self._scheduled, (when, self._order, timer))
        timer._scheduled = True
        return cast("events.TimerHandle", timer)

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> events.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> "asyncio.Future[T]":
        done: asyncio.Future[T] = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001  # raised in the waiting task, as from a thread
                if not done.cancelled():
                    done.set_exception(error)
            else:
                if not done.cancelled():
                    done.set_result(result)

        self.call_later(self.rng.random() * _THREAD_SECONDS, work)
        return done

    def _process_events(self, event_list: object) -> None:
        """Do nothing: there are no I/O events."""

    def _write_to_self(self) -> None:
        """Do nothing: no other thread wakes the loop."""

    def _on_uncaught(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record an uncaught exception; it is a bug unless the process was killed."""
        if isinstance(context.get("exception"), SimulatedCrash):
            return
        if "was destroyed but it is pending" not in context.get("message", ""):
            self.uncaught.append(context)


def _make_task(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
    *,
    context: Context | None = None,
    **more: Any,
) -> "asyncio.Task[T]":
    task = asyncio.Task(coro, loop=loop, context=context, **more)
    owner = CURRENT.get() if context is None else context.get(CURRENT)
    if owner is not None:
        owner.keep(task)
    return task
