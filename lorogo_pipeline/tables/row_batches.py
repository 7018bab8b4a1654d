"""Rows gathered into Arrow batches of a bounded size."""

from collections.abc import Mapping

import pyarrow as pa

ROWS_MAX = 4096
BYTES_MAX = 8 * 1024 * 1024

Row = Mapping[str, object]  # missing columns are null


class RowBatch:
    """Buffer rows for Spark: `add()` returns True when `take()` is due."""

    __slots__ = ("_bytes", "_rows", "_schema")

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[Row] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Row) -> bool:
        """Buffer a row; True when the batch is full."""
        self._rows.append(row)
        payload = row.get("payload")
        if isinstance(payload, bytes):
            self._bytes += len(payload)
        return len(self._rows) >= ROWS_MAX or self._bytes >= BYTES_MAX

    def take(self) -> pa.RecordBatch:
        """Return the buffered rows and start a new batch."""
        rows, self._rows, self._bytes = self._rows, [], 0
        arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
