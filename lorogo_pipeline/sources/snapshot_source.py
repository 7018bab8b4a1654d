"""`format("lorogo.snapshots")`: the current snapshot of each document. See `SnapshotSource`."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from lorogo_pipeline.sources import snapshot_reader
from lorogo_pipeline.sources.snapshot_rows import DocumentShare, SnapshotOptions, shares
from lorogo_pipeline.spark.async_bridge import once, pumped
from lorogo_pipeline.tables.schemas import SNAPSHOTS, spark_schema

_NATS_SECONDS = 30.0


class SnapshotSource(DataSource):
    """The current content of the snapshot store, as rows of `schemas.SNAPSHOTS`.

    Deleted and erased documents are included with their tombstones. A snapshot is not the newest state of
    its document: updates after `sequence` are in the WAL. Damaged snapshots (missing chunk, wrong digest)
    fail the read; with `damaged=skip` they are rows with a `problem` and no payload. With `payload=false` no
    bytes are transferred, and only missing chunks are detected.
    """

    @classmethod
    def name(cls) -> str:
        """The name for `format()`."""
        return "lorogo.snapshots"

    def schema(self) -> StructType:
        """One row per document."""
        return spark_schema(SNAPSHOTS)

    def reader(self, schema: StructType) -> "SnapshotReader":
        """Return the reader for `spark.read`: options nats, documents, payload, damaged."""
        arrow = to_arrow_schema(schema, timezone="UTC")
        return SnapshotReader(SnapshotOptions.parse(self.options), arrow)


class SharePartition(InputPartition):
    """A share of the documents: one task."""

    def __init__(self, share: DocumentShare) -> None:
        super().__init__(share)
        self.share = share


class SnapshotReader(DataSourceReader):
    """Read each snapshot in its current state."""

    def __init__(self, options: SnapshotOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition, or one for every 256 MiB."""
        size = once(snapshot_reader.stored_bytes(self._options.nats), seconds=_NATS_SECONDS)
        return [SharePartition(share) for share in shares(size, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a share, on an executor."""
        assert isinstance(partition, SharePartition)
        return pumped(snapshot_reader.read_share(self._options, partition.share, self._schema))
