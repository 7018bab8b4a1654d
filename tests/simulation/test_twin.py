"""The twin of NATS in bad weather: what is lost, doubled, late, overtaken, stale, and what never is."""

import asyncio
import random

import pytest

from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from lorogo_transport.errors import OutcomeUnknown, RequestTimeout, WrongLastSequence
from tests.simulation.scripted import SPEC, Notes, ScriptedFaults, a_stream, now, simulate
from tests.transport.support import Collector


def test_a_message_is_lost_doubled_or_late() -> None:
    """The fault model decides what happens to a message, in both directions."""

    async def main() -> None:
        weather = ScriptedFaults()
        world = MemoryNats(fault_model=weather)
        one, two = world.connect("one"), world.connect("two")
        got, times = Collector(), list[float]()
        await two.bus.subscribe("news", got)
        await two.bus.subscribe("news", lambda _: times.append(now()))
        await two.bus.barrier()
        began = now()
        weather.next["publish"] = [(), (0.001,), (0.001, 0.5), (9.0,)]
        weather.next["deliver"] = [(), (), *[(0.001,)] * 2, *[(0.001, 0.25)] * 2]  # for two handlers each
        for body in (b"lost", b"lost on the way out", b"doubled twice", b"late"):
            await one.bus.publish("news", body)
        await got.wait(4)
        assert got.bodies == [b"doubled twice"] * 3 + [b"late"]
        assert [round(when - began, 3) for when in times] == [0.002, 0.501, 0.75, 9.001]

    simulate(main)


def test_messages_overtake_each_other() -> None:
    """A message that takes longer arrives later, whatever was sent first; equal times keep their order."""

    async def main() -> None:
        weather = ScriptedFaults()
        world = MemoryNats(fault_model=weather)
        one = world.connect("one")
        got = Collector()
        await one.bus.subscribe("news", got)
        await one.bus.barrier()
        weather.next["publish"] = [(3.0,), (1.0,), (2.0,), *[(1.0,)] * 50]
        for number in range(53):
            await one.bus.publish("news", b"%d" % number)
        await got.wait(53)
        assert got.bodies == [b"1", *(b"%d" % number for number in range(3, 53)), b"2", b"0"]

    simulate(main)


def test_a_barrier_waits_for_the_slowest() -> None:
    """After a barrier all that was sent before it is processed, and what it delivered is handed over."""

    async def main() -> None:
        weather = ScriptedFaults()
        world = MemoryNats(fault_model=weather)
        one, two = world.connect("one"), world.connect("two")
        mine, theirs = Collector(), Collector()
        await one.bus.subscribe("news", mine)
        await two.bus.subscribe("news", theirs)
        await two.bus.barrier()
        weather.next["publish"] = [(4.0, 1.0)]
        weather.next["deliver"] = [(0.001,), (0.001,), (2.0,), (7.0,)]  # two copies for each of the two
        await one.bus.publish("news", b"slow")
        await one.bus.barrier(timeout=60)
        assert len(mine.messages) == 2
        assert len(theirs.messages) == 1
        assert round(now()) == 6
        await two.bus.barrier(timeout=60)
        assert len(theirs.messages) == 2

    simulate(main)


def test_a_subscription_is_not_overtaken() -> None:
    """A message sent after a subscription, or its end, on the same connection finds it done."""

    async def main() -> None:
        weather = ScriptedFaults()
        world = MemoryNats(fault_model=weather)
        one = world.connect("one")
        early, late = Collector(), Collector()
        first = await one.bus.subscribe("news", early)
        weather.next["publish"] = [(5.0,), (0.0,), (0.0,)]
        await one.bus.publish("other", b"holds up what is in order")
        second = await one.bus.subscribe("news", late)
        await one.bus.publish("news", b"1")
        await late.wait(1)
        await second.close()
        await one.bus.publish("news", b"2")
        await one.bus.barrier(timeout=60)
        assert (early.bodies, late.bodies) == ([b"1", b"2"], [b"1"])
        await first.close()

    simulate(main)


def test_the_end_of_a_subscription_that_is_cut_leaves_no_ghost() -> None:
    """A member that left its queue group just before its connection was lost is given nothing afterwards."""

    async def main() -> None:
        world = MemoryNats(fault_model=ScriptedFaults(), rng=random.Random(1))
        one, two = world.connect("one"), world.connect("two")
        got = Collector()
        leaving = await one.bus.subscribe("work", Collector(), queue="q")
        await one.bus.barrier()
        await two.bus.subscribe("work", got, queue="q")
        await two.bus.barrier()
        await leaving.close()
        one.cut()
        one.heal()
        for _ in range(20):
            await two.bus.publish("work")
        await got.wait(20)

    simulate(main)


