"""Weather by chance: its knobs, its storms, and their end."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import pytest

from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from lorogo_transport.errors import OutcomeUnknown, RequestTimeout
from tests.simulation.scripted import a_stream, simulate
from tests.simulation.weather import Climate, StormyWeather, everywhere
from tests.transport.support import Collector

T = TypeVar("T")


async def _publish_and_wait(weather: StormyWeather, count: int, seconds: float) -> list[int]:
    world = MemoryNats(fault_model=weather)
    one, two = world.connect("one"), world.connect("two")
    got = Collector()
    await two.bus.subscribe("news", got)
    await two.bus.barrier(timeout=60)
    for number in range(count):
        await one.bus.publish("news", b"%d" % number)
    await asyncio.sleep(seconds)
    return [int(body) for body in got.bodies]


def test_stormy_weather_has_its_knobs() -> None:
    """Each knob does what it is called, and nothing else; the same seed gives the same weather."""

    def numbers(climate: Climate, seed: int = 1) -> list[int]:
        weather = StormyWeather(random.Random(seed), everywhere(climate))
        return simulate(lambda: _publish_and_wait(weather, 300, 60))

    whole = list(range(300))
    late = Climate(slow_chance=0.1, slow_seconds=9)
    assert numbers(late) == whole  # late, and in order
    lost = numbers(Climate(loss=0.1))
    assert lost == sorted(set(lost))
    assert 150 < len(lost) < 290
    doubled = numbers(Climate(doubling=0.1))
    assert sorted(set(doubled)) == whole
    assert 310 < len(doubled) < 450
    overtaken = numbers(Climate(slow_chance=0.1, slow_seconds=9, overtaking=1.0))
    assert overtaken != whole
    assert sorted(overtaken) == whole
    assert overtaken == numbers(Climate(slow_chance=0.1, slow_seconds=9, overtaking=1.0))
    assert overtaken != numbers(Climate(slow_chance=0.1, slow_seconds=9, overtaking=1.0), seed=2)


def test_held() -> None:
    """The next message on such a subject is held up, and what is sent after it; nothing before, and once."""

    async def main() -> list[float]:
        weather = StormyWeather(random.Random(1), everywhere(Climate()))
        one = await a_stream(MemoryNats(fault_model=weather))
        weather.hold("one", "ask", "s.held", 10.0)

        async def seconds(subject: str, later: float) -> float:
            await asyncio.sleep(later)
            await one.stream("s").append(subject, b"", timeout=60)
            return asyncio.get_running_loop().time() - begun

        begun = asyncio.get_running_loop().time()
        sent = [("s.1", 0.0), ("s.held", 1.0), ("s.2", 2.0), ("s.held", 12.0)]
        return await asyncio.gather(*(seconds(subject, later) for subject, later in sent))

    assert [round(when) for when in simulate(main)] == [0, 11, 11, 12]


def test_calm_is_for_good() -> None:
    """After `calm()` everything arrives once and in order, whatever storm was planned for later."""
    weather = StormyWeather(random.Random(4), everywhere(Climate(loss=0.5, doubling=0.5, overtaking=1.0)))
    weather.stale(5)
    weather.cut("two")
    assert simulate(lambda: _publish_and_wait(weather, 50, 5)) == []
    assert any(weather.lag("s") for _ in range(20))
    weather.over("two", None)
    weather.storm(1.0)
    weather.calm()
    weather.storm(1.0)
    weather.stale(5)
    weather.usual()
    weather.cut("two")
    assert simulate(lambda: _publish_and_wait(weather, 50, 5)) == list(range(50))
    assert not any(weather.lag("s") for _ in range(20))


@pytest.mark.parametrize("seed", range(20))
def test_storms_end(seed: int) -> None:
    """In any storm barriers hold, and after it a request is answered."""

    async def main() -> None:
        weather = StormyWeather(random.Random(seed))
        weather.storm(1.0)
        world = MemoryNats(fault_model=weather)
        one = await _in_spite(lambda: a_stream(world))
        appended = sum([await _stored(one, number) for number in range(10)])
        weather.calm()
        await asyncio.sleep(30)
        assert await one.stream("s").count("s.*") >= appended

    simulate(main)


async def _in_spite(call: Callable[[], Awaitable[T]]) -> T:
    for _ in range(200):
        with suppress(RequestTimeout):
            return await call()
    raise AssertionError("never answered")


async def _stored(transport: MemoryTransport, number: int) -> bool:
    try:
        await transport.stream("s").append(f"s.{number}", b"")
    except OutcomeUnknown:
        return False
    return True
