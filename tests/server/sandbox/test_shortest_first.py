"""Turns: by size, and by age often enough that none waits for ever."""

import asyncio
from contextlib import suppress

from lorogo_server.sandbox.shortest_first import ShortestFirst


async def _finished(turns: ShortestFirst, sizes: list[int]) -> tuple[list[int], list[asyncio.Task[None]]]:
    """The admitted calls, in order; the first holds its turn until all others wait."""
    order: list[int] = []

    async def one(size: int) -> None:
        async with turns.turn(size):
            order.append(size)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(one(size)) for size in sizes]
    await asyncio.gather(*tasks, return_exceptions=True)
    return order, tasks


async def test_the_smallest_that_waits_is_next() -> None:
    """The first was alone when it came; those of one size go in the order of arrival."""
    order, _ = await _finished(ShortestFirst(), [900, 500, 10, 700, 10])
    assert order == [900, 10, 10, 500, 700]


async def test_a_large_one_is_let_in_although_small_ones_keep_coming() -> None:
    """Every eighth turn goes to the one that waits longest."""
    order, _ = await _finished(ShortestFirst(), [1, 9_000, *range(1, 100)])
    assert order.index(9_000) == 8
    assert len(order) == 101


async def test_one_that_is_cancelled_does_not_keep_the_turn() -> None:
    """Neither while it waits, nor when the turn is its own already, nor while it has it."""
    for steps in range(6):
        turns, entered = ShortestFirst(), asyncio.Event()

        async def hold(turns: ShortestFirst = turns, entered: asyncio.Event = entered) -> None:
            async with turns.turn(5):
                entered.set()
                await asyncio.sleep(0)

        first, second = asyncio.create_task(hold()), asyncio.create_task(hold())
        for _ in range(steps):
            await asyncio.sleep(0)
        second.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(first, second)
        async with asyncio.timeout(5), turns.turn(1):
            pass


async def test_closing_cancels_what_waits() -> None:
    """The one that has the turn goes on."""
    turns = ShortestFirst()
    async with turns.turn(1):
        waiting = asyncio.create_task(_finished(turns, [2, 3]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        turns.close()
        order, tasks = await waiting
        assert order == []
        assert all(task.cancelled() for task in tasks)
