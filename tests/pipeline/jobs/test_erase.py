"""Erasing: a document leaves every table and every file, does not come back, and that is proved."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lorogo_pipeline.errors import BadOption, LakeBusy, PipelineError
from lorogo_pipeline.jobs import erase as erasing
from lorogo_pipeline.jobs.erase import TABLES
from lorogo_pipeline.pipeline import Pipeline, Settings, build
from lorogo_pipeline.tables.files import LakeFiles
from lorogo_protocol.errors import InvalidDocumentId
from lorogo_protocol.journal.records import ErasedRecord
from tests.journals import restored_record
from tests.pipeline.journals import SECOND, START, Journal, journal, session
from tests.pipeline.lakes import on_workers, rows_of, tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GONE = "doc-0001"


@pytest.fixture
def pipeline(spark: "SparkSession", tmp_path: Path) -> Pipeline:
    """A lake with three documents, current and at a past time, with an event of each."""
    journal(tmp_path / "journal", session(3, 60))
    with Journal(tmp_path / "journal") as path:
        for number in range(3):
            path.record(
                f"doc-000{number}",
                restored_record(1, 1),
                START - SECOND,
            )
    made = build(spark, Settings(str(tmp_path / "lake"), (str(tmp_path / "journal"),), buckets=2))
    made.ingest()
    made.materialise()
    made.materialise(as_of_ns=START + 30 * SECOND)
    return made


def names_in_files(lake: str, *, erasures: bool = False) -> set[str]:
    """Every document id in every Parquet file of the lake, named by a table or not."""
    found: set[str] = set()
    for path in Path(lake).rglob("*.parquet"):
        if "_delta_log" in path.parts:
            continue
        rows = pq.ParquetFile(path).read()
        kinds = rows["kind"].to_pylist() if "kind" in rows.column_names else [""] * rows.num_rows
        pairs = zip(rows["document_id"].to_pylist(), kinds, strict=True)
        found |= {document_id for document_id, kind in pairs if erasures or kind != "erased"}
    return found


def rows_about(lake: str, document_id: str) -> dict[str, int]:
    return {name: sum(row["document_id"] == document_id for row in rows_of(lake, name)) for name in TABLES}


@pytest.mark.parametrize("workers", [False, True])
def test_before_and_after(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, workers: bool) -> None:
    """Every row of it is counted before and gone after; all others are untouched."""
    if workers:
        on_workers(monkeypatch)
    lake = pipeline.settings.lake
    before, others = rows_about(lake, GONE), tables_of(lake, *TABLES)
    assert all(before.values()) and GONE in names_in_files(lake)
    done = pipeline.erase([GONE])
    assert done.proved and done.documents == [GONE]
    assert {name: facts.rows_before for name, facts in done.tables.items()} == before
    assert all(facts.rows_after == 0 and facts.files_checked for facts in done.tables.values())
    assert sum(facts.files_removed for facts in done.tables.values()) > 0
    assert GONE not in names_in_files(lake), "not in any file, of old versions neither"
    after = tables_of(lake, *TABLES)
    for name in TABLES:
        kept = [row for row in after[name] if row.get("kind") != "erased"]
        assert kept == [row for row in others[name] if row["document_id"] != GONE]
    assert done.to_json()["proved"] is True


def test_it_does_not_come_back(pipeline: Pipeline, tmp_path: Path) -> None:
    """Journals that still have it do not bring it back, nor does folding."""
    pipeline.erase([GONE])
    journal(tmp_path / "copy", session(3, 60))
    again = build(pipeline.spark, Settings(pipeline.settings.lake, (str(tmp_path / "copy"),)))
    done = again.ingest()
    assert done.erased > 0 and done.updates == 0
    again.materialise()
    again.materialise(as_of_ns=START + 30 * SECOND)
    assert names_in_files(pipeline.settings.lake) >= {"doc-0000", "doc-0002"}
    assert rows_about(pipeline.settings.lake, GONE) == {
        "updates": 0,
        "events": 1,
        "changes": 0,
        "documents": 0,
    }
    second = again.erase()
    assert second.proved and second.documents == [GONE]
    assert GONE not in names_in_files(pipeline.settings.lake), "what was staged and not taken is gone, too"


def test_what_the_journals_call_erased(pipeline: Pipeline, tmp_path: Path) -> None:
    """An erasure in a journal needs no name in the command: states of past times are erased too."""
    with Journal(tmp_path / "journal") as path:
        path.record(GONE, ErasedRecord("erasure", (), 1, 0, START), START + 99 * SECOND)
    pipeline.ingest()
    assert rows_about(pipeline.settings.lake, GONE)["documents"] == 2, "until then they are in older files"
    done = pipeline.erase()
    assert done.documents == [GONE] and done.proved
    assert GONE not in names_in_files(pipeline.settings.lake)


def test_nothing_to_erase(pipeline: Pipeline) -> None:
    """Without a name and without an erasure in the journals nothing changes."""
    before = tables_of(pipeline.settings.lake, *TABLES)
    done = pipeline.erase()
    assert done.documents == [] and done.proved
    assert tables_of(pipeline.settings.lake, *TABLES) == before


def test_an_unknown_document(pipeline: Pipeline) -> None:
    """A slip of the pen erases nothing, and bans no document that may still come."""
    with pytest.raises(BadOption, match="never-seen"):
        pipeline.erase([GONE, "never-seen"])
    assert rows_about(pipeline.settings.lake, GONE)["updates"] > 0
    assert rows_about(pipeline.settings.lake, "never-seen")["events"] == 0


def test_what_is_no_id(pipeline: Pipeline) -> None:
    """A name that no document can have is refused before anything is touched."""
    with pytest.raises(InvalidDocumentId):
        pipeline.erase([GONE, "not an id"])
    assert rows_about(pipeline.settings.lake, GONE)["updates"] > 0


def test_old_versions_and_strays_are_removed(pipeline: Pipeline) -> None:
    """A file that a job which died left in the data is gone afterwards."""
    data = Path(pipeline.settings.lake) / "updates" / "data"
    shutil.copy(next(data.glob("*.parquet")), data / "0000-all-left.behind.parquet")
    done = pipeline.erase([GONE])
    assert done.proved and not (data / "0000-all-left.behind.parquet").exists()


def test_the_proof_looks_everywhere(pipeline: Pipeline) -> None:
    """A file elsewhere below a table that still has a row is found: then nothing is proved."""
    table = Path(pipeline.settings.lake) / "updates"
    for path in (table / "data").glob("*.parquet"):
        (table / "backup").mkdir(exist_ok=True)
        shutil.copy(path, table / "backup" / path.name)
    done = pipeline.erase([GONE])
    assert not done.proved and done.tables["updates"].rows_after > 0
    assert done.to_json()["proved"] is False


def test_a_file_that_comes_back_meanwhile(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is one that cannot be removed."""
    with monkeypatch.context() as patched:
        patched.setattr(LakeFiles, "remove", lambda self, name: None)
        assert not pipeline.erase([GONE]).proved
    assert pipeline.erase([GONE]).proved


