"""A process of the simulation: everything that runs on behalf of one server or client.

Who runs is a context variable. Tasks, callbacks and timers inherit it from whoever makes them, so the loop
knows whose every handle is, and can hold back or drop all that belong to one process.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any


class SimulatedCrash(BaseException):
    """The process is gone, or its machine stopped, within a call: no `except Exception` is to see it."""


CURRENT: ContextVar["SimulatedProcess | None"] = ContextVar("process", default=None)


class SimulatedProcess:
    """Runs, pauses, dies. What it began never knows that it is dead: as after `kill -9`."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, rng: random.Random) -> None:
        self.name = name
        self.rng = rng
        self.alive = True
        self.paused = False
        self.failed: BaseException | None = None  # what its main task raised
        self.ended = False
        self._loop = loop
        self._held: list[asyncio.Handle] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self.context: Context = copy_context()
        self.context.run(CURRENT.set, self)

    @property
    def running(self) -> bool:
        """Whether it is neither dead nor at its end; it may be paused."""
        return self.alive and not self.ended

    @property
    def runs(self) -> bool:
        """Whether its callbacks may run now."""
        return self.alive and not self.paused

    def run(
        self, main: Coroutine[Any, Any, None], then: Callable[["SimulatedProcess"], None] = lambda _: None
    ) -> None:
        """Begin its main task; `then` is told when that has ended by itself."""

        def done(task: asyncio.Task[None]) -> None:
            if self.alive and not task.cancelled():
                self.ended, self.failed = True, task.exception()
                then(self)

        task = self._loop.create_task(main, name=self.name, context=self.context)
        # told outside of the process: its end must not depend on it
        task.add_done_callback(done, context=copy_context())

    def keep(self, task: asyncio.Task[Any]) -> None:
        """A task of ours: kept until it is done, so that no collection of garbage runs its `finally`."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard, context=_NOBODY)

    def hold(self, handle: asyncio.Handle) -> None:
        """A callback whose time has come while we do not run."""
        if self.alive:
            self._held.append(handle)

    def pause(self) -> None:
        """As SIGSTOP: nothing runs; timers go on, and are late."""
        self.paused = True

    def resume(self) -> list[asyncio.Handle]:
        """As SIGCONT; what waited, in order."""
        self.paused = False
        held, self._held = self._held, []
        return held

    def kill(self) -> None:
        """Nothing of it ever runs again."""
        self.alive = False
        self._held.clear()

    def bury(self) -> None:
        """After the run: let what it had go, without a word of its tasks."""
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # nobody is to wonder
        self._tasks.clear()


_NOBODY = copy_context()
