"""Apply an async function to many items with bounded concurrency."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


async def concurrent_map(
    items: AsyncIterator[S], work: Callable[[S], Awaitable[T]], at_once: int
) -> AsyncIterator[T]:
    """Yield the results of `work` as they complete, with `at_once` running and no queue."""
    running: set[asyncio.Task[T]] = set()
    try:
        async for item in items:
            running.add(asyncio.ensure_future(work(item)))
            if len(running) >= at_once:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        while running:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def as_async(items: Iterable[S]) -> AsyncIterator[S]:
    """Return the items as an async iterator."""
    for item in items:
        yield item
