"""Read the WAL stream into the table `updates`, once or continuously (Structured Streaming).

Journals contain accepted updates only; the stream also has updates that no ingested journal has yet. An
update from both counts once. The stream may contain an update that its owner refuses: rows from the stream
have `source = 'stream'`, and the journal's row replaces them when it is ingested.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lorogo_pipeline.errors import BadOption, LakeBusy
from lorogo_pipeline.jobs.ingest import TARGETS, IngestReport, Staging, commit_staged, open_targets
from lorogo_pipeline.sources.registration import register
from lorogo_pipeline.spark import tasks
from lorogo_pipeline.spark.progress import Progress
from lorogo_pipeline.tables import parquet
from lorogo_pipeline.tables.files import LakeFiles
from lorogo_pipeline.tables.lake import DataFile, Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHECKPOINT = "_checkpoints/stream"
FOLLOWING = "ingest --follow"
_ANSWER = "answer string"
_SCHEMA = pa.schema([("answer", pa.string())])


def ingest_stream(
    spark: SparkSession, lake: Lake, nats: str, *, progress: Progress | None = None
) -> IngestReport:
    """Ingest the current content of the stream. Raises LakeBusy, JobFailed."""
    register(spark)
    with lake.writing("ingest"), tasks.translated_errors():
        records = spark.read.format("lorogo.stream").option("nats", nats).load()
        return ingest_records(spark, lake, records, progress=progress)


def follow_stream(
    spark: SparkSession,
    lake: Lake,
    nats: str,
    *,
    every_seconds: float,
    on_batch: Callable[[IngestReport], None],
    once: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Run micro-batches until `stopped()`; with `once`, until the current end of the stream.

    The position is a checkpoint below the lake; the next run resumes there.
    """
    if "connect" in type(spark).__module__:
        raise BadOption("--follow with --nats needs a session of its own: leave out --remote")
    register(spark)
    lake.table("updates").commit([])  # a lake on an empty disk: the table must be there for each batch

    ending = threading.Event()

    def take(batch: DataFrame, number: int) -> None:
        """One batch, when no other job writes: they take turns."""
        until = time.monotonic() + _TURN_SECONDS
        while True:
            try:
                with lake.writing(FOLLOWING):
                    done = ingest_records(batch.sparkSession, lake, batch)
            except LakeBusy:
                if time.monotonic() > until or ending.wait(_LOOK_SECONDS):
                    raise
            else:
                return on_batch(done)

    with lake.writing(FOLLOWING, lock=_FOLLOW_LOCK), tasks.translated_errors():
        records = spark.readStream.format("lorogo.stream").option("nats", nats).load()
        writing = records.writeStream.foreachBatch(take).option(
            "checkpointLocation", lake.files.spark_uri(CHECKPOINT)
        )
        trigger = {"availableNow": True} if once else {"processingTime": f"{every_seconds} seconds"}
        query = writing.trigger(**trigger).start()
        try:
            while not query.awaitTermination(_LOOK_SECONDS):
                if stopped():
                    break
        finally:
            ending.set()
            query.stop()


_LOOK_SECONDS = 1
_TURN_SECONDS = 3600.0  # wait for another job; after that the query fails
_FOLLOW_LOCK = "follow.lock"  # one query at a time may use the checkpoint


def ingest_records(
    spark: SparkSession,
    lake: Lake,
    records: DataFrame,
    *,
    source: str = "stream",
    progress: Progress | None = None,
) -> IngestReport:
    """Commit rows of the schema RECORDS to the tables; the caller holds the lake's lock."""
    done = IngestReport()
    tables = open_targets(lake)
    work = partial(stage_rows, lake.files.root, lake.buckets, source)
    staged: dict[str, list[DataFile]] = {name: [] for name in TARGETS}
    for row in records.mapInArrow(work, _ANSWER).collect():
        answer = json.loads(row["answer"])
        for name, files in answer["files"].items():
            staged[name] += map(DataFile.from_json, files)
        done.records += answer["records"]
        done.unknown += answer["unknown"]
        done.malformed += answer["malformed"]
    commit_staged(spark, lake, tables, staged, {}, done, progress=progress)
    return done


def stage_rows(
    root: str, buckets: int, source: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """On a worker: write rows as data files, by bucket; yield one row about the files."""
    writer = parquet.DataFileWriter(LakeFiles(root), tasks.attempt(source))
    staging = Staging(writer, buckets, source)
    for batch in batches:
        if batch.num_rows:
            staging.add(batch)
    staging.flush()
    answer: dict[str, Any] = {
        "files": {name: [file.to_json() for file in files] for name, files in writer.written.items()},
        **staging.counts(),
    }
    yield pa.RecordBatch.from_pylist([{"answer": json.dumps(answer)}], schema=_SCHEMA)
