"""A session that is told to go slowly sends later, and loses nothing."""

from dataclasses import replace

import pytest

import lorogo_client
from lorogo_client.delivery.pace import Pace
from lorogo_testing.memory_nats import MemoryNats
from tests.client.support import DEADLINE, QUICK, FakeOwner, eventually, text_of, type_in
from tests.client.tokens import SetClock


def test_without_limits_nothing_waits() -> None:
    """However much was sent."""
    pace = Pace(None, None)
    assert not pace.limited
    for _ in range(1000):
        pace.sent(1 << 20, 5.0)
    assert pace.wait(5.0) == 0.0


@pytest.mark.parametrize(
    ("updates", "size_limit", "size"), [(10.0, None, 1), (None, 100.0, 10), (10, 100, 10)]
)
def test_a_seconds_worth_leaves_at_once_and_the_rest_in_time(
    updates: float | None, size_limit: float | None, size: int
) -> None:
    """Eleven at once, since the last may begin when its second is full; then one every tenth of a second."""
    pace, now, sent = Pace(updates, size_limit), 100.0, 0
    assert pace.limited
    while not pace.wait(now):
        pace.sent(size, now)
        sent += 1
    assert sent == 11
    assert pace.wait(now) == pytest.approx(0.1)
    for _ in range(50):
        now += pace.wait(now) + 1e-9
        assert pace.wait(now) == 0.0
        pace.sent(size, now)
    assert now == pytest.approx(105.0)


def test_one_that_is_larger_than_a_second_allows_goes_alone() -> None:
    """And is paid for by waiting."""
    pace = Pace(None, 100.0)
    assert pace.wait(0.0) == 0.0
    pace.sent(1000, 0.0)
    assert pace.wait(0.0) == pytest.approx(9.0)
    assert pace.wait(9.1) == 0.0


async def test_a_session_that_writes_faster_than_its_pace_is_slowed_and_loses_nothing(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """One update in a hundred seconds: the others wait for their time, and come in order."""
    clock = SetClock()
    slow = replace(QUICK, updates_per_second=0.01)
    async with (
        lorogo_client.connect(world.connect("client"), settings=slow, clock=clock) as client,
        client.open("doc") as session,
    ):
        for number in range(5):
            type_in(session.doc, f"{number}.", 2 * number)
            session.commit()
        for left in (4, 3, 2, 1, 0):
            await eventually(lambda left=left: session.unsaved == left)  # type: ignore[misc]
            assert len(owner.received) == 5 - left
            clock.ahead += 100.0
            session.commit()  # wakes whoever sleeps by the real clock
        await session.flush(DEADLINE)
        assert owner.text() == text_of(session) == "0.1.2.3.4."
