"""Data files of a lake: written sorted and whole, read back column by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lorogo_pipeline.files import Files
from lorogo_pipeline.lake import DataFile, file_name
from lorogo_pipeline.schemas import TABLES
from lorogo_pipeline.table_rows import ORDER

_GROUP_BYTES = 8 << 20  # of a row group: what a reader holds of each file
_GROUP_ROWS_MAX = 65_536
_ZSTD_LEVEL = 1
#: columns that do not repeat: a dictionary would be built and thrown away
_NO_DICTIONARY = {"payload", "content", "snapshot", "json", "text", "identity", "log_id", "digest", "vector"}


class Writer:
    """New data files of one task. A name is used once: `run` must be the task attempt's own."""

    def __init__(self, files: Files, run: str) -> None:
        self._files = files
        self._run = run
        self._numbers = count()
        self.written: dict[str, list[DataFile]] = {}

    def put(self, table: str, bucket: int, rows: pa.Table, *, label: str = "all") -> None:
        """One more file; rows are of one bucket, in the table's order. None if there are no rows."""
        if not rows.num_rows:
            return
        name = file_name(bucket, label, f"{self._run}.{next(self._numbers)}")
        schema = TABLES[table]
        group = max(256, min(_GROUP_ROWS_MAX, _GROUP_BYTES * rows.num_rows // max(1, rows.nbytes)))
        with self._files.create(f"{table}/{name}") as file:
            pq.write_table(
                rows.select(schema.names).cast(schema),
                file,
                compression="zstd",
                compression_level=_ZSTD_LEVEL,
                row_group_size=group,
                use_dictionary=[name for name in schema.names if name not in _NO_DICTIONARY],
                write_statistics=[name for name in schema.names if name in {"document_id", "accepted_at"}],
            )
        size = self._files.size(f"{table}/{name}")
        self.written.setdefault(table, []).append(DataFile(name, rows.num_rows, size))

    def put_buckets(self, table: str, rows: pa.Table) -> None:
        """Rows of any buckets: sorted, and one file for each bucket."""
        order = [("bucket", "ascending"), *((name, "ascending") for name in ORDER[table])]
        rows = rows.take(pc.sort_indices(rows, sort_keys=order))
        buckets = rows["bucket"].combine_chunks()
        ends = pc.run_end_encode(buckets) if len(buckets) else None
        start = 0
        if ends is None:
            return
        if isinstance(ends, pa.ChunkedArray):
            ends = ends.combine_chunks()
        for bucket, end in zip(ends.values.to_pylist(), ends.run_ends.to_pylist(), strict=True):
            self.put(table, bucket, rows.slice(start, end - start))
            start = end


def read(files: Files, table: str, file: DataFile, columns: Sequence[str] | None = None) -> pa.Table:
    """Some columns of a whole file."""
    with files.open(f"{table}/{file.path}") as opened:
        return pq.ParquetFile(opened).read(columns=list(columns) if columns else None)


def groups(files: Files, table: str, file: DataFile, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The file, row group by row group."""
    with files.open(f"{table}/{file.path}") as opened:
        source = pq.ParquetFile(opened)
        for number in range(source.num_row_groups):
            yield source.read_row_group(number, columns=list(columns))
