"""SQL for people: whatever reads, and nothing that writes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lorogo_pipeline.errors import BadOption, JobFailed
from lorogo_pipeline.pipeline import Pipeline, Settings, build
from tests.pipeline.journals import journal, session
from tests.pipeline.lakes import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    path = journal(tmp_path / "journal", session(1, 5), sealed=True)
    made = build(spark, Settings(str(tmp_path / "lake"), (str(path),), buckets=1))
    made.ingest()
    return made


@pytest.mark.parametrize(
    "query",
    [
        "insert overwrite table updates select * from other",
        "INSERT INTO updates SELECT * FROM other",
        "with o as (select * from other) insert overwrite table updates select * from o",
        "from other insert overwrite table updates select *",
        "/* select */ insert overwrite table updates select * from other",
        "insert overwrite directory '{lake}/updates/data' using parquet select 1 as a",
        "create table made using parquet location '{lake}/made' as select 1 as a",
        "delete from updates",
        "drop view updates",
        "set spark.sql.shuffle.partitions=1",
    ],
)
def test_what_writes_is_refused(pipeline: Pipeline, tmp_path: Path, query: str) -> None:
    """Not even part of it is done, and the lake is what it was."""
    before = sorted(str(path) for path in (tmp_path / "lake").rglob("*"))
    pipeline.dataframe("updates").where("ops > 99").createOrReplaceTempView("other")
    with pytest.raises(BadOption, match="only select, with"):
        pipeline.answer(query.format(lake=tmp_path / "lake"), 10)
    assert sorted(str(path) for path in (tmp_path / "lake").rglob("*")) == before
    assert len(rows_of(tmp_path / "lake", "updates")) == 5


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select count(*) from updates", [(5,)]),
        ("select 1 as a, 2 as a -- twice", [(1, 2)]),
        ("with u as (select * from updates) select max(sequence) from u;", [(5,)]),
        ("(select 1) union all (select 2) order by 1 desc", [(2,), (1,)]),
        ("values (1), (2)", [(1,), (2,)]),
        ("select sequence from updates order by sequence desc limit 2", [(5,), (4,)]),
        ("from updates select min(sequence)", [(1,)]),
        ("select named_struct('b', array(named_struct('c', 1))) as a", [({"b": [{"c": 1}]},)]),
        ("select timestamp'2026-01-01T00:00:00Z'", [(datetime(2026, 1, 1, tzinfo=UTC),)]),
    ],
)
def test_questions(pipeline: Pipeline, query: str, rows: list[tuple[object, ...]]) -> None:
    """Any query is answered, in its order; records have names, and times their zone."""
    assert pipeline.answer(query, 10)[1] == rows


def test_what_there_is(pipeline: Pipeline) -> None:
    """SQL lists tables and columns."""
    names = {row[1] for row in pipeline.answer("show tables", 100)[1]}
    assert {"updates", "events", "changes", "documents", "documents_as_of", "answers"} <= names
    assert pipeline.answer("describe updates", 100)[1][0][0] == "document_id"
    assert pipeline.answer("explain select 1", 100)[1]


@pytest.mark.parametrize("query", ["select nope from updates", "select from from", "selct 1", ""])
def test_mistakes(pipeline: Pipeline, query: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The error is Spark's sentence, printed once."""
    with pytest.raises(JobFailed):
        pipeline.answer(query, 10)
    assert "Py4JJavaError" not in capfd.readouterr().err
