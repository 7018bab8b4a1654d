"""W6: an update of 20 MiB, and a document of 50 MiB that 10 clients open at once.

Measured: the time, the server's peak memory, and the ACK times of a client that types at a steady pace in
another document. The size of a document is that of its snapshot, which new clients get. Every round has a
newly started server, and memory counts above its start; the large document is loaded before the clients open
it, and counts. The limits alternate with it: the same bytes in the same chunks through the same NATS, and a
plain Loro import.
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
_INTERVAL_SECONDS = 0.01  # between two keystrokes of the other client
_LEAD_SECONDS = 0.2  # before new clients start: every process must have its command
_ASK_SECONDS = 120.0
_WARM_SECONDS = 0.1  # typing on a newly started server
_LOOK_SECONDS = 0.4  # a starting helper process grows within this time
_LOOKS_MAX = 25
_STEADY_BYTES = 256 * 1024
_OTHER = "large-other"
_DOCUMENT = "large-document"


@dataclass(frozen=True, slots=True)
class _Size:
    update_bytes: int
    document_bytes: int  # size of its snapshot
    newcomers: int
    processes: int  # for all new clients
    rounds: int
    quiet_seconds: float  # typing without other load


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
    memory_bytes: int | None  # peak above the memory of a new server
    others_ms: list[float]  # commit to ACK, in the other document


@dataclass
class _Found:
    """The measurements of one large payload."""

    payload_bytes: int = 0
    passes: list[_Pass] = field(default_factory=list)
    limit: list[dict[str, float]] = field(default_factory=list)  # seconds of each part, per round


@dataclass(frozen=True, slots=True)
class _Participants:
    """The processes of a run."""

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
    findings.condition("rounds", f"{size.rounds}, each with a newly started server")
    for durability in bench.durabilities("journal"):
        async with Stack(StackSettings(durability=durability, folder=bench.folder)) as stack:
            participants = await _join(stack, size, bench.seed)
            _, others_ms = await _meanwhile(participants, asyncio.sleep(size.quiet_seconds))
            alone = percentile(others_ms, 0.99)
            bench.progress(f"  updates of {_mib(size.update_bytes)}, {durability}")
            update = await _updates(participants)
            bench.progress(f"  a document of {_mib(size.document_bytes)}, {durability}")
            document = await _newcomers(findings, durability, participants)
            await _verify(findings, durability, participants)
        findings.measured(f"others' ACK p99, alone, {durability}", figures.rounds([alone]), "ms")
        _judge(findings, f"update of {_mib(size.update_bytes)}, {durability}", update, alone)
        which = f"{size.newcomers} newcomers of {_mib(size.document_bytes)}, {durability}"
        _judge(findings, which, document, alone)
    return findings.outcome()


async def _join(stack: Stack, size: _Size, seed: int) -> _Participants:
    counts = shares(size.newcomers, size.processes)
    heavy, pacer, *newcomers = await asyncio.gather(
        stack.load("heavy"),
        stack.load("pacer", document=_OTHER),
        *(stack.load("newcomers", count=count) for count in counts),
    )
    return _Participants(stack, size, seed, heavy, pacer, newcomers)


# --- a large update


async def _updates(participants: _Participants) -> _Found:
    found = _Found()
    for number, limit in interleaved((True, False), participants.size.rounds):
        asked = {"seed": participants.seed + number, "chars": participants.update_chars}
        if limit:
            reply = await participants.heavy.call("raw", seconds=_ASK_SECONDS, **asked)
            found.payload_bytes = reply["bytes"]
            found.limit.append({part: reply[f"{part}_seconds"] for part in ("publish", "import")})
        else:
            fresh_bytes = await _fresh(participants, another=number > 0)
            name = _update_name(number)
            sent = participants.heavy.call("send", seconds=_ASK_SECONDS, document=name, **asked)
            reply, others_ms = await _meanwhile(participants, sent)
            found.passes.append(_Pass(reply["seconds"], _above(participants, fresh_bytes), others_ms))
    return found


# --- many clients open a large document


async def _newcomers(findings: OutcomeBuilder, durability: Durability, participants: _Participants) -> _Found:
    chars = participants.document_chars
    await participants.heavy.call(
        "make", document=_DOCUMENT, seed=participants.seed, chars=chars, seconds=_ASK_SECONDS
    )
    offered = await participants.heavy.call("offer", document=_DOCUMENT, seconds=_ASK_SECONDS)
    found = _Found(offered["bytes"])
    digests: list[str] = []
    loads: list[int | None] = []
    for _, limit in interleaved((True, False), participants.size.rounds):
        if limit:
            seconds, _ = await _at_once(participants, "fetch", size=found.payload_bytes)
            found.limit.append({"fetch and import": seconds})
        else:
            fresh_bytes = await _fresh(participants, another=True)
            await participants.newcomers[0].call("open", document=_DOCUMENT, count=1, seconds=_ASK_SECONDS)
            loads.append(_above(participants, fresh_bytes))
            _forget_peaks(participants)  # those of loading
            (seconds, digest), others_ms = await _meanwhile(participants, _at_once(participants, "open"))
            digests += digest
            found.passes.append(_Pass(seconds, _above(participants, fresh_bytes), others_ms))
    which = f"{_mib(participants.size.document_bytes)}, {durability}"
    findings.measured(f"peak server memory while it is loaded, {which}", _times(loads, found), "x")
    expected = [bulk.digest(bulk.text(participants.seed, chars))] * participants.size.newcomers
    findings.equal(
        f"every newcomer has the whole text ({durability})", digests, expected * participants.size.rounds
    )
    return found


async def _at_once(participants: _Participants, verb: str, **more: int) -> tuple[float, list[str]]:
    """Start all new clients; return the seconds until the last one is done, and digests of their texts."""
    begin_ns = time.monotonic_ns() + int(_LEAD_SECONDS * 1e9)
    asked = {"begin_ns": begin_ns, **more}
    counts = shares(participants.size.newcomers, participants.size.processes)
    reply = await asyncio.gather(
        *(
            one.call(verb, seconds=_ASK_SECONDS, document=_DOCUMENT, count=count, **asked)
            for one, count in zip(participants.newcomers, counts, strict=True)
        )
    )
    digests = [digest for one in reply for digest in one["digests"]]
    if len(digests) != participants.size.newcomers:
        raise BenchError(f"{len(digests)} of {participants.size.newcomers} new clients replied")
    return (max(one["ended_ns"] for one in reply) - begin_ns) / 1e9, digests


# --- the server, and the client in another document


async def _fresh(participants: _Participants, *, another: bool) -> int | None:
    """Restart the server if `another`, and return its memory while it serves only the other client."""
    (server,) = participants.stack.servers
    if another:
        await server.stop()
        await server.start()
    await _meanwhile(participants, asyncio.sleep(_WARM_SECONDS))
    fresh_bytes = await _steady_memory(server)
    _forget_peaks(participants)
    return fresh_bytes


async def _steady_memory(server: ServerProcess) -> int | None:
    """Return the server's memory once it is steady: helper processes start a little later."""
    here = server.usage().memory_bytes
    for _ in range(_LOOKS_MAX):
        await asyncio.sleep(_LOOK_SECONDS)
        before, here = here, server.usage().memory_bytes
        if before is None or here is None or here - before < _STEADY_BYTES:
            break
    return here


