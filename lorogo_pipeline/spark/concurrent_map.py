"""Work on many things, a few at once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


async def concurrent_map(
    items: AsyncIterator[S], work: Callable[[S], Awaitable[T]], at_once: int
) -> AsyncIterator[T]:
    """What `work` makes of each item, as it is done; so many at once, and no more waiting."""
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
    """The items, for `concurrent_map`."""
    for item in items:
        yield item
