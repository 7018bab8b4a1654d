"""`format("lorogo.stream")`: what the live WAL holds, one row per whole update. See `StreamSource`."""

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

    What the WAL holds was stored by JetStream, and *not necessarily accepted*: the owner may have refused it
    or may yet do so. What compaction purged is no longer there. Journals tell what was accepted.

    A message whose headers make no sense, and an update that can never be whole, are rows of kind
    `malformed` with the `problem` in words. An update whose final chunk lies behind the range is
    not given. One update may be given once per partition, if a client sent it again: `document_id`,
    `log_id` and `digest` together are its identity.
    """

    @classmethod
    def name(cls) -> str:
        """What stands in `format()`."""
        return "lorogo.stream"

    def schema(self) -> StructType:
        """Records, as the journal's source gives them."""
        return spark_schema(RECORDS)

    def reader(self, schema: StructType) -> "StreamReader":
        """For `spark.read`: options nats, first, last, payload, partition_messages, documents."""
        return StreamReader(StreamOptions.parse(self.options).for_batch(), _arrow(schema))

    def streamReader(self, schema: StructType) -> "StreamFollower":  # noqa: N802  # Spark's name
        """For `spark.readStream`: startingOffset and maxMessagesPerTrigger in the place of first and last."""
        return StreamFollower(StreamOptions.parse(self.options).for_stream(), _arrow(schema))


class RangePartition(InputPartition):
    """One range of the WAL: one task."""

    def __init__(self, given: SequenceRange) -> None:
        super().__init__(given)
        self.given = given


class StreamReader(DataSourceReader):
    """The WAL as it is when the read is planned."""

    def __init__(self, options: StreamOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of sequences; what comes later is not read."""
        found = stream_ranges.batch_ranges(self._options, _wal_bounds(self._options))
        return [RangePartition(each) for each in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: connects, reads, leaves nothing behind."""
        return _read(self._options, partition, self._schema)


class StreamFollower(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The WAL as it grows: micro-batches by offset."""

    def __init__(self, options: StreamOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._target: WalBounds | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name
        """Where a query without a checkpoint begins."""
        return stream_ranges.initial(self._options, _wal_bounds(self._options)).as_json()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The end of the next batch."""
        seen = self._target or _wal_bounds(self._options)
        messages_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return stream_ranges.latest(StreamOffset.parse(start), seen, messages_max=messages_max).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """By the option maxMessagesPerTrigger."""
        most = self._options.messages_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """What is there now is all that this query gives."""
        self._target = _wal_bounds(self._options)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Ranges of sequences between two offsets."""
        begin, until = StreamOffset.parse(start), StreamOffset.parse(end)
        found = stream_ranges.stream_ranges(self._options, begin, until, _wal_bounds(self._options))
        if found is None:
            log.warning("the WAL was made anew: the next batch begins at its first message", planned=end)
        return [RangePartition(each) for each in found or ()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: connects, reads, leaves nothing behind."""
        return _read(self._options, partition, self._schema)


def _wal_bounds(options: StreamOptions) -> WalBounds:
    return once(stream_reader.read_bounds(options.nats), seconds=_NATS_SECONDS)


def _read(options: StreamOptions, partition: InputPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, RangePartition):  # Spark's own, where there is nothing to read
        return iter(())
    return pumped(stream_reader.read_range(options, partition.given, schema))


def _arrow(schema: StructType) -> pa.Schema:
    """As Spark wants the batches, to the letter."""
    return to_arrow_schema(schema, timezone="UTC")
