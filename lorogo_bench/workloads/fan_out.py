"""W3: one writer, 50 and 500 readers: how long until all of them have it, and deliveries a second.

Every reader is a real client with a connection and a replica of its own, in one of a few processes. For times
the next keystroke is made when all have the one before; for rates keystrokes do not wait. Both numbers of
readers have a document of their own on the same NATS, and take turns; so does the limit, core NATS publish to
the same number of subscribers.
"""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from lorogo_bench import figures
from lorogo_bench.content.keys import shares, text_of
from lorogo_bench.figures import RoundValues, interleaved, percentile
from lorogo_bench.stack.load import LoadProcess, LoadReply, pipe
from lorogo_bench.stack.stack import Stack, StackSettings
from lorogo_bench.stack.texts import stored_updates, texts
from lorogo_bench.stack.usage import usage
from lorogo_bench.workload import Bench, Durability, OutcomeBuilder, Workload, WorkloadOutcome

_TIME_MOST = 5.0  # until all of the many have it, of the time until all of the few have
_CPU_MOST = (
    1.25  # the server's for each update: that it does not grow, give or take what is measured by chance
)
_WINDOW = 256  # updates that are not ACKed
_TAKE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class _Size:
    readers: tuple[int, int]  # few and many
    processes: int  # that they are spread over
    rounds: int
    updates: int  # in each round, one by one
    burst: int  # in each round, without waiting
    warm_up: int
    idle_seconds: float


