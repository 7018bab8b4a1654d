"""`lorogo chaos`: a run with real faults on this machine, and its result."""

import asyncio
import importlib.metadata
import platform
import subprocess
import textwrap
from itertools import zip_longest
from typing import TYPE_CHECKING

from lorogo_chaos import report
from lorogo_chaos.fault_run import FaultRun, FaultRunResult, FaultRunSettings
from lorogo_chaos.faults.catalogue import list_faults
from lorogo_chaos.fleet import traces
from lorogo_cli.connect.runtime import stop_signals
from lorogo_cli.errors import INTERRUPTED, CommandError
from lorogo_cli.render import result_file
from lorogo_cli.render.output import say, say_table, tell
from lorogo_cli.render.values import show_json
from lorogo_transport.nats.embedded import EmbeddedError, find_nats_server
from lorogo_transport.release import release

if TYPE_CHECKING:
    from lorogo_cli.trials.trials import ChaosOptions

_WORDS_WIDTH = 27  # of 80 columns: 16 are for the name, 4 between them
_POSSIBLE_WIDTH = 33
NODES = {"one": 1, "three": 3}


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


async def chaos(options: "ChaosOptions") -> int:
    """Run the faults, print the result, and return the exit code. Raises CommandError, ChaosError."""
    result_file.check_writable(options.json)
    settings = _settings_of(options)
    some = await asyncio.to_thread(traces.of_folder, options.traces)
    versions = await asyncio.to_thread(_versions)
    ours = asyncio.current_task()
    assert ours is not None
    with stop_signals(again=ours.cancel) as stop:
        try:
            outcome = await FaultRun(settings, some, progress=tell, stop=stop).run()
        except asyncio.CancelledError:  # second signal: all processes are stopped, nothing is verified
            ours.uncancel()
            tell("NOT VERIFIED: interrupted twice")
            return INTERRUPTED
    found = report.as_json(outcome, settings, versions)
    if options.json == result_file.STDOUT:
        say(show_json(found, pretty=True))
    else:
        _show(outcome, versions)
        if options.json:
            await asyncio.to_thread(result_file.write, options.json, found)
    if outcome.folder:
        tell(f"kept: {outcome.folder}")
    return report.exit_code(outcome)


def _settings_of(options: "ChaosOptions") -> FaultRunSettings:
    faults = (20 if options.minutes is None else 0) if options.faults is None else options.faults
    return FaultRunSettings(
        nodes=_nodes(options.kind),
        servers=options.servers,
        documents=options.documents,
        writers=options.writers,
        faults=faults,
        minutes=options.minutes or 0.0,
        every_seconds=options.every,
        edits_per_second=options.edits_per_second,
        edits_each=options.edits_each,
        only=_names(options.only),
        without=_names(options.without),
        seed=options.seed,
        folder=options.keep,
    )


def _nodes(nats: str) -> int:
    if nats not in NODES:
        raise CommandError(f"--nats must be one or three, not {nats!r}")
    return NODES[nats]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


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
