"""W9: the same load on one server process and on two, in turn: the ratio of ACKed updates a second.

Two client processes type in 64 documents, pipelined; NATS spreads the documents over the servers. Each
number of servers has its own NATS. With too few cores for servers, clients and nats-server the ratio depends
on the machine more than on lorogo: then the report shows the CPU of each, and the ratio that the servers' CPU
per update would allow.
"""

import asyncio
from dataclasses import dataclass, field

from lorogo_bench import figures
from lorogo_bench.content.keys import shares, text_of
from lorogo_bench.figures import RoundValues, interleaved
from lorogo_bench.stack import machine
from lorogo_bench.stack.load import LoadProcess
from lorogo_bench.stack.stack import NATS, Stack, StackSettings
from lorogo_bench.stack.texts import stored_updates, texts
from lorogo_bench.workload import Bench, Durability, OutcomeBuilder, Workload, WorkloadOutcome

_SERVERS = (1, 2)
_CLIENTS = 2
_DOCUMENTS_EACH = 32  # per client
_WINDOW_EACH = 512
_LEAST = 1.7
_CORES_MIN = max(_SERVERS) + _CLIENTS + 1  # and one for nats-server: else they wait for each other


@dataclass(frozen=True, slots=True)
class _Size:
    rounds: int
    updates: int  # per client and round
    warm_up: int


_FULL = _Size(rounds=5, updates=10_000, warm_up=1_000)
_QUICK = _Size(rounds=2, updates=200, warm_up=50)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One round: ACKed updates, and the busy cores of each kind of process."""

    per_second: float
    server_us: float | None  # CPU for each update
    servers: float | None
    nats: float | None
    clients: float


@dataclass
class _Case:
    """A number of servers, with its measurements."""

    stack: Stack
    clients: list[LoadProcess]
    stored: int  # before
    typed: int = 0  # by each client
    passes: list[_Pass] = field(default_factory=list)


async def run(bench: Bench) -> WorkloadOutcome:
    findings = OutcomeBuilder()
    size = _QUICK if bench.quick else _FULL
    findings.condition("rounds", f"{size.rounds}, of {size.updates} updates by each of {_CLIENTS} clients")
    for durability in bench.durabilities("journal"):
        one, two = (
            Stack(StackSettings(durability=durability, servers=count, folder=bench.folder))
            for count in _SERVERS
        )
        async with one, two:
            cases = [await _case(stack, size) for stack in (one, two)]
            for number, case in interleaved(cases, size.rounds):
                bench.progress(f"  round {number + 1}, {_which(len(case.stack.servers), durability)}")
                case.passes.append(await _pass(case, size.updates))
            for case in cases:
                await _verify(findings, durability, case)
        _judge(findings, durability, cases[0].passes, cases[1].passes)
    return findings.outcome()


async def _case(stack: Stack, size: _Size) -> _Case:
    stored = await stored_updates(stack)
    starts = (stack.load("typist", documents=_documents(number)) for number in range(_CLIENTS))
    case = _Case(stack, list(await asyncio.gather(*starts)), stored)
    await _pass(case, size.warm_up)
    return case


async def _pass(case: _Case, count: int) -> _Pass:
    meter = case.stack.meter()
    asked = (client.call("type", count=count, window=_WINDOW_EACH) for client in case.clients)
    reply = await asyncio.gather(*asked)
    spent = meter.spent()
    case.typed += count
    servers, nats = spent.servers_cpu_seconds(), spent.cpu_seconds[NATS]
    whole = count * len(case.clients)
    return _Pass(
        whole / max(one["seconds"] for one in reply),
        None if servers is None else servers / whole * 1e6,
        None if servers is None else servers / spent.seconds,
        None if nats is None else nats / spent.seconds,
        sum(one.cpu_seconds for one in reply) / spent.seconds,
    )


async def _verify(findings: OutcomeBuilder, durability: Durability, case: _Case) -> None:
    which = _which(len(case.stack.servers), durability)
    stored = await stored_updates(case.stack) - case.stored
    findings.equal(f"one message for each update ({which})", stored, case.typed * len(case.clients))
    names = [name for number in range(_CLIENTS) for name in _documents(number)]
    expected = [text_of(share) for share in shares(case.typed, _DOCUMENTS_EACH)] * _CLIENTS
    findings.equal(f"every text is whole ({which})", await texts(case.stack, names), expected)


def _judge(findings: OutcomeBuilder, durability: Durability, one: list[_Pass], two: list[_Pass]) -> None:
    rates: list[RoundValues] = []
    for count, passes in zip(_SERVERS, (one, two), strict=True):
        which = _which(count, durability)
        rates.append(figures.rounds(each.per_second for each in passes))
        findings.measured(f"ACKed updates, {which}", rates[-1], "1/s")
        each_us = figures.known(each.server_us for each in passes)
        findings.measured(f"server CPU for each, {which}", each_us, "µs")
        for name, figure in (
            ("servers", figures.known(each.servers for each in passes)),
            ("nats-server", figures.known(each.nats for each in passes)),
            ("clients", figures.rounds(each.clients for each in passes)),
        ):
            findings.measured(f"busy with {name}, {which}", figure, "cores")
    ratio = figures.ratios(rates[1], rates[0])
    findings.compared(f"ACKed updates, 2 servers, {durability}", ratio, limit="1 server")
    alone = _alone(one, two)
    findings.compared(f"what 2 servers' CPU allows, {durability}", alone, limit="1 server's")
    cores = machine.cores()
    few = "" if cores >= _CORES_MIN else _why(cores, two)
    findings.goal(
        f"2 servers of 1 server, {durability}", ratio.median, at_least=_LEAST, unit="x", unjudged=few
    )


def _alone(one: list[_Pass], two: list[_Pass]) -> RoundValues | None:
    """Return the ratio of two servers to one if only their own CPU were the limit."""
    first, second = (figures.known(each.server_us for each in passes) for passes in (one, two))
    if first is None or second is None:
        return None
    return figures.scaled(figures.ratios(first, second), max(_SERVERS) / min(_SERVERS))


def _why(cores: int, two: list[_Pass]) -> str:
    parts = {
        "servers": figures.known(each.servers for each in two),
        "nats-server": figures.known(each.nats for each in two),
        "clients": figures.rounds(each.clients for each in two),
    }
    busy = ", ".join(f"{name} {figure.median:.2f}" for name, figure in parts.items() if figure is not None)
    return (
        f"{cores} cores are too few for 2 servers, {_CLIENTS} clients and nats-server, which need"
        f" {_CORES_MIN}; busy cores: {busy}"
    )


def _which(servers: int, durability: Durability) -> str:
    return f"{servers} server{'' if servers == 1 else 's'}, {durability}"


def _documents(client: int) -> list[str]:
    return [f"scale-{client}-{number}" for number in range(_DOCUMENTS_EACH)]


WORKLOAD = Workload("scale-out", "the same load on one and on two server processes: throughput ratio", run)
