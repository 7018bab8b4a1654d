"""W8: cost of an update as its document grows, and as the number of open documents grows.

The cost is the CPU of the server with its helper processes per update of one character, pipelined; the
client's CPU is reported as well. It is compared with the cost at the smallest size in the same run. Rounds
alternate over all sizes; each round of a small size has a new document, which would otherwise grow too much.
Open documents have a cost of their own (lease renewals): it is measured first, reported separately, and
subtracted.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from lorogo_bench import figures
from lorogo_bench.content.keys import text_of
from lorogo_bench.figures import RoundValues, interleaved
from lorogo_bench.stack.load import LoadProcess
from lorogo_bench.stack.stack import Stack, StackSettings
from lorogo_bench.stack.texts import texts
from lorogo_bench.workload import Bench, Durability, OutcomeBuilder, Workload, WorkloadOutcome

_WINDOW = 256  # updates without an ACK
_FRESH_SHARE = 10  # a document that would grow by more than a tenth in all rounds gets a new copy per round
_MOST = 1.3  # cost at the largest size divided by the cost at the smallest
_GROW_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class _Size:
    operations: tuple[int, ...]
    documents: tuple[int, ...]
    rounds: int
    updates: int  # in each round, in one document
    spread: int  # in each round, over all documents
    idle_seconds: float


_FULL = _Size(
    operations=(1_000, 10_000, 100_000, 1_000_000),
    documents=(10, 100, 1_000, 10_000),
    rounds=7,
    updates=1_000,
    spread=10_000,
    idle_seconds=9.0,  # three renewals of each document
)
_QUICK = _Size(
    operations=(200, 2_000), documents=(4, 40), rounds=2, updates=100, spread=100, idle_seconds=0.2
)


@dataclass(frozen=True, slots=True)
class _Cost:
    """CPU per update, in microseconds."""

    server_us: float | None
    client_us: float


async def run(bench: Bench) -> WorkloadOutcome:
    findings = OutcomeBuilder()
    size = _QUICK if bench.quick else _FULL
    findings.condition("rounds", f"{size.rounds}, of {size.updates} updates in one, {size.spread} over many")
    for durability in bench.durabilities("journal"):
        settings = StackSettings(durability=durability, folder=bench.folder)
        async with Stack(settings) as stack:
            await _by_operations(findings, durability, stack, size, bench)
        async with Stack(settings) as stack:
            await _by_documents(findings, durability, stack, size, bench)
    return findings.outcome()


# --- one document that grows


async def _by_operations(
    findings: OutcomeBuilder, durability: Durability, stack: Stack, size: _Size, bench: Bench
) -> None:
    editor = await stack.load("editor", seed=bench.seed)
    lengths: dict[str, int] = {}
    costs: dict[int, list[_Cost]] = {operations: [] for operations in size.operations}
    await editor.call("grow", document="growth-warm", operations=1)
    await editor.call("edit", document="growth-warm", count=size.updates, window=_WINDOW)
    for number, operations in interleaved(size.operations, size.rounds):
        fresh = size.rounds * size.updates * _FRESH_SHARE > operations
        document = f"growth-{operations}-{number if fresh else 0}"
        if document not in lengths:
            bench.progress(f"  {operations:,} operations")
            lengths[document] = max(1, operations - size.updates // 2)  # the round's middle has `operations`
            await editor.call("grow", document=document, operations=lengths[document], seconds=_GROW_SECONDS)
        costs[operations].append(await _edit(stack, editor, document, size.updates))
        lengths[document] += size.updates
    _judge(findings, durability, "operations", costs)
    found = dict(zip(lengths, await texts(stack, list(lengths)), strict=True))
    own = {name: (await editor.call("text", document=name))["text"] for name in lengths}
    findings.check(
        f"every text is that of its editor ({durability})",
        found == own,
        f"different: {[name for name in lengths if found[name] != own[name]]}",
    )
    counted = {name: len(text) for name, text in found.items()}
    findings.equal(f"no operation is missing ({durability})", counted, lengths)


async def _edit(stack: Stack, editor: LoadProcess, document: str, count: int) -> _Cost:
    meter = stack.meter()
    reply = await editor.call("edit", document=document, count=count, window=_WINDOW)
    cpu = meter.spent().servers_cpu_seconds()
    return _Cost(None if cpu is None else cpu / count * 1e6, reply.cpu_seconds / count * 1e6)


# --- a growing number of documents


async def _by_documents(
    findings: OutcomeBuilder, durability: Durability, stack: Stack, size: _Size, bench: Bench
) -> None:
    typist = await stack.load("typist", documents=[])
    names: list[str] = []
    typed: Sequence[int] = ()
    costs: dict[int, list[_Cost]] = {}
    for count in size.documents:
        bench.progress(f"  {count:,} documents")
        more = [f"growth-of-{number}" for number in range(len(names), count)]
        await typist.call("open", documents=more, seconds=_GROW_SECONDS)
        names += more
        await typist.call("type", count=max(count, size.updates), window=_WINDOW)  # each is warm
        idle = await _idle(stack, size.idle_seconds)
        share = None if idle is None else figures.rounds([idle * 100])
        findings.measured(f"idle server CPU, {count:,} documents, {durability}", share, "% of a core")
        costs[count] = []
        for _ in range(size.rounds):
            meter = stack.meter()
            reply = await typist.call("type", count=size.spread, window=_WINDOW)
            spent = meter.spent()
            cpu = spent.servers_cpu_seconds()
            net = None if cpu is None or idle is None else cpu - idle * spent.seconds
            server_us = None if net is None else net / size.spread * 1e6
            costs[count].append(_Cost(server_us, reply.cpu_seconds / size.spread * 1e6))
            typed = reply["typed"]
    _judge(findings, durability, "documents", costs)
    found = await texts(stack, names)
    findings.equal(f"every text is whole, of {len(names)} ({durability})", found, [*map(text_of, typed)])


async def _idle(stack: Stack, seconds: float) -> float | None:
    """Return the cores that idle servers use."""
    meter = stack.meter()
    await asyncio.sleep(seconds)
    spent = meter.spent()
    cpu = spent.servers_cpu_seconds()
    return None if cpu is None else cpu / spent.seconds


# --- results


def _judge(
    findings: OutcomeBuilder, durability: Durability, what: str, costs: dict[int, list[_Cost]]
) -> None:
    """Add the curve, and its last point divided by its first."""
    server: dict[int, RoundValues | None] = {}
    client: dict[int, RoundValues] = {}
    for count, some in costs.items():
        server[count] = figures.known(one.server_us for one in some)
        client[count] = figures.rounds(one.client_us for one in some)
        findings.measured(f"server CPU for each, {count:,} {what}, {durability}", server[count], "µs")
        findings.measured(f"client CPU for each, {count:,} {what}, {durability}", client[count], "µs")
    least = min(costs)
    first = server[least]
    for count in costs:
        here = server[count]
        if count == least:
            continue
        if first is not None and here is not None:
            name = f"server CPU for each, {count:,} {what}, {durability}"
            findings.compared(name, figures.ratios(here, first), limit=f"{least:,} {what}")
        name = f"client CPU for each, {count:,} {what}, {durability}"
        findings.compared(name, figures.ratios(client[count], client[least]), limit=f"{least:,} {what}")
    findings.curve(
        f"CPU for each update, {durability}", {"server": server, "client": client}, along=what, unit="µs"
    )
    last, most = server[max(costs)], max(costs)
    ratio = None if first is None or last is None else figures.ratios(last, first).median
    if what == "operations":
        words = f"server CPU for each at {most:,} {what} of that at {least:,}, {durability}"
        findings.goal(words, ratio, at_most=_MOST, unit="x")


WORKLOAD = Workload(
    "growth", "cost of an update as its document grows, and as more documents are open", run, draws=True
)
