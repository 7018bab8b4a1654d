"""Background tasks with an owner: cancelled and awaited when it closes."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

Work = Coroutine[Any, Any, None]
OnError = Callable[[Exception], None]
First = TypeVar("First")
Second = TypeVar("Second")


class Tasks:
    """The tasks of one server, document or room. What a task raises goes to `on_error`, once."""

    def __init__(self, on_error: OnError) -> None:
        self._on_error = on_error
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def spawn(
        self, work: Work, *, name: str = "", on_error: Callable[[Exception], None] | None = None
    ) -> None:
        """Run it until it ends or `close()`; after `close()` nothing is begun any more."""
        if self._closed:
            work.close()
            return
        watched = _watched(work, on_error or self._on_error)
        task = asyncio.get_running_loop().create_task(watched, name=name or None)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # if it was cancelled before it began

    async def idle(self) -> None:
        """Wait until all have ended by themselves. The caller has the deadline."""
        while tasks := [task for task in self._tasks if task is not asyncio.current_task()]:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Cancel all and wait until they are gone; a task that closes its owner is spared."""
        self._closed = True
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._on_error = _nobody  # we hold our owner no more: it goes at once, not with a later collection


def _nobody(_: Exception) -> None:
    """Nothing is begun any more that could fail."""


async def _watched(work: Work, on_error: OnError) -> None:
    try:
        await work
    except Exception as error:  # noqa: BLE001  # that is what the owner is for
        on_error(error)


async def together(first: Awaitable[First], second: Coroutine[Any, Any, Second]) -> tuple[First, Second]:
    """What both give; the second runs beside the first, and not longer than we wait."""
    beside = asyncio.get_running_loop().create_task(second)
    try:
        return await first, await beside
    finally:
        if not beside.done():
            beside.cancel()
            await asyncio.wait((beside,))
        if not beside.cancelled():
            beside.exception()  # seen, should the first have failed


def being_cancelled() -> bool:
    """Whether the running task is asked to end; if not, a CancelledError is of what it waited for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
