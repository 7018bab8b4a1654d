"""The clockwork of leases: evenly, and many together."""

import asyncio
import logging
import random
from typing import cast

import pytest

from lorogo_server.ownership.lease import Lease
from lorogo_server.ownership.renewals import Renewals
from lorogo_transport.errors import Disconnected
from lorogo_transport.tasks import Work
from tests.server.support import until
from tests.server.worlds import World


class StillClock:
    """Stands where it is put."""

    def __init__(self) -> None:
        self.at = 100.0

    def now(self) -> float:
        return self.at

    def wall_ns(self) -> int:
        return 0


class Counted:
    """A lease that notes when it was renewed."""

    ended = doubtful = False
    document_id = "doc"

    def __init__(self, clock: StillClock, renewed: list[float]) -> None:
        self._clock, self._renewed = clock, renewed

    async def renew(self) -> None:
        self._renewed.append(self._clock.now())


def not_spawned(work: Work) -> None:
    raise AssertionError(work)


async def renewed_at(leases: int, seconds: float) -> int:
    """The number of renewals by age; they are due after 2.7 to 3 s."""
    clock, renewed = StillClock(), list[float]()
    renewals = Renewals(clock, random.Random(1), 3.0, not_spawned)
    for _ in range(leases):
        renewals.add(cast(Lease, Counted(clock, renewed)))
    clock.at += seconds
    running = asyncio.create_task(renewals.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return len(renewed)


async def test_none_is_renewed_long_before_it_is_due() -> None:
    """Each at its time; and with many, those of the next moment with those of this one."""
    assert await renewed_at(10, 2.6) == 0
    assert await renewed_at(1000, 2.6) == 0
    assert await renewed_at(1000, 3.0) == 1000


async def test_all_are_renewed_at_once_after_a_reconnect() -> None:
    """No lease waits for its next renewal."""
    clock, renewed = StillClock(), list[float]()
    renewals = Renewals(clock, random.Random(1), 3.0, not_spawned)
    for _ in range(10):
        renewals.add(cast(Lease, Counted(clock, renewed)))
    renewals.hurry()
    running = asyncio.create_task(renewals.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert len(renewed) == 10


async def test_many_are_renewed_together() -> None:
    """A write and a read of the socket are shared; no renewal is late for that."""
    few, many = await renewed_at(10, 2.69), await renewed_at(1000, 2.69)
    assert few == 0
    assert 150 < many < 450


async def test_a_lease_in_doubt_is_settled_by_one_at_a_time() -> None:
    """NATS may be slow: those who wait for it do not pile up, and the next one comes when it has answered."""
    clock, spawned, answered = StillClock(), list[asyncio.Task[None]](), asyncio.Event()

    class Doubtful(Counted):
        doubtful = True
        settling = False

        async def confirm(self) -> None:
            await answered.wait()

    def spawn(work: Work) -> None:
        spawned.append(asyncio.ensure_future(work))

    renewals = Renewals(clock, random.Random(1), 3.0, spawn)
    renewals.add(cast(Lease, Doubtful(clock, [])))
    for count in (1, 1, 2):
        clock.at += 3.0
        running = asyncio.create_task(renewals.run())
        for _ in range(3):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert len(spawned) == count
        if clock.at > 105:
            answered.set()
            await asyncio.gather(*spawned)


async def test_leases_that_nats_does_not_confirm_are_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """While NATS is away the log gets one line per server with the number of leases, then one a minute."""
    clock, spawned = StillClock(), list[asyncio.Task[None]]()

    class Unconfirmed(Counted):
        doubtful = True
        settling = False

        def __init__(self, name: str) -> None:
            super().__init__(clock, [])
            self.document_id = name

        async def confirm(self) -> None:
            raise Disconnected("there is no connection")

    renewals = Renewals(
        clock, random.Random(1), 3.0, lambda work: spawned.append(asyncio.ensure_future(work))
    )
    for number in range(10):
        renewals.add(cast(Lease, Unconfirmed(f"doc-{number}")))
    with caplog.at_level(logging.INFO, logger="lorogo_server.ownership.renewals"):
        for _ in range(30):  # 90 s, in which each lease is tried 30 times
            clock.at += 3.0
            running = asyncio.create_task(renewals.run())
            for _ in range(3):
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.gather(running, *spawned, return_exceptions=True)
            spawned.clear()
    lines = [line for line in caplog.messages if "unconfirmed" in line]
    assert len(lines) == 2
    assert all("documents=10" in line for line in lines)


async def test_leases_that_a_reconnect_does_not_confirm_are_one_line_of_the_log(
    memory: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server reads the status of every lease then; the log gets their number."""
    server, _ = await memory.server()
    for number in range(3):
        await memory.probe.start(f"doc-{number}")

    async def unconfirmed(_: Lease) -> None:
        raise Disconnected("there is no connection")

    with monkeypatch.context() as patch, caplog.at_level(logging.INFO, logger="lorogo_server"):
        patch.setattr(Lease, "confirm", unconfirmed)
        server._registry.doubt()
        server._registry.reconnected()

        async def logged() -> bool:
            return any("unconfirmed" in line for line in caplog.messages)

        await until(logged)
    lines = [line for line in caplog.messages if "unconfirmed" in line]
    assert len(lines) == 1
    assert "documents=3" in lines[0]
