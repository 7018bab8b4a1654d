"""Rows gathered into Arrow batches of a bounded size."""

from collections.abc import Mapping

import pyarrow as pa

ROWS_MAX = 4096
BYTES_MAX = 8 * 1024 * 1024

Row = Mapping[str, object]  # a column that is left out is null


class RowBatch:
    """Rows on their way to Spark: `add()` says when `take()` is due."""

    __slots__ = ("_bytes", "_columns", "_rows", "_schema")

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns: dict[str, list[object]] = {}
        self._clear()

    def __len__(self) -> int:
        return self._rows

    def add(self, row: Row) -> bool:
        """Keep a row; True when it is time to take them."""
        for name, values in self._columns.items():
            values.append(row.get(name))
        payload = row.get("payload")
        self._bytes += len(payload) if isinstance(payload, bytes) else 0
        self._rows += 1
        return self._rows >= ROWS_MAX or self._bytes >= BYTES_MAX

    def take(self) -> pa.RecordBatch:
        """What was kept; a new batch begins."""
        arrays = [pa.array(self._columns[field.name], field.type) for field in self._schema]
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _clear(self) -> None:
        self._columns = {name: [] for name in self._schema.names}
        self._rows = self._bytes = 0
