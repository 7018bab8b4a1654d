"""W6: an update of 20 MiB, and a document of 50 MiB that 10 newcomers open at once.

How long it takes, how much memory the server has at most, and what somebody notices who types in another
document meanwhile, at a steady pace. The size of a document is that of its snapshot, which is what newcomers
get. Every round has a server that was started for it, and memory is what it has more than at its start; the
document that newcomers come for is loaded before, and counts. The limits take turns with it: the same bytes
in the same chunks through the same NATS, and a plain Loro import of them.
"""

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TypeVar

from lorogo_bench import figures
from lorogo_bench.content import bulk
from lorogo_bench.content.keys import shares, text_of
from lorogo_bench.errors import BenchError
from lorogo_bench.figures import RoundValues, interleaved, percentile
from lorogo_bench.stack.load import LoadProcess
from lorogo_bench.stack.servers import ServerProcess
from lorogo_bench.stack.stack import Stack, StackSettings
from lorogo_bench.stack.texts import texts
from lorogo_bench.stack.usage import forget_peaks
from lorogo_bench.workload import Bench, Durability, OutcomeBuilder, Workload, WorkloadOutcome

T = TypeVar("T")

_MIB = 1 << 20
_MEMORY_MOST = 4.0  # times the payload
_OTHERS_MS_MOST = 100.0
_INTERVAL_SECONDS = 0.01  # between two keystrokes of who types meanwhile
_LEAD_SECONDS = 0.2  # until newcomers begin: every process must have heard of it
_ASK_SECONDS = 120.0
_WARM_SECONDS = 0.1  # of typing, on a server that has just started
_LOOK_SECONDS = 0.4  # a helper that is starting grows within that
_LOOKS_MAX = 25
_STEADY_BYTES = 256 * 1024
_OTHER = "large-other"
_DOCUMENT = "large-document"


@dataclass(frozen=True, slots=True)
class _Size:
    update_bytes: int
    document_bytes: int  # of its snapshot
    newcomers: int
    processes: int  # that they are spread over
    rounds: int
    quiet_seconds: float  # who types is alone so long


