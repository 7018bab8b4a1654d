"""W7: 500 participants of one document move their cursors 5 times a second: delay until others see a move.

Participants are real sessions. 500 of them share 4 connections, like the sessions of 4 backends: with a
connection each, there would be 1,250,000 messages a second, too many for one machine. Separate connections
are measured with fewer participants. Moves are made when due, even if others are delayed, and delays count
from the due time. The limit, in turn with it, is core NATS publish at the same pace to as many connections.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from lorogo_bench import figures
from lorogo_bench.figures import RoundValues, interleaved, percentile
from lorogo_bench.results.cursor_moves import Schedule
from lorogo_bench.stack.load import LoadProcess, LoadReply
from lorogo_bench.stack.stack import NATS, Stack, StackSettings, StackUsage
from lorogo_bench.workload import Bench, Durability, OutcomeBuilder, Workload, WorkloadOutcome

_P95_MS_MOST = 250.0
_LEAD_SECONDS = 0.2  # before the first move: every process must have its command
_MOVE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class _Size:
    shared: int  # participants that share one connection per process
    own: int  # participants with a connection each
    processes: int
    rounds: int
    moves: int  # of each participant, in each round
    per_second: float  # of each participant


_FULL = _Size(shared=500, own=50, processes=4, rounds=3, moves=25, per_second=5)
_QUICK = _Size(shared=20, own=6, processes=2, rounds=1, moves=4, per_second=20)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One round."""

    late_ms: list[float]
    per_second: float  # deliveries: moves that a connection has shown
    shown: float  # share of moves that were shown themselves, not replaced by a newer one
    server_cores: float | None
    server_us: float | None  # CPU for each move
    nats_cores: float | None
    participants_cores: float


@dataclass
class _Case:
    """A number of participants, with its measurements."""

    document: str
    participants: int
    connections: int
    raw: bool
    processes: Sequence[LoadProcess]
    moved: int = 0  # per participant, up to now
    passes: list[_Pass] = field(default_factory=list)

    @property
    def which(self) -> str:
        return f"{self.participants} on {self.connections} connections"


async def run(bench: Bench) -> WorkloadOutcome:
    findings = OutcomeBuilder()
    size = _QUICK if bench.quick else _FULL
    findings.condition(
        "rounds", f"{size.rounds}, of {size.moves} moves by each, {size.per_second:g} a second"
    )
    for durability in bench.durabilities("journal"):
        async with Stack(StackSettings(durability=durability, folder=bench.folder)) as stack:
            bench.progress(
                f"  starting {size.shared + size.own} participants and as many raw ones, {durability}"
            )
            (shared, own), (shared_raw, own_raw) = await asyncio.gather(
                *(_cases(stack, size, raw=raw) for raw in (False, True))
            )
            cases = (shared, shared_raw, own, own_raw)
            for case in cases:
                await _pass(stack, case, 1, size.per_second)  # warm-up: all participants see each other
                case.passes.clear()
            for number, case in interleaved(cases, size.rounds):
                bench.progress(f"  round {number + 1}, {'raw, ' if case.raw else ''}{case.which}")
                await _pass(stack, case, size.moves, size.per_second)
            for case in (shared, own):
                await _verify(findings, durability, case)
        _judge(findings, durability, shared, shared_raw, goal=True)
        _judge(findings, durability, own, own_raw, goal=False)
    return findings.outcome()


async def _cases(stack: Stack, size: _Size, *, raw: bool) -> list[_Case]:
    """Start participants with shared and with own connections: in the same processes, in two documents."""
    shared, own = f"presence-{size.shared}", f"presence-{size.own}-own"
    starts = (
        stack.load(
            "raw.cursors" if raw else "cursors",
            documents={
                shared: [list(range(place, size.shared, size.processes))],
                own: [[who] for who in range(place, size.own, size.processes)],
            },
        )
        for place in range(size.processes)
    )
    processes = await asyncio.gather(*starts)
    return [
        _Case(shared, size.shared, size.processes, raw, processes),
        _Case(own, size.own, size.own, raw, processes),
    ]


