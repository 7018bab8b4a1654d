"""Alarms: at the time at the latest, and few of them."""

import asyncio

from lorogo_client.alarm import Alarm


class Rings:
    """Counts, and can be waited for."""

    def __init__(self) -> None:
        self.count = 0
        self.rang = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self.rang.set()

    async def wait(self) -> None:
        async with asyncio.timeout(10):
            await self.rang.wait()
        self.rang.clear()


async def test_an_alarm_rings_once_and_can_be_set_again() -> None:
    """Whoever is woken sets the next."""
    rings = Rings()
    alarm = Alarm(rings)
    for number in (1, 2):
        alarm.set(100.0, now=99.999)
        await rings.wait()
        assert rings.count == number


async def test_what_is_due_already_rings_in_the_next_turn() -> None:
    """A time that has passed is no error."""
    rings = Rings()
    Alarm(rings).set(1.0, now=2.0)
    assert rings.count == 0
    await rings.wait()


async def test_an_earlier_time_counts_and_a_later_one_does_not() -> None:
    """One that rings early is cheaper than one that is set anew: it stays."""
    rings = Rings()
    alarm = Alarm(rings)
    alarm.set(1000.0, now=0.0)
    alarm.set(0.001, now=0.0)
    alarm.set(2000.0, now=0.0)
    await rings.wait()
    assert rings.count == 1


async def test_a_cancelled_alarm_does_not_ring() -> None:
    """Also if there is none."""
    rings = Rings()
    alarm = Alarm(rings)
    alarm.cancel()
    alarm.set(0.0, now=0.0)
    alarm.cancel()
    after = Rings()
    Alarm(after).set(0.001, now=0.0)
    await after.wait()
    assert rings.count == 0
