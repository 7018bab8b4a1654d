"""Wait for a time on the machine's monotonic clock, which all load processes share."""

import asyncio
import time


async def until_ns(due_ns: int) -> None:
    """Return at this time; yields to other tasks even if it has passed."""
    await asyncio.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
