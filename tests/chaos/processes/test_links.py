"""Lines: what passes, what does not, and what arrives late."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lorogo_chaos.errors import ChaosError
from lorogo_chaos.processes.links import LOOPBACK, ProxyLink

SECONDS = 5.0
MIB = 1024 * 1024


class Echo:
    """A server on loopback that sends back what it hears."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Echo"]:
        server = await asyncio.start_server(self._answer, LOOPBACK, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()
            await server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while data := await reader.read(65536):
                self.received += data
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()


@asynccontextmanager
async def lined() -> AsyncIterator[tuple[Echo, ProxyLink]]:
    async with Echo().serving() as echo, ProxyLink("line", [echo.port]) as line:
        yield echo, line


class Caller:
    """A client at the near end of a link."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def hear(self, count: int) -> bytes:
        async with asyncio.timeout(SECONDS):
            return await self.reader.readexactly(count)

    async def say(self, data: bytes) -> bytes:
        self.writer.write(data)
        return await self.hear(len(data))


@asynccontextmanager
async def calling(line: ProxyLink) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection(LOOPBACK, line.ports[0])
    try:
        yield Caller(reader, writer)
    finally:
        writer.transport.abort()


async def test_a_line_passes_everything_in_order() -> None:
    """Many chunks, more than it holds at once, arrive as they were sent."""
    data = bytes(range(256)) * (4 * MIB // 256)
    async with lined() as (_, line), calling(line) as caller:
        caller.writer.write(data)
        assert await caller.hear(len(data)) == data
        assert line.condition == "whole"


async def test_a_cut_resets_connections_and_refuses_new_ones_until_it_is_healed() -> None:
    """Both ends get the reset at once."""
    async with lined() as (_, line), calling(line) as caller:
        assert await caller.say(b"one") == b"one"
        line.cut()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await caller.hear(1)
        async with calling(line) as refused:
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await refused.hear(1)
        assert line.condition == "cut"
        line.heal()
        async with calling(line) as again:
            assert await again.say(b"two") == b"two"


async def test_a_blackhole_keeps_connections_and_passes_nothing_until_it_is_healed() -> None:
    """Data sent meanwhile arrives after the heal, as TCP retransmits; no end is informed that the other has
    closed.
    """
    async with lined() as (echo, line), calling(line) as caller, calling(line) as leaver:
        assert await caller.say(b"one") == b"one"
        assert await leaver.say(b"x") == b"x"
        line.blackhole()
        assert line.condition == "silent"
        caller.writer.write(b"two")
        leaver.writer.transport.abort()
        async with calling(line) as late:
            late.writer.write(b"new")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await asyncio.gather(caller.reader.read(1), late.reader.read(1))
            assert bytes(echo.received) == b"onex"
            assert line.connections == 3
            line.heal()
            assert await late.hear(3) == b"new"
        assert await caller.hear(3) == b"two"


async def test_a_blackhole_holds_no_more_than_a_line_may() -> None:
    """A sender that continues is slowed down."""
    async with lined() as (echo, line), calling(line) as caller:
        line.blackhole()
        caller.writer.write(bytes(64 * MIB))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await caller.writer.drain()
        assert not echo.received
        assert caller.writer.transport.get_write_buffer_size() > 32 * MIB


async def test_a_delay_holds_bytes_back_for_at_least_that_long_and_keeps_their_order() -> None:
    async with lined() as (_, line), calling(line) as caller:
        line.delay(0.1, jitter=0.05)
        began = time.monotonic()
        for number in range(50):
            caller.writer.write(bytes([number]))
            await asyncio.sleep(0)
        assert await caller.hear(50) == bytes(range(50))
        assert time.monotonic() - began >= 0.2  # there and back
        line.heal()
        assert line.condition == "whole"


async def test_a_throttle_takes_its_time() -> None:
    async with lined() as (_, line), calling(line) as caller:
        line.throttle(100_000)
        began = time.monotonic()
        assert len(await caller.say(bytes(20_000))) == 20_000
        assert time.monotonic() - began >= 0.2


async def test_a_link_without_a_listener_resets_its_callers() -> None:
    """As a port does where nothing listens."""
    async with Echo().serving() as echo:
        port = echo.port
    async with ProxyLink("nowhere", [port]) as line, calling(line) as caller:
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await caller.hear(1)


async def test_closing_ends_every_connection_and_task() -> None:
    async with Echo().serving() as echo:
        line = ProxyLink("line", [echo.port, echo.port])
        await line.open()
        assert len(set(line.ports)) == 2
        assert line.url == ",".join(f"nats://127.0.0.1:{port}" for port in line.ports)
        async with calling(line) as caller:
            await caller.say(b"x")
            line.blackhole()
            await line.close()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await caller.hear(1)
        assert line.connections == 0
        assert not [task for task in asyncio.all_tasks() if "line" in task.get_name()]
        await line.close()


@pytest.mark.parametrize("targets", [[], [0], [70000]])
def test_a_line_leads_to_ports_of_loopback_only(targets: list[int]) -> None:
    with pytest.raises(ChaosError):
        ProxyLink("line", targets)
