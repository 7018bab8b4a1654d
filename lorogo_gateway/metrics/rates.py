"""What servers' figures mean from one look to the next: rates, and latencies of an interval. Pure.

Servers count since they started. A server that was restarted counts from nothing again: then all that it
counts is new. What a server counted before it was first seen belongs to no interval.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lorogo_protocol import latency
from lorogo_transport.ports import StreamState
from lorogo_transport.rpc.discovery import ServerStats, is_ready

Stats = Mapping[str, Any]

_SERVERS_MAX = 10_000
_REASONS_MAX = 100  # by which one server may refuse; ours are fewer
_NAME_CHARS_MAX = 200


def number(stats: Stats, name: str) -> int:
    """A figure; 0 if it is not there or is none: servers may be older than we are, or not ours."""
    value = stats.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def counts(stats: Stats, name: str) -> list[int]:
    """Latencies as counts; none if it is something else."""
    value = stats.get(name)
    if not isinstance(value, list) or len(value) > latency.COUNTS_MAX:
        return []
    whole = all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in value)
    return list(value) if whole else []


def reasons(stats: Stats, name: str = "nacked") -> dict[str, int]:
    """NACKs by reason, or something else that is counted so."""
    value = stats.get(name)
    if not isinstance(value, Mapping):
        return {}
    names = [name for name in value if isinstance(name, str) and len(name) <= _NAME_CHARS_MAX]
    return {name: number(value, name) for name in sorted(names)[:_REASONS_MAX]}


@dataclass(frozen=True, slots=True)
class CounterTotals:
    """What was counted: by one server, by several, or in an interval."""

    updates: int = 0
    bytes: int = 0
    nacks: int = 0
    takeovers: int = 0
    acks: Sequence[int] = ()  # by how long they took
    syncs: Sequence[int] = ()  # of the journal, by how long they took

    @classmethod
    def of(cls, stats: Stats) -> "CounterTotals":
        return cls(
            number(stats, "accepted"),
            number(stats, "accepted_bytes"),
            sum(reasons(stats).values()),
            number(stats, "takeovers"),
            counts(stats, "ack_us_counts"),
            counts(stats, "journal_sync_us_counts"),
        )

    def plus(self, other: "CounterTotals") -> "CounterTotals":
        return CounterTotals(
            self.updates + other.updates,
            self.bytes + other.bytes,
            self.nacks + other.nacks,
            self.takeovers + other.takeovers,
            latency.added((self.acks, other.acks)),
            latency.added((self.syncs, other.syncs)),
        )

    def since(self, before: "CounterTotals") -> "CounterTotals":
        """What came since then; all of it, if it cannot have grown from there: it began anew."""
        less = CounterTotals(
            -before.updates,
            -before.bytes,
            -before.nacks,
            -before.takeovers,
            [-one for one in before.acks],
            [-one for one in before.syncs],
        )
        more = self.plus(less)
        least = min(more.updates, more.bytes, more.nacks, more.takeovers, *more.acks, *more.syncs)
        return self if least < 0 else more


class CounterDeltas:
    """The counters of all servers, from look to look."""

    def __init__(self, servers_max: int = _SERVERS_MAX) -> None:
        self._servers_max = servers_max
        self._known: dict[str, tuple[str, CounterTotals]] = {}  # (started, totals); heard of last: at the end

    def step(self, servers: Iterable[ServerStats]) -> CounterTotals:
        """What they counted since the step before."""
        total = CounterTotals()
        for server in servers:
            now = CounterTotals.of(server.stats)
            known = self._known.pop(server.server_id, None)
            self._known[server.server_id] = (server.started, now)
            if known is not None:
                started, before = known
                total = total.plus(now if started != server.started else now.since(before))
        while len(self._known) > self._servers_max:
            del self._known[next(iter(self._known))]
        return total


@dataclass(frozen=True, slots=True)
class ChartSample:
    """One point of every chart; None: not known. Rates and latencies are of the interval that ends here."""

    time_ns: int
    updates_per_second: float | None
    bytes_per_second: float | None
    nacks_per_second: float | None
    takeovers: int | None
    ack_p50_us: int | None
    ack_p99_us: int | None
    sync_p50_us: int | None
    sync_p99_us: int | None
    servers: int
    servers_ready: int
    documents_open: int
    wal_bytes: int | None
    wal_messages: int | None
    snapshot_bytes: int | None
    journal_bytes: int
    rejected_messages: int | None
    journal_waiting: int
    intake_waiting: int
    acks_waiting: int
    loads_waiting: int


def sample(
    time_ns: int,
    seconds: float | None,
    interval: CounterTotals,
    servers: Sequence[ServerStats],
    streams: "StreamStates",
) -> ChartSample:
    """A point of the charts; `seconds` since the one before, None if there is none."""
    stats = [server.stats for server in servers]

    def together(name: str) -> int:
        return sum(number(one, name) for one in stats)

    def rate(count: int) -> float | None:
        return round(count / seconds, 3) if seconds else None

    wal, snapshots, rejected = streams.wal, streams.snapshots, streams.rejected
    return ChartSample(
        time_ns=time_ns,
        updates_per_second=rate(interval.updates),
        bytes_per_second=rate(interval.bytes),
        nacks_per_second=rate(interval.nacks),
        takeovers=interval.takeovers if seconds else None,
        ack_p50_us=latency.quantile_us(interval.acks, 0.5),
        ack_p99_us=latency.quantile_us(interval.acks, 0.99),
        sync_p50_us=latency.quantile_us(interval.syncs, 0.5),
        sync_p99_us=latency.quantile_us(interval.syncs, 0.99),
        servers=len(servers),
        servers_ready=sum(is_ready(one) for one in stats),
        documents_open=together("documents"),
        wal_bytes=None if wal is None else wal.bytes,
        wal_messages=None if wal is None else wal.messages,
        snapshot_bytes=None if snapshots is None else snapshots.bytes,
        journal_bytes=together("journal_disk_bytes"),
        rejected_messages=None if rejected is None else rejected.messages,
        journal_waiting=together("journal_waiting"),
        intake_waiting=together("intake_waiting"),
        acks_waiting=together("acks_waiting"),
        loads_waiting=together("loads_waiting"),
    )


@dataclass(frozen=True, slots=True)
class StreamStates:
    """What NATS says of our streams; None: it is not there, or did not answer."""

    wal: StreamState | None = None
    snapshots: StreamState | None = None
    rejected: StreamState | None = None


@dataclass(frozen=True, slots=True)
class Takeover:
    """A document went from a server that was gone to another."""

    time_ns: int
    document: str
    before: str
    after: str


def takeovers(servers: Iterable[ServerStats]) -> list[Takeover]:
    """Those that servers remember; nonsense is left out."""
    found = []
    for server in servers:
        rows = server.stats.get("last_takeovers")
        for row in rows if isinstance(rows, list) else []:
            match row:
                case [str(document), str(before), int(time_ns)] if time_ns >= 0:
                    found.append(Takeover(time_ns, document, before, server.server_id))
    return found


@dataclass(slots=True)
class RecentTakeovers:
    """The newest takeovers, each once, also when the server that told of them is gone."""

    most: int = 100
    all: list[Takeover] = field(default_factory=list)  # newest first

    def add(self, more: Iterable[Takeover]) -> None:
        both = {*self.all, *more}
        self.all = sorted(both, key=lambda one: (one.time_ns, one.document), reverse=True)[: self.most]
