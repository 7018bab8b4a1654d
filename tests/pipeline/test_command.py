"""`lorogo pipeline ...` as people type it: tables or JSON, exit codes, one sentence for what is wrong."""

from __future__ import annotations

import json
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lorogo_cli.app import run
from lorogo_pipeline.tables.lake import Lake
from lorogo_protocol.journal.records import ErasedRecord
from tests.pipeline.journals import SECOND, START, Journal, journal, session, texts

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal, and a lake with everything made of it."""
    place = tmp_path_factory.mktemp("a folder with ü")
    journal(place / "journal" / "00", session(5, 200))
    return place


@pytest.fixture(scope="module")
def lake(folder: Path, spark: SparkSession) -> str:
    place = str(folder / "lake")
    assert run(["pipeline", "ingest", "--journal", str(folder), "--lake", place]) == 0
    assert run(["pipeline", "materialise", "--lake", place]) == 0
    return place


def line(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The sentence on stderr of a command that cannot be done."""
    capsys.readouterr()
    assert run(["pipeline", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("lorogo: ")
    assert "Traceback" not in printed.err
    return printed.err


def test_ingest_says_what_is_new(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first time everything, the second time nothing; as a table, or as JSON."""
    command = ["pipeline", "ingest", "--journal", str(folder), "--lake", str(tmp_path / "lake")]
    assert run(command) == 0
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split("  ")[0] == "SEGMENTS"
    assert "200" in row.split()
    assert run([*command, "--json"]) == 0
    again = line(capsys)
    assert (again["segments"], again["known"], again["updates"]) == (0, 1, 0)


def test_sql_asks_the_tables(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every table is a view; rows are a table or JSON lines, up to the given number."""
    question = "select document_id, chars from documents order by document_id"
    assert run(["pipeline", "sql", question, "--lake", lake, "--json"]) == 0
    rows = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    wanted = texts(session(5, 200))
    assert rows == [{"document_id": name, "chars": len(wanted[name])} for name in sorted(wanted)]
    assert run(["pipeline", "sql", "select * from changes", "--lake", lake, "--rows", "3"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 4
    assert "only the first 3 rows" in printed.err


def test_a_question_that_spark_cannot_answer_is_one_sentence(
    lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is Spark's reason, without a page of plans."""
    printed = refused(capsys, "sql", "select nothing from nowhere", "--lake", lake)
    assert "nowhere" in printed
    printed = refused(capsys, "sql", "selekt 1", "--lake", lake)
    assert "selekt" in printed


def test_as_of_stands_beside_the_latest(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A time in ISO 8601; the latest state stays what it is."""
    assert run(["pipeline", "materialise", "--lake", lake, "--as-of", "2026-11-06T21:21:40Z", "--json"]) == 0
    assert line(capsys)["updates"] == 100
    counted = "select latest, sum(updates) as n from documents_as_of group by latest order by latest"
    assert run(["pipeline", "sql", counted, "--lake", lake, "--json"]) == 0
    rows = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert rows == [{"latest": False, "n": 100}, {"latest": True, "n": 200}]


def test_report_writes_one_page(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report needs only journals and leaves no lake; its JSON has the duration."""
    out = tmp_path / "report.html"
    assert run(["pipeline", "report", "--journal", str(folder), "--out", str(out), "--json"]) == 0
    printed = line(capsys)
    assert printed["totals"]["updates"] == 200
    assert printed["seconds"] >= printed["start_up_seconds"] >= 0
    assert printed["bytes"] == out.stat().st_size
    page = out.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "doc-0001" in page
    assert list(tmp_path.iterdir()) == [out]


def test_erase_prints_its_proof(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows before, rows after, and what was checked."""
    lake = str(tmp_path / "lake")
    assert run(["pipeline", "ingest", "--journal", str(folder), "--lake", lake]) == 0
    assert "pass --yes" in refused(capsys, "erase", "--lake", lake, "--document", "doc-0002")
    assert "no rows of 'unknown'" in refused(
        capsys, "erase", "--lake", lake, "--document", "unknown", "--yes"
    )
    assert run(["pipeline", "erase", "--lake", lake, "--document", "doc-0002", "--yes"]) == 0
    printed = capsys.readouterr().out
    assert "verified: no file below" in printed
    assert run(["pipeline", "erase", "--lake", lake, "--json"]) == 0
    assert line(capsys)["tables"]["updates"]["rows_before"] == 0


def test_a_night_does_everything_and_goes_on_behind_damage(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lake, the erasures, the documents and the page are made; damage is reported, and does not stop the
    rest.
    """
    copy, out, lake = tmp_path / "copy" / "00", tmp_path / "report.html", tmp_path / "lake"
    shutil.copytree(folder / "journal" / "00", copy)
    command = ["pipeline", "nightly", "--journal", str(copy), "--lake", str(lake), "--out", str(out)]
    assert run([*command, "--json"]) == 0
    printed = line(capsys)
    assert printed["ingested"]["updates"] == printed["report"]["totals"]["updates"] == 200
    assert (printed["erased"]["documents"], printed["materialised"]["documents"]) == ([], 5)
    assert "doc-0001" in out.read_text(encoding="utf-8")

    with Journal(copy) as more:
        more.record("doc-0001", ErasedRecord("erasure", (), 0, 0, 1), START + 300 * SECOND)
    segment = min(copy.glob("*.seg"))
    segment.write_bytes(segment.read_bytes()[:600] + b"damage" + segment.read_bytes()[606:])
    shutil.rmtree(lake)
    assert run(command) == 1
    said = capsys.readouterr()
    assert "damaged, the rest was read" in said.err
    assert "verified: no file below" in said.out
    page = out.read_text(encoding="utf-8")
    assert "doc-0001" not in page
    assert "doc-0002" in page


def test_export_writes_documents(lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON lines by default: the document as it is."""
    out = tmp_path / "documents.jsonl"
    assert run(["pipeline", "export", str(out), "--lake", lake, "--document", "doc-0001"]) == 0
    (row,) = [json.loads(text) for text in out.read_text(encoding="utf-8").splitlines()]
    assert row["value"] == {"text": texts(session(5, 200))["doc-0001"]}


def test_damage_ends_with_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rest is ingested, the damage reported with its place; with --damaged fail nothing is written."""
    with Journal(tmp_path / "journal", segment_bytes=16 << 10) as made:
        made.add(*session(5, 400))
    first = made.segments()[0]
    body = bytearray(first.read_bytes())
    body[len(body) // 2] ^= 1
    first.write_bytes(bytes(body))
    command = ["pipeline", "ingest", "--journal", str(tmp_path / "journal")]
    printed = refused(capsys, *command[1:], "--lake", str(tmp_path / "strict"), "--damaged", "fail")
    assert first.name in printed
    assert Lake.open(str(tmp_path / "strict")).table("updates").rows() == 0
    assert run([*command, "--lake", str(tmp_path / "lake")]) == 1
    assert first.name in capsys.readouterr().err
    assert 300 <= Lake.open(str(tmp_path / "lake")).table("updates").rows() < 400


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ingest", "--lake", "{tmp}/lake"], "name a journal"),
        (["ingest", "--journal", "{tmp}/nowhere", "--lake", "{tmp}/lake"], "is not a folder"),
        (["ingest", "--journal", "{tmp}", "--lake", "{tmp}/lake"], "there is no journal in"),
        (["materialise", "--lake", "{tmp}/nowhere"], "there is no lake in"),
        (["materialise", "--lake", "{lake}", "--as-of", "yesterday"], "is not a time"),
        (["materialise", "--lake", "{lake}", "--table", "updates"], "documents and changes"),
        (["materialise", "--lake", "{lake}", "--document", "doc-0001"], "--as-of"),
        (["report"], "name a lake"),
        (["nightly", "--lake", "{lake}"], "name the journals to read"),
        (
            ["report", "--lake", "{lake}", "--tz", "Mars/Olympus", "--out", "{tmp}/r.html"],
            "is not a time zone",
        ),
        (["audit"], "name the journals"),
        (["export", "{tmp}/out", "--lake", "{lake}", "--format", "docx"], "jsonl, markdown, parquet"),
        (["erase", "--lake", "{lake}", "--document", "no such/id", "--yes"], "is not a document id"),
        (["materialise", "--lake", "{lake}", "--as-of", "2999-01-01"], "is in the future"),
        (
            ["ingest", "--journal", "{journal}", "--lake", "{tmp}/new", "--conf", "spark.x"],
            "is not KEY=VALUE",
        ),
        (
            ["ingest", "--journal", "{journal}", "--lake", "{tmp}/new", "--buckets", "0"],
            "it must be 1 to 4096",
        ),
        (["ingest", "--journal", "{journal}", "--lake", "{tmp}/new", "--damaged", "maybe"], "fail or skip"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    arguments: list[str],
    words: str,
    folder: Path,
    lake: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 2, and what to do about it."""
    places = {"tmp": str(tmp_path), "lake": lake, "journal": str(folder)}
    assert words in refused(capsys, *(argument.format(**places) for argument in arguments))


def test_the_error_of_a_second_job_names_the_running_one(
    folder: Path, lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once, before it does anything."""
    with Lake.open(lake).writing("ingest"):
        printed = refused(capsys, "ingest", "--journal", str(folder), "--lake", lake)
    assert "is being written by ingest, process" in printed


def test_a_lake_of_another_version_is_left_alone(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An older or newer lorogo must not guess what its tables mean."""
    (tmp_path / "lake.json").write_text('{"version": 99, "buckets": 16}', encoding="utf-8")
    printed = refused(capsys, "ingest", "--journal", str(folder), "--lake", str(tmp_path))
    assert "version 99" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["lake.json"]


@pytest.mark.deep
def test_the_example_runs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cell after cell, on a journal."""
    monkeypatch.setattr(sys, "argv", ["history.py", str(folder), str(tmp_path / "lake")])
    runpy.run_path(str(ROOT / "examples" / "history.py"), run_name="__main__")
    assert "updates=200" in capsys.readouterr().out


def test_simulated_days_make_a_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Made documents where there are no traces; their texts are checked as they are typed."""
    monkeypatch.setattr(sys, "argv", ["simulated_days.py", str(tmp_path / "journal")])
    runpy.run_path(str(ROOT / "examples" / "simulated_days.py"), run_name="__main__")
    assert "250 updates of 5 documents" in capsys.readouterr().out
    command = ["pipeline", "ingest", "--journal", str(tmp_path / "journal"), "--lake", str(tmp_path / "lake")]
    assert run([*command, "--json"]) == 0
    printed = line(capsys)
    assert printed["updates"] == 250
    assert printed["answers"] > 0
