"""`lorogo bench`: run workloads on this machine, each compared with a limit measured in the same run."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lorogo_bench import registry
from lorogo_bench.content import traces as wanted
from lorogo_bench.content.traces import EditTrace
from lorogo_bench.results import plot, report
from lorogo_bench.run import Result, run_all
from lorogo_bench.stack import machine
from lorogo_bench.workload import DURABILITIES, Bench, Durability, Workload
from lorogo_chaos.fleet import traces
from lorogo_cli.connect.runtime import stop_signals, until
from lorogo_cli.errors import INTERRUPTED, CommandError
from lorogo_cli.render import result_file
from lorogo_cli.render.output import say, say_table, tell
from lorogo_cli.render.values import show_json

if TYPE_CHECKING:
    from lorogo_cli.trials.trials import BenchOptions


def show_list() -> None:
    """List the workloads."""
    part = report.workload_table(registry.WORKLOADS)
    say_table(part.columns, part.rows)


async def bench(names: Sequence[str], options: "BenchOptions") -> int:
    """Run these workloads, print their results, and return the exit code.

    Raises BenchError, CommandError, BadTrace.
    """
    durability = _durability(options.durability)
    settings = Bench(quick=options.quick, durability=durability, seed=options.seed, progress=tell)
    workloads = registry.find(names)
    json = options.json
    result_file.check_writable(json)
    _check_plot(options.plot, workloads)
    if any(workload.replays for workload in workloads):
        settings = replace(settings, trace=await asyncio.to_thread(_trace, options.traces))
    versions, facts = await asyncio.to_thread(machine.versions), machine.facts()
    with stop_signals() as stop:
        found = await until(stop, run_all(workloads, settings))
    if found is None:
        tell("interrupted: all processes are stopped, no results")
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
            say("quick: small sizes, which check that it works; the figures mean little")
        if json:
            await asyncio.to_thread(result_file.write, json, value)
    curves = [curve for result in found for curve in result.outcome.curves]
    if options.plot and curves:
        await asyncio.to_thread(result_file.write_text, options.plot, plot.svg(curves))
    wrong = [result.workload.name for result in found if not result.outcome.good]
    if wrong:
        tell(f"WRONG RESULTS: {', '.join(wrong)}")
    return report.exit_code(found)


def _check_plot(target: str, workloads: Sequence[Workload]) -> None:
    """Raise CommandError if no workload finds a curve, or the file cannot be written."""
    if not target:
        return
    if target == result_file.STDOUT:
        raise CommandError("--plot needs a file, for example curves.svg")
    if not any(workload.draws for workload in workloads):
        those = " and ".join(one.name for one in registry.WORKLOADS if one.draws)
        raise CommandError(f"--plot: these workloads have no curve; choose {those}")
    result_file.check_writable(target)


def _trace(folder: Path | None) -> Callable[[int | None], EditTrace]:
    """Return the source of the trace to replay: a file in the folder, or a generated one. Raises BadTrace."""
    if folder is None:
        return lambda edits_max: traces.made(wanted.EDITS if edits_max is None else edits_max)
    found = traces.read(folder / f"{wanted.NAME}.json.gz")
    return lambda edits_max: wanted.first(found, edits_max)


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
    raise CommandError(f"--durability must be {' or '.join(DURABILITIES)}, not {text!r}")
