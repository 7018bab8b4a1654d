"""Tasks with an owner: they can be waited for, and are gone after it closed."""

import asyncio

from lorogo_transport.tasks import Tasks


async def test_idle_waits_for_all_also_for_those_begun_meanwhile() -> None:
    done: list[str] = []
    tasks = Tasks(lambda _: None)

    async def second() -> None:
        await asyncio.sleep(0)
        done.append("second")

    async def first() -> None:
        await asyncio.sleep(0)
        tasks.spawn(second())
        done.append("first")

    tasks.spawn(first())
    await tasks.idle()
    assert done == ["first", "second"]
    await tasks.idle()


async def test_idle_of_a_task_of_its_own_does_not_wait_for_itself() -> None:
    tasks = Tasks(lambda _: None)
    reached = asyncio.Event()

    async def one() -> None:
        await tasks.idle()
        reached.set()

    tasks.spawn(one())
    async with asyncio.timeout(5):
        await reached.wait()
