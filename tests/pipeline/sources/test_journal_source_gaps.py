"""Segments that are not there, seen through the source `lorogo.journal`."""

from pathlib import Path
from typing import TYPE_CHECKING

from lorogo_pipeline import register
from tests.pipeline.journals import journal, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_gap_is_reported(spark: "SparkSession", tmp_path: Path) -> None:
    """With `skip`, a journal without a segment gives a row of kind `damaged`."""
    path = journal(tmp_path / "journal", session(2, 200), segment_bytes=8000)
    sorted(path.glob("*.seg"))[1].unlink()
    register(spark)
    rows = spark.read.format("lorogo.journal").option("damaged", "skip").load(str(path)).collect()
    [damaged] = [row for row in rows if row["kind"] == "damaged"]
    assert "are in no segment" in damaged["problem"]
    assert 0 < len([row for row in rows if row["kind"] == "update"]) < 200
