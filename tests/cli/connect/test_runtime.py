"""Work that a signal may stop."""

import asyncio

import pytest

from lorogo_cli.connect.runtime import until


async def test_work_that_ends_first_gives_its_result() -> None:
    async def work() -> int:
        return 3

    assert await until(asyncio.Event(), work()) == 3


async def test_an_error_of_the_work_is_raised_as_it_is() -> None:
    async def work() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await until(asyncio.Event(), work())


async def test_a_signal_cancels_the_work_and_waits_for_its_end() -> None:
    stop, begun = asyncio.Event(), asyncio.Event()
    ended = []

    async def work() -> bool:
        begun.set()
        try:
            return await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    racing = asyncio.create_task(until(stop, work()))
    await begun.wait()
    stop.set()
    assert await racing is None
    assert ended == [True]


async def test_who_is_cancelled_cancels_the_work() -> None:
    """The caller's cancellation passes through, and leaves no task behind."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    racing = asyncio.create_task(until(asyncio.Event(), work()))
    await begun.wait()
    racing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await racing
    assert ended.is_set()
