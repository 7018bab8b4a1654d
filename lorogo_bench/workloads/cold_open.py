"""W5: open a document with a long history, and many copies of it at once, after a restart of the servers.

The history is a recorded editing trace (`automerge-paper`), replayed and compacted to a snapshot. In each
round the servers restart; then one document is opened, and after it all copies at once, until their texts are
read. The limit alternates with it in the same process: get the plain objects from the same NATS, and import
each into a Loro document.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lorogo_bench import figures
from lorogo_bench.content.traces import EditTrace
from lorogo_bench.figures import RoundValues
from lorogo_bench.stack.load import LoadProcess
from lorogo_bench.stack.stack import Stack, StackSettings
from lorogo_bench.workload import Bench, Durability, OutcomeBuilder, Workload, WorkloadOutcome
from lorogo_protocol.messages.subjects import SNAPSHOT_STREAM, WAL_STREAM

_MOST = 3.0  # times the limit
_KIB = 1024
_MAKE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class _Size:
    edits: int | None  # replayed edits; None: the whole trace
    copies: int
    rounds: int


_FULL = _Size(edits=None, copies=100, rounds=5)
_QUICK = _Size(edits=2_000, copies=4, rounds=1)


@dataclass
class _Case:
    """Documents that are opened at once, and the seconds of each round until all texts were read."""

    documents: list[str]
    ours: list[float] = field(default_factory=list)
    limit: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)  # opens with a wrong text

    @property
    def words(self) -> str:
        count = len(self.documents)
        return "1 document" if count == 1 else f"{count} at once"


async def run(bench: Bench) -> WorkloadOutcome:
    findings = OutcomeBuilder()
    size = _QUICK if bench.quick else _FULL
    trace = await asyncio.to_thread(bench.trace, size.edits)
    findings.condition("rounds", f"{size.rounds}, each after a restart of the server")
    findings.condition(
        "trace", f"{trace.name}: {len(trace.patches):,} edits, {len(trace.end_content):,} characters"
    )
    for durability in bench.durabilities("journal"):
        async with Stack(StackSettings(durability=durability, folder=bench.folder)) as stack:
            cases = [_Case(["cold"]), _Case([f"cold-{number}" for number in range(size.copies)])]
            bench.progress(f"  replaying {trace.name}")
            await _make(findings, durability, stack, trace, cases)
            opener = await stack.load("opener")
            warm = _Case(cases[0].documents, wrong=cases[0].wrong)
            # loads all code of the opening process
            await _pass(opener, warm, trace.end_content, limit_first=True)
            for number in range(size.rounds):
                bench.progress(f"  round {number + 1}, durability {durability}")
                await stack.restart_servers()
                for case in cases:
                    await _pass(opener, case, trace.end_content, limit_first=number % 2 == 0)
        for case in cases:
            _judge(findings, durability, case)
    return findings.outcome()


async def _make(
    findings: OutcomeBuilder, durability: Durability, stack: Stack, trace: EditTrace, cases: Sequence[_Case]
) -> None:
    """Make every document with its history, and measure the stored sizes."""
    replayer = await stack.load("replayer")
    (document, *copies) = names = [name for case in cases for name in case.documents]
    patches = list(trace.patches)
    reply = await replayer.call(
        "replay", document=document, copies=copies, patches=patches, seconds=_MAKE_SECONDS
    )
    plain = reply["snapshot_bytes"]
    stored = (await replayer.call("compact", documents=names, seconds=_MAKE_SECONDS))["snapshot_bytes"]
    snapshots = figures.rounds(stored)
    findings.measured(f"snapshot of a document, {durability}", figures.scaled(snapshots, 1 / _KIB), "KiB")
    async with await stack.connect() as transport:
        for words, stream in (("object store", SNAPSHOT_STREAM), ("WAL", WAL_STREAM)):
            state = await transport.stream(stream).state()
            findings.measured(f"{words} for each, {durability}", _kib_each(state.bytes, names), "KiB")
    journals = await asyncio.to_thread(_bytes_below, [server.data for server in stack.servers])
    findings.measured(f"server's own disk for each, {durability}", _kib_each(journals, names), "KiB")
    text_bytes = len(trace.end_content.encode())
    findings.compared(
        f"snapshot stored, {durability}", figures.scaled(snapshots, 1 / plain), limit="a plain Loro snapshot"
    )
    findings.compared(
        f"snapshot stored, {durability}", figures.scaled(snapshots, 1 / text_bytes), limit="its text"
    )


async def _pass(opener: LoadProcess, case: _Case, text: str, *, limit_first: bool) -> None:
    verbs = {"get": case.limit, "open": case.ours}
    for verb in verbs if limit_first else reversed(verbs):
        reply = await opener.call(verb, documents=case.documents)
        verbs[verb].append(reply["seconds"])
        if reply["texts"] != [[text, len(case.documents)]]:
            found = {len(other): count for other, count in reply["texts"]}
            case.wrong.append(f"{verb}: text lengths and counts {found}, expected length {len(text)}")


def _judge(findings: OutcomeBuilder, durability: Durability, case: _Case) -> None:
    which = f"{case.words}, {durability}"
    ours, limit = figures.rounds(case.ours), figures.rounds(case.limit)
    ratio = figures.ratios(ours, limit)
    findings.measured(f"cold open to full text, {which}", figures.scaled(ours, 1000), "ms")
    findings.measured(f"plain get and import, {which}", figures.scaled(limit, 1000), "ms")
    findings.compared(f"cold open, {which}", ratio, limit="plain object get and Loro import")
    findings.goal(f"cold open of the limit, {which}", ratio.median, at_most=_MOST, unit="x")
    findings.check(f"every text is the trace's end ({which})", not case.wrong, "; ".join(case.wrong))


def _kib_each(size: int, documents: Sequence[str]) -> RoundValues:
    return figures.rounds([size / len(documents) / _KIB])


def _bytes_below(folders: Sequence[Path]) -> int:
    """Return the disk space of the files: segments are preallocated, so their sizes are larger."""
    stats = (path.stat() for folder in folders for path in folder.rglob("*") if path.is_file())
    return sum(getattr(stat, "st_blocks", -(-stat.st_size // 512)) * 512 for stat in stats)


WORKLOAD = Workload(
    "cold-open",
    "a long history, and 100 copies of it at once, after a restart: time to full text",
    run,
    replays=True,
)
