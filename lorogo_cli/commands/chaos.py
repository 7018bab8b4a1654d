"""`lorogo chaos`: a run with real faults on this machine, and its result."""

import asyncio
import importlib.metadata
import os
import platform
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from lorogo_chaos import report
from lorogo_chaos.fault_run import FaultRun, FaultRunResult, FaultRunSettings
from lorogo_chaos.faults.catalogue import list_faults
from lorogo_chaos.fleet import traces
from lorogo_cli.connect.runtime import stop_signals
from lorogo_cli.errors import INTERRUPTED, CommandError
from lorogo_cli.render import result_file
from lorogo_cli.render.output import say, say_table
from lorogo_cli.render.values import show_json
from lorogo_transport.nats.embedded import EmbeddedError, find_nats_server
from lorogo_transport.release import release

_WORDS_WIDTH = 27  # of 80 columns: 16 are for the name, 4 between them
_POSSIBLE_WIDTH = 33
NODES = {"one": 1, "three": 3}


@dataclass(frozen=True, slots=True)
class ChaosArguments:
    """Arguments of the command, unparsed."""

    nats: str
    only: str
    without: str
    traces: Path | None
    json: str  # a file, - for stdout, "": none


async def show_list(nats: str) -> None:
    """List every fault, and whether it is possible here."""
    faults = await list_faults(_nodes(nats))
    rows = [
        row
        for fault in faults
        for row in _wrapped(fault.name, fault.words, f"no: {fault.unmet_need}" if fault.unmet_need else "yes")
    ]
    say_table(("FAULT", "WHAT IT DOES", "POSSIBLE HERE"), rows)


def _wrapped(name: str, words: str, possible: str) -> list[tuple[str, str, str]]:
    """Return rows of a table that fits into 80 columns."""
    some = (textwrap.wrap(words, _WORDS_WIDTH), textwrap.wrap(possible, _POSSIBLE_WIDTH))
    return list(zip_longest([name], *some, fillvalue=""))


async def chaos(settings: FaultRunSettings, wishes: ChaosArguments) -> int:
    """Run the faults, print the result, and return the exit code."""
    named = os.environ.get(traces.ENVIRONMENT)
    folder = wishes.traces or (Path(named) if named else None)
    some = await asyncio.to_thread(traces.of_folder, folder)
    versions = await asyncio.to_thread(_versions)
    ours = asyncio.current_task()
    assert ours is not None
    with stop_signals(again=ours.cancel) as stop:
        try:
            outcome = await FaultRun(settings, some, progress=_progress, stop=stop).run()
        except asyncio.CancelledError:  # second signal: all processes are stopped, nothing is verified
            ours.uncancel()
            _progress("NOT VERIFIED: interrupted twice")
            return INTERRUPTED
    found = report.as_json(outcome, settings, versions)
    if wishes.json == result_file.STDOUT:
        say(show_json(found, pretty=True))
    else:
        _show(outcome, versions)
        if wishes.json:
            await asyncio.to_thread(result_file.write, wishes.json, found)
    if outcome.folder:
        _progress(f"kept: {outcome.folder}")
    return report.exit_code(outcome)


def settings_of(
    wishes: ChaosArguments,
    *,
    servers: int,
    documents: int,
    writers: int,
    faults: int | None,
    minutes: float | None,
    every: float,
    rate: float,
    edits_each: int,
    seed: int,
    keep: Path | None,
) -> FaultRunSettings:
    """Return the settings of a run. Raises CommandError, ChaosError."""
    result_file.check_writable(wishes.json)
    return FaultRunSettings(
        nodes=_nodes(wishes.nats),
        servers=servers,
        documents=documents,
        writers=writers,
        faults=(20 if minutes is None else 0) if faults is None else faults,
        minutes=minutes or 0.0,
        every_seconds=every,
        edits_per_second=rate,
        edits_each=edits_each,
        only=_names(wishes.only),
        without=_names(wishes.without),
        seed=seed,
        folder=keep,
    )


def _nodes(nats: str) -> int:
    if nats not in NODES:
        raise CommandError(f"--nats must be one or three, not {nats!r}")
    return NODES[nats]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _progress(words: str) -> None:
    """Print progress to stderr: stdout carries the result."""
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


def _show(outcome: FaultRunResult, versions: dict[str, str]) -> None:
    say("")
    figures = report.main_part(outcome, versions)
    for part in (figures, report.faults_part(outcome), report.usage_part(outcome)):
        if part.rows:
            say_table(part.columns, part.rows)
            say("")
    for sentence in report.sentences(outcome):
        say(sentence)


def _versions() -> dict[str, str]:
    """Return the versions of the tested software."""
    found = {"lorogo": release(), "Python": platform.python_version()}
    found["loro"] = importlib.metadata.version("loro")
    try:
        found_version = subprocess.run(
            [find_nats_server(), "--version"], capture_output=True, text=True, timeout=10, check=False
        )
        found["nats-server"] = found_version.stdout.strip().rpartition(" ")[2]
    except (OSError, EmbeddedError, subprocess.TimeoutExpired):
        found["nats-server"] = "unknown"
    return found
