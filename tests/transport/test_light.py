"""The small event does what asyncio's does."""

import asyncio
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_transport.light import Event

_ACTS = st.lists(st.sampled_from(("wait", "set", "clear", "cancel", "turn")), max_size=30)


async def _acted(new_event: Callable[[], asyncio.Event | Event], acts: list[str]) -> list[object]:
    """What can be seen of an event after each act: whether it is set, and who still waits."""
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
