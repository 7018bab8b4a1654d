"""The streams that a server needs, and where fencing tokens begin."""

from lorogo_protocol import subjects
from lorogo_server import ServerSettings, streams
from lorogo_transport.memory import MemoryNats
from tests.server.worlds import ShiftedClock


async def test_tokens_go_up_though_whoever_makes_the_bucket_anew_is_behind() -> None:
    """A status bucket begins where the later clock is, its maker's or NATS's: no owner seems older."""
    nats_clock, behind = ShiftedClock(), ShiftedClock(ahead=-3600.0)
    nats = MemoryNats(now_ns=nats_clock.wall_ns)
    line = nats.connect("server")
    for clock in (nats_clock, behind, ShiftedClock(ahead=3600.0)):
        least = max(clock.wall_ns(), nats_clock.wall_ns()) // 1_000_000
        await streams.ensure(line, ServerSettings(), clock, guarded=False)
        first = await line.stream(subjects.STATUS_STREAM).append(subjects.status_key("doc"), b"")
        assert least <= first <= least + 60_000
        del nats.stores[subjects.STATUS_STREAM]


async def test_what_is_there_is_left_as_it_is() -> None:
    """The second time nothing changes."""
    line = MemoryNats().connect("server")
    clock = ShiftedClock()
    made = await streams.ensure(line, ServerSettings(), clock, guarded=False)
    assert {name for name, _ in made} >= {subjects.WAL_STREAM, subjects.STATUS_STREAM}
    assert await streams.ensure(line, ServerSettings(), clock, guarded=False) == []
