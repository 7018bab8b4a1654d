"""The records of one bucket, sorted by document, from the data files of two tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from lorogo_pipeline import parquet
from lorogo_pipeline.files import Files
from lorogo_pipeline.folding import INPUT
from lorogo_pipeline.lake import DataFile

_AT_ONCE_BYTES = 64 << 20  # of files that are read whole and sorted; more are merged piece by piece
_IN_MEMORY_BYTES = 512 << 20  # of their rows: snapshots that differ little take a hundredth of it on the disk
_BATCH_ROWS = 4096
_UPDATES = ["document_id", "accepted_ns", "epoch", "sequence", "generation", "log_id", "digest", "digest_ok"]
_EVENTS = [
    "document_id",
    "kind",
    "accepted_ns",
    "epoch",
    "sequence",
    "generation",
    "digest",
    "bytes",
    "vector",
]


def bucket_rows(
    files: Files,
    updates: Sequence[DataFile],
    events: Sequence[DataFile],
    *,
    documents: Sequence[str] | None = None,
    spans: bool = False,
) -> Iterator[pa.RecordBatch]:
    """What the fold needs of every record of the bucket, or of some documents."""
    wanted = None if documents is None else pa.array(sorted(documents), pa.string())
    schema = INPUT if spans else INPUT.remove(INPUT.get_field_index("spans"))
    found = [("updates", file) for file in updates] + [("events", file) for file in events]
    pieces = [partial(_pieces, files, name, file, schema, wanted) for name, file in found]
    if sum(file.bytes for _, file in found) <= _AT_ONCE_BYTES:
        tables = _at_once(chain.from_iterable(piece() for piece in pieces))
        if tables is not None:
            yield from _sorted(tables)
            return
    runs = [_runs(piece()) for piece in pieces]
    for _, rows in merge(*runs, key=lambda run: run[0]):
        yield from rows.to_batches(max_chunksize=_BATCH_ROWS)


def _at_once(pieces: Iterator[pa.Table]) -> list[pa.Table] | None:
    """All of them; None if they are more than may be held."""
    tables: list[pa.Table] = []
    size = 0
    for table in pieces:
        size += table.nbytes
        if size > _IN_MEMORY_BYTES:
            return None
        tables.append(table)
    return tables


def _sorted(tables: list[pa.Table]) -> Iterator[pa.RecordBatch]:
    if tables:
        rows = pa.concat_tables(tables)
        keys = [("document_id", "ascending"), ("accepted_ns", "ascending")]
        rows = rows.take(pc.sort_indices(rows, sort_keys=keys))
        yield from rows.to_batches(max_chunksize=_BATCH_ROWS)


def _pieces(
    files: Files, name: str, file: DataFile, schema: pa.Schema, wanted: pa.Array | None
) -> Iterator[pa.Table]:
    """A file's row groups in the fold's own form."""
    columns = [*_UPDATES, "bytes", "payload"] if name == "updates" else [*_EVENTS, "content"]
    if name == "updates" and "spans" in schema.names:
        columns.append("spans")
    for group in parquet.groups(files, name, file, columns):
        rows = group if wanted is None else group.filter(pc.is_in(group["document_id"], wanted))
        if rows.num_rows:
            yield formed(name, rows, schema)


def formed(name: str, rows: pa.Table, schema: pa.Schema = INPUT) -> pa.Table:
    """Rows of `updates` or `events` in the fold's own form."""
    if name == "updates":
        rows = rows.append_column("kind", pa.repeat(pa.scalar("update", pa.string()), rows.num_rows))
    else:
        rows = rows.rename_columns({"content": "payload"})
    there = set(rows.column_names)
    columns = [
        rows[field.name].cast(field.type) if field.name in there else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _runs(pieces: Iterator[pa.Table]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of one document after another, of one sorted file."""
    for piece in pieces:
        runs = pc.run_end_encode(piece["document_id"].combine_chunks())
        if isinstance(runs, pa.ChunkedArray):
            runs = runs.combine_chunks()
        start = 0
        for document_id, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield document_id, piece.slice(start, end - start)
            start = end
