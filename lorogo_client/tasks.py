"""Background tasks with an owner: cancelled and awaited when it closes."""

import asyncio
from collections.abc import Callable, Coroutine

import structlog

log = structlog.get_logger(__name__)


class Tasks:
    """The tasks of one room or client."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(
        self, work: Coroutine[object, object, None], *, name: str, on_error: Callable[[Exception], None]
    ) -> None:
        """Run it until it ends or `close()`; what it raises goes to `on_error`, once."""
        task = asyncio.get_running_loop().create_task(_watched(work, name, on_error), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel all and wait until they are gone."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _watched(
    work: Coroutine[object, object, None], name: str, on_error: Callable[[Exception], None]
) -> None:
    try:
        await work
    except Exception as error:
        log.exception("a task failed", task=name)
        on_error(error)
