"""Background tasks with an owner: cancelled and awaited when it closes."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

Work = Coroutine[Any, Any, None]
OnError = Callable[[Exception], None]
First = TypeVar("First")
Second = TypeVar("Second")


class Tasks:
    """The tasks of one server, document or room. A task's exception goes to `on_error`, once."""

    def __init__(self, on_error: OnError) -> None:
        self._on_error = on_error
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def spawn(
        self, work: Work, *, name: str = "", on_error: Callable[[Exception], None] | None = None
    ) -> None:
        """Run `work` until it ends or `close()`; after `close()` nothing is started."""
        if self._closed:
            work.close()
            return
        watched = _watched(work, on_error or self._on_error)
        task = asyncio.get_running_loop().create_task(watched, name=name or None)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # if it was cancelled before it started

    def __len__(self) -> int:
        return len(self._tasks)

    async def idle(self) -> None:
        """Wait until all tasks have ended. The caller sets the deadline."""
        while tasks := [task for task in self._tasks if task is not asyncio.current_task()]:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Cancel all tasks and wait for them; the calling task is excluded."""
        self._closed = True
        await cancel(*(task for task in self._tasks if task is not asyncio.current_task()))
        self._on_error = _ignore  # drop the reference to the owner, so that it is freed at once


async def cancel(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel the tasks and wait until they have ended."""
    started = [task for task in tasks if task is not None]
    for task in started:
        task.cancel()
    await asyncio.gather(*started, return_exceptions=True)


async def within(seconds: float | None, work: Awaitable[object]) -> bool:
    """Run the work; return whether it ended in time. Its own errors, also a TimeoutError, are raised."""
    deadline = asyncio.timeout(seconds)  # wait_for may swallow a cancellation
    try:
        async with deadline:
            await work
    except TimeoutError:
        if deadline.expired():
            return False
        raise
    return True


def _ignore(_: Exception) -> None:
    """Ignore an error: after `close()` no task runs."""


async def _watched(work: Work, on_error: OnError) -> None:
    try:
        await work
    except Exception as error:  # noqa: BLE001  # the owner handles it
        on_error(error)


async def together(first: Awaitable[First], second: Coroutine[Any, Any, Second]) -> tuple[First, Second]:
    """Run both concurrently and return their results; an error of the first cancels the second."""
    beside = asyncio.get_running_loop().create_task(second)
    try:
        return await first, await beside
    finally:
        if not beside.done():
            beside.cancel()
            await asyncio.wait((beside,))
        if not beside.cancelled():
            beside.exception()  # mark as retrieved if the first failed


def being_cancelled() -> bool:
    """True if the running task is being cancelled; else a CancelledError comes from an awaited task."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