_FULL = _Size(readers=(50, 500), processes=3, rounds=5, updates=100, burst=200, warm_up=20, idle_seconds=6.0)
_QUICK = _Size(readers=(3, 12), processes=2, rounds=2, updates=10, burst=20, warm_up=5, idle_seconds=0.2)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One round."""

    milliseconds: list[float]  # from each commit until all have it
    per_second: float  # deliveries
    reader_us: float | None  # CPU for each delivery
    server_us: float | None = None  # CPU for each update, one by one


@dataclass
class _Case:
    """So many readers of one document, or so many subscribers of one subject; and what was measured."""

    name: str
    readers: int
    raw: bool
    writer: LoadProcess
    crowd: Sequence[LoadProcess]
    told: int = 0  # characters or messages, up to now
    passes: list[_Pass] = field(default_factory=list)


async def run(bench: Bench) -> WorkloadOutcome:
    findings = OutcomeBuilder()
    size = _QUICK if bench.quick else _FULL
    few, many = size.readers
    findings.condition(
        "rounds", f"{size.rounds}, of {size.updates} updates one by one and {size.burst} at once"
    )
    findings.condition("readers", f"{few} and {many}, in {size.processes} processes")
    for durability in bench.durabilities("journal"):
        settings = StackSettings(durability=durability, folder=bench.folder)
        with ExitStack() as pipes:
            async with Stack(settings) as stack:
                await _measure(findings, durability, stack, size, bench, pipes)
    return findings.outcome()


async def _measure(
    findings: OutcomeBuilder,
    durability: Durability,
    stack: Stack,
    size: _Size,
    bench: Bench,
    pipes: ExitStack,
) -> None:
    bench.tell(f"  {sum(size.readers)} readers and as many raw subscribers come, {durability}")
    stored = await stored_updates(stack)
    ours, raw = await asyncio.gather(*(_cases(stack, size, pipes, raw=one) for one in (False, True)))
    for case in (*ours, *raw):
        await _pass(stack, case, size.warm_up, size.warm_up, idle=None)
    idle = await _idle(stack, size.idle_seconds)
    for case in (*ours, *raw):
        case.passes.clear()
    for number, case in interleaved((*raw, *ours), size.rounds):
        bench.tell(f"  round {number + 1}, {case.name}")
        await _pass(stack, case, size.updates, size.burst, idle=idle)
    for case in ours:
        await _verify(findings, durability, stack, case)
    told = sum(case.told for case in ours)
    found = await stored_updates(stack) - stored
    findings.equal(f"one message for each update, however many read ({durability})", found, told)
    _judge(findings, durability, ours, raw)


async def _cases(stack: Stack, size: _Size, pipes: ExitStack, *, raw: bool) -> list[_Case]:
    """Both numbers of readers in the same processes, with a writer for each."""
    names = {f"{'raw' if raw else 'fan-out'}-{count}": count for count in size.readers}
    ends = {name: pipes.enter_context(pipe()) for name in names}
    spread = {name: shares(count, size.processes) for name, count in names.items()}
    tells = [told for _, told in ends.values()]
    crowd = await asyncio.gather(
        *(
            stack.load(
                "raw.crowd" if raw else "crowd",
                pass_fds=tells,
                audiences={
                    name: {"readers": spread[name][place], "seen_fd": ends[name][1]} for name in names
                },
            )
            for place in range(size.processes)
        )
    )
    writers = await asyncio.gather(*(_writer(stack, name, ends[name][0], size, raw=raw) for name in names))
    return [
        _Case(name, count, raw, writer, crowd)
        for (name, count), writer in zip(names.items(), writers, strict=True)
    ]


async def _writer(stack: Stack, name: str, hears: int, size: _Size, *, raw: bool) -> LoadProcess:
    seen = {"seen_fd": hears, "seen_by": size.processes}
    if raw:
        return await stack.load("raw.speaker", pass_fds=(hears,), name=name, **seen)
    return await stack.load("typist", pass_fds=(hears,), documents=[name], **seen)


async def _pass(stack: Stack, case: _Case, updates: int, burst: int, *, idle: float | None) -> None:
    """Some one by one, then some at once."""
    meter = stack.meter()
    verb = "speak_one_by_one" if case.raw else "type_one_by_one"
    told, taken = await _both(case, updates, verb, {})
    spent = meter.spent()
    began_ns = told["said_ns" if case.raw else "committed_ns"]
    milliseconds = [(end - begin) / 1e6 for begin, end in zip(began_ns, _last(taken), strict=True)]
    cpu = spent.servers_cpu_seconds()
    server_us = None
    if cpu is not None and idle is not None and not case.raw:
        net = cpu - idle * spent.seconds
        server_us = net / updates * 1e6 if net > 0 else None
    verb, window = ("speak", {}) if case.raw else ("type", {"window": _WINDOW})
    before = _crowd_cpu(case)
    told, taken = await _both(case, burst, verb, window)
    after = _crowd_cpu(case)
    seconds = (_last(taken)[-1] - told["began_ns"]) / 1e9
    deliveries = burst * case.readers
    cpu_us = None if before is None or after is None else (after - before) / deliveries * 1e6
    case.passes.append(_Pass(milliseconds, deliveries / seconds, cpu_us, server_us))


async def _both(
    case: _Case, count: int, verb: str, more: dict[str, int]
) -> tuple[LoadReply, list[LoadReply]]:
    """What the writer tells, and each process of readers."""
    told, *taken = await asyncio.gather(
        case.writer.ask(verb, count=count, seconds=_TAKE_SECONDS, **more),
        *(one.ask("take", document=case.name, count=count, seconds=_TAKE_SECONDS) for one in case.crowd),
    )
    case.told += count
    return told, taken


def _crowd_cpu(case: _Case) -> float | None:
    some = [usage(one.pid).cpu_seconds for one in case.crowd]
    return None if None in some else sum(cpu for cpu in some if cpu is not None)


def _last(taken: list[LoadReply]) -> list[int]:
    """When the last process had each."""
    return [max(each) for each in zip(*(one["seen_ns"] for one in taken), strict=True)]


async def _idle(stack: Stack, seconds: float) -> float | None:
    """Cores that the server uses when nobody types: it is taken off, as the many take longer."""
    meter = stack.meter()
    await asyncio.sleep(seconds)
    spent = meter.spent()
    cpu = spent.servers_cpu_seconds()
    return None if cpu is None else cpu / spent.seconds


async def _verify(findings: OutcomeBuilder, durability: Durability, stack: Stack, case: _Case) -> None:
    expected = text_of(case.told)
    found: dict[str, int] = {}
    for one in await asyncio.gather(*(one.ask("texts", document=case.name) for one in case.crowd)):
        for text, count in one["texts"].items():
            found[text] = found.get(text, 0) + count
    words = f"each of {case.readers} readers has the whole text ({durability})"
    findings.equal(words, found, {expected: case.readers})
    (text,) = await texts(stack, [case.name])
    findings.equal(f"so has who opens {case.name} later ({durability})", text, expected)


# --- what it shows


def _judge(findings: OutcomeBuilder, durability: Durability, ours: list[_Case], raw: list[_Case]) -> None:
    for case in (*ours, *raw):
        which = f"{case.readers} {'raw subscribers' if case.raw else 'readers'}, {durability}"
        for word, share in (("p50", 0.5), ("p99", 0.99)):
            findings.measured(f"until all have it {word}, {which}", _time(case, share), "ms")
        findings.measured(f"deliveries, {which}", _rate(case), "1/s")
        cpu = figures.known(one.reader_us for one in case.passes)
        findings.measured(f"CPU of who reads for each, {which}", cpu, "µs")
        if not case.raw:
            findings.measured(f"server CPU for each update, {which}", _server(case), "µs")
    for case, limit in zip(ours, raw, strict=True):
        which = f"{case.readers} readers, {durability}"
        for word, share in (("p50", 0.5), ("p99", 0.99)):
            ratio = figures.ratios(_time(case, share), _time(limit, share))
            findings.compared(f"until all have it {word}, {which}", ratio, limit=f"raw publish {word}")
        ratio = figures.ratios(_rate(case), _rate(limit))
        findings.compared(f"deliveries, {which}", ratio, limit="raw publish")
    few, many = ours
    growth = figures.ratios(_time(many, 0.5), _time(few, 0.5))
    raw_growth = figures.ratios(_time(raw[1], 0.5), _time(raw[0], 0.5))
    findings.compared(
        f"until all have it p50, {many.readers} readers, {durability}", growth, limit=f"{few.readers} readers"
    )
    findings.compared(
        f"raw, until all have it p50, {many.readers} subscribers, {durability}",
        raw_growth,
        limit=f"{few.readers} subscribers",
    )
    here, there = _server(many), _server(few)
    cpu_growth = None if here is None or there is None else figures.ratios(here, there)
    findings.compared(
        f"server CPU for each update, {many.readers} readers, {durability}",
        cpu_growth,
        limit=f"{few.readers} readers",
    )
    findings.goal(
        f"until all {many.readers} have it of {few.readers} (p50), {durability}",
        growth.median,
        at_most=_TIME_MOST,
        unit="x",
    )
    findings.goal(
        f"server CPU for each update, {many.readers} readers of {few.readers}, {durability}",
        None if cpu_growth is None else cpu_growth.median,
        at_most=_CPU_MOST,
        unit="x",
    )


def _time(case: _Case, share: float) -> RoundValues:
    return figures.rounds(percentile(one.milliseconds, share) for one in case.passes)


def _rate(case: _Case) -> RoundValues:
    return figures.rounds(one.per_second for one in case.passes)


def _server(case: _Case) -> RoundValues | None:
    return figures.known(one.server_us for one in case.passes)


WORKLOAD = Workload("fan-out", "one writer, 50 and 500 readers: how long until all have it, deliveries", run)
