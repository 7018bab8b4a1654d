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
_READ_BYTES = 1 << 20  # of a column, read ahead
_PIECE_ROWS = 8192
#: columns whose values repeat; of others a dictionary would be built and thrown away
_DICTIONARY = [
    "document_id",
    "kind",
    "epoch",
    "lease",
    "generation",
    "peers.list.element",
    "spans.list.element.peer",
    "bytes",
    "changes",
    "ops",
    "digest_ok",
    "source",
    "bucket",
    "state",
    "latest",
    "complete",
    "peer",
    "message",
    "by_kind.list.element.container",
    "by_kind.list.element.kind",
    "server",
]


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
                use_dictionary=_DICTIONARY,
                write_statistics=[name for name in schema.names if name in {"document_id", "accepted_at"}],
            )
        size = self._files.size(f"{table}/{name}")
        self.written.setdefault(table, []).append(DataFile(name, rows.num_rows, size))

    def put_pieces(self, table: str, bucket: int, pieces: Sequence[pa.Table]) -> None:
        """One more file of rows of one bucket in any order."""
        rows = pa.concat_tables(pieces).combine_chunks()
        order = [(name, "ascending") for name in ORDER[table]]
        self.put(table, bucket, rows.take(pc.sort_indices(rows, sort_keys=order)))


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


def pieces(files: Files, table: str, file: DataFile, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The file, at most a row group and some thousand rows at a time; little more of it is in memory."""
    with files.open(f"{table}/{file.path}") as opened:
        source = pq.ParquetFile(opened, buffer_size=_READ_BYTES, pre_buffer=False)
        for number in range(source.num_row_groups):
            for batch in source.iter_batches(_PIECE_ROWS, row_groups=[number], columns=list(columns)):
                yield pa.Table.from_batches([batch])
