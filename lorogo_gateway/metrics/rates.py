"""Rates and latencies of an interval, from counters of servers. Pure.

Counters start at zero with the server. After a restart the whole value is new. A value at the first sample of
a server belongs to no interval.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lorogo_protocol.journal import latency
from lorogo_transport.ports import StreamState
from lorogo_transport.rpc.discovery import ServerStats, is_ready

Stats = Mapping[str, Any]

_SERVERS_MAX = 10_000
_REASONS_MAX = 100  # of one server; the protocol has fewer
_NAME_CHARS_MAX = 200


def number(stats: Stats, name: str) -> int:
    """Return a value; 0 if it is absent or malformed: the server may have another version."""
    value = stats.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def counts(stats: Stats, name: str) -> list[int]:
    """Return a latency histogram's counts; empty if they are absent or malformed."""
    value = stats.get(name)
    if not isinstance(value, list) or len(value) > latency.COUNTS_MAX:
        return []
    whole = all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in value)
    return list(value) if whole else []


def reasons(stats: Stats, name: str = "nacked") -> dict[str, int]:
    """Return NACKs, or another counter, by reason."""
    value = stats.get(name)
    if not isinstance(value, Mapping):
        return {}
    names = [name for name in value if isinstance(name, str) and len(name) <= _NAME_CHARS_MAX]
    return {name: number(value, name) for name in sorted(names)[:_REASONS_MAX]}


@dataclass(frozen=True, slots=True)
class CounterTotals:
    """Counter values: of one server, of several, or of an interval."""

    updates: int = 0
    bytes: int = 0
    nacks: int = 0
    takeovers: int = 0
    acks: Sequence[int] = ()  # histogram of latencies
    syncs: Sequence[int] = ()  # histogram of the journal's fdatasync

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
        """Return the increase since `before`; the whole value if a counter has decreased (a restart)."""
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
    """Increases of all servers' counters between samples."""

    def __init__(self, servers_max: int = _SERVERS_MAX) -> None:
        self._servers_max = servers_max
        self._known: dict[str, tuple[str, CounterTotals]] = {}  # (started, totals); least recently seen first

    def step(self, servers: Iterable[ServerStats]) -> CounterTotals:
        """Return the increase since the previous step."""
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
    """One point of every chart; None: unknown. Rates and latencies are of the interval that ends here."""

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
    """Return a point of the charts; `seconds` since the previous one, None for the first."""
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
    """States of the streams in NATS; None: the stream does not exist or did not answer."""

    wal: StreamState | None = None
    snapshots: StreamState | None = None
    rejected: StreamState | None = None


@dataclass(frozen=True, slots=True)
class Takeover:
    """A document moved from a failed server to another."""

    time_ns: int
    document: str
    before: str
    after: str


def takeovers(servers: Iterable[ServerStats]) -> list[Takeover]:
    """Return the takeovers that servers report; malformed rows are skipped."""
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
    """The newest takeovers without duplicates, kept also after the reporting server has stopped."""

    most: int = 100
    all: list[Takeover] = field(default_factory=list)  # newest first

    def add(self, more: Iterable[Takeover]) -> None:
        both = {*self.all, *more}
        self.all = sorted(both, key=lambda one: (one.time_ns, one.document), reverse=True)[: self.most]
