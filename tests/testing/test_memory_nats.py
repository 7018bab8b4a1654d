"""The in-memory twin's own powers: faults on demand, a clock of one's own, the same run twice."""

import asyncio
import random
from dataclasses import replace

import pytest

from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from lorogo_transport.errors import Disconnected, OutcomeUnknown, RequestTimeout
from lorogo_transport.ports import StreamSpec
from tests.transport.support import Collector

SPEC = StreamSpec(name="s", subjects=("s.*",), republish=("s.*", "done.{{wildcard(1)}}"), age_max_seconds=10)


@pytest.fixture
def now() -> list[int]:
    return [1_000_000_000_000]


@pytest.fixture
def world(now: list[int]) -> MemoryNats:
    return MemoryNats(now_ns=lambda: now[0], rng=random.Random(7))


@pytest.fixture
async def transport(world: MemoryNats) -> MemoryTransport:
    transport = world.connect("one")
    await transport.ensure(replace(SPEC, age_max_seconds=0))
    return transport


async def test_a_cut_connection(world: MemoryNats, transport: MemoryTransport) -> None:
    """A cut makes every call fail with Disconnected and calls the watchers; after the heal, subscriptions
    continue with a gap.
    """
    other = world.connect("two")
    got, seen = Collector(), list[bool]()
    await transport.bus.subscribe("news", got)
    await transport.bus.barrier()
    transport.bus.watch_connection(seen.append)
    transport.cut()
    transport.cut()
    for call in (
        transport.bus.publish("news"),
        transport.bus.request("news", timeout=1),
        transport.bus.barrier(),
        transport.stream("s").append("s.a", b""),
        transport.stream("s").last("s.a"),
    ):
        with pytest.raises(Disconnected):
            await call
    assert not transport.bus.connected
    late = Collector()
    await transport.bus.subscribe("news", late)
    await other.bus.publish("news", b"missed")
    await other.bus.barrier()
    transport.heal()
    transport.heal()
    await other.bus.publish("news", b"heard")
    await got.wait(1)
    await late.wait(1)
    assert got.bodies == late.bodies == [b"heard"]
    assert seen == [False, True]


async def test_a_cut_while_under_way(world: MemoryNats, transport: MemoryTransport) -> None:
    """An append that was cut before the broker saw it, and one cut before its answer, look alike."""
    await transport.bus.subscribe("silent", Collector())
    calls = [
        asyncio.ensure_future(call)
        for call in (
            transport.stream("s").append("s.a", b"lost"),
            transport.bus.request("silent", timeout=60),
            transport.stream("s").last("s.a"),
            transport.bus.barrier(),
        )
    ]
    await asyncio.sleep(0)  # sent
    transport.cut()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [
        OutcomeUnknown, RequestTimeout, RequestTimeout, Disconnected,
    ]  # fmt: skip
    assert await world.connect().stream("s").count("s.a") == 0
    transport.heal()
    append = asyncio.ensure_future(transport.stream("s").append("s.a", b"stored"))
    while world.store("s").count("s.a", 0) == 0:  # noqa: ASYNC110  # one turn of the loop at a time
        await asyncio.sleep(0)
    transport.cut()
    with pytest.raises(OutcomeUnknown):
        await append
    assert await world.connect().stream("s").count("s.a") == 1


async def test_a_lost_ack(transport: MemoryTransport) -> None:
    """The append is stored and republished although its writer does not learn it."""
    got = Collector()
    await transport.bus.subscribe("done.a", got)
    stream = transport.stream("s")
    transport.drop_next_ack()
    with pytest.raises(OutcomeUnknown):
        await stream.append("s.a", b"stored")
    last = await stream.last("s.a")
    assert last is not None
    assert (last.sequence, last.data) == (1, b"stored")
    assert await stream.append("s.a", b"next", expected_last=1) == 2
    assert (await got.wait(2))[0].data == b"stored"


async def test_sequences_go_backwards(world: MemoryNats, transport: MemoryTransport) -> None:
    """A store that loses its tail gives the same sequences out again."""
    stream = transport.stream("s")
    for number in range(5):
        await stream.append("s.a", b"%d" % number)
    world.rewind("s", 2)
    assert (await stream.state()).last_sequence == 2
    assert await stream.append("s.a", b"new", expected_last=2) == 3


async def test_time_is_given(world: MemoryNats, now: list[int]) -> None:
    """Messages carry the world's time and expire by it."""
    transport = world.connect()
    await transport.ensure(SPEC)
    stream = transport.stream("s")
    await stream.append("s.a", b"old")
    now[0] += 6 * 10**9
    await stream.append("s.a", b"new")
    assert [stored.time_ns async for stored in stream.read("s.a")] == [10**12, 10**12 + 6 * 10**9]
    now[0] += 5 * 10**9
    assert [stored.data async for stored in stream.read("s.a")] == [b"new"]
    assert await stream.get(1) is None
    assert (await stream.state()).first_sequence == 2


async def test_the_same_seed_gives_the_same_run() -> None:
    """The seed alone decides which member of a queue group gets a message."""

    async def run() -> list[list[bytes]]:
        world = MemoryNats(now_ns=lambda: 0, rng=random.Random(3))
        members = [Collector() for _ in range(3)]
        transports = [world.connect(f"m{number}") for number in range(3)]
        for transport, member in zip(transports, members, strict=True):
            await transport.bus.subscribe("work", member, queue="q")
            await transport.bus.barrier()
        for number in range(50):
            await transports[0].bus.publish("work", b"%d" % number)
        for transport in transports:
            await transport.bus.barrier()
        return [member.bodies for member in members]

    first = await run()
    assert first == await run()
    assert all(first)


async def test_close_sends_what_is_waiting(world: MemoryNats, transport: MemoryTransport) -> None:
    """A message published just before `close()` arrives; a closed connection does not heal."""
    got = Collector()
    await transport.bus.subscribe("a", got)
    await transport.bus.barrier()
    async with world.connect() as other:
        await other.bus.publish("a", b"last words")
    await got.wait(1)
    other.heal()
    assert not other.bus.connected