def test_an_append_with_an_unknown_outcome() -> None:
    """A lost question was not stored, a lost answer was: the writer cannot tell them apart."""

    async def main() -> None:
        weather = ScriptedFaults()
        one = await a_stream(MemoryNats(fault_model=weather))
        stream = one.stream("s")
        weather.next["ask"] = [()]
        with pytest.raises(OutcomeUnknown):
            await stream.append("s.a", b"lost", expected_last=0)
        assert await stream.last("s.a") is None
        weather.next["answer"] = [()]
        with pytest.raises(OutcomeUnknown):
            await stream.append("s.a", b"stored", expected_last=0)
        with pytest.raises(WrongLastSequence):
            await stream.append("s.a", b"again", expected_last=0)
        weather.next["ask"] = [(9.0,)]
        with pytest.raises(OutcomeUnknown):
            await stream.append("s.a", b"late", expected_last=1)
        assert await stream.count("s.a") == 1
        await asyncio.sleep(5)
        assert await stream.count("s.a") == 2  # stored long after its writer gave up
        for call in (stream.purge("s.a"), stream.delete(1)):
            weather.next["ask"] = [()]
            with pytest.raises(OutcomeUnknown):
                await call
        weather.next["ask"] = [()]
        with pytest.raises(RequestTimeout):
            await stream.state()
        assert await stream.count("s.a") == 2

    simulate(main)


def test_a_direct_get_of_a_replica_that_is_behind() -> None:
    """Direct gets may miss the newest changes, and find what is gone; the leader's answers never do."""

    async def main() -> None:
        weather = ScriptedFaults()
        world = MemoryNats(fault_model=weather)
        stream = (await a_stream(world)).stream("s")
        for subject in ("s.a", "s.b", "s.a", "s.c"):
            await stream.append(subject, b"")
        await stream.delete(1)
        await stream.purge("s.b")
        await stream.append("s.a", b"", headers={"Nats-Rollup": "sub"})  # the newest of seven changes

        async def read(lag: int, subject: str = "s.*", first: int = 1) -> list[int]:
            weather.lags = [lag]
            return [stored.sequence async for stored in stream.read(subject, first=first)]

        views = [await read(lag) for lag in range(9)]
        assert views == [
            [4, 5], [3, 4], [2, 3, 4], [1, 2, 3, 4], [1, 2, 3], [1, 2], [1], [], [],
        ]  # fmt: skip
        assert await read(2, "s.b") == [2]
        assert await read(1, "s.a", first=4) == []
        weather.lags = [1]
        found = [stored.sequence async for stored in stream.newest_of(["s.a", "s.b", "s.c"])]
        assert sorted(found) == [3, 4]
        weather.lags = [3]
        found = [stored.sequence async for stored in stream.newest_of(["s.a", "s.b", "s.x"])]
        assert sorted(found) == [2, 3]
        weather.lags = [9] * 9
        last = await stream.last("s.a")
        assert last is not None
        assert last.sequence == 5
        assert await stream.get(1) is None
        assert await stream.count("s.b") == 0
        assert (await stream.state()).messages == 2
        assert await stream.subjects("s.*") == {"s.a": 1, "s.c": 1}
        assert len(weather.lags) == 9
        world.rewind("s", 4)
        assert await read(5) == [4]  # what is lost is lost everywhere
        await stream.append("s.a", b"")
        await stream.delete(5)
        world.rewind("s", 4)  # of which nothing is left that could be lost
        assert await read(5) == [4]

    simulate(main)


def test_the_observer_gets_everything_in_order() -> None:
    """Writers, stored and removed messages with the reason, refusals, and deliveries."""

    async def main() -> None:
        notes = Notes()
        world = MemoryNats(fault_model=ScriptedFaults(), observer=notes)
        one, two = await a_stream(world), world.connect("two")
        await two.bus.subscribe("done.a", lambda _: None)
        await two.bus.barrier()
        stream = one.stream("s")
        await stream.append("s.a", b"", expected_last=0)
        await two.bus.barrier()
        with pytest.raises(WrongLastSequence):
            await two.stream("s").append("s.a", b"", expected_last=0)
        await stream.append("s.b", b"", headers={"Nats-Rollup": "sub"})
        await two.stream("s").append_unconfirmed("s.b", b"", headers={"Nats-Rollup": "sub"})
        await two.bus.barrier()
        await two.stream("s").purge("s.a")
        await stream.append("s.c", b"")
        await stream.append("s.c", b"")
        await stream.delete(4)
        world.lose_stream("s")
        assert notes.said == [
            ("published", "one", "s.a"), ("stored", "one", 1, 0), ("delivered", "two", "done.a"),
            ("published", "two", "s.a"), ("refused", "two", WrongLastSequence),
            ("published", "one", "s.b"), ("stored", "one", 2, 0),
            ("published", "two", "s.b"), ("stored", "two", 3, 2), ("rollup", "two", [2]),
            ("purge", "two", [1]),
            ("published", "one", "s.c"), ("stored", "one", 4, 0),
            ("published", "one", "s.c"), ("stored", "one", 5, 4),
            ("delete", "one", [4]), ("loss", "", [3, 5]),
        ]  # fmt: skip
        await stream_made_again(one)

    async def stream_made_again(one: MemoryTransport) -> None:
        await one.ensure(SPEC)
        assert await one.stream("s").append("s.a", b"") == 1

    simulate(main)