async def _pass(stack: Stack, case: _Case, moves: int, per_second: float) -> None:
    begin_ns = time.monotonic_ns() + int(_LEAD_SECONDS * 1e9)
    schedule = Schedule(
        begin_ns=begin_ns,
        participants=case.participants,
        moves=moves,
        per_second=per_second,
        first=case.moved,
    )
    meter = stack.meter()
    asked = (
        one.call("move", document=case.document, schedule=asdict(schedule), seconds=_MOVE_SECONDS)
        for one in case.processes
    )
    reply = await asyncio.gather(*asked)
    case.moved += moves
    case.passes.append(_found(reply, meter.spent(), begin_ns, case.participants * moves))


def _found(reply: list[LoadReply], spent: StackUsage, begin_ns: int, moves: int) -> _Pass:
    late_ms = [late for one in reply for late in one["late_ms"]]
    shown = sum(one["shown"] for one in reply)
    seconds = (max(one["ended_ns"] for one in reply) - begin_ns) / 1e9
    server, nats = spent.servers_cpu_seconds(), spent.cpu_seconds[NATS]
    return _Pass(
        late_ms,
        shown / seconds,
        shown / len(late_ms),
        None if server is None else server / spent.seconds,
        None if server is None else server / moves * 1e6,
        None if nats is None else nats / spent.seconds,
        sum(one.cpu_seconds for one in reply) / spent.seconds,
    )


async def _verify(findings: OutcomeBuilder, durability: Durability, case: _Case) -> None:
    """Check that all participants are shown the last position of all."""
    expected = " ".join(f"{who}:{case.moved - 1}" for who in range(case.participants))
    found: dict[str, int] = {}
    for one in await asyncio.gather(*(one.call("shown", document=case.document) for one in case.processes)):
        for words, count in one["shown"].items():
            found[words] = found.get(words, 0) + count
    words = f"all of {case.which} are shown all last positions ({durability})"
    findings.equal(words, found, {expected: case.participants})


# --- results


def _judge(findings: OutcomeBuilder, durability: Durability, ours: _Case, raw: _Case, *, goal: bool) -> None:
    for case in (ours, raw):
        which = f"{'raw, ' if case.raw else ''}{case.which}, {durability}"
        for word, share in (("p50", 0.5), ("p95", 0.95)):
            findings.measured(f"set to seen {word}, {which}", _late(case, share), "ms")
        findings.measured(f"deliveries, {which}", _rate(case), "1/s")
        shown = figures.rounds(one.shown * 100 for one in case.passes)
        findings.measured(f"moves that were shown, {which}", shown, "%")
        nats = figures.known(one.nats_cores for one in case.passes)
        findings.measured(f"busy with nats-server, {which}", nats, "cores")
        busy = figures.rounds(one.participants_cores for one in case.passes)
        findings.measured(f"busy with participants, {which}", busy, "cores")
    which = f"{ours.which}, {durability}"
    for name, figure, unit in (
        ("busy with the server", figures.known(one.server_cores for one in ours.passes), "cores"),
        ("server CPU for each move", figures.known(one.server_us for one in ours.passes), "µs"),
    ):
        findings.measured(f"{name}, {which}", figure, unit)
    late, limit = _late(ours, 0.95), _late(raw, 0.95)
    findings.compared(f"set to seen p95, {which}", figures.ratios(late, limit), limit="raw publish p95")
    rate = figures.ratios(_rate(ours), _rate(raw))
    findings.compared(f"deliveries, {which}", rate, limit="raw publish at that pace")
    if goal:
        findings.goal(f"set to seen p95, {which}", late.median, at_most=_P95_MS_MOST, unit="ms")


def _late(case: _Case, share: float) -> RoundValues:
    return figures.rounds(percentile(one.late_ms, share) for one in case.passes)


def _rate(case: _Case) -> RoundValues:
    return figures.rounds(one.per_second for one in case.passes)


WORKLOAD = Workload("presence", "500 participants move their cursors: from set to seen, deliveries", run)
