"""Documents at present and at past times: equal to the typed text, replayed only after changes."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.testing import assertDataFrameEqual

from lorogo_pipeline.decode.bucket_rows import bucket_rows
from lorogo_pipeline.decode.replay import ReplayOptions, replay
from lorogo_pipeline.errors import BadOption, LakeBusy, NoLake
from lorogo_pipeline.jobs.materialise import label_of
from lorogo_pipeline.pipeline import Pipeline, Settings, build
from lorogo_pipeline.tables import parquet as parquet_file
from lorogo_pipeline.tables.lake import Lake
from lorogo_pipeline.tables.table_rows import bucket_of
from lorogo_protocol.journal.records import DeletedRecord, ErasedRecord
from tests.pipeline.decode.test_replay import typed as words
from tests.pipeline.journals import SECOND, START, TERM, Journal, Made, journal, made, session, texts
from tests.pipeline.lakes import documents_of, files_of, on_workers, rows_of
from tests.pipeline.traced import Traced, concurrent, typed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def lake_of(spark: "SparkSession", tmp_path: Path, updates: list[Made], *, buckets: int = 4) -> Pipeline:
    """A lake with these updates ingested."""
    journal(tmp_path / "journal", updates)
    settings = Settings(str(tmp_path / "lake"), (str(tmp_path / "journal"),), buckets=buckets)
    pipeline = build(spark, settings)
    pipeline.ingest()
    return pipeline


def texts_of(pipeline: Pipeline, *, latest: bool = True) -> dict[str, str]:
    found = documents_of(pipeline.settings.lake, latest=latest)
    return {document_id: row["text"] or "" for document_id, row in found.items()}


# --- real documents -------------------------------------------------------------------------------


def check_trace(spark: "SparkSession", tmp_path: Path, traced: Traced) -> None:
    pipeline = lake_of(spark, tmp_path, traced.updates, buckets=1)
    done = pipeline.materialise()
    assert (done.documents, done.updates, done.incomplete) == (1, len(traced.updates), 0)
    (row,) = documents_of(tmp_path / "lake").values()
    assert row["complete"] and row["chars"] == len(row["text"])
    if traced.end_content:
        assert row["text"] == traced.end_content
    ops = sum(one["ops"] for one in rows_of(tmp_path / "lake", "changes"))
    assert ops == sum(end - first for one in traced.updates for _, first, end in one.record.spans)
    lake = Lake.open(str(tmp_path / "lake"))
    inputs = [lake.table(name).list() for name in ("updates", "events")]
    assert len(traced.texts) >= 20
    for at_ns, text in traced.texts.items():
        batches = bucket_rows(lake.files, inputs[0], inputs[1])
        (found,) = replay(batches, ReplayOptions(at_ns, 1, snapshots=False))
        assert found["text"].to_pylist() == [text]
    middle = sorted(traced.texts)[9]
    pipeline.materialise(as_of_ns=middle)
    assert texts_of(pipeline, latest=False) == {traced.document_id: traced.texts[middle]}
    assert texts_of(pipeline) == {traced.document_id: row["text"]}


@pytest.mark.slow
def test_a_paper(spark: "SparkSession", tmp_path: Path) -> None:
    """A real paper of 260,000 edits: its end, and its text at twenty times."""
    check_trace(spark, tmp_path, typed("automerge-paper", patches=None, patches_an_update=100))


@pytest.mark.slow
def test_two_people_at_once(spark: "SparkSession", tmp_path: Path) -> None:
    """A text that two people wrote at the same time, with everything that was concurrent."""
    traced = concurrent("friendsforever")
    if traced is None:
        pytest.skip("the trace is not at hand: name its folder in LOROGO_TRACES")
    check_trace(spark, tmp_path, traced)


# --- documents and changes ------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [False, True])
def test_every_document(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: bool
) -> None:
    """Every document has one row, its changes name the updates, and both are views for SQL."""
    if workers:
        on_workers(monkeypatch)
    updates = session(6, 80)
    pipeline = lake_of(spark, tmp_path, updates)
    done = pipeline.materialise()
    assert (done.documents, done.updates, done.deleted, done.problems) == (6, 80, 0, [])
    assert texts_of(pipeline) == texts(updates)
    changes = rows_of(tmp_path / "lake", "changes")
    assert done.changes == len(changes) == 80
    assert {row["log_id"] for row in changes} == {one.record.log_id for one in updates}
    counted = pipeline.sql(
        "select document_id, count(*) as n, sum(inserted) as chars from changes group by 1"
    )
    expected = pipeline.sql("select document_id, updates as n, chars from documents")
    assertDataFrameEqual(counted, expected)


def test_an_empty_lake(spark: "SparkSession", tmp_path: Path) -> None:
    """A lake without updates has no documents; a missing lake is an error."""
    pipeline = build(spark, Settings(str(tmp_path / "lake")))
    with pytest.raises(NoLake, match="there is no lake in"):
        pipeline.materialise()
    pipeline.lake(create=True)
    done = pipeline.materialise()
    assert (done.documents, done.buckets, done.unchanged) == (0, 0, 0)
    assert pipeline.dataframe("documents").count() == 0
    assert pipeline.sql("select * from documents_as_of").count() == 0


def test_what_makes_no_sense(spark: "SparkSession", tmp_path: Path) -> None:
    """Tables that are not made here, and some documents without a time, are refused."""
    pipeline = build(spark, Settings(str(tmp_path / "lake")))
    pipeline.lake(create=True)
    for tables in ((), ("updates",)):
        with pytest.raises(BadOption, match="documents and changes"):
            pipeline.materialise(tables=tables)
    with pytest.raises(BadOption, match="needs --as-of"):
        pipeline.materialise(documents=["a"])
    with pipeline.lake().writing("ingest"), pytest.raises(LakeBusy, match="written by ingest"):
        pipeline.materialise()


def test_problems_are_reported(spark: "SparkSession", tmp_path: Path) -> None:
    """A document that lacks something is there with its reason, and named in the summary."""
    _, (one, _, three) = words("a", "b", "c")
    pipeline = lake_of(spark, tmp_path, [one, three])
    done = pipeline.materialise()
    assert done.incomplete == 1 and done.problems == [
        "doc: it builds on changes that are in none of these journals (1)"
    ]
    assert documents_of(tmp_path / "lake")["doc"]["text"] == "a"


# --- again and again ------------------------------------------------------------------------------


def test_only_what_changed(spark: "SparkSession", tmp_path: Path) -> None:
    """Buckets whose input has not changed are not replayed again, and keep their files."""
    updates = session(8, 60)
    pipeline = lake_of(spark, tmp_path, updates)
    first = pipeline.materialise()
    files = set(files_of(tmp_path / "lake", "documents"))
    again = pipeline.materialise()
    assert (again.buckets, again.unchanged, again.documents) == (0, first.buckets, 0)
    assert set(files_of(tmp_path / "lake", "documents")) == files
    author_id = "doc-0003"
    _, (more,) = words("new")
    with Journal(tmp_path / "more") as other:
        other.add(made(author_id, more.record.payload, START + 999 * SECOND, sequence=999))
    grown = build(spark, Settings(str(tmp_path / "lake"), (str(tmp_path / "more"),)))
    grown.ingest()
    third = grown.materialise()
    assert (third.buckets, third.unchanged) == (1, first.buckets - 1)
    changed = set(files_of(tmp_path / "lake", "documents")) ^ files
    assert {int(path.removeprefix("data/")[:4]) for path in changed} == {bucket_of(author_id, 4)}
    assert "new" in texts_of(grown)[author_id]
    assert {k: v for k, v in texts_of(grown).items() if k != author_id} == {
        k: v for k, v in texts(updates).items() if k != author_id
    }


def test_as_of_stands_beside_the_latest(spark: "SparkSession", tmp_path: Path) -> None:
    """States as of times are rows of their own; the view `documents` shows the latest only."""
    updates = session(4, 40)
    pipeline = lake_of(spark, tmp_path, updates)
    pipeline.materialise()
    for count in (10, 25):
        done = pipeline.materialise(as_of_ns=START + count * SECOND)
        assert done.changes == 0 and done.updates == count
    rows = pipeline.sql("select document_id, as_of, latest, text from documents_as_of").collect()
    found = {(row.as_of.timestamp(), row.document_id): row.text for row in rows if not row.latest}
    for count in (10, 25):
        at = START // SECOND + count
        assert {k[1]: v for k, v in found.items() if k[0] == at} == texts(updates[:count])
    assert {row.document_id: row.text for row in rows if row.latest} == texts(updates)
    assert pipeline.sql("select * from documents").count() == 4
    assert label_of(None) == "latest" and label_of(5) == "asof5"


def test_some_documents_as_of(spark: "SparkSession", tmp_path: Path) -> None:
    """Some documents as of a time do not stand for all: a run for all of them makes the rest."""
    updates = session(6, 60)
    pipeline = lake_of(spark, tmp_path, updates, buckets=1)
    at_ns = START + 40 * SECOND
    assert pipeline.materialise(as_of_ns=at_ns, documents=["doc-0001"]).documents == 1
    assert texts_of(pipeline, latest=False).keys() == {"doc-0001"}
    assert pipeline.materialise(as_of_ns=at_ns).documents == 6
    assert texts_of(pipeline, latest=False) == texts(updates[:40])
    again = pipeline.materialise(as_of_ns=at_ns, documents=["doc-0002"])
    assert (again.documents, again.unchanged) == (0, 1), "it is there already"
    assert texts_of(pipeline, latest=False) == texts(updates[:40])


def test_some_documents_leave_other_buckets_alone(spark: "SparkSession", tmp_path: Path) -> None:
    """Documents of other runs for the same time stay."""
    updates = session(8, 60)
    pipeline = lake_of(spark, tmp_path, updates)
    one, other = (
        "doc-0000",
        next(f"doc-{n:04d}" for n in range(8) if bucket_of(f"doc-{n:04d}", 4) != bucket_of("doc-0000", 4)),
    )
    for document_id in (one, other):
        pipeline.materialise(as_of_ns=START + 50 * SECOND, documents=[document_id])
    assert texts_of(pipeline, latest=False).keys() == {one, other}


def test_deleted_and_erased(spark: "SparkSession", tmp_path: Path) -> None:
    """A deleted document has a row with that state; an erased one disappears with the next run."""
    updates = session(3, 30)
    pipeline = lake_of(spark, tmp_path, updates)
    pipeline.materialise()
    with Journal(tmp_path / "journal") as path:
        path.record("doc-0000", DeletedRecord("tombstone", (TERM,), 1, 0, START), START + 99 * SECOND)
        path.record("doc-0001", ErasedRecord("erasure", (), 1, 0, START), START + 99 * SECOND)
    pipeline.ingest()
    done = pipeline.materialise()
    assert done.deleted == 1
    found = documents_of(tmp_path / "lake")
    assert found.keys() == {"doc-0000", "doc-0002"} and found["doc-0000"]["state"] == "deleted"
    assert {row["document_id"] for row in rows_of(tmp_path / "lake", "changes")} == {"doc-0000", "doc-0002"}


# --- the rows of a bucket -------------------------------------------------------------------------


@pytest.mark.parametrize("some", [None, ["doc-0002", "doc-0005", "nobody"]])
def test_the_files_of_a_bucket_are_read_side_by_side(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, some: list[str] | None
) -> None:
    """However small the pieces are that are held of each file: every row once, documents in order."""
    updates = session(7, 90)
    pipeline = lake_of(spark, tmp_path, updates[:50], buckets=1)
    with Journal(tmp_path / "journal") as path:
        path.add(*updates[50:])
        path.record("doc-0003", DeletedRecord("tombstone", (TERM,), 1, 0, START), START + 99 * SECOND)
    pipeline.ingest()
    lake = pipeline.lake()
    inputs = [lake.table(name).list() for name in ("updates", "events")]
    assert [len(files) for files in inputs] == [2, 1]
    found = []
    for rows_max in (1, 7, 1 << 20):
        monkeypatch.setattr(parquet_file, "_PIECE_ROWS", rows_max)
        batches = list(bucket_rows(lake.files, inputs[0], inputs[1], documents=some, spans=True))
        ids = [document_id for batch in batches for document_id in batch["document_id"].to_pylist()]
        assert ids == sorted(ids)
        found.append(sorted(repr(row) for batch in batches for row in batch.to_pylist()))
    wanted = updates if some is None else [one for one in updates if one.document_id in some]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == len(wanted) + (some is None)
