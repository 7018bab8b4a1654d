"""Read the records of one bucket, sorted by document, from the data files of two tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lorogo_pipeline.decode.replay import INPUT
from lorogo_pipeline.tables import parquet
from lorogo_pipeline.tables.files import LakeFiles
from lorogo_pipeline.tables.lake import DataFile

_BATCH_ROWS = 4096
_UPDATES = [
    "document_id",
    "accepted_ns",
    "epoch",
    "sequence",
    "generation",
    "term",
    "log_id",
    "digest",
    "digest_ok",
]
_EVENTS = [
    "document_id",
    "kind",
    "accepted_ns",
    "epoch",
    "sequence",
    "generation",
    "term",
    "digest",
    "bytes",
    "vector",
]


def bucket_rows(
    files: LakeFiles,
    updates: Sequence[DataFile],
    events: Sequence[DataFile],
    *,
    documents: Sequence[str] | None = None,
    spans: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the bucket, or of some documents, as the replay needs them."""
    wanted = None if documents is None else pa.array(sorted(documents), pa.string())
    schema = INPUT if spans else INPUT.remove(INPUT.get_field_index("spans"))
    found = [("updates", file) for file in updates] + [("events", file) for file in events]
    keys = [("document_id", "ascending"), ("accepted_ns", "ascending")]
    for rows in _side_by_side([_pieces(files, name, file, schema, wanted) for name, file in found]):
        ordered = rows if len(found) == 1 else rows.take(pc.sort_indices(rows, sort_keys=keys))
        yield from ordered.to_batches(max_chunksize=_BATCH_ROWS)


def _side_by_side(sources: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Merge sorted files piece by piece: all rows of a document are in one table.

    One piece of each file is in memory. Each step yields the rows up to the least of the pieces' last
    documents: rows behind it may still follow in another file.
    """
    held = [(piece, source) for source in sources if (piece := next(source, None)) is not None]
    while held:
        bound = min(piece["document_id"][-1].as_py() for piece, _ in held)
        given, left = [], []
        for piece, source in held:
            count = pc.sum(pc.less_equal(piece["document_id"], bound)).as_py()
            given.append(piece.slice(0, count))
            rest = piece.slice(count) if count < piece.num_rows else next(source, None)
            if rest is not None:
                left.append((rest, source))
        held = left
        yield pa.concat_tables(given).combine_chunks()


def _pieces(
    files: LakeFiles, name: str, file: DataFile, schema: pa.Schema, wanted: pa.Array | None
) -> Iterator[pa.Table]:
    """Yield a file's rows in the schema of the replay, piece by piece."""
    columns = [*_UPDATES, "bytes", "payload"] if name == "updates" else [*_EVENTS, "content"]
    if name == "updates" and "spans" in schema.names:
        columns.append("spans")
    for piece in parquet.pieces(files, name, file, columns):
        rows = piece if wanted is None else piece.filter(pc.is_in(piece["document_id"], wanted))
        if rows.num_rows:
            yield formed(name, rows, schema)


def formed(name: str, rows: pa.Table, schema: pa.Schema = INPUT) -> pa.Table:
    """Convert rows of `updates` or `events` to the schema of the replay."""
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
