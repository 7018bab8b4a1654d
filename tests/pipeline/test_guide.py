"""The pages and examples about tables: followed and run, on the session that the other tests have."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lorogo_pipeline import Settings, build
from tests.handbook.following import Reader
from tests.handbook.markdown import HANDBOOK, ROOT, blocks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EXAMPLES = ROOT / "examples"


def simulated(folder: Path, days: int = 3) -> Path:
    """A journal, made by the command of the examples' README."""
    journal = folder / "days.journal"
    made = subprocess.run(
        [sys.executable, str(EXAMPLES / "simulated_days.py"), str(journal), "--days", str(days)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert re.search(r"\d+ updates of 5 documents\n", made.stdout)
    return journal


@pytest.mark.deep
async def test_the_guide_can_be_followed(spark: SparkSession, tmp_path: Path) -> None:
    """docs/handbook/pipeline.md, from top to bottom; `open_session()` gives the session that is there."""
    assert spark.range(1).count() == 1
    reader = Reader(tmp_path)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    await reader.read(blocks(HANDBOOK / "pipeline.md"))


def test_the_analysis_counts_what_the_tables_have(spark: SparkSession, tmp_path: Path) -> None:
    """examples/analysis: a program of its own, without Spark, that reads the lake with pandas."""
    journal = simulated(tmp_path)
    pipeline = build(spark, Settings(lake=str(tmp_path / "lake"), journals=(str(journal),)))
    pipeline.ingest()
    pipeline.materialise()
    ran = _analysis(tmp_path, "lake")
    assert ran.returncode == 0, ran.stderr
    changes = pipeline.dataframe("changes")
    assert f"{changes.count()} changes in 5 documents" in ran.stdout
    (typed,) = changes.selectExpr("sum(inserted)").first() or (None,)
    most = changes.groupBy("peer").sum("inserted").orderBy("sum(inserted)", ascending=False).first()
    assert most is not None and typed
    first = ran.stdout.partition("share")[2].splitlines()[2].split()
    assert first[:2] == [most["peer"], str(most["sum(inserted)"])]
    assert float(first[3]) == pytest.approx(most["sum(inserted)"] / typed, abs=0.001)
    assert "the busiest hour begins at" in ran.stdout
    stays = ran.stdout.partition("bytes_per_char")[2].partition("peers")[0]
    rows = dict(re.findall(r"^(made-\d) +(\d+) ", stays, re.MULTILINE))
    latest = pipeline.dataframe("documents").select("document_id", "chars").collect()
    assert rows == {row["document_id"]: str(row["chars"]) for row in latest}


def test_the_analysis_says_what_to_do_without_a_lake(tmp_path: Path) -> None:
    """One sentence with the command that makes one, and no traceback."""
    ran = _analysis(tmp_path, "nowhere")
    assert ran.returncode == 1
    assert "nowhere is not a lake: `lorogo pipeline ingest" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.deep
def test_the_notebook_of_history_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """examples/history.py, all cells, in the session that is there, which it leaves as it was."""
    journal = simulated(tmp_path)
    monkeypatch.setattr(sys, "argv", ["history.py", str(journal), str(tmp_path / "lake")])
    runpy.run_path(str(EXAMPLES / "history.py"))
    printed = capsys.readouterr().out
    assert "made-0" in printed and "inserted" in printed and "update" in printed
    assert spark.range(3).count() == 3


def _analysis(folder: Path, lake: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "analysis" / "analysis.py"), lake],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
