"""The comparison with other servers: the plan of runs, the checks, and the printed results."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.peers import results
from bench.peers.run import (
    OTHERS,
    OURS,
    SLOW,
    SLOW_STEP,
    WORKLOADS,
    Missing,
    Step,
    check_harness,
    lay_out,
    plan,
)

ROOT = Path(__file__).parents[2]
P50 = next(one for one in results.FIGURES if (one.workload, one.key) == ("w1", "p50_ms"))
RATE = next(one for one in results.FIGURES if (one.workload, one.key) == ("w2", "updates_per_s"))
COLD = next(one for one in results.FIGURES if (one.workload, one.key) == ("w5", "opens.ms"))
INSIDE = next(one for one in results.FIGURES if (one.workload, one.key) == ("w1", "inside_p50_ms"))

GOOD: dict[str, dict[str, Any]] = {
    "w1": {"n": 1000, "p50_ms": 0.5, "p99_ms": 2.0, "foreign_cores": 0.1},
    "w2": {"n": 5000, "of": 5000, "updates_per_s": 4000, "server_us_per_update": 100},
    "w3": {"n": 200, "p50_ms": 5.0, "p99_ms": 9.0, "deliveries_per_s": 9000, "server_us_per_delivery": 20.0},
    "w4": {"docs": 200, "complete": True, "opens_per_s": 500, "updates_per_s": 900, "rss_kb_per_doc": 50.5},
    "w5": {
        "local_ok": True,
        "server_has_all": True,
        "cold_ok": "3/3",
        "disk_bytes": 300000,
        "ingest_s": 2.5,
        "opens": [{"ms": 30.0, "second_ms": 9.0}, {"ms": 20.0, "second_ms": 8.0}, {"ms": 25.0}],
    },
    "w6": {"accepted": 800, "lost": 0, "rounds": [{"opened": True}]},
}
CHECKS = {"w1": 1200, "w2": 5200, "w3": 220, "w4": 2000}


def lines(server: str, workload: str, *, differ: int = 0, characters: int = 0, **facts: object) -> list[str]:
    """The output of the driver."""
    said: list[dict[str, object]] = [{"peer": server, "workload": workload, **GOOD[workload], **facts}]
    if workload in CHECKS:
        check = {"documents": 1, "differ": differ, "characters": characters or CHECKS[workload]}
        said.append({"peer": server, "workload": "check", "of": workload, **check})
    return ["a line of another program", *map(json.dumps, said)]


def records(*runs: tuple[int, str, list[str]]) -> list[results.Record]:
    return [record for run in runs for record in results.read(*run)]


def test_the_plan_is_one_step_at_a_time_and_all_servers_in_each_repetition() -> None:
    """A workload that repeats itself runs once; `stream` runs where durability matters; the ceiling stores
    nothing.

    Slow workloads run last, where they may be left out.
    """
    steps = plan([*OTHERS, *OURS], WORKLOADS, 3)
    assert len(set(steps)) == len(steps)
    slow = [Step(1, *SLOW_STEP), *(step for step in steps if step.server == SLOW and step.repetition > 1)]
    assert steps[-len(slow) :] == slow
    quick = [step.repetition for step in steps[: -len(slow)]]
    assert quick == sorted(quick)
    for repetition in (1, 2, 3):
        assert {step.server for step in steps if step.repetition == repetition} == {*OTHERS, *OURS}
    assert {step.repetition for step in steps if step.workload in ("w4k", "w5", "w6")} == {1}
    assert Step(3, "lorogo-native", "w4") in steps
    assert {step.workload for step in steps if step.server == "lorogo-native-stream"} == {"w1", "w2"}
    assert not {"w5", "w6"} & {step.workload for step in steps if step.server == "relay"}


def test_the_best_of_the_repetitions_and_their_range() -> None:
    """The lowest time, the highest rate; the restarts of W5 count as repetitions."""
    found = records(
        (1, "w1", lines("a", "w1", p50_ms=0.5)),
        (2, "w1", lines("a", "w1", p50_ms=0.4)),
        (1, "w2", lines("a", "w2", updates_per_s=10)),
        (2, "w2", lines("a", "w2", updates_per_s=30)),
        (1, "w5", lines("a", "w5")),
    )
    assert results.found(found, "a", P50) == results.Found(0.4, 0.4, 0.5, 2)
    assert results.found(found, "a", RATE) == results.Found(30, 10, 30, 2)
    assert results.found(found, "a", COLD) == results.Found(20, 20, 30, 3)
    assert results.found(found, "b", P50) is None
    assert results.wrong(found) == []


def test_what_the_client_measured_itself() -> None:
    """Stands beside what the driver measured, of the same repetition."""
    inside = {"peer": "a", "workload": "inside", "of": "w1", "n": 1000, "p50_ms": 0.3}
    found = records((1, "w1", [*lines("a", "w1"), json.dumps(inside)]), (2, "w1", lines("a", "w1")))
    assert results.found(found, "a", INSIDE) == results.Found(0.3, 0.3, 0.3, 1)


@pytest.mark.parametrize(
    ("workload", "facts", "why"),
    [
        ("w1", {"differ": 1}, "1 of 1 texts differ"),
        ("w1", {"characters": 900}, "900 characters, not 1001"),
        ("w2", {"n": 4999}, "4999 of 5000 updates arrived"),
        ("w2", {"characters": 5199}, "5199 characters, not 5200"),
        ("w3", {"characters": 219}, "219 characters, not 220"),
        ("w4", {"complete": False}, "not every update arrived"),
        ("w4", {"error": "hard time limit"}, "hard time limit"),
        ("w5", {"local_ok": False}, "the text is not that of the trace"),
        ("w5", {"server_has_all": False}, "the server did not have the whole text in time"),
        ("w5", {"cold_ok": "2/3"}, "2/3 opened with the whole text"),
        ("w6", {"rounds": [{"opened": False}]}, "1 rounds after which it could not be opened"),
        ("w6", {"lost": 2}, "2 accepted updates are lost"),
    ],
)
def test_what_is_wrong_is_said_and_gives_no_figure(workload: str, facts: dict[str, Any], why: str) -> None:
    """However quick it was."""
    found = records((1, workload, lines("lorogo-native", workload, **facts)))
    assert results.wrong(found) == [f"lorogo-native {workload} (1): {why}"]
    figures = [one for one in results.FIGURES if one.workload == workload]
    assert all(results.found(found, "lorogo-native", figure) is None for figure in figures)


def test_unchecked_texts_are_not_right() -> None:
    """A measurement without its check does not count."""
    found = records((1, "w1", lines("a", "w1")[:2]))
    assert results.wrong(found) == ["a w1 (1): the texts were not checked"]


def test_what_others_lose_is_a_result() -> None:
    """The table has the loss, and the result counts as right."""
    rounds = (lines("hocuspocus", "w6", lost=lost) for lost in (390, 10))
    found = records(*((repetition, "w6", said) for repetition, said in enumerate(rounds, 1)))
    assert results.wrong(found) == []
    assert "| hocuspocus | 1,600 | 400 | - |" in results.markdown(found)


def test_tables() -> None:
    """The best and the range, who else was busy, and the ratio to the best of the others; no ceiling."""
    found = records(
        (1, "w1", lines("relay", "w1", p50_ms=0.1)),
        (1, "w1", lines("quick", "w1", p50_ms=0.4)),
        (1, "w1", lines("slow", "w1", p50_ms=0.8)),
        (1, "w1", lines("lorogo-native", "w1", p50_ms=0.6)),
        (2, "w1", lines("lorogo-native", "w1", p50_ms=0.5, foreign_cores=0.25)),
        (1, "w2", lines("broken", "w2", n=7)),
    )
    rows = results.markdown(found).splitlines()
    assert "| quick | 0.40 | 2 | - | 0.10 |" in rows
    assert "| lorogo-native | 0.50 (0.50 - 0.60) | 2 | - | 0.25 |" in rows
    assert "| broken | wrong |  |  |" in rows
    verdict = "| W1 p50 ms | lorogo-native | 0.50 | 0.40 (quick) | 1.25x | at most 1x | MISSED |"
    assert verdict in rows
    assert json.loads(json.dumps(results.as_json(found)))["wrong"] == results.wrong(found)


@pytest.mark.parametrize(("value", "text"), [(0.123, "0.12"), (5, "5"), (12.34, "12.3"), (12345.6, "12,346")])
def test_numbers(value: float, text: str) -> None:
    assert results.number(value) == text


@pytest.mark.parametrize("arguments", [[], ["."]])
def test_without_the_harness_it_says_what_is_missing(arguments: list[str], tmp_path: Path) -> None:
    """And where that is explained; exit code 2, and nothing is started or written."""
    script = ROOT / "bench" / "peers" / "run.py"
    rows = subprocess.run(
        [sys.executable, script, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert rows.returncode == 2
    assert "harness" in rows.stderr and "bench/peers/README.md" in rows.stderr
    assert not rows.stdout and not list(tmp_path.iterdir())


def test_the_harness_stays_as_it_is(tmp_path: Path) -> None:
    """It is copied, and ours is laid over the copy; what it lacks is named."""
    harness, work = tmp_path / "harness", tmp_path / "work"
    for folder in (
        harness / "servers",
        harness / "clients",
        work / "node_modules" / "ws",
        work / "pv" / "bin",
    ):
        folder.mkdir(parents=True)
    (work / "pv" / "bin" / "python").touch()
    with pytest.raises(Missing, match=r"lacks driver\.mjs, peers\.mjs, run\.sh\."):
        check_harness(harness)
    for name in ("driver.mjs", "peers.mjs", "run.sh", "servers/relay.mjs", "clients/loro.mjs"):
        (harness / name).write_text(f"their {name}")
    before = {path: path.read_bytes() for path in harness.rglob("*") if path.is_file()}
    lay_out(check_harness(harness), work)
    assert before == {path: path.read_bytes() for path in harness.rglob("*") if path.is_file()}
    assert (work / "others.mjs").read_text() == "their peers.mjs"
    assert "others.mjs" in (work / "peers.mjs").read_text()
    assert (work / "clients" / "loro.mjs").read_text() == "their clients/loro.mjs"
    assert (work / "clients" / "lorogo-native.mjs").exists()


def test_our_peers_are_those_that_are_run() -> None:
    """The names in the overlay and those of the runner."""
    overlay = (ROOT / "bench" / "peers" / "overlay" / "peers.mjs").read_text()
    assert all(f"'{name}':" in overlay for name in OURS)
