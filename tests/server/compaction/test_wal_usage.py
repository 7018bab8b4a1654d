"""Usage of the WAL: the alarm before it is full, and the statistics."""

import asyncio
import logging
from dataclasses import replace
from typing import cast

import pytest

from lorogo_protocol.messages import subjects
from lorogo_server.compaction.wal_usage import WalUsage
from lorogo_transport.errors import RequestTimeout
from lorogo_transport.ports import Stream, StreamState
from tests.server.support import QUICK, Writer, so, until
from tests.server.worlds import memory_world

EMPTY = StreamState(0, 0, 0, 0, 0, 100)


def test_the_alarm_rings_once_per_crossing(caplog: pytest.LogCaptureFixture) -> None:
    """At 70 % of the limit, not again while it stays there, and again after it was below."""
    level = WalUsage()
    with caplog.at_level(logging.INFO, logger="lorogo_server.compaction.wal_usage"):
        for size in (69, 70, 99, 100, 50, 71):
            level.update(replace(EMPTY, bytes=size))
    said = [
        (record.levelname, record.getMessage().rpartition("percent=")[2][:2]) for record in caplog.records
    ]
    assert said == [("WARNING", "70"), ("INFO", "50"), ("WARNING", "71")]


def test_the_excess_is_what_is_above_half_of_the_limit() -> None:
    """Only while the alarm rings; compactions aim below it, so that it does not ring again at once."""
    level = WalUsage()
    assert level.excess_bytes == 0
    for size, excess in ((69, 0), (70, 20), (100, 50), (60, 0)):
        level.update(replace(EMPTY, bytes=size))
        assert level.excess_bytes == excess


async def test_open_documents_are_compacted_when_the_wal_is_nearly_full() -> None:
    """The longest first, although none is long enough for a compaction of its own, until enough can leave."""
    async with memory_world() as world:
        server, _ = await world.server(replace(QUICK, wal_bytes_max=20_000))
        for name, size in (("small", 100), ("larger", 6_000), ("large", 9_000)):
            await world.probe.start(name)
            writer = Writer()
            await world.probe.accept(name, writer.type("x" * size))
            await world.probe.accept(name, writer.type("the newest message is never purged"))
        level, now = server.context.wal_usage, server.context.clock.now()
        level.update(await server.context.wal.state())
        assert 5_000 < level.excess_bytes < 9_000
        server._compaction_schedule.relieve(level.excess_bytes, now)
        intakes = {name: server.hosts[name].loaded.intake for name in ("small", "larger", "large")}
        assert [server.hosts[name].due.why for name in intakes] == ["", "", ""]  # they were loaded just now
        server._compaction_schedule.relieve(level.excess_bytes, now + 11)
        server._compaction_schedule.relieve(level.excess_bytes, now + 11)  # one that is wanted already counts
        assert [bool(server.hosts[name].due.why) for name in intakes] == [False, False, True]
        server._compaction_schedule.turn(now)
        await until(lambda: so(world.nats.store(subjects.WAL_STREAM).state(0).bytes < 10_000))
        assert [intake.wal_bytes > 0 for intake in intakes.values()] == [True, True, False]


@pytest.mark.parametrize("limit", [-1, 0])
def test_without_a_limit_there_is_no_alarm(limit: int) -> None:
    """A stream may grow as the disk allows."""
    level = WalUsage()
    level.update(replace(EMPTY, bytes=10**12, bytes_max=limit))
    assert (level.full, level.high) == (0.0, False)


async def test_a_server_looks_at_its_wal() -> None:
    """Its statistics have the usage of the WAL."""
    async with memory_world() as world:
        server, _ = await world.server(replace(QUICK, wal_bytes_max=2000))
        await world.probe.start("doc")
        writer = Writer()
        while world.nats.store(subjects.WAL_STREAM).state(0).bytes < 1400:
            await world.probe.accept("doc", writer.type("more and more "))
        world.clock.ahead += 11

        async def seen() -> bool:
            return float(str(server.stats()["wal_full"])) >= 0.7

        await until(seen)


class Wal:
    """A stream of which only the state is asked."""

    def __init__(self, bytes_: int, bytes_max: int) -> None:
        self.current = StreamState(1, 1, 1, bytes_, 0, bytes_max)
        self.looks = 0
        self.silent = False

    async def state(self) -> StreamState:
        self.looks += 1
        await asyncio.sleep(0)
        if self.silent:
            raise RequestTimeout("no answer")
        return self.current


async def left(level: WalUsage, wal: Wal, now: float) -> int | None:
    return await level.left(cast("Stream", wal), now=now)


async def test_many_who_ask_at_once_are_one_look() -> None:
    wal, level = Wal(900, 1000), WalUsage()
    assert await asyncio.gather(*(left(level, wal, 5.0) for _ in range(100))) == [100] * 100
    assert wal.looks == 1
    assert (level.full, level.high) == (0.9, True)
    wal.current = StreamState(1, 1, 1, 1200, 0, 1000)  # its limit was lowered
    assert await left(level, wal, 6.0) == -200
    assert wal.looks == 2


async def test_what_is_not_known_is_not_said() -> None:
    """Neither without a limit, nor when JetStream does not answer, nor from an older look."""
    assert await left(WalUsage(), Wal(900, -1), 5.0) is None
    wal, level = Wal(900, 1000), WalUsage()
    assert await left(level, wal, 5.0) == 100
    wal.silent = True
    assert await left(level, wal, 6.0) is None
    wal.silent = False
    assert await left(level, wal, 7.0) == 100
