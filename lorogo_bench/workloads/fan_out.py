"""W3: one writer, 50 and 500 readers: time until all readers have an update, and deliveries a second.

Every reader is a real client with its own connection and replica, in one of a few processes. For times, each
keystroke waits until all readers have the previous one; for rates, keystrokes do not wait. Both numbers of
readers have their own document on the same NATS, and alternate with each other and with the limit: core NATS
publish to the same number of subscribers.
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

_TIME_MOST = 5.0  # time until many readers have an update, divided by the time for few readers
_CPU_MOST = 1.25  # server CPU per update, many readers divided by few: constant, with a margin for noise
_WINDOW = 256  # updates without an ACK
_TAKE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class _Size:
    readers: tuple[int, int]  # few and many
    processes: int  # for all readers
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

    milliseconds: list[float]  # from each commit until all readers have it
    per_second: float  # deliveries
    reader_us: float | None  # CPU for each delivery
    server_us: float | None = None  # CPU for each update, one by one


@dataclass
class _Case:
    """Readers of one document or subscribers of one subject, with their measurements."""

    name: str
    readers: int
    raw: bool
    writer: LoadProcess
    crowd: Sequence[LoadProcess]
    published: int = 0  # characters or messages, up to now
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
    bench.progress(f"  starting {sum(size.readers)} readers and as many raw subscribers, {durability}")
    stored = await stored_updates(stack)
    ours, raw = await asyncio.gather(*(_cases(stack, size, pipes, raw=one) for one in (False, True)))
    for case in (*ours, *raw):
        await _pass(stack, case, size.warm_up, size.warm_up, idle=None)
    idle = await _idle(stack, size.idle_seconds)
    for case in (*ours, *raw):
        case.passes.clear()
    for number, case in interleaved((*raw, *ours), size.rounds):
        bench.progress(f"  round {number + 1}, {case.name}")
        await _pass(stack, case, size.updates, size.burst, idle=idle)
    for case in ours:
        await _verify(findings, durability, stack, case)
    published = sum(case.published for case in ours)
    found = await stored_updates(stack) - stored
    findings.equal(f"one message for each update, however many read ({durability})", found, published)
    _judge(findings, durability, ours, raw)


async def _cases(stack: Stack, size: _Size, pipes: ExitStack, *, raw: bool) -> list[_Case]:
    """Start both numbers of readers in the same processes, with a writer for each."""
    names = {f"{'raw' if raw else 'fan-out'}-{count}": count for count in size.readers}
    ends = {name: pipes.enter_context(pipe()) for name in names}
    spread = {name: shares(count, size.processes) for name, count in names.items()}
    write_ends = [write_end for _, write_end in ends.values()]
    crowd = await asyncio.gather(
        *(
            stack.load(
                "raw.crowd" if raw else "crowd",
                pass_fds=write_ends,
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


async def _writer(stack: Stack, name: str, read_end: int, size: _Size, *, raw: bool) -> LoadProcess:
    seen = {"seen_fd": read_end, "seen_by": size.processes}
    if raw:
        return await stack.load("raw.speaker", pass_fds=(read_end,), name=name, **seen)
    return await stack.load("typist", pass_fds=(read_end,), documents=[name], **seen)


async def _pass(stack: Stack, case: _Case, updates: int, burst: int, *, idle: float | None) -> None:
    """Run a round: updates one by one, then a burst."""
    meter = stack.meter()
    verb = "publish_one_by_one" if case.raw else "type_one_by_one"
    reply, taken = await _both(case, updates, verb, {})
    spent = meter.spent()
    began_ns = reply["published_ns" if case.raw else "committed_ns"]
    milliseconds = [(end - begin) / 1e6 for begin, end in zip(began_ns, _last(taken), strict=True)]
    cpu = spent.servers_cpu_seconds()
    server_us = None
    if cpu is not None and idle is not None and not case.raw:
        net = cpu - idle * spent.seconds
        server_us = net / updates * 1e6 if net > 0 else None
    verb, window = ("publish", {}) if case.raw else ("type", {"window": _WINDOW})
    before = _crowd_cpu(case)
    reply, taken = await _both(case, burst, verb, window)
    after = _crowd_cpu(case)
    seconds = (_last(taken)[-1] - reply["began_ns"]) / 1e9
    deliveries = burst * case.readers
    cpu_us = None if before is None or after is None else (after - before) / deliveries * 1e6
    case.passes.append(_Pass(milliseconds, deliveries / seconds, cpu_us, server_us))


async def _both(
    case: _Case, count: int, verb: str, more: dict[str, int]
) -> tuple[LoadReply, list[LoadReply]]:
    """Return the replies of the writer and of each process of readers."""
    reply, *taken = await asyncio.gather(
        case.writer.call(verb, count=count, seconds=_TAKE_SECONDS, **more),
        *(one.call("take", document=case.name, count=count, seconds=_TAKE_SECONDS) for one in case.crowd),
    )
    case.published += count
    return reply, taken


def _crowd_cpu(case: _Case) -> float | None:
    some = [usage(one.pid).cpu_seconds for one in case.crowd]
    return None if None in some else sum(cpu for cpu in some if cpu is not None)


def _last(taken: list[LoadReply]) -> list[int]:
    """Return the times when the last process had each item."""
    return [max(each) for each in zip(*(one["seen_ns"] for one in taken), strict=True)]


async def _idle(stack: Stack, seconds: float) -> float | None:
    """Return the cores of an idle server: they are subtracted, as rounds of many readers take longer."""
    meter = stack.meter()
    await asyncio.sleep(seconds)
    spent = meter.spent()
    cpu = spent.servers_cpu_seconds()
    return None if cpu is None else cpu / spent.seconds


async def _verify(findings: OutcomeBuilder, durability: Durability, stack: Stack, case: _Case) -> None:
    expected = text_of(case.published)
    found: dict[str, int] = {}
    for one in await asyncio.gather(*(one.call("texts", document=case.name) for one in case.crowd)):
        for text, count in one["texts"].items():
            found[text] = found.get(text, 0) + count
    words = f"each of {case.readers} readers has the whole text ({durability})"
    findings.equal(words, found, {expected: case.readers})
    (text,) = await texts(stack, [case.name])
    findings.equal(f"a client that opens {case.name} later has it too ({durability})", text, expected)


# --- results


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