def test_a_file_that_cannot_be_read(pipeline: Pipeline) -> None:
    """An unreadable file makes the proof impossible, and the error names it."""
    table = Path(pipeline.settings.lake) / "updates"
    (table / "notes.txt").write_text("what is this?")
    with pytest.raises(
        PipelineError, match=r"updates/notes\.txt cannot be read, so the erasure is not verified"
    ):
        pipeline.erase([GONE])
    pq.write_table(pa.table({"other": [1]}), table / "notes.txt")
    with pytest.raises(
        PipelineError, match=r"updates/notes\.txt cannot be read, so the erasure is not verified"
    ):
        pipeline.erase([GONE])


def test_a_log_that_names_it(pipeline: Pipeline) -> None:
    """An entry of a log that names the document is found."""
    log = Path(pipeline.settings.lake) / "updates" / "_delta_log"
    (log / "note.json").write_text(f'{{"who": "{GONE}"}}')
    done = pipeline.erase([GONE])
    assert done.named_in_logs == 1 and not done.proved


def test_one_job_at_a_time(pipeline: Pipeline) -> None:
    """While another job writes nothing is erased."""
    with pipeline.lake().writing("ingest"), pytest.raises(LakeBusy, match="written by ingest"):
        pipeline.erase([GONE])
    assert erasing.TABLES == ("updates", "events", "changes", "documents")
