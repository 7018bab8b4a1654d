"""The alarm before the WAL is full."""

import logging
from dataclasses import replace

import pytest

from lorogo_protocol import subjects
from lorogo_server.level import Level
from lorogo_transport.ports import StreamState
from tests.server.support import QUICK, Writer, until
from tests.server.worlds import memory_world

EMPTY = StreamState(0, 0, 0, 0, 0, 100)


def test_the_alarm_rings_once_per_crossing(caplog: pytest.LogCaptureFixture) -> None:
    """At 70 % of the limit, not again while it stays there, and again after it was below."""
    level = Level()
    with caplog.at_level(logging.INFO, logger="lorogo_server.level"):
        for size in (69, 70, 99, 100, 50, 71):
            level.see(replace(EMPTY, bytes=size))
    said = [(record.levelname, record.message.rpartition("percent=")[2][:2]) for record in caplog.records]
    assert said == [("WARNING", "70"), ("INFO", "50"), ("WARNING", "71")]


@pytest.mark.parametrize("limit", [-1, 0])
def test_without_a_limit_there_is_no_alarm(limit: int) -> None:
    """A stream may grow as the disk allows."""
    level = Level()
    level.see(replace(EMPTY, bytes=10**12, bytes_max=limit))
    assert (level.full, level.high) == (0.0, False)


async def test_a_server_looks_at_its_wal() -> None:
    """Its statistics say how full the WAL is."""
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
