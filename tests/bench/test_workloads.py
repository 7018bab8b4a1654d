"""Each workload once, in its quick size on real processes: it comes to its end, and its results are right.

Nothing is asserted about time: what a figure is, is a fact of the machine.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from lorogo_bench.registry import WORKLOADS
from lorogo_bench.run import run_all
from lorogo_bench.workload import Bench, Workload
from lorogo_chaos.fleet.traces import made
from tests.cli.support import COMMAND, environment, lorogo, refused, said, until

pytestmark = pytest.mark.nats


BY_COMMAND = "round-trip"  # the one that is run as users do
QUICK = "throughput"  # the other one of `make test`


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(one, id=one.name, marks=[] if one.name == QUICK else pytest.mark.deep)
        for one in WORKLOADS
        if one.name != BY_COMMAND
    ],
)
async def test_a_workload_is_right(workload: Workload, tmp_path: Path) -> None:
    """Its checks hold, and it compares something with a limit of the same run."""
    bench = Bench(quick=True, durability="journal", folder=tmp_path, trace=lambda edits: made(edits or 0))
    (result,) = await run_all([workload], bench)
    assert result.outcome.good, result.outcome.checks
    assert result.outcome.measurements and result.outcome.ratios and result.outcome.goals
    assert bool(result.outcome.curves) is workload.draws
    assert os.listdir(tmp_path) == [], "it leaves nothing behind"  # noqa: PTH208 - quick


def test_the_command_lists_and_measures(tmp_path: Path) -> None:
    """Without a name it lists; with one, stdout is the tables and the file has it all."""
    listed = said(lorogo("bench", cwd=tmp_path))
    assert all(workload.name in listed for workload in WORKLOADS)
    target = tmp_path / "found.json"
    arguments = (BY_COMMAND, "--quick", "--durability", "stream", "--json", str(target))
    words = said(lorogo("bench", *arguments, cwd=tmp_path))
    assert f"== {BY_COMMAND}" in words and "right: " in words and "MEASURED" in words
    found = json.loads(target.read_text())
    assert found["good"] is True
    assert {"lorogo", "Python", "loro", "nats-server"} <= set(found["versions"])
    assert found["settings"] == {"quick": True, "durability": "stream", "seed": 1}


def test_a_terminated_benchmark_leaves_nothing_behind(tmp_path: Path) -> None:
    """SIGTERM in the middle: exit code 130, no files, and no process that held them."""
    command = [*COMMAND, "bench", BY_COMMAND, "--quick"]
    env = environment(TMPDIR=str(tmp_path))
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE) as process:
        until("a server", lambda: bool(list(tmp_path.glob("*/server-1/serve.log"))))
        process.terminate()
        assert process.wait(60) == 130
        assert process.stderr is not None and b"interrupted" in process.stderr.read()
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - quick


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], "unknown workload 'nope': choose round-trip"),
        (
            ["round-trip", "--json", "no/such/folder/x.json"],
            "cannot write no/such/folder/x.json: its folder does not exist",
        ),
        (["round-trip", "--json", "."], "cannot write .: Is a directory"),
        (
            ["round-trip", "--durability", "replicated"],
            "--durability must be stream or journal, not 'replicated'",
        ),
        (["round-trip", "--seed", "-1"], "--seed"),
        (
            ["round-trip", "--plot", "x.svg"],
            "--plot: these workloads have no curve; choose many-documents and",
        ),
        (["growth", "--plot", "-"], "--plot needs a file"),
        (
            ["growth", "--plot", "no/such/folder/x.svg"],
            "cannot write no/such/folder/x.svg: its folder does not exist",
        ),
        (["cold-open", "--traces", "nowhere"], "nowhere/automerge-paper.json.gz is not a trace"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(arguments: list[str], words: str, tmp_path: Path) -> None:
    """The error appears at once, before anything is started."""
    assert words in refused(lorogo("bench", *arguments, cwd=tmp_path))
