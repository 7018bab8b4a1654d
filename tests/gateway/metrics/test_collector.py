"""The collector's sums of server figures, and its sampling interval."""

import asyncio
import random
from dataclasses import replace
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_gateway.metrics.collector import IDLE_SECONDS, WATCHED_SECONDS, Collector, census
from lorogo_gateway.metrics.rates import (
    CounterDeltas,
    CounterTotals,
    RecentTakeovers,
    StreamStates,
    Takeover,
    counts,
    number,
    reasons,
    sample,
    takeovers,
)
from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Down, Failed, Starting, Status, Up
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.ports import ServiceInfo, StreamState
from lorogo_transport.rpc.discovery import ServerStats, is_ready
from lorogo_transport.stores.statuses import Statuses
from tests.client.support import new_world
from tests.gateway.operator_support import SETTINGS, eventually, gate_of


def server(name: str = "s", started: str = "then", **stats: Any) -> ServerStats:
    return ServerStats(name, "1.0.0", started, stats)


# --- figures --------------------------------------------------------------------------------------


def test_differences_are_what_happened_between_two_samples() -> None:
    """The deltas of all servers are added; counts from before the first sample of a server belong to no
    interval.
    """
    progress = CounterDeltas()
    first = server(accepted=10, accepted_bytes=100, nacked={"deleted": 1}, ack_us_counts=[0, 5])
    assert progress.step([first]) == CounterTotals()
    second = server(accepted=13, accepted_bytes=130, nacked={"deleted": 3}, ack_us_counts=[0, 5, 3])
    other = server("t", accepted=1000)
    assert progress.step([second, other]) == CounterTotals(3, 30, 2, 0, [0, 0, 3], [])


@pytest.mark.parametrize(
    "again",
    [
        server(started="now", accepted=20, ack_us_counts=[0, 20]),
        server(accepted=2, ack_us_counts=[0, 2]),
        server(accepted=30, ack_us_counts=[0, 0, 30]),
    ],
    ids=["reports it", "counters went back", "one counter went back"],
)
def test_a_server_that_restarted_counts_from_nothing(again: ServerStats) -> None:
    """All counts of a restarted server are new, whether the server reports the restart or its counters show
    it.
    """
    progress = CounterDeltas()
    progress.step([server(accepted=10, ack_us_counts=[0, 10])])
    assert progress.step([again]).updates == again.stats["accepted"]


def test_a_server_that_vanishes_counts_nothing_and_may_come_back() -> None:
    """The counts during its absence are added when the server appears again."""
    progress = CounterDeltas()
    progress.step([server(accepted=10)])
    assert progress.step([]) == CounterTotals()
    assert progress.step([server(accepted=15)]).updates == 5


def test_servers_that_are_gone_are_forgotten_some_day() -> None:
    """The oldest first: nothing grows without end."""
    progress = CounterDeltas(servers_max=2)
    for name in "abc":
        progress.step([server(name, accepted=1)])
    assert progress.step([server("a", accepted=5)]).updates == 0
    assert progress.step([server("c", accepted=5)]).updates == 4


nonsense = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=10,
)
NAMES = (
    "accepted",
    "accepted_bytes",
    "nacked",
    "takeovers",
    "ack_us_counts",
    "journal_sync_us_counts",
    "last_takeovers",
    "documents",
    "ready",
    "journal",
)


@hypothesis.settings(
    max_examples=40,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # the speed of generating nonsense is irrelevant
)
@given(st.lists(st.dictionaries(st.sampled_from(NAMES), nonsense), min_size=2, max_size=4))
def test_nonsense_of_a_server_does_no_harm(all_stats: list[dict[str, Any]]) -> None:
    """It may be of any version, or not ours: what is no figure counts as nothing."""
    progress = CounterDeltas()
    for stats in all_stats:
        found = server(**stats)
        interval = progress.step([found])
        made = sample(1, 1.0, interval, [found], StreamStates())
        assert made.updates_per_second is not None
        assert made.updates_per_second >= 0
        assert all(one.time_ns >= 0 for one in takeovers([found]))
        assert number(stats, "accepted") >= 0
        assert all(count >= 0 for count in (*counts(stats, "ack_us_counts"), *reasons(stats).values()))


