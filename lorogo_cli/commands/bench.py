"""`lorogo bench`: workloads on this machine, each against its own limit in the same run."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from lorogo_bench import registry
from lorogo_bench.content import traces as wanted
from lorogo_bench.content.traces import EditTrace
from lorogo_bench.results import plot, report
from lorogo_bench.run import Result, run_all
from lorogo_bench.stack import machine
from lorogo_bench.workload import DURABILITIES, Bench, Durability, Workload
from lorogo_chaos.fleet import traces
from lorogo_cli.connect.runtime import stop_signals
from lorogo_cli.errors import INTERRUPTED, CommandError
from lorogo_cli.render import result_file
from lorogo_cli.render.output import say, say_table
from lorogo_cli.render.values import show_json

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BenchArguments:
    """What was typed, as it was typed."""

    traces: Path | None
    json: str  # a file, - for stdout, "": none
    plot: str  # a file, "": none


def show_list() -> None:
    """Print every workload."""
    part = report.menu(registry.WORKLOADS)
    say_table(part.columns, part.rows)


def settings_of(*, quick: bool, durability: str | None, seed: int) -> Bench:
    """How to run them. Raises Problem."""
    return Bench(quick=quick, durability=_durability(durability), seed=seed, tell=_tell)


async def bench(names: Sequence[str], settings: Bench, wishes: BenchArguments) -> int:
    """Run these workloads, and tell what they have found out; the exit code.

    Raises BenchError, Problem, BadTrace.
    """
    workloads = registry.find(names)
    json = wishes.json
    result_file.check_writable(json)
    _check_plot(wishes.plot, workloads)
    if any(workload.replays for workload in workloads):
        settings = replace(settings, trace=await asyncio.to_thread(_trace, wishes.traces))
    versions, facts = await asyncio.to_thread(machine.versions), machine.facts()
    found = await _unless_stopped(run_all(workloads, settings))
    if found is None:
        _tell("interrupted: everything that was started is ended, and nothing is told")
        return INTERRUPTED
    value = report.as_json(found, settings, versions, facts)
    if json == result_file.STDOUT:
        say(show_json(value, pretty=True))
    else:
        for result in found:
            _show(result)
        say(", ".join(f"{name} {version}" for name, version in versions.items()))
        say(", ".join(f"{name}: {words}" for name, words in facts.items()))
        if settings.quick:
            say("quick: these sizes show that it works; their figures mean little")
        if json:
            await asyncio.to_thread(result_file.write, json, value)
    curves = [curve for result in found for curve in result.outcome.curves]
    if wishes.plot and curves:
        await asyncio.to_thread(result_file.write_text, wishes.plot, plot.svg(curves))
    wrong = [result.workload.name for result in found if not result.outcome.good]
    if wrong:
        _tell(f"WRONG RESULTS: {', '.join(wrong)}")
    return report.exit_code(found)


def _check_plot(target: str, workloads: Sequence[Workload]) -> None:
    """Raises Problem if there will be no curve, or nowhere to draw it."""
    if not target:
        return
    if target == result_file.STDOUT:
        raise CommandError("--plot is a file, as in curves.svg")
    if not any(workload.draws for workload in workloads):
        those = " and ".join(one.name for one in registry.WORKLOADS if one.draws)
        raise CommandError(f"none of these workloads finds a curve to plot: {those} do")
    result_file.check_writable(target)


def _trace(folder: Path | None) -> Callable[[int | None], EditTrace]:
    """Where workloads get the trace that they replay: of the folder, or else made. Raises BadTrace."""
    named = os.environ.get(traces.ENVIRONMENT)
    folder = folder or (Path(named) if named else None)
    if folder is None:
        return lambda edits_max: traces.made(wanted.EDITS if edits_max is None else edits_max)
    found = traces.read(folder / f"{wanted.NAME}.json.gz")
    return lambda edits_max: wanted.first(found, edits_max)


async def _unless_stopped(work: Coroutine[Any, Any, T]) -> T | None:
    """The result; None if we were told to stop: all processes are ended, and their files are gone."""
    with stop_signals() as stop:
        task, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (stopped, task):
                one.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)
    return None if task.cancelled() else task.result()


def _show(result: Result) -> None:
    say(f"== {result.workload.name} ({result.seconds:.0f} s)")
    for part in report.parts(result.outcome):
        say_table(part.columns, part.rows)
        say("")
    for sentence in report.sentences(result):
        say(sentence)
    say("")


def _durability(text: str | None) -> Durability | None:
    for one in DURABILITIES:
        if text == one:
            return one
    if text is None:
        return None
    raise CommandError(f"--durability is {' or '.join(DURABILITIES)}, not {text!r}")


def _tell(words: str) -> None:
    """Progress: on stderr, so that stdout is the result."""
    sys.stderr.write(words + "\n")
    sys.stderr.flush()
