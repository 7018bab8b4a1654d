"""`format("lorogo.stream")`: the live WAL, one row per complete update. See `StreamSource`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from lorogo_pipeline.sources import stream_ranges, stream_reader
from lorogo_pipeline.sources.stream_ranges import SequenceRange, StreamOffset, StreamOptions, WalBounds
from lorogo_pipeline.spark.async_bridge import once, pumped
from lorogo_pipeline.tables.schemas import RECORDS, spark_schema
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_NATS_SECONDS = 30.0


class StreamSource(DataSource):
    """Updates in the stream `loro-wal`, as rows of `schemas.RECORDS`.

    JetStream stored these updates, but they are *not necessarily accepted*: the owner may refuse them.
    Compaction purges the WAL. Journals have all accepted updates.

    A message with invalid headers, and an update that can never be complete, are rows of kind `malformed`
    with a `problem`. An update whose final chunk lies behind the range is left out. An update that a client
    sent again may yield one row per partition: `document_id`, `log_id` and `digest` are its identity.
    """

    @classmethod
    def name(cls) -> str:
        """The name for `format()`."""
        return "lorogo.stream"

    def schema(self) -> StructType:
        """The schema of records, as of the source `lorogo.journal`."""
        return spark_schema(RECORDS)

    def reader(self, schema: StructType) -> "StreamReader":
        """Return the reader for `spark.read`: nats, first, last, payload, partition_messages, documents."""
        return StreamReader(StreamOptions.parse(self.options).for_batch(), _arrow(schema))

    def streamReader(self, schema: StructType) -> "StreamFollower":  # noqa: N802  # Spark's name
        """Return the reader for `spark.readStream`: startingOffset, maxMessagesPerTrigger, ..."""
        return StreamFollower(StreamOptions.parse(self.options).for_stream(), _arrow(schema))


class RangePartition(InputPartition):
    """One range of the WAL: one task."""

    def __init__(self, given: SequenceRange) -> None:
        super().__init__(given)
        self.given = given


class StreamReader(DataSourceReader):
    """Read the WAL up to its end at planning time."""

    def __init__(self, options: StreamOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return ranges of sequences up to the current end."""
        found = stream_ranges.batch_ranges(self._options, _wal_bounds(self._options))
        return [RangePartition(each) for each in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range, on an executor, with a connection of its own."""
        return _read(self._options, partition, self._schema)


class StreamFollower(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Read the growing WAL in micro-batches by offset."""

    def __init__(self, options: StreamOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._target: WalBounds | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name
        """Return the offset of a query without a checkpoint."""
        return stream_ranges.initial(self._options, _wal_bounds(self._options)).as_json()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return the end of the next batch."""
        seen = self._target or _wal_bounds(self._options)
        messages_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return stream_ranges.latest(StreamOffset.parse(start), seen, messages_max=messages_max).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return the limit of the option maxMessagesPerTrigger."""
        most = self._options.messages_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Fix the end of the query to the current end of the WAL."""
        self._target = _wal_bounds(self._options)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Return ranges of sequences between two offsets."""
        begin, until = StreamOffset.parse(start), StreamOffset.parse(end)
        found = stream_ranges.stream_ranges(self._options, begin, until, _wal_bounds(self._options))
        if found is None:
            log.warning("WAL recreated; the next batch starts at its first message", planned=end)
        return [RangePartition(each) for each in found or ()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range, on an executor, with a connection of its own."""
        return _read(self._options, partition, self._schema)


def _wal_bounds(options: StreamOptions) -> WalBounds:
    return once(stream_reader.read_bounds(options.nats), seconds=_NATS_SECONDS)


def _read(options: StreamOptions, partition: InputPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, RangePartition):  # Spark's own, for an empty batch
        return iter(())
    return pumped(stream_reader.read_range(options, partition.given, schema))


def _arrow(schema: StructType) -> pa.Schema:
    """Return the exact schema that Spark expects of batches."""
    return to_arrow_schema(schema, timezone="UTC")
