"""Reports of a benchmark for people and for scripts."""

import json

import pytest

from lorogo_bench.results import report
from lorogo_bench.run import Result, run_all
from lorogo_bench.workload import (
    Bench,
    Check,
    Curve,
    Goal,
    Measurement,
    Point,
    Ratio,
    Workload,
    WorkloadOutcome,
)
from lorogo_protocol.errors import LorogoError


async def nothing(bench: Bench) -> WorkloadOutcome:
    return WorkloadOutcome()


def result(outcome: WorkloadOutcome) -> Result:
    return Result(Workload("w", "what it is", nothing), outcome, 1.5)


GOOD = WorkloadOutcome(
    (Measurement("rate", 12345.6, "1/s", 12000.0, 13000.0), Measurement("CPU", None, "µs")),
    (Ratio("rate", 0.5, "raw", 0.4, 0.6),),
    (
        Goal("enough", 0.5, 0.6, "x", at_least=True),
        Goal("soon", 0.9, 1.0, "ms", at_least=False),
        Goal("elsewhere", 1.1, 1.7, "x", at_least=True, unjudged="two cores"),
    ),
    (Check("all there", True),),
    {"rounds": "3"},
    (Curve("cost", "documents", "µs", {"server": (Point(10, 5.0, 4.0, 6.0),)}),),
)
WRONG = WorkloadOutcome(checks=(Check("all there", False, "2 instead of 3"), Check("in order", True)))


def test_tables() -> None:
    """Figures with ranges, ratios with their limits, goals with verdicts."""
    figures, ratios, goals = report.parts(GOOD)
    assert figures.rows == (("rate", "12,346", "1/s", "12,000 - 13,000"), ("CPU", "-", "µs", ""))
    assert ratios.rows == (("rate", "0.50x", "raw", "0.40 - 0.60"),)
    assert goals.rows == (
        ("enough", "0.50x", "at least 0.60x", "MISSED"),
        ("soon", "0.90 ms", "at most 1.00 ms", "met"),
        ("elsewhere", "1.10x", "at least 1.70x", "not judged"),
    )
    assert report.parts(WRONG) == []


def test_a_right_result_with_a_missed_goal_is_no_failure() -> None:
    """The sentences report the missed goal, and the exit code is 0."""
    assert report.exit_code([result(GOOD)]) == 0
    assert report.sentences(result(GOOD)) == [
        "right: all there",
        "missed: enough",
        "not judged: elsewhere: two cores",
        "rounds: 3",
    ]


@pytest.mark.parametrize(
    ("outcome", "words"),
    [(WRONG, "WRONG: failed: all there (2 instead of 3)"), (WorkloadOutcome(), "WRONG: nothing was checked")],
)
def test_a_wrong_result_is_said_loudly(outcome: WorkloadOutcome, words: str) -> None:
    """First of all, with exit code 1, also if another workload is right."""
    assert report.sentences(result(outcome))[:2] == [words, "no figure of w counts"]
    assert report.exit_code([result(GOOD), result(outcome)]) == 1


def test_json_holds_everything() -> None:
    """And is JSON."""
    found = report.as_json([result(GOOD)], Bench(quick=True, seed=7), {"loro": "1"}, {"cores": "2"})
    assert json.loads(json.dumps(found)) == found
    assert found["good"] is True
    assert found["settings"] == {"quick": True, "durability": None, "seed": 7}
    (one,) = found["workloads"]
    assert [goal["met"] for goal in one["goals"]] == [False, True, None]
    assert one["measurements"][1]["value"] is None
    assert one["curves"] == [
        {
            "name": "cost",
            "along": "documents",
            "unit": "µs",
            "lines": {"server": [{"at": 10, "value": 5.0, "lowest": 4.0, "highest": 6.0}]},
        }
    ]


async def test_one_that_fails_does_not_keep_the_next_from_being_measured() -> None:
    """The result of the failing workload is wrong, with the error as its reason."""

    async def fails(bench: Bench) -> WorkloadOutcome:
        raise LorogoError("no server")

    async def works(bench: Bench) -> WorkloadOutcome:
        return GOOD

    progress: list[str] = []
    workloads = [Workload("fails", "", fails), Workload("works", "", works)]
    first, second = await run_all(workloads, Bench(progress=progress.append))
    assert first.outcome.checks == (Check("the workload finishes", False, "LorogoError: no server"),)
    assert second.outcome.good
    assert set(second.outcome.conditions) == {"rounds", "busy with other processes"}
    assert progress == ["fails: ", "works: "]