def test_a_sample_has_the_rates_and_latencies_of_its_interval() -> None:
    """Not of the server's whole life; without an interval, none."""
    busy = server(
        documents=3,
        ready=True,
        journal="open",
        journal_disk_bytes=7,
        journal_waiting=1,
        intake_waiting=2,
        acks_waiting=3,
        loads_waiting=4,
    )
    state = StreamState(1, 9, 5, 500, 0, 1000)
    streams = StreamStates(state, replace(state, bytes=70), replace(state, messages=2))
    interval = CounterTotals(10, 1000, 4, 1, [0, 0, 0, 0, 0, 0, 0, 98, 0, 2], [0, 1])
    made = sample(123, 2.0, interval, [busy, server("t")], streams)
    assert (made.updates_per_second, made.bytes_per_second, made.nacks_per_second) == (5.0, 500.0, 2.0)
    assert made.ack_p50_us is not None
    assert made.ack_p99_us is not None
    assert 64 <= made.ack_p50_us < 128
    assert 256 <= made.ack_p99_us < 512
    assert (made.servers, made.servers_ready, made.documents_open, made.takeovers) == (2, 1, 3, 1)
    assert (made.wal_bytes, made.wal_messages, made.snapshot_bytes, made.rejected_messages) == (500, 5, 70, 2)
    assert (made.journal_bytes, made.journal_waiting, made.intake_waiting) == (7, 1, 2)
    assert (made.acks_waiting, made.loads_waiting) == (3, 4)
    first = sample(123, None, CounterTotals(), [], StreamStates())
    assert (first.updates_per_second, first.takeovers, first.ack_p50_us, first.wal_bytes) == (None,) * 4


@pytest.mark.parametrize(
    ("stats", "ready"),
    [
        ({"ready": True, "journal": "open"}, True),
        ({"ready": True}, True),  # durability stream: there is no journal
        ({"ready": True, "journal": "no space left on the disk"}, False),
        ({"ready": False, "journal": "open"}, False),
        ({"ready": "yes"}, False),
        ({}, False),
    ],
)
def test_who_is_ready(stats: dict[str, Any], ready: bool) -> None:
    """A server is ready if it reports so and its journal, if any, is open."""
    assert is_ready(stats) is ready


def test_takeovers_are_kept_once_the_newest_first() -> None:
    """Each server tells its last few every time; one that is gone is still remembered, within bounds."""
    recent = RecentTakeovers(most=3)
    stats = server("b", last_takeovers=[["doc", "a", 5], ["other", "a", 9], "nonsense", ["x", 1, 2]])
    recent.add(takeovers([stats]))
    recent.add(takeovers([stats]))
    assert recent.all == [Takeover(9, "other", "a", "b"), Takeover(5, "doc", "a", "b")]
    recent.add(Takeover(time_ns, "doc", "b", "c") for time_ns in (20, 21))
    assert [one.time_ns for one in recent.all] == [21, 20, 9]


# --- looking --------------------------------------------------------------------------------------


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def wall_ns(self) -> int:
        return int(self.time * 1e9)


class Announced:
    """A server that only tells figures, and how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.stats: dict[str, object] = {"ready": True, "accepted": 0}

    def __call__(self) -> dict[str, object]:
        self.asked += 1
        return dict(self.stats)


async def announced(world: MemoryNats, name: str = "s") -> Announced:
    figures = Announced()
    info = ServiceInfo(subjects.SERVICE, "1.0.0", "", {"server_id": name})
    await world.connect(name).announce(info, figures)
    return figures


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait a quarter of a second for more servers."""
    seconds = {"first_seconds": 1.0, "gather_seconds": 0.01}
    monkeypatch.setattr("lorogo_transport.rpc.discovery.server_stats.__kwdefaults__", seconds)


async def test_everybody_who_asks_at_once_is_given_the_same_look() -> None:
    """Servers are asked once, however many ask."""
    world = await new_world()
    figures = await announced(world)
    collector = Collector(world.connect(), SETTINGS, clock=Hand())
    looks = await asyncio.gather(*(collector.newest() for _ in range(20)))
    assert all(look is looks[0] for look in looks)
    assert figures.asked == 1
    assert [one.server_id for one in looks[0].servers] == ["s"]
    await collector.close()


async def test_a_look_is_good_for_a_while_and_then_taken_again() -> None:
    """As old as the asker allows."""
    world = await new_world()
    figures = await announced(world)
    clock = Hand()
    collector = Collector(world.connect(), replace(SETTINGS, sample_seconds=5.0), clock=clock)
    await collector.newest()
    clock.time += 3.0
    await collector.newest()
    assert figures.asked == 1
    await collector.newest(1.0, asked=False)
    assert figures.asked == 2
    clock.time += 7.0
    figures.stats["accepted"] = 50
    await collector.newest()
    assert figures.asked == 3
    assert [one.updates_per_second for one in collector.samples] == [None, 5.0]
    await collector.close()


async def test_the_interval_is_thirty_seconds_idle_and_shorter_when_watched() -> None:
    """A question counts for a minute."""
    world = await new_world()
    await announced(world)
    clock = Hand()
    collector = Collector(world.connect(), replace(SETTINGS, sample_seconds=5.0), clock=clock)
    assert collector._due() < clock.now()
    begun = (await collector.newest()).at
    assert collector._due() == begun + IDLE_SECONDS
    collector.watched()
    assert collector._due() == begun + 5.0
    clock.time += WATCHED_SECONDS - 1
    assert collector._due() == begun + 5.0
    clock.time += 2
    assert collector._due() == begun + IDLE_SECONDS
    await collector.close()


