"""Check that an object is freed without its last reference, without waiting for a collection of cycles."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Only what is counted down to nothing goes in here."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def until_freed(found: Callable[[], object]) -> None:
    """Return when a weak reference finds nothing; callbacks on their way may have it for a moment.

    Raises TimeoutError.
    """
    async with asyncio.timeout(10):
        while found() is not None:  # noqa: ASYNC110  # the last reference that goes sets no event
            await asyncio.sleep(0.01)