_FULL = _Size(
    update_bytes=20 * _MIB, document_bytes=50 * _MIB, newcomers=10, processes=2, rounds=3, quiet_seconds=3.0
)
_QUICK = _Size(
    update_bytes=_MIB, document_bytes=2 * _MIB, newcomers=3, processes=1, rounds=1, quiet_seconds=0.2
)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One round."""

    seconds: float
    memory_bytes: int | None  # the highest above that of the fresh server
    others_ms: list[float]  # commit to ACK, in the other document


@dataclass
class _Found:
    """What was measured with one large thing."""

    payload_bytes: int = 0
    passes: list[_Pass] = field(default_factory=list)
    limit: list[dict[str, float]] = field(default_factory=list)  # seconds of each part of it, in each round


@dataclass(frozen=True, slots=True)
class _Cast:
    """Who takes part."""

    stack: Stack
    size: _Size
    seed: int
    heavy: LoadProcess
    pacer: LoadProcess
    newcomers: list[LoadProcess]

    @property
    def update_chars(self) -> int:
        return self.size.update_bytes

    @property
    def document_chars(self) -> int:
        return self.size.document_bytes // 2  # a snapshot has a text twice


async def run(bench: Bench) -> WorkloadOutcome:
    findings = OutcomeBuilder()
    size = _QUICK if bench.quick else _FULL
    findings.condition("rounds", f"{size.rounds}, each with a server that was started for it")
    for durability in bench.durabilities("journal"):
        async with Stack(StackSettings(durability=durability, folder=bench.folder)) as stack:
            cast = await _cast(stack, size, bench.seed)
            _, others_ms = await _meanwhile(cast, asyncio.sleep(size.quiet_seconds))
            alone = percentile(others_ms, 0.99)
            bench.tell(f"  updates of {_mib(size.update_bytes)}, {durability}")
            update = await _updates(cast)
            bench.tell(f"  a document of {_mib(size.document_bytes)}, {durability}")
            document = await _newcomers(findings, durability, cast)
            await _verify(findings, durability, cast)
        findings.measured(f"others' ACK p99, alone, {durability}", figures.rounds([alone]), "ms")
        _judge(findings, f"update of {_mib(size.update_bytes)}, {durability}", update, alone)
        which = f"{size.newcomers} newcomers of {_mib(size.document_bytes)}, {durability}"
        _judge(findings, which, document, alone)
    return findings.outcome()


async def _cast(stack: Stack, size: _Size, seed: int) -> _Cast:
    counts = shares(size.newcomers, size.processes)
    heavy, pacer, *newcomers = await asyncio.gather(
        stack.load("heavy"),
        stack.load("pacer", document=_OTHER),
        *(stack.load("newcomers", count=count) for count in counts),
    )
    return _Cast(stack, size, seed, heavy, pacer, newcomers)


# --- a large update


async def _updates(cast: _Cast) -> _Found:
    found = _Found()
    for number, limit in interleaved((True, False), cast.size.rounds):
        asked = {"seed": cast.seed + number, "chars": cast.update_chars}
        if limit:
            told = await cast.heavy.ask("raw", seconds=_ASK_SECONDS, **asked)
            found.payload_bytes = told["bytes"]
            found.limit.append({part: told[f"{part}_seconds"] for part in ("publish", "import")})
        else:
            fresh_bytes = await _fresh(cast, another=number > 0)
            name = _update_name(number)
            sent = cast.heavy.ask("send", seconds=_ASK_SECONDS, document=name, **asked)
            told, others_ms = await _meanwhile(cast, sent)
            found.passes.append(_Pass(told["seconds"], _above(cast, fresh_bytes), others_ms))
    return found


# --- many who want a large document


async def _newcomers(findings: OutcomeBuilder, durability: Durability, cast: _Cast) -> _Found:
    chars = cast.document_chars
    await cast.heavy.ask("make", document=_DOCUMENT, seed=cast.seed, chars=chars, seconds=_ASK_SECONDS)
    offered = await cast.heavy.ask("offer", document=_DOCUMENT, seconds=_ASK_SECONDS)
    found = _Found(offered["bytes"])
    digests: list[str] = []
    loads: list[int | None] = []
    for _, limit in interleaved((True, False), cast.size.rounds):
        if limit:
            seconds, _ = await _at_once(cast, "fetch", size=found.payload_bytes)
            found.limit.append({"fetch and import": seconds})
        else:
            fresh_bytes = await _fresh(cast, another=True)
            await cast.newcomers[0].ask("come", document=_DOCUMENT, count=1, seconds=_ASK_SECONDS)
            loads.append(_above(cast, fresh_bytes))
            _forget_peaks(cast)  # of loading it
            (seconds, digest), others_ms = await _meanwhile(cast, _at_once(cast, "come"))
            digests += digest
            found.passes.append(_Pass(seconds, _above(cast, fresh_bytes), others_ms))
    which = f"{_mib(cast.size.document_bytes)}, {durability}"
    findings.measured(f"peak server memory while it is loaded, {which}", _times(loads, found), "x")
    expected = [bulk.digest(bulk.text(cast.seed, chars))] * cast.size.newcomers
    findings.equal(f"every newcomer has the whole text ({durability})", digests, expected * cast.size.rounds)
    return found


async def _at_once(cast: _Cast, verb: str, **more: int) -> tuple[float, list[str]]:
    """All newcomers begin: seconds until the last one is done, and what they have."""
    begin_ns = time.monotonic_ns() + int(_LEAD_SECONDS * 1e9)
    asked = {"begin_ns": begin_ns, **more}
    counts = shares(cast.size.newcomers, cast.size.processes)
    told = await asyncio.gather(
        *(
            one.ask(verb, seconds=_ASK_SECONDS, document=_DOCUMENT, count=count, **asked)
            for one, count in zip(cast.newcomers, counts, strict=True)
        )
    )
    digests = [digest for one in told for digest in one["digests"]]
    if len(digests) != cast.size.newcomers:
        raise BenchError(f"{len(digests)} newcomers came, of {cast.size.newcomers}")
    return (max(one["ended_ns"] for one in told) - begin_ns) / 1e9, digests


# --- the server, and who types in another document


async def _fresh(cast: _Cast, *, another: bool) -> int | None:
    """A server that has served nobody but who types, the first or another one: how much memory it has."""
    (server,) = cast.stack.servers
    if another:
        await server.stop()
        await server.start()
    await _meanwhile(cast, asyncio.sleep(_WARM_SECONDS))
    fresh_bytes = await _steady_memory(server)
    _forget_peaks(cast)
    return fresh_bytes


async def _steady_memory(server: ServerProcess) -> int | None:
    """Its memory when that grows no more: helpers come a little later, and are none of the payload's."""
    here = server.usage().memory_bytes
    for _ in range(_LOOKS_MAX):
        await asyncio.sleep(_LOOK_SECONDS)
        before, here = here, server.usage().memory_bytes
        if before is None or here is None or here - before < _STEADY_BYTES:
            break
    return here


