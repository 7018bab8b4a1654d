"""The budget of replies: a limit of bytes in flight, and a place for every waiting reply."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from lorogo_protocol import limits
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Body
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.clock import SystemClock
from lorogo_transport.rpc.calls import ReplyBudget, Responder
from lorogo_transport.tasks import Tasks
from tests.transport.support import Collector


class Holder:
    """Holds so many bytes of a budget until it is let go."""

    def __init__(self, budget: ReplyBudget, size: int) -> None:
        self.inside = asyncio.Event()
        self.leave = asyncio.Event()
        self.task = asyncio.ensure_future(self._hold(budget, size))

    async def _hold(self, budget: ReplyBudget, size: int) -> None:
        async with budget.holding(size):
            self.inside.set()
            await self.leave.wait()

    async def enters(self) -> None:
        async with asyncio.timeout(5):
            await self.inside.wait()

    async def waits(self) -> None:
        for _ in range(20):  # turns of the loop: more than enough to enter
            await asyncio.sleep(0)
        assert not self.inside.is_set()

    async def goes(self) -> None:
        self.leave.set()
        await self.task


async def test_a_reply_above_the_budget_waits_until_another_ends() -> None:
    """Up to the budget all are under way at once; the next begins when there is room again."""
    budget = ReplyBudget(100)
    first, second = Holder(budget, 60), Holder(budget, 40)
    await first.enters()
    await second.enters()
    third = Holder(budget, 50)
    await third.waits()
    await second.goes()
    await third.waits()  # 40 are free, 50 are wanted
    await first.goes()
    await third.enters()
    await third.goes()


async def test_a_reply_above_the_whole_budget_goes_alone() -> None:
    """It is neither refused nor waited for in vain, and nothing goes beside it."""
    budget = ReplyBudget(100)
    small = Holder(budget, 1)
    await small.enters()
    huge = Holder(budget, 10_000)
    await huge.waits()
    await small.goes()
    await huge.enters()
    other = Holder(budget, 1)
    await other.waits()
    await huge.goes()
    await other.enters()
    await other.goes()


async def test_what_fails_or_is_cancelled_gives_its_bytes_back() -> None:
    """In the budget or in front of it: afterwards all of it is free."""
    budget = ReplyBudget(100)

    async def fails() -> None:
        async with budget.holding(100):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    inside = Holder(budget, 100)
    await inside.enters()
    outside = Holder(budget, 100)
    await outside.waits()
    for holder in (outside, inside):
        holder.task.cancel()
        await asyncio.gather(holder.task, return_exceptions=True)
    last = Holder(budget, 100)
    await last.enters()
    await last.goes()


async def test_replies_to_silent_readers_are_not_under_way_all_at_once() -> None:
    """A reader that never acknowledges its window holds its own reply; the next reply does not start beside
    it.
    """
    world = MemoryNats()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(world.connect("server"))
        reader = await stack.enter_async_context(world.connect("reader"))
        tasks = Tasks(lambda error: pytest.fail(str(error)))
        stack.push_async_callback(tasks.close)
        made = 0

        async def serve(_verb: str, _arguments: dict[str, object]) -> Body:
            nonlocal made
            made += 1
            return {"payload": bytes(limits.WINDOW_BYTES + 1)}

        clock, budget = SystemClock(), ReplyBudget(limits.WINDOW_BYTES)
        responder = Responder(server.bus, clock, lambda _: serve, spawn=tasks.spawn, budget=budget)
        await server.bus.subscribe(subjects.calls("doc"), responder.on_message)
        silent: dict[str, Collector] = {reader.bus.new_inbox(): Collector() for _ in range(3)}
        for inbox, collector in silent.items():
            await reader.bus.subscribe(inbox, collector)
        await server.bus.barrier()
        for inbox in silent:
            await reader.bus.publish(subjects.call("export", "doc"), reply=inbox)
        first, *others = silent.values()
        whole_window = limits.WINDOW_BYTES // limits.CHUNK_BYTES_MAX
        await first.wait(whole_window)
        await reader.bus.barrier()
        assert made == 3
        assert first.messages[-1].reply  # it requests an acknowledgement and gets none
        assert h.FINAL not in first.messages[-1].headers
        assert [len(other.messages) for other in others] == [0, 0]
