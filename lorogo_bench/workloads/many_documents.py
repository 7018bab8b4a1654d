"""W4: many open documents: opens a second, memory per document, idle CPU, updates a second.

One client process opens new documents, one portion per round. The limit alternates with it: the NATS
operations of an open (compare-and-swap writes and gets) with the same transport and concurrency. The limit
has its own NATS, so that its stored messages do not count as memory of documents.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from lorogo_bench import figures
from lorogo_bench.content.keys import shares, text_of
from lorogo_bench.figures import RoundValues, interleaved
from lorogo_bench.stack.load import LoadProcess
from lorogo_bench.stack.raw_limits import Pipelined, RawLimits, RawOpener
from lorogo_bench.stack.stack import NATS, Stack, StackSettings
from lorogo_bench.stack.texts import stored_updates, texts
from lorogo_bench.workload import Bench, Durability, OutcomeBuilder, Workload, WorkloadOutcome
from lorogo_protocol.status import Up
from lorogo_transport.stores.statuses import Statuses

_WINDOW = 1024  # updates without an answer, of all documents together
_WARM = 32  # documents that are opened before anything is measured
_OPENS_LEAST = 2_000.0  # a second
_KIB_MOST = 40.0
_IDLE_MOST = 10.0  # percent of one core
_KIB = 1024
_OPEN_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class _Size:
    documents: tuple[int, ...]
    rounds: int
    updates: int  # in each round, over all documents
    idle_rounds: int
    idle_seconds: float  # per round; a document is renewed every 3 seconds


_FULL = _Size(documents=(1_000, 10_000), rounds=5, updates=10_000, idle_rounds=3, idle_seconds=9.0)
_QUICK = _Size(documents=(40,), rounds=2, updates=100, idle_rounds=1, idle_seconds=0.2)


@dataclass(frozen=True, slots=True)
class _Idle:
    """Idle CPU, in percent of one core."""

    server: float | None
    nats: float | None
    client: float


@dataclass
class _Case:
    """A number of documents, with its measurements."""

    documents: list[str]
    opens: list[float] = field(default_factory=list)  # a second, of each portion
    opens_limit: list[float] = field(default_factory=list)
    idle: list[_Idle] = field(default_factory=list)
    updates: list[float] = field(default_factory=list)  # a second
    updates_limit: list[Pipelined] = field(default_factory=list)
    memory: dict[str, float | None] = field(default_factory=dict)  # KiB of each document, by words


async def run(bench: Bench) -> WorkloadOutcome:
    findings = OutcomeBuilder()
    size = _QUICK if bench.quick else _FULL
    findings.condition("rounds", f"{size.rounds}, of {size.updates} updates, {_WINDOW} unanswered at most")
    for durability in bench.durabilities("journal"):
        cases = []
        for count in size.documents:
            bench.progress(f"  {count:,} documents, durability {durability}")
            settings = StackSettings(durability=durability, folder=bench.folder)
            bare = StackSettings(servers=0, folder=bench.folder)
            async with Stack(settings) as stack, Stack(bare) as raw:
                case = _Case([f"many-{number}" for number in range(count)])
                await _measure(findings, durability, stack, raw, case, size)
            cases.append(case)
            _judge(findings, durability, case, judged=count == max(size.documents))
        _draw(findings, durability, cases[-1])
    return findings.outcome()


async def _measure(
    findings: OutcomeBuilder, durability: Durability, stack: Stack, raw: Stack, case: _Case, size: _Size
) -> None:
    warm = [f"warm-{number}" for number in range(_WARM)]
    typist, raw_opener, raw_limits = await asyncio.gather(
        stack.load("typist", documents=warm), RawOpener.of(raw), RawLimits.of(raw)
    )
    await typist.call("type", count=_WARM, window=_WINDOW)
    await raw_opener.open(warm)
    before = _memory(stack)
    await _open(typist, raw_opener, case, size.rounds)
    case.memory |= _grown(before, _memory(stack), "opened", len(case.documents))
    await _check_up(findings, durability, stack, [*warm, *case.documents])
    for _ in range(size.idle_rounds):
        case.idle.append(await _idle(stack, typist, size.idle_seconds))
    stored = await stored_updates(stack)
    typed: Sequence[int] = ()
    every = len(warm) + len(case.documents)
    for _, limit in interleaved((True, False), size.rounds):
        if limit:
            case.updates_limit.append(await raw_limits.pipelined(size.updates, every, _WINDOW))
        else:
            reply = await typist.call("type", count=size.updates, window=_WINDOW)
            case.updates.append(size.updates / reply["seconds"])
            typed = reply["typed"]
    case.memory |= _grown(before, _memory(stack), "with a few characters", len(case.documents))
    which = f"{len(case.documents):,} documents, {durability}"
    found = await stored_updates(stack) - stored
    findings.equal(f"one message for each update ({which})", found, size.rounds * size.updates)
    findings.equal(f"every keystroke was made ({which})", sum(typed), _WARM + size.rounds * size.updates)
    whole = await texts(stack, [*warm, *case.documents])
    findings.equal(f"every text is whole ({which})", whole, [text_of(count) for count in typed])


async def _open(typist: LoadProcess, raw: RawOpener, case: _Case, rounds: int) -> None:
    """Open all documents, in portions that alternate with the limit."""
    sizes = shares(len(case.documents), rounds)
    starts = [sum(sizes[:number]) for number in range(rounds)]
    for number, limit in interleaved((True, False), rounds):
        portion = case.documents[starts[number] : starts[number] + sizes[number]]
        if limit:
            case.opens_limit.append(await raw.open(portion))
        else:
            reply = await typist.call("open", documents=portion, seconds=_OPEN_SECONDS)
            case.opens.append(len(portion) / reply.seconds)


async def _check_up(
    findings: OutcomeBuilder, durability: Durability, stack: Stack, documents: Sequence[str]
) -> None:
    async with await stack.connect() as transport:
        up = {name async for name, entry in Statuses(transport).all() if isinstance(entry.status, Up)}
    which = f"{len(documents) - _WARM:,} documents, {durability}"
    findings.equal(f"every document is served ({which})", sorted(up), sorted(documents))


async def _idle(stack: Stack, typist: LoadProcess, seconds: float) -> _Idle:
    meter = stack.meter()
    reply = await typist.call("rest", rest_seconds=seconds)
    spent = meter.spent()

    def share(cpu: float | None) -> float | None:
        return None if cpu is None else cpu / spent.seconds * 100

    client = reply.cpu_seconds / reply.seconds * 100
    return _Idle(share(spent.servers_cpu_seconds()), share(spent.cpu_seconds[NATS]), client)


def _memory(stack: Stack) -> dict[str, int | None]:
    """Return the resident memory of the servers with their helpers, and of nats-server."""
    found = {name: usage.memory_bytes for name, usage in stack.usage().items()}
    servers = [memory for name, memory in found.items() if name != NATS]
    some = [memory for memory in servers if memory is not None]
    return {"server": sum(some) if len(some) == len(servers) else None, NATS: found[NATS]}


def _grown(
    before: dict[str, int | None], after: dict[str, int | None], words: str, documents: int
) -> dict[str, float | None]:
    """Return KiB per document, by process."""
    found: dict[str, float | None] = {}
    for name, first in before.items():
        now = after[name]
        each = None if first is None or now is None else (now - first) / documents / _KIB
        found[f"{name} memory for each, {words}"] = each
    return found


def _judge(findings: OutcomeBuilder, durability: Durability, case: _Case, *, judged: bool) -> None:
    which = f"{len(case.documents):,} documents, {durability}"
    opens, limit = figures.rounds(case.opens), figures.rounds(case.opens_limit)
    findings.measured(f"opens, {which}", opens, "1/s")
    findings.measured(f"raw writes and gets of an open, {which}", limit, "1/s")
    findings.compared(f"opens, {which}", figures.ratios(opens, limit), limit="raw writes and gets of an open")
    for words, kib in case.memory.items():
        findings.measured(f"{words}, {which}", figures.known([kib]), "KiB")
    server = figures.known(one.server for one in case.idle)
    for words, figure in (
        ("server", server),
        ("nats-server", figures.known(one.nats for one in case.idle)),
        ("client", figures.rounds(one.client for one in case.idle)),
    ):
        findings.measured(f"idle {words} CPU, {which}", figure, "% of a core")
    updates = figures.rounds(case.updates)
    raw = figures.rounds(one.per_second for one in case.updates_limit)
    findings.measured(f"ACKed updates, {which}", updates, "1/s")
    findings.measured(f"raw limit of updates, {which}", raw, "1/s")
    ratio = figures.ratios(updates, raw)
    findings.compared(f"ACKed updates, {which}", ratio, limit="raw publish, republish and answer")
    if judged:
        kib = case.memory["server memory for each, with a few characters"]
        findings.goal(f"opens, {which}", opens.median, at_least=_OPENS_LEAST, unit="1/s")
        findings.goal(f"server memory for each, {which}", kib, at_most=_KIB_MOST, unit="KiB")
        findings.goal(f"idle server CPU, {which}", _median(server), at_most=_IDLE_MOST, unit="%")


def _draw(findings: OutcomeBuilder, durability: Durability, case: _Case) -> None:
    """Add the curve of opens a second by the number of open documents."""
    sizes = shares(len(case.documents), len(case.opens))
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    lines = {"lorogo": case.opens, "raw writes and gets": case.opens_limit}
    drawn = {
        name: {end: figures.rounds([rate]) for end, rate in zip(ends, rates, strict=True)}
        for name, rates in lines.items()
    }
    findings.curve(f"opens a second, {durability}", drawn, along="documents open", unit="1/s")


def _median(figure: RoundValues | None) -> float | None:
    return None if figure is None else figure.median


WORKLOAD = Workload(
    "many-documents",
    "1,000 and 10,000 documents open: opens a second, memory and idle CPU for each, updates a second",
    run,
    draws=True,
)
