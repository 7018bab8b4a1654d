"""Who waits until so many replicas have a record: each is told once, and nobody is kept."""

import asyncio

import pytest

from lorogo_log import LogClosedError, StaleEpochError
from lorogo_log.replication.replica_waiters import Waiters


class Replicas:
    """What each of them has."""

    def __init__(self, *sequences: int) -> None:
        self.sequences = list(sequences)

    def have(self, sequence: int) -> int:
        return sum(one >= sequence for one in self.sequences)


async def test_whoever_has_enough_replicas_goes_on() -> None:
    """One replica more lets those go on who wait for it, and no others."""
    replicas = Replicas(5, 0)
    waiters = Waiters(replicas.have)
    await waiters.wait(5, 1, 0.0)  # it has it already
    async with asyncio.TaskGroup() as group:
        near = group.create_task(waiters.wait(5, 2, 10.0))
        far = group.create_task(waiters.wait(6, 2, 10.0))
        await asyncio.sleep(0)
        assert len(waiters) == 2
        replicas.sequences = [5, 5]
        waiters.settle()
        await near
        assert not far.done()
        replicas.sequences = [6, 6]
        waiters.settle()
    assert len(waiters) == 0


async def test_who_is_refused_is_told_why_and_a_later_word_changes_nothing() -> None:
    """Every one gets an error of its own: two tasks never share a traceback."""
    replicas = Replicas(0)
    waiters = Waiters(replicas.have)
    tasks = [asyncio.create_task(waiters.wait(1, 1, 10.0)) for _ in range(2)]
    await asyncio.sleep(0)
    waiters.refuse(StaleEpochError, "a newer coordinator has taken over")
    waiters.refuse(LogClosedError, "closed")
    replicas.sequences = [1]
    waiters.settle()
    first, second = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(first, StaleEpochError)
    assert isinstance(second, StaleEpochError)
    assert first is not second
    assert len(waiters) == 0


async def test_a_wait_in_vain_leaves_nothing_behind() -> None:
    """Neither a deadline nor a cancelled task stays among those who wait."""
    waiters = Waiters(Replicas().have)
    with pytest.raises(TimeoutError):
        await waiters.wait(1, 1, 0.0)
    task = asyncio.create_task(waiters.wait(1, 1, 10.0))
    await asyncio.sleep(0)
    assert len(waiters) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(waiters) == 0
