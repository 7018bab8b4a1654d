"""Waiting for a moment on the machine's clock, which all load processes share."""

import asyncio
import time


async def until_ns(due_ns: int) -> None:
    """Return when the machine's clock says so; others have their turn in any case."""
    await asyncio.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
