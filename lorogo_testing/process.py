"""A simulated process: everything that runs on behalf of one server or client.

The current process is a context variable. Tasks, callbacks and timers inherit it from their creator, so the
loop knows the process of every handle, and can pause or drop all handles of one process.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any


class SimulatedCrash(BaseException):
    """The process or its machine crashes within a call; no `except Exception` may catch it."""


CURRENT: ContextVar["SimulatedProcess | None"] = ContextVar("process", default=None)


class SimulatedProcess:
    """A process that can be paused and killed. Its tasks get no notice of a kill, as after `kill -9`."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, rng: random.Random) -> None:
        self.name = name
        self.rng = rng
        self.alive = True
        self.paused = False
        self.failed: BaseException | None = None  # the exception of its main task
        self.ended = False
        self._loop = loop
        self._held: list[asyncio.Handle] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self.context: Context = copy_context()
        self.context.run(CURRENT.set, self)

    @property
    def running(self) -> bool:
        """True if it is neither dead nor ended; it may be paused."""
        return self.alive and not self.ended

    @property
    def runs(self) -> bool:
        """True if its callbacks may run now."""
        return self.alive and not self.paused

    def run(
        self, main: Coroutine[Any, Any, None], then: Callable[["SimulatedProcess"], None] = lambda _: None
    ) -> None:
        """Start its main task; `then` is called when that has ended by itself."""

        def done(task: asyncio.Task[None]) -> None:
            if self.alive and not task.cancelled():
                self.ended, self.failed = True, task.exception()
                then(self)

        task = self._loop.create_task(main, name=self.name, context=self.context)
        # called outside of the process: its end must not depend on it
        task.add_done_callback(done, context=copy_context())

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Reference a task of the process until it is done, so that no `finally` runs at collection."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard, context=_NO_PROCESS)

    def hold(self, handle: asyncio.Handle) -> None:
        """Queue a due callback while the process is paused."""
        if self.alive:
            self._held.append(handle)

    def pause(self) -> None:
        """Pause as SIGSTOP: nothing runs; timers continue and are late."""
        self.paused = True

    def resume(self) -> list[asyncio.Handle]:
        """Resume as SIGCONT; return the queued callbacks in order."""
        self.paused = False
        held, self._held = self._held, []
        return held

    def kill(self) -> None:
        """Kill the process: none of its callbacks run again."""
        self.alive = False
        self._held.clear()

    def discard_tasks(self) -> None:
        """Release the tasks after the run, without asyncio's warnings."""
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # no warning about a pending task
        self._tasks.clear()


_NO_PROCESS = copy_context()
