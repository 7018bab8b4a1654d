"""Data files of a lake: written sorted and atomically, read column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lorogo_pipeline.tables.files import LakeFiles
from lorogo_pipeline.tables.lake import DataFile, file_name
from lorogo_pipeline.tables.schemas import TABLES
from lorogo_pipeline.tables.table_rows import ORDER

_GROUP_BYTES = 8 << 20  # of a row group: what a reader holds in memory of each file
_GROUP_ROWS_MAX = 65_536
_ZSTD_LEVEL = 1
_READ_BYTES = 256 << 10  # of a column, read ahead
_PIECE_ROWS = 4096
#: columns with repeated values; for others a dictionary would be built and discarded
_DICTIONARY = [
    "document_id",
    "kind",
    "epoch",
    "lease",
    "generation",
    "term",
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


class DataFileWriter:
    """Write the new data files of one task attempt; `run` makes their names unique."""

    def __init__(self, files: LakeFiles, run: str) -> None:
        self._files = files
        self._run = run
        self._numbers = count()
        self.written: dict[str, list[DataFile]] = {}

    def put(self, table: str, bucket: int, rows: pa.Table, *, label: str = "all") -> None:
        """Write rows of one bucket, in the table's order, as a file; no rows, no file."""
        with self.growing(table, bucket, label=label) as add:
            add(rows)

    @contextmanager
    def growing(self, table: str, bucket: int, *, label: str = "all") -> Iterator[Callable[[pa.Table], None]]:
        """Open a file to which the block adds rows in the table's order; no rows, no file."""
        name = file_name(bucket, label, f"{self._run}.{next(self._numbers)}")
        schema = TABLES[table]
        opened: pq.ParquetWriter | None = None
        total = 0
        with ExitStack() as stack:

            def add(rows: pa.Table) -> None:
                nonlocal opened, total
                if not rows.num_rows:
                    return
                if opened is None:
                    file = stack.enter_context(self._files.create(f"{table}/{name}"))
                    opened = stack.enter_context(_parquet(file, schema))
                group = max(256, min(_GROUP_ROWS_MAX, _GROUP_BYTES * rows.num_rows // max(1, rows.nbytes)))
                opened.write_table(rows.select(schema.names).cast(schema), row_group_size=group)
                total += rows.num_rows

            yield add
        if total:
            size = self._files.size(f"{table}/{name}")
            self.written.setdefault(table, []).append(DataFile(name, total, size))

    def put_pieces(self, table: str, bucket: int, pieces: Sequence[pa.Table]) -> None:
        """Sort rows of one bucket and write them as a file."""
        rows = pa.concat_tables(pieces).combine_chunks()
        order = [(name, "ascending") for name in ORDER[table]]
        self.put(table, bucket, rows.take(pc.sort_indices(rows, sort_keys=order)))


def _parquet(file: Any, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        file,
        schema,
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        use_dictionary=_DICTIONARY,
        write_statistics=[name for name in schema.names if name in {"document_id", "accepted_at"}],
    )


def read(files: LakeFiles, table: str, file: DataFile, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a file, or some of its columns."""
    with files.open(f"{table}/{file.path}") as opened:
        return pq.ParquetFile(opened).read(columns=list(columns) if columns else None)


def groups(files: LakeFiles, table: str, file: DataFile, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the row groups of a file."""
    with files.open(f"{table}/{file.path}") as opened:
        source = pq.ParquetFile(opened)
        for number in range(source.num_row_groups):
            yield source.read_row_group(number, columns=list(columns))


def pieces(files: LakeFiles, table: str, file: DataFile, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield a file in pieces of some thousand rows; memory holds little more than one piece."""
    with files.open(f"{table}/{file.path}") as opened:
        source = pq.ParquetFile(opened, buffer_size=_READ_BYTES, pre_buffer=False)
        for number in range(source.num_row_groups):
            for batch in source.iter_batches(_PIECE_ROWS, row_groups=[number], columns=list(columns)):
                yield pa.Table.from_batches([batch])