def _forget_peaks(participants: _Participants) -> None:
    """Reset the memory peaks; if that is impossible, peaks count since the server's start."""
    forget_peaks(participants.stack.servers[0].pid)


def _above(participants: _Participants, fresh_bytes: int | None) -> int | None:
    peak = participants.stack.servers[0].usage().memory_peak_bytes
    return None if peak is None or fresh_bytes is None else peak - fresh_bytes


async def _meanwhile(participants: _Participants, work: Awaitable[T]) -> tuple[T, list[float]]:
    """Return the result of the work, and the milliseconds to each ACK of the other client meanwhile."""
    await participants.pacer.call("begin", interval_seconds=_INTERVAL_SECONDS)
    found = await work
    reply = await participants.pacer.call("end", seconds=_ASK_SECONDS)
    return found, reply["milliseconds"]


async def _verify(findings: OutcomeBuilder, durability: Durability, participants: _Participants) -> None:
    for number in range(participants.size.rounds):
        reply = await participants.newcomers[0].call("open", document=_update_name(number), count=1)
        expected = bulk.digest(bulk.text(participants.seed + number, participants.update_chars))
        findings.equal(f"update {number + 1} is complete ({durability})", reply["digests"], [expected])
    await participants.pacer.call("begin", interval_seconds=_INTERVAL_SECONDS)
    typed = (await participants.pacer.call("end"))["typed"]
    (text,) = await texts(participants.stack, [_OTHER])
    findings.equal(f"the other document is complete ({durability})", text, text_of(typed))


# --- results


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
    """Return memory divided by the payload's size."""
    return figures.known(None if one is None else one / found.payload_bytes for one in memory_bytes)


def _update_name(number: int) -> str:
    return f"large-update-{number}"


def _mib(size: int) -> str:
    return f"{size // _MIB} MiB"


WORKLOAD = Workload(
    "large", "a large update, and many clients of a large document: time, memory, ACKs of other clients", run
)
