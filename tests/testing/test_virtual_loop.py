"""The loop on virtual time, and processes that pause and die in it."""

import asyncio
import contextlib
import random

import pytest

from lorogo_testing.process import SimulatedProcess
from lorogo_testing.virtual_loop import BEGIN, Deadlock, SimLoop, TurnLimitExceeded


def sim(seed: int = 1) -> SimLoop:
    return SimLoop(random.Random(seed))


def test_hours_pass_in_no_time() -> None:
    """A wait moves the clock, and nothing waits."""
    loop = sim()

    async def main() -> float:
        async with asyncio.timeout(7200):
            await asyncio.sleep(3600)
        return loop.time()

    assert loop.run_until_complete(main()) == pytest.approx(BEGIN + 3600)
    loop.close()


def test_timers_of_one_moment_keep_their_order() -> None:
    """Timers of the same time run in the order in which they were set."""
    loop = sim()
    ran: list[int] = []

    async def main() -> None:
        for number in range(200):
            loop.call_at(BEGIN + 1 + number % 2, ran.append, number)
        loop.call_later(1.5, ran.append, -1).cancel()
        await asyncio.sleep(3)

    loop.run_until_complete(main())
    assert ran == [*range(0, 200, 2), *range(1, 200, 2)]
    loop.close()


def test_an_endless_wait_is_a_deadlock() -> None:
    loop = sim()
    with pytest.raises(Deadlock):
        loop.run_until_complete(asyncio.wait_for(loop.create_future(), None))
    loop.close()


def test_a_loop_without_a_wait_is_an_error() -> None:
    loop = SimLoop(random.Random(1), turns_max=1000)

    async def circle() -> None:
        while True:  # noqa: ASYNC110  # that is the mistake
            await asyncio.sleep(0)

    with pytest.raises(TurnLimitExceeded):
        loop.run_until_complete(circle())
    loop.close()


def test_threads_work_on_the_loop() -> None:
    """A function for a thread runs in this thread, and its error is raised in the caller."""
    loop = sim()

    async def main() -> int:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(lambda: 42)

    assert loop.run_until_complete(main()) == 42
    loop.close()


def test_a_paused_process_does_nothing_and_then_everything() -> None:
    loop = sim()
    process = SimulatedProcess("p", loop, random.Random(1))
    seen: list[float] = []

    async def beat() -> None:
        while len(seen) < 6:
            await asyncio.sleep(1)
            seen.append(loop.time() - BEGIN)

    async def main() -> None:
        process.run(beat())
        await asyncio.sleep(2.5)
        process.pause()
        await asyncio.sleep(5)
        assert seen == pytest.approx([1, 2])
        loop.resume(process)
        await asyncio.sleep(10)

    loop.run_until_complete(main())
    assert seen == pytest.approx([1, 2, 7.5, 8.5, 9.5, 10.5])
    assert process.ended
    loop.close()


def test_a_killed_process_does_not_even_clean_up() -> None:
    """Neither its tasks, nor those that they began, nor their `finally`."""
    loop = sim()
    process = SimulatedProcess("p", loop, random.Random(1))
    seen: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(2)
            seen.append("child")
        finally:
            seen.append("finally")

    async def parent() -> None:
        task = asyncio.ensure_future(child())
        asyncio.get_running_loop().call_later(2, seen.append, "timer")
        await task

    async def main() -> None:
        process.run(parent())
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(5)

    loop.run_until_complete(main())
    assert seen == []
    loop.close()
    process.discard_tasks()


def test_a_wait_for_next_to_nothing_ends() -> None:
    """A delay below the clock's resolution still advances the time, so no loop runs forever."""
    loop = sim()

    async def main() -> None:
        ends = loop.time() + 1e-6
        while loop.time() < ends:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1e-15):
                    await asyncio.Event().wait()

    loop.run_until_complete(main())
    assert loop.turns < 1000
    loop.close()
