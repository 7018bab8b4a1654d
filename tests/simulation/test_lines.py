"""Connections to the twin of NATS: killed, cut, silent, too slow, and made again."""

import asyncio
import random
from contextlib import suppress

import pytest

from lorogo_testing.memory_nats import MemoryNats
from lorogo_testing.process import SimulatedProcess
from lorogo_testing.virtual_loop import SimLoop
from lorogo_transport.errors import Disconnected, RequestTimeout
from tests.simulation.scripted import Notes, ScriptedFaults, a_stream, now, simulate
from tests.transport.support import Collector


def test_a_killed_connection_is_silent() -> None:
    """After `kill()` the broker has no such client, and no callback of the killed client runs again."""

    async def main() -> None:
        weather, notes = ScriptedFaults(), Notes()
        world = MemoryNats(fault_model=weather, observer=notes, rng=random.Random(2))
        one, two = world.connect("one"), world.connect("two")
        dead, alive, words = Collector(), Collector(), list[bool]()
        one.bus.watch_connection(words.append)
        await one.bus.subscribe("work", dead, queue="q")
        await one.bus.barrier()
        await two.bus.subscribe("work", alive, queue="q")
        await two.bus.subscribe("farewell", alive)
        await two.bus.barrier()
        waits = asyncio.ensure_future(one.bus.request("farewell", timeout=1))
        await asyncio.sleep(0)
        one.kill()
        for _ in range(10):
            await two.bus.publish("work")
        await alive.wait(10)
        one.heal()
        one.cut()
        await one.close()
        await asyncio.sleep(60)
        assert not waits.done()
        assert (dead.messages, words, one.bus.connected) == ([], [], False)
        assert {message.subject for message in alive.messages} == {"work"}
        with pytest.raises(Disconnected):
            await one.bus.publish("work")
        waits.cancel()
        with suppress(asyncio.CancelledError):
            await waits
        again = world.connect("one")
        await again.bus.publish("farewell", b"in the socket's buffer")
        again.kill(sent_arrives=True)
        await alive.wait(11)
        assert alive.bodies[-1] == b"in the socket's buffer"
        again = await a_stream(world)
        append = asyncio.ensure_future(again.stream("s").append("s.a", b""))
        await asyncio.sleep(0)
        again.kill(sent_arrives=True)
        await asyncio.sleep(60)
        assert not append.done()
        assert await two.stream("s").count("s.a") == 1
        append.cancel()
        third = world.connect("three")
        third.bus.watch_connection(words.append)
        third.cut()
        third.kill()
        third.end_partition()
        await asyncio.sleep(60)
        assert (words, third.bus.connected) == ([], False)

    simulate(main)


def test_what_arrives_runs_in_the_process_that_connected() -> None:
    """A paused process hears nothing until it goes on; the broker and the others do not wait for it."""
    loop = SimLoop(random.Random(1))
    process = SimulatedProcess("two", loop, random.Random(1))
    world = MemoryNats(fault_model=ScriptedFaults())
    one, got, answers = world.connect("one"), Collector(), list[int]()

    async def life() -> None:
        two = await a_stream(world, "two")
        await two.bus.subscribe("news", got)
        await two.bus.barrier()
        while True:
            answers.append(await two.stream("s").append("s.a", b""))

    async def main() -> None:
        process.run(life())
        await asyncio.sleep(1)
        process.pause()
        count = len(answers)
        assert count > 10
        await one.bus.publish("news", b"received late")
        await asyncio.sleep(1)
        assert (len(answers), got.bodies) == (count, [])
        assert await one.stream("s").count("s.a") - count in (0, 1)
        loop.resume(process)
        await got.wait(1)
        await asyncio.sleep(0.1)
        assert len(answers) > count
        process.kill()
        count = len(answers)
        await one.bus.publish("news", b"never received")
        await asyncio.sleep(1)
        assert (len(answers), len(got.messages)) == (count, 1)

    loop.run_until_complete(main())
    process.discard_tasks()
    loop.close()


