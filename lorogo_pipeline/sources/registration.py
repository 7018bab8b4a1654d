"""Register the sources of the pipeline in a session."""

from pyspark.sql import SparkSession

from lorogo_pipeline.sources.journal_source import JournalSource
from lorogo_pipeline.sources.snapshot_source import SnapshotSource
from lorogo_pipeline.sources.stream_source import StreamSource

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"  # without it a source with filters fails


def register(spark: SparkSession) -> None:
    """Register the `lorogo.*` formats and enable filter pushdown. Idempotent."""
    spark.conf.set(_PUSHDOWN, "true")
    for source in (JournalSource, StreamSource, SnapshotSource):
        spark.dataSource.register(source)
