"""How a host ends: the first reason stays, and what is finished before."""

import asyncio

import pytest

from lorogo_server.document.shutdown import ClosedEarly, Shutdown


def test_a_stop_finishes_what_was_queued_then() -> None:
    ending = Shutdown()
    assert not ending.wanted
    ending.stop("idle", finish=True, newest=7)
    assert (ending.wanted, ending.graceful, ending.at_once, ending.why) == (True, True, False, "idle")
    assert ending.finishes(7)
    assert not ending.finishes(8)
    assert ending.last_acks_seconds > 0


def test_a_stop_at_once_finishes_nothing_whatever_is_said_later() -> None:
    ending = Shutdown()
    ending.stop("the journal stopped", finish=False, newest=7)
    ending.stop("the server stops", finish=True, newest=7)
    assert (ending.graceful, ending.at_once, ending.why) == (True, True, "the journal stopped")
    assert not ending.finishes(1)
    assert ending.last_acks_seconds == 0


def test_who_steps_down_finishes_and_writes_nothing() -> None:
    ending = Shutdown()
    ending.step_down("another has it")
    assert (ending.wanted, ending.graceful, ending.why) == (True, False, "another has it")
    assert not ending.finishes(0)


async def test_work_is_given_up_when_the_end_is_wanted_before_it_is_done() -> None:
    ending, begun, gone = Shutdown(), asyncio.Event(), asyncio.Event()

    async def for_ever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    async with asyncio.timeout(5):
        working = asyncio.ensure_future(ending.run_until_shutdown(for_ever()))
        await begun.wait()
        ending.step_down("another has it")
        with pytest.raises(ClosedEarly):
            await working
    assert gone.is_set()


async def test_work_that_is_done_counts_and_what_it_raises_is_raised() -> None:
    ending, done = Shutdown(), asyncio.Event()

    async def quick() -> None:
        done.set()

    async def fails() -> None:
        raise ValueError("no")

    async with asyncio.timeout(5):
        await ending.run_until_shutdown(quick())
        assert done.is_set()
        with pytest.raises(ValueError, match="no"):
            await ending.run_until_shutdown(fails())