def _forget_peaks(cast: _Cast) -> None:
    """Where that cannot be, a peak is the highest since the server's start: never too low."""
    forget_peaks(cast.stack.servers[0].pid)


def _above(cast: _Cast, fresh_bytes: int | None) -> int | None:
    peak = cast.stack.servers[0].usage().memory_peak_bytes
    return None if peak is None or fresh_bytes is None else peak - fresh_bytes


async def _meanwhile(cast: _Cast, work: Awaitable[T]) -> tuple[T, list[float]]:
    """What came of the work, and milliseconds to each ACK of who typed meanwhile."""
    await cast.pacer.ask("begin", interval_seconds=_INTERVAL_SECONDS)
    found = await work
    told = await cast.pacer.ask("end", seconds=_ASK_SECONDS)
    return found, told["milliseconds"]


async def _verify(findings: OutcomeBuilder, durability: Durability, cast: _Cast) -> None:
    for number in range(cast.size.rounds):
        told = await cast.newcomers[0].ask("come", document=_update_name(number), count=1)
        expected = bulk.digest(bulk.text(cast.seed + number, cast.update_chars))
        findings.equal(f"update {number + 1} is there, whole ({durability})", told["digests"], [expected])
    await cast.pacer.ask("begin", interval_seconds=_INTERVAL_SECONDS)
    typed = (await cast.pacer.ask("end"))["typed"]
    (text,) = await texts(cast.stack, [_OTHER])
    findings.equal(f"so is what was typed meanwhile ({durability})", text, text_of(typed))


# --- what it shows


def _judge(findings: OutcomeBuilder, which: str, found: _Found, alone_ms: float) -> None:
    seconds = figures.rounds(one.seconds for one in found.passes)
    limit = figures.rounds(sum(one.values()) for one in found.limit)
    memory = _times([one.memory_bytes for one in found.passes], found)
    others = figures.rounds(percentile(one.others_ms, 0.99) for one in found.passes)
    worst = figures.rounds(max(one.others_ms) for one in found.passes)
    findings.measured(f"time, {which}", figures.scaled(seconds, 1000), "ms")
    for part in found.limit[0]:
        figure = figures.rounds(one[part] * 1000 for one in found.limit)
        findings.measured(f"raw {part}, {which}", figure, "ms")
    findings.measured(f"payload, {which}", figures.rounds([found.payload_bytes / _MIB]), "MiB")
    findings.measured(f"peak server memory of the payload, {which}", memory, "x")
    findings.measured(f"others' ACK p99 meanwhile, {which}", others, "ms")
    findings.measured(f"others' slowest ACK meanwhile, {which}", worst, "ms")
    parts = ", ".join(found.limit[0])
    findings.compared(f"time, {which}", figures.ratios(seconds, limit), limit=f"raw {parts}")
    more = figures.scaled(others, 1 / alone_ms)
    findings.compared(f"others' ACK p99 meanwhile, {which}", more, limit="p99 when they are alone")
    findings.goal(
        f"peak server memory of the payload, {which}",
        None if memory is None else memory.median,
        at_most=_MEMORY_MOST,
        unit="x",
    )
    findings.goal(f"others' ACK p99 meanwhile, {which}", others.median, at_most=_OTHERS_MS_MOST, unit="ms")


def _times(memory_bytes: list[int | None], found: _Found) -> RoundValues | None:
    """Times the payload."""
    return figures.known(None if one is None else one / found.payload_bytes for one in memory_bytes)


def _update_name(number: int) -> str:
    return f"large-update-{number}"


def _mib(size: int) -> str:
    return f"{size // _MIB} MiB"


WORKLOAD = Workload(
    "large", "a large update, and many who want a large document: time, memory, what others notice", run
)