async def test_the_first_watcher_triggers_a_sample_at_once() -> None:
    """The collector does not finish its idle interval of thirty seconds first."""
    world = await new_world()
    figures = await announced(world)
    clock = Hand()
    async with Collector(world.connect(), replace(SETTINGS, sample_seconds=5.0), clock=clock) as collector:
        await eventually(lambda: len(collector.samples) == 1)
        clock.time += 10
        assert figures.asked == 1
        collector.watched()
        await eventually(lambda: len(collector.samples) == 2)
    assert figures.asked == 2


async def test_no_more_samples_are_kept_than_asked_for() -> None:
    """The oldest go."""
    world = await new_world()
    await announced(world)
    clock = Hand()
    collector = Collector(world.connect(), replace(SETTINGS, samples_max=3), clock=clock)
    for _ in range(5):
        clock.time += 1
        await collector.newest()
    assert [one.time_ns for one in collector.samples] == [int((1000.0 + at) * 1e9) for at in (3, 4, 5)]
    await collector.close()


async def test_without_nats_nothing_is_known_and_nothing_fails() -> None:
    """It looks again when NATS is back; no sample pretends to know."""
    world = await new_world()
    await announced(world)
    transport, clock = world.connect(), Hand()
    collector = Collector(transport, SETTINGS, clock=clock)
    transport.cut()
    look = await collector.newest()
    assert (look.connected, look.servers, look.streams) == (False, (), StreamStates())
    assert not collector.samples
    transport.heal()
    clock.time += 1
    look = await collector.newest()
    assert look.connected
    assert look.servers
    assert look.streams.wal is not None
    await collector.close()


async def test_where_no_server_ever_ran_streams_are_unknown() -> None:
    """It is no error: readiness and metrics report it."""
    collector = Collector(MemoryNats(rng=random.Random(1)).connect(), SETTINGS)
    look = await collector.newest()
    assert (look.connected, look.servers, look.streams.wal) == (True, (), None)
    await collector.close()


async def test_the_census_counts_documents_by_state_and_names_those_in_error() -> None:
    """Those without a status, but with messages or a snapshot, are down; ids that are none do not count."""
    world = await new_world()
    transport = world.connect()
    statuses, wal = Statuses(transport), transport.stream(subjects.WAL_STREAM)
    given: dict[str, Status] = {
        "up": Up("s", 1),
        "starting": Starting("op", 0, 1),
        "down": Down(1),
        "bad": Failed("trace-1", 5),
        "worse": Failed("trace-2", 9),
    }
    for name, status in given.items():
        await statuses.write(name, status, expected_revision=0)
    for name, count in {"up": 3, "alone": 2, "-odd": 5}.items():
        for _ in range(count):
            await wal.append(subjects.wal(name), b"")
    found = await census(transport, 2)
    assert found.states == {"UP": 1, "STARTING": 1, "DOWN": 2, "ERROR": 2}
    assert [(one.document, one.trace) for one in found.failed] == [("worse", "trace-2"), ("bad", "trace-1")]
    assert found.top == (("-odd", 5), ("up", 3))


async def test_documents_are_counted_only_on_request() -> None:
    """A probe, or no request at all, costs no census."""
    world = await new_world()
    await announced(world)
    clock = Hand()
    collector = Collector(world.connect(), SETTINGS, clock=clock)
    await collector.newest(asked=False)
    assert collector._census_task is None
    counted = await collector.counted()  # though the look is still fresh
    assert counted is not None
    assert counted.states == {"UP": 0, "STARTING": 0, "DOWN": 0, "ERROR": 0}
    await collector.close()


async def test_real_servers_tell_their_figures_and_takeovers() -> None:
    """A document whose server was cut off is served by the other: the collector names both."""
    async with gate_of(servers=1) as gate:
        first = next(iter((await gate.collector.newest()).servers)).server_id
        await gate.type("doc")
        statuses = Statuses(gate.world.connect())
        entry = await statuses.read("doc")
        assert entry is not None
        assert isinstance(entry.status, Up)
        # as if a server had died there without a word
        await statuses.write("orphan", Up("gone", 1), expected_revision=0, server="gone", lease=entry.token)
        await gate.type("orphan")
        look = await gate.collector.newest(0.0)
        (one,) = gate.collector.takeovers
        assert (one.document, one.before, one.after) == ("orphan", "gone", first)
        assert look.servers[0].stats["takeovers"] == 1
        assert look.streams.wal is not None
        assert look.streams.wal.messages >= 2
