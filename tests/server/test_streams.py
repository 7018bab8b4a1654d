"""The streams that a server needs, and where fencing tokens begin."""

from typing import Any

import pytest

from lorogo_protocol import subjects
from lorogo_protocol.status import Down
from lorogo_server import ServerSettings, streams
from lorogo_transport.memory import MemoryNats, MemoryTransport
from lorogo_transport.statuses import Statuses
from tests.server.support import until
from tests.server.worlds import ShiftedClock, memory_world


async def test_tokens_go_up_though_whoever_makes_the_bucket_anew_is_behind() -> None:
    """A status bucket begins where the later clock is, its maker's or NATS's: no owner seems older."""
    nats_clock, behind = ShiftedClock(), ShiftedClock(ahead=-3600.0)
    nats = MemoryNats(now_ns=nats_clock.wall_ns)
    line = nats.connect("server")
    for clock in (nats_clock, behind, ShiftedClock(ahead=3600.0)):
        least = max(clock.wall_ns(), nats_clock.wall_ns()) // 1_000
        await streams.ensure(line, ServerSettings(), clock, guarded=False)
        first = await line.stream(subjects.STATUS_STREAM).append(subjects.status_key("doc"), b"")
        assert least <= first <= least + 60_000_000
        del nats.stores[subjects.STATUS_STREAM]


async def test_tokens_go_up_from_those_that_are_known() -> None:
    """A clock was ahead when the bucket was made, and the next to make it has seen its tokens."""
    clock = ShiftedClock()
    nats = MemoryNats(now_ns=clock.wall_ns)
    line = nats.connect("server")
    await streams.ensure(line, ServerSettings(), ShiftedClock(ahead=3600.0), guarded=False)
    statuses = Statuses(line)
    token = await statuses.write("doc", Down(1), expected_revision=0)
    assert statuses.highest == token
    other = Statuses(line)
    await other.read("doc")
    del nats.stores[subjects.STATUS_STREAM]
    await streams.ensure(line, ServerSettings(), clock, guarded=False, above=other.highest)
    assert await statuses.write("doc", Down(2), expected_revision=0) > token


async def test_what_is_lost_while_a_server_starts_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """NATS is started anew without it right after it was looked at: the server looks again."""
    ensure, lost = streams.ensure, False

    async def lose(transport: MemoryTransport, *arguments: Any, **options: Any) -> list[tuple[str, str]]:
        nonlocal lost
        changes = await ensure(transport, *arguments, **options)
        if not lost:
            lost = True
            transport.cut()
            del nats.stores[subjects.SNAPSHOT_STREAM]
            transport.heal()
        return changes

    monkeypatch.setattr(streams, "ensure", lose)
    async with memory_world() as world:
        nats = world.nats
        await world.server()

        async def there() -> bool:
            return subjects.SNAPSHOT_STREAM in nats.stores

        await until(there)
        await world.probe.start("doc")


async def test_what_is_there_is_left_as_it_is() -> None:
    """The second time nothing changes."""
    line = MemoryNats().connect("server")
    clock = ShiftedClock()
    made = await streams.ensure(line, ServerSettings(), clock, guarded=False)
    assert {name for name, _ in made} >= {subjects.WAL_STREAM, subjects.STATUS_STREAM}
    assert await streams.ensure(line, ServerSettings(), clock, guarded=False) == []
