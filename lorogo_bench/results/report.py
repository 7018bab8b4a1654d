"""The report of a run: tables for people and one JSON value. Pure.

Only a wrong result makes a run fail. A missed goal is reported: it depends on the machine and the run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lorogo_bench.run import Result
from lorogo_bench.workload import Bench, Goal, Workload, WorkloadOutcome


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of the report."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def exit_code(results: Sequence[Result]) -> int:
    """Return 0 if every result is right, else 1."""
    return 0 if all(result.outcome.good for result in results) else 1


def workload_table(workloads: Sequence[Workload]) -> ReportTable:
    """Return the table of all workloads."""
    return ReportTable(("WORKLOAD", "WHAT IT MEASURES"), tuple((one.name, one.words) for one in workloads))


def parts(outcome: WorkloadOutcome) -> list[ReportTable]:
    """Return the tables of one workload, without empty ones."""
    figures = [
        (one.name, _number(one.value), one.unit, _range(one.lowest, one.highest))
        for one in outcome.measurements
    ]
    ratios = [
        (one.name, f"{_number(one.value)}x", one.limit, _range(one.lowest, one.highest))
        for one in outcome.ratios
    ]
    goals = [(one.words, _with_unit(one.value, one.unit), _bound(one), _met(one)) for one in outcome.goals]
    found = [
        ReportTable(("MEASURED", "MEDIAN", "UNIT", "ROUNDS FROM - TO"), tuple(figures)),
        ReportTable(("COMPARED", "RATIO", "WITH", "ROUNDS FROM - TO"), tuple(ratios)),
        ReportTable(("GOAL", "FOUND", "BOUND", "VERDICT"), tuple(goals)),
    ]
    return [part for part in found if part.rows]


def sentences(result: Result) -> list[str]:
    """Return the result of one workload in sentences, the worst first."""
    outcome = result.outcome
    lines = [f"WRONG: failed: {check.words} ({check.found})" for check in outcome.checks if not check.good]
    if not outcome.checks:
        lines.append("WRONG: nothing was checked")
    if lines:
        lines.append(f"no figure of {result.workload.name} counts")
    else:
        lines.append(f"right: {'; '.join(check.words for check in outcome.checks)}")
    missed = [goal.words for goal in outcome.goals if goal.met is False]
    if missed:
        lines.append(f"missed: {'; '.join(missed)}")
    lines += [f"not judged: {goal.words}: {goal.unjudged}" for goal in outcome.goals if goal.unjudged]
    lines += [f"{name}: {words}" for name, words in outcome.conditions.items()]
    return lines


def as_json(
    results: Sequence[Result], bench: Bench, versions: Mapping[str, str], machine: Mapping[str, str]
) -> dict[str, Any]:
    """Return the whole result for scripts."""
    return {
        "good": exit_code(results) == 0,
        "versions": dict(versions),
        "machine": dict(machine),
        "settings": {"quick": bench.quick, "durability": bench.durability, "seed": bench.seed},
        "workloads": [_one(result) for result in results],
    }


def _one(result: Result) -> dict[str, Any]:
    outcome = result.outcome
    return {
        "name": result.workload.name,
        "words": result.workload.words,
        "good": outcome.good,
        "seconds": round(result.seconds, 3),
        "measurements": [
            {
                "name": one.name,
                "value": one.value,
                "unit": one.unit,
                "lowest": one.lowest,
                "highest": one.highest,
            }
            for one in outcome.measurements
        ],
        "ratios": [
            {
                "name": one.name,
                "value": one.value,
                "limit": one.limit,
                "lowest": one.lowest,
                "highest": one.highest,
            }
            for one in outcome.ratios
        ],
        "goals": [
            {
                "words": one.words,
                "value": one.value,
                "bound": one.bound,
                "unit": one.unit,
                "at_least": one.at_least,
                "met": one.met,
                "unjudged": one.unjudged,
            }
            for one in outcome.goals
        ],
        "checks": [{"words": one.words, "good": one.good, "found": one.found} for one in outcome.checks],
        "conditions": dict(outcome.conditions),
        "curves": [
            {
                "name": one.name,
                "along": one.along,
                "unit": one.unit,
                "lines": {line: [asdict(point) for point in points] for line, points in one.lines.items()},
            }
            for one in outcome.curves
        ],
    }


def _number(value: float | None) -> str:
    """Return a number with three significant digits; large ones whole, with commas."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _range(lowest: float | None, highest: float | None) -> str:
    return "" if lowest is None or highest is None else f"{_number(lowest)} - {_number(highest)}"


def _with_unit(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{_number(value)}{unit}" if unit in {"x", "%"} else f"{_number(value)} {unit}"


def _bound(goal: Goal) -> str:
    return f"{'at least' if goal.at_least else 'at most'} {_with_unit(goal.bound, goal.unit)}"


def _met(goal: Goal) -> str:
    return {True: "met", False: "MISSED", None: "not judged"}[goal.met]