def test_a_slow_consumer_is_cut_and_comes_back() -> None:
    """A client with too many waiting messages loses them and the connection; it connects again by itself."""

    async def main() -> None:
        weather = ScriptedFaults()
        weather.waiting_max = 10
        world = MemoryNats(fault_model=weather)
        one, two = world.connect("one"), world.connect("two")
        got, words = Collector(), list[bool]()
        await two.bus.subscribe("news", got)
        await two.bus.subscribe("*", got)
        await two.bus.barrier()
        back = asyncio.Event()
        two.bus.watch_connection(words.append)
        two.bus.watch_connection(lambda up: back.set() if up else None)
        weather.next["deliver"] = [(30.0,)] * 40
        for _ in range(20):
            await one.bus.publish("news")
        await back.wait()
        assert (got.messages, words) == ([], [False, True])
        weather.next["deliver"].clear()
        await one.bus.publish("news", b"after")
        await asyncio.sleep(60)
        assert got.bodies == [b"after"] * 2  # and nothing of what waited

    simulate(main)


def test_a_line_that_is_silent() -> None:
    """No message passes, unnoticed; then the client notices, and later connects again."""

    async def main() -> None:
        world = MemoryNats(fault_model=ScriptedFaults())
        one, two = world.connect("one"), world.connect("two")
        got, words = Collector(), list[bool]()
        await two.bus.subscribe("news", got)
        await two.bus.barrier()
        two.bus.watch_connection(words.append)
        two.partition(notice_seconds=8)
        await one.bus.publish("news", b"unheard")
        await two.bus.publish("news", b"unsaid")
        with pytest.raises(RequestTimeout):
            await two.bus.barrier(timeout=5)
        assert (two.bus.connected, words) == (True, [])
        await asyncio.sleep(60)
        assert (two.bus.connected, words) == (False, [False])
        two.end_partition()
        await asyncio.sleep(3)
        await one.bus.publish("news", b"heard")
        await got.wait(1)
        assert (got.bodies, words) == ([b"heard"], [False, True])
        two.partition(notice_seconds=1000)
        two.heal()  # it has lost messages: it is another connection
        await asyncio.sleep(3)
        await one.bus.publish("news", b"received again")
        await got.wait(2)
        assert words == [False, True] * 2

    simulate(main)


def test_the_broker_restarts() -> None:
    """Every connection is lost and made again at its own time, to another broker id, maybe to less."""

    async def main() -> None:
        notes = Notes()
        world = MemoryNats(fault_model=ScriptedFaults(), observer=notes, rng=random.Random(3))
        one, two = await a_stream(world), world.connect("two")
        times: dict[str, list[float]] = {"one": [], "two": []}
        for name, transport in (("one", one), ("two", two)):
            transport.bus.watch_connection(lambda _, name=name: times[name].append(now()))  # type: ignore[misc]
        got = Collector()
        await two.bus.subscribe("done.*", got)
        for _ in range(5):
            await one.stream("s").append("s.a", b"")
        await got.wait(5)
        began, before = now(), one.bus.broker_id
        world.restart(10.0, lambda: world.rewind("s", 3))
        assert one.bus.broker_id == before
        late = world.connect("late")
        for transport in (one, two, late):
            transport.heal()  # no client is connected
            with pytest.raises(Disconnected):
                await transport.bus.publish("x")
        await asyncio.sleep(13)
        assert one.bus.broker_id == two.bus.broker_id == late.bus.broker_id != before
        ups = {seen[1] - began for seen in times.values()}
        assert len(ups) == 2
        assert all(10 <= up <= 12 for up in ups)
        assert notes.said[-1] == ("loss", "", [4, 5])
        assert await late.stream("s").append("s.a", b"", expected_last=3) == 4
        await got.wait(6)
        world.restart(1000.0)
        world.heal()
        await asyncio.sleep(3)
        assert one.bus.connected
        world.lose_stream("none")
        world.rewind("none", 0)
        assert world.lose_messages("none", (1,)) == 0
        assert world.lose_messages("s", (2, 9)) == 1
        assert [stored.sequence async for stored in one.stream("s").read("s.a")] == [1, 3, 4]

    simulate(main)
