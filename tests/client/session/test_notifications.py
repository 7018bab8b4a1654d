"""Feeds: bounded, in order, honest about what they dropped."""

import asyncio

import pytest

from lorogo_client import Lagged, Rebased, SessionClosed, State
from lorogo_client.session.notifications import Item, changes, latest
from tests.client.support import DEADLINE


async def test_what_is_pushed_comes_out_in_order_and_ends_with_the_feed() -> None:
    """Closing lets a reader finish what is queued."""
    feed = changes(10)
    items: list[Item] = [Rebased(), Lagged(3), Rebased()]
    for item in items:
        feed.push(item)
    feed.close()
    feed.push(Lagged(9))
    assert [item async for item in feed] == items


async def test_a_slow_reader_is_told_how_much_it_missed() -> None:
    """Beyond the bound all that is unread is dropped, and a marker with the count takes its place."""
    feed = changes(3)
    for _ in range(10):
        feed.push(Rebased())
    feed.close()
    got = [item async for item in feed]
    assert isinstance(got[0], Lagged)
    assert len(got) <= 3
    assert sum(item.missed if isinstance(item, Lagged) else 1 for item in got) == 10


async def test_the_newest_state_replaces_an_unread_one() -> None:
    """A reader that was away sees where things stand now, not how they came there."""
    feed = latest(State.CONNECTING)
    feed.push(State.SAVING)
    feed.push(State.SAVED)
    assert await anext(feed) is State.SAVED


async def test_a_feed_that_failed_raises_after_what_is_queued() -> None:
    """The error is the end of the iteration, every time."""
    feed = changes(3)
    feed.push(Rebased())
    feed.close(SessionClosed("gone"))
    assert await anext(feed) == Rebased()
    for _ in range(2):
        with pytest.raises(SessionClosed):
            await anext(feed)


async def test_a_reader_waits_for_what_is_pushed_later() -> None:
    """And wakes at once."""
    feed = changes(3)
    reading = asyncio.ensure_future(anext(feed))
    await asyncio.sleep(0)
    feed.push(Rebased())
    async with asyncio.timeout(DEADLINE):
        assert await reading == Rebased()
