"""A server while NATS loses data, lies or disappears, or another server takes its documents."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Up
from lorogo_server import Server
from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.journals import in_memory
from tests.server.support import QUICK, Probe, Writer, until


class World:
    """The in-memory NATS with servers in it."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.nats = MemoryNats()
        self._stack = stack

    async def server(self) -> tuple[Server, MemoryTransport]:
        transport = self.nats.connect("server")
        return await self._stack.enter_async_context(Server(transport, QUICK, **in_memory())), transport

    async def probe(self) -> Probe:
        return await self._stack.enter_async_context(Probe(self.nats.connect("probe")))


@asynccontextmanager
async def memory_world() -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World(stack)


async def test_a_stream_that_went_backwards_loses_nothing_that_the_owner_holds() -> None:
    """Sequences used again are noticed; what only the owner has goes into a snapshot; a purge waits."""
    async with memory_world() as world:
        first, _ = await world.server()
        probe = await world.probe()
        await probe.start("doc")
        writer = Writer()
        for word in ("one ", "two ", "three ", "four "):
            await probe.accept("doc", writer.type(word))
        world.nats.rewind(subjects.WAL_STREAM, 2)
        await probe.accept("doc", writer.type("five "))
        assert await probe.value("doc") == {"body": "one two three four five "}

        await first.stop()  # at once: what only its memory has is stored before it closes
        head = await first.context.snapshots.head("doc")
        assert head is not None
        assert head.size > 0
        assert first.context.epochs.current == 2
        await world.server()
        await probe.start("doc")
        assert await probe.value("doc") == {"body": "one two three four five "}


async def test_a_server_that_was_cut_off_steps_down_without_a_write() -> None:
    """The other takes over when the lease is stale; the old owner wakes up, reads, and closes."""
    async with memory_world() as world:
        first, first_line = await world.server()
        probe = await world.probe()
        up = await probe.start("doc")
        writer = Writer()
        await probe.accept("doc", writer.type("before "))
        first_line.cut()
        second, _ = await world.server()
        assert up.token
        taken = await probe.start("doc")
        assert isinstance(taken.status, Up)
        assert taken.status.server_id == second.server_id
        assert taken.token > up.token
        await probe.accept("doc", writer.type("after"))
        revision = (await probe.status("doc")).revision
        first_line.heal()

        async def closed() -> bool:
            return "doc" not in first.hosts

        await until(closed)
        entry = await probe.status("doc")
        assert entry.server == second.server_id
        assert entry.revision >= revision
        assert await probe.value("doc") == {"body": "before after"}


async def test_a_cut_shorter_than_the_lease_costs_nothing() -> None:
    """After the reconnect the owner reads its key, catches up, and ACKs what came meanwhile."""
    async with memory_world() as world:
        first, line = await world.server()
        probe = await world.probe()
        up = await probe.start("doc")
        writer = Writer()
        await probe.accept("doc", writer.type("before "))
        line.cut()
        parts = probe.split(writer.type("meanwhile"))
        await probe.put("doc", parts)
        line.heal()

        async def both() -> bool:
            return await probe.value("doc") == {"body": "before meanwhile"}

        await until(both)
        assert (await probe.status("doc")).token == up.token
        assert "doc" in first.hosts


async def test_a_lost_confirmation_of_a_status_write_is_resolved_by_reading() -> None:
    """STARTING, UP and DOWN are each written once, although their acks are lost."""
    async with memory_world() as world:
        server, line = await world.server()
        probe = await world.probe()
        line.drop_next_ack(2)
        await probe.start("doc")
        await probe.accept("doc", Writer().type("x"))
        line.drop_next_ack(1)
        await server.stop()
        entry = await probe.status("doc")
        assert not isinstance(entry.status, Up)


@asynccontextmanager
async def real_world(nats: EmbeddedNats) -> AsyncIterator[tuple[Server, Probe]]:
    async with (
        await connect(nats.url, name="server") as line,
        await connect(nats.url, name="probe") as other,
        Server(line, replace(QUICK, stale_seconds=3.0, lease_seconds=2.0), **in_memory()) as server,
        Probe(other) as probe,
    ):
        yield server, probe


async def _connected(*parties: object) -> None:
    async def all_there() -> bool:
        await asyncio.gather(*(party.bus.barrier() for party in parties))  # type: ignore[attr-defined]
        return True

    await until(all_there)


async def test_nats_killed_and_started_again(fresh_nats: EmbeddedNats) -> None:
    """The owner reads its key from the leader, catches up and goes on; nothing ACKed is lost."""
    async with real_world(fresh_nats) as (server, probe):
        await probe.start("doc")
        writer = Writer()
        for number in range(20):
            await probe.accept("doc", writer.type(f"{number} "))
        await fresh_nats.kill()
        await fresh_nats.start()
        await _connected(server.context.transport, probe)

        async def goes_on() -> bool:
            return await probe.value("doc") == {"body": writer.text}

        await until(goes_on)
        await probe.accept("doc", writer.type("and on"))
        assert await probe.value("doc") == {"body": writer.text}


async def test_nats_lost_its_store(fresh_nats: EmbeddedNats) -> None:
    """Streams are made again, the epoch is raised, and the live owner saves what it holds."""
    async with real_world(fresh_nats) as (server, probe):
        await probe.start("doc")
        writer = Writer()
        for number in range(20):
            await probe.accept("doc", writer.type(f"{number} "))
        epoch = server.context.epochs.current
        await fresh_nats.kill()
        shutil.rmtree(fresh_nats.store_dir / "jetstream", ignore_errors=True)
        await fresh_nats.start()
        await _connected(server.context.transport, probe)

        async def saved() -> bool:
            head = await server.context.snapshots.head("doc")
            return head is not None and head.size > 0

        await until(saved)
        assert server.context.epochs.current > epoch
        await probe.accept("doc", writer.type("after"))
        await server.stop()
        async with Server(server.context.transport, QUICK, **in_memory()):
            await probe.start("doc")
            assert await probe.value("doc") == {"body": writer.text}
