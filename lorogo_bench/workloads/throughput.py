"""W2: ACKed updates a second of one server process, pipelined, in one document and in 64.

One client process types, one character per update, and waits for ACKs only when its window is full. The limit
alternates with it on the same NATS: the same library publishes to a stream like the WAL, and another process
answers each republished message.
"""

from dataclasses import dataclass, field

from lorogo_bench import figures
from lorogo_bench.content.keys import shares, text_of
from lorogo_bench.figures import RoundValues, interleaved
from lorogo_bench.stack.load import LoadProcess
from lorogo_bench.stack.raw_limits import Pipelined, RawLimits
from lorogo_bench.stack.stack import NATS, Stack, StackSettings
from lorogo_bench.stack.texts import stored_updates, texts
from lorogo_bench.workload import Bench, Durability, OutcomeBuilder, Workload, WorkloadOutcome

_DOCUMENTS = (1, 64)
_WINDOW = 1024  # updates without an answer, of all documents together
_LEAST = {"stream": 0.6, "journal": 0.5}  # of the limit, with 64 documents
_SERVER_US_MOST = 60.0


@dataclass(frozen=True, slots=True)
class _Size:
    rounds: int
    updates: int  # in each round
    warm_up: int


_FULL = _Size(rounds=5, updates=20_000, warm_up=2_000)
_QUICK = _Size(rounds=2, updates=400, warm_up=100)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One round of lorogo."""

    per_second: float
    client_us: float  # CPU for each update
    server_us: float | None
    nats_us: float | None


@dataclass
class _Case:
    """A number of documents, with its measurements."""

    documents: list[str]
    typist: LoadProcess
    typed: int = 0
    ours: list[_Pass] = field(default_factory=list)
    limit: list[Pipelined] = field(default_factory=list)


async def run(bench: Bench) -> WorkloadOutcome:
    findings = OutcomeBuilder()
    size = _QUICK if bench.quick else _FULL
    findings.condition("rounds", f"{size.rounds}, of {size.updates} updates, {_WINDOW} unanswered at most")
    for durability in bench.durabilities("stream", "journal"):
        settings = StackSettings(durability=durability, folder=bench.folder)
        async with Stack(settings) as stack:
            bench.progress(f"  durability {durability}")
            raw = await RawLimits.of(stack)
            before = await stored_updates(stack)
            cases = [await _case(stack, count, size) for count in _DOCUMENTS]
            await raw.pipelined(size.warm_up, max(_DOCUMENTS), _WINDOW)
            for case in cases:
                for _, limit in interleaved((True, False), size.rounds):
                    if limit:
                        case.limit.append(await raw.pipelined(size.updates, len(case.documents), _WINDOW))
                    else:
                        case.ours.append(await _pass(stack, case, size.updates))
            await _verify(findings, durability, stack, cases, before)
        for case in cases:
            _judge(findings, durability, case)
    return findings.outcome()


async def _case(stack: Stack, count: int, size: _Size) -> _Case:
    documents = [f"throughput-{count}-{number}" for number in range(count)]
    case = _Case(documents, await stack.load("typist", documents=documents))
    await _pass(stack, case, size.warm_up)
    return case


async def _pass(stack: Stack, case: _Case, count: int) -> _Pass:
    meter = stack.meter()
    reply = await case.typist.call("type", count=count, window=_WINDOW)
    spent = meter.spent()
    case.typed += count
    return _Pass(
        count / reply["seconds"] / len(stack.servers),
        reply.cpu_seconds / count * 1e6,
        _each_us(spent.servers_cpu_seconds(), count),
        _each_us(spent.cpu_seconds[NATS], count),
    )


async def _verify(
    findings: OutcomeBuilder, durability: Durability, stack: Stack, cases: list[_Case], before: int
) -> None:
    stored = await stored_updates(stack) - before
    typed = sum(case.typed for case in cases)
    findings.equal(f"one message for each update ({durability})", stored, typed)
    for case in cases:
        expected = [text_of(share) for share in shares(case.typed, len(case.documents))]
        found = await texts(stack, case.documents)
        findings.equal(f"all texts are complete, {len(found)} of them ({durability})", found, expected)


def _judge(findings: OutcomeBuilder, durability: Durability, case: _Case) -> None:
    count = len(case.documents)
    which = f"{count} document{'' if count == 1 else 's'}, {durability}"
    rate = figures.rounds(one.per_second for one in case.ours)
    limit = figures.rounds(one.per_second for one in case.limit)
    ratio = figures.ratios(rate, limit)
    server_us = figures.known(one.server_us for one in case.ours)
    findings.measured(f"ACKed updates, {which}", rate, "1/s")
    findings.measured(f"raw limit, {which}", limit, "1/s")
    for name, figure in (
        ("server CPU for each", server_us),
        ("client CPU for each", figures.rounds(one.client_us for one in case.ours)),
        ("nats-server CPU for each", figures.known(one.nats_us for one in case.ours)),
        ("raw publisher CPU for each", figures.rounds(one.publisher_us for one in case.limit)),
        ("raw answerer CPU for each", figures.known(one.answerer_us for one in case.limit)),
    ):
        findings.measured(f"{name}, {which}", figure, "µs")
    findings.compared(f"ACKed updates, {which}", ratio, limit="raw publish, republish and answer")
    if count == max(_DOCUMENTS):
        findings.goal(f"of the raw limit, {which}", ratio.median, at_least=_LEAST[durability], unit="x")
    findings.goal(f"server CPU for each, {which}", _median(server_us), at_most=_SERVER_US_MOST, unit="µs")


def _median(figure: RoundValues | None) -> float | None:
    return None if figure is None else figure.median


def _each_us(cpu_seconds: float | None, count: int) -> float | None:
    return None if cpu_seconds is None else cpu_seconds / count * 1e6


WORKLOAD = Workload(
    "throughput", "pipelined updates of 1 and 64 documents: ACKed a second, CPU of server and client", run
)
