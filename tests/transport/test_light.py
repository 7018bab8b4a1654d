"""The small event does what asyncio's does; the timer is set seldom, and rings in time."""

import asyncio
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_transport.clock import SystemClock
from lorogo_transport.light import Event, Timer

_ACTS = st.lists(st.sampled_from(("wait", "set", "clear", "cancel", "turn")), max_size=30)


async def _acted(new_event: Callable[[], asyncio.Event | Event], acts: list[str]) -> list[object]:
    """The visible state of an event after each act: whether it is set, and which tasks have ended."""
    event = new_event()
    waiting: list[asyncio.Task[object]] = []
    seen: list[object] = []
    for act in acts:
        match act:
            case "wait":
                waiting.append(asyncio.create_task(event.wait()))
            case "set":
                event.set()
            case "clear":
                event.clear()
            case "cancel" if waiting:
                waiting[len(waiting) // 2].cancel()
            case "turn":
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        seen.append((event.is_set(), [task.done() for task in waiting]))
    event.set()
    await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
    seen.append([task.cancelled() for task in waiting])
    return seen


@given(acts=_ACTS)
def test_it_is_as_asyncio_s(acts: list[str]) -> None:
    """Whatever is done with it, in whatever order."""
    assert asyncio.run(_acted(Event, acts)) == asyncio.run(_acted(asyncio.Event, acts))


async def test_who_gave_up_is_forgotten() -> None:
    """Many short waits for what never comes leave nothing behind."""
    event = Event()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(event.wait(), 0.001)
    assert event._waiting == []


def test_it_is_small() -> None:
    assert sys.getsizeof(Event()) <= 64
    assert not hasattr(Event(), "__dict__")


async def test_a_timer_rings_once_at_the_earliest_time_that_was_asked_for() -> None:
    clock, rang = SystemClock(), Event()
    rung_at: list[float] = []

    def ring() -> None:
        rung_at.append(clock.now())
        rang.set()

    timer, now = Timer(clock, ring), clock.now()
    for later in (3600.0, 0.02, 1800.0):
        timer.ring_at(now + later)
    async with asyncio.timeout(5):
        await rang.wait()
        assert len(rung_at) == 1
        rang.clear()
        timer.ring_at(clock.now())  # it can be asked again
        await rang.wait()
    assert len(rung_at) == 2
    assert rung_at[0] >= now


async def test_a_timer_that_is_set_already_is_not_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only for an earlier time; and one that was stopped does not ring."""
    loop, clock, rung = asyncio.get_running_loop(), SystemClock(), Event()
    call_later, delays = loop.call_later, list[float]()

    def counted(delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        delays.append(delay)
        return call_later(delay, callback)

    timer, now = Timer(clock, rung.set), clock.now()
    with monkeypatch.context() as counting:
        counting.setattr(loop, "call_later", counted)
        for later in (3600.0, 7200.0, 3600.0, 1800.0, 0.0):
            timer.ring_at(now + later)
    assert len(delays) == 3
    timer.stop()
    await asyncio.sleep(0.01)
    assert not rung.is_set()


async def test_what_is_due_already_rings_in_the_next_turn_and_a_stopped_timer_never() -> None:
    """A time that has passed is no error, nor is stopping a timer that was not set."""
    clock, rang, stopped = SystemClock(), Event(), Event()
    timer = Timer(clock, stopped.set)
    timer.stop()
    timer.ring_at(clock.now() - 1)
    timer.stop()
    Timer(clock, rang.set).ring_at(clock.now() - 1)
    assert not rang.is_set()
    async with asyncio.timeout(5):
        await rang.wait()
    assert not stopped.is_set()
