"""W1: one writer, one reader, one document, one character per update, closed loop.

Each keystroke waits until the previous one is ACKed and the reader has it. Writer and reader are separate
processes; both read the machine's monotonic clock. The limits alternate with it on the same NATS: raw
JetStream publish-ack, and raw core request and reply.
"""

import asyncio
from dataclasses import dataclass, field

from lorogo_bench import figures
from lorogo_bench.content.keys import text_of
from lorogo_bench.figures import RoundValues, interleaved, percentile
from lorogo_bench.stack.load import LoadProcess, pipe
from lorogo_bench.stack.raw_limits import RawLimits
from lorogo_bench.stack.stack import Stack, StackSettings
from lorogo_bench.stack.texts import stored_updates, texts
from lorogo_bench.workload import Bench, Durability, OutcomeBuilder, Workload, WorkloadOutcome

_LIMIT_MOST = 2.5  # times the raw publish-ack
_JOURNAL_MORE_MS = 1.0  # added if ACKs wait for the disk
_DOCUMENT = "round-trip"
_PUBLISH_ACK, _REQUEST_REPLY, _LOROGO = "publish-ack", "request-reply", "lorogo"


@dataclass(frozen=True, slots=True)
class _Size:
    rounds: int
    updates: int  # in each round
    warm_up: int


_FULL = _Size(rounds=7, updates=1000, warm_up=200)
_QUICK = _Size(rounds=2, updates=40, warm_up=10)


@dataclass
class _Times:
    """Milliseconds of each operation, per round."""

    publish_ack: list[list[float]] = field(default_factory=list)
    request_reply: list[list[float]] = field(default_factory=list)
    ack: list[list[float]] = field(default_factory=list)
    seen: list[list[float]] = field(default_factory=list)


async def run(bench: Bench) -> WorkloadOutcome:
    findings = OutcomeBuilder()
    size = _QUICK if bench.quick else _FULL
    findings.condition("rounds", f"{size.rounds}, of {size.updates} updates")
    for durability in bench.durabilities("stream", "journal"):
        bench.progress(f"  durability {durability}")
        settings = StackSettings(durability=durability, folder=bench.folder)
        async with Stack(settings) as stack:
            _judge(findings, durability, await _measure(findings, durability, stack, size))
    return findings.outcome()


async def _measure(findings: OutcomeBuilder, durability: Durability, stack: Stack, size: _Size) -> _Times:
    with pipe() as (read_end, write_end):
        reader, typist, raw = await asyncio.gather(
            stack.load("reader", pass_fds=(write_end,), document=_DOCUMENT, seen_fd=write_end),
            stack.load("typist", pass_fds=(read_end,), documents=[_DOCUMENT], seen_fd=read_end),
            RawLimits.of(stack),
        )
        before = await stored_updates(stack)
        await raw.publish_ack(size.warm_up)
        await raw.request_reply(size.warm_up)
        await _round_trips(typist, reader, size.warm_up)
        times = _Times()
        for _, kind in interleaved((_PUBLISH_ACK, _REQUEST_REPLY, _LOROGO), size.rounds):
            if kind == _PUBLISH_ACK:
                times.publish_ack.append(await raw.publish_ack(size.updates))
            elif kind == _REQUEST_REPLY:
                times.request_reply.append(await raw.request_reply(size.updates))
            else:
                ack, seen = await _round_trips(typist, reader, size.updates)
                times.ack.append(ack)
                times.seen.append(seen)
        typed = size.warm_up + size.rounds * size.updates
        expected = text_of(typed)
        read = await reader.call("text")
        findings.equal(f"the reader has the whole text ({durability})", read["text"], expected)
        (text,) = await texts(stack, [_DOCUMENT])
        findings.equal(f"a client that opens it later has it too ({durability})", text, expected)
        stored = await stored_updates(stack) - before
        findings.equal(f"one message for each update ({durability})", stored, typed)
    return times


async def _round_trips(
    typist: LoadProcess, reader: LoadProcess, count: int
) -> tuple[list[float], list[float]]:
    """Return the milliseconds from commit to ACK, and from commit to seen."""
    reply = await typist.call("type_one_by_one", count=count)
    taken = await reader.call("take", count=count)
    return (
        _milliseconds(reply["committed_ns"], reply["acked_ns"]),
        _milliseconds(reply["committed_ns"], taken["seen_ns"]),
    )


def _judge(findings: OutcomeBuilder, durability: Durability, times: _Times) -> None:
    def middle(rounds: list[list[float]]) -> RoundValues:
        return figures.rounds(percentile(one, 0.5) for one in rounds)

    limit, ack, seen = middle(times.publish_ack), middle(times.ack), middle(times.seen)
    for name, rounds in (
        ("commit to ACK", times.ack),
        ("commit to seen by the other", times.seen),
        ("raw publish-ack", times.publish_ack),
        ("raw request and reply", times.request_reply),
    ):
        for word, share in (("p50", 0.5), ("p99", 0.99)):
            figure = figures.rounds(percentile(one, share) for one in rounds)
            findings.measured(f"{name} {word}, {durability}", figure, "ms")
    ack_ratio, seen_ratio = figures.ratios(ack, limit), figures.ratios(seen, limit)
    for name, ratio in (("ACK", ack_ratio), ("seen", seen_ratio)):
        findings.compared(f"{name} p50, {durability}", ratio, limit="raw publish-ack p50")
    answered = figures.ratios(ack, middle(times.request_reply))
    findings.compared(f"ACK p50, {durability}", answered, limit="raw request and reply p50")
    if durability == "stream":
        findings.goal(
            "ACK p50 of raw publish-ack p50, stream", ack_ratio.median, at_most=_LIMIT_MOST, unit="x"
        )
    else:
        more = figures.differences(ack, figures.scaled(limit, _LIMIT_MOST)).median
        findings.goal(
            f"ACK p50 beyond {_LIMIT_MOST}x raw publish-ack p50, {durability}",
            more,
            at_most=_JOURNAL_MORE_MS,
            unit="ms",
        )
    findings.goal(
        f"seen p50 of raw publish-ack p50, {durability}", seen_ratio.median, at_most=_LIMIT_MOST, unit="x"
    )


def _milliseconds(began_ns: list[int], ended_ns: list[int]) -> list[float]:
    return [(end - begin) / 1e6 for begin, end in zip(began_ns, ended_ns, strict=True)]


WORKLOAD = Workload(
    "round-trip", "one writer, one reader, closed loop: from commit to ACK, and to seen by the other", run
)
