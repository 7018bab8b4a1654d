"""Columns of a batch as Arrow arrays over the same bytes. The only file that imports pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lorogo_log.format import FrameHeader

if TYPE_CHECKING:
    from lorogo_log.batch import _Columns

SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.uint64(), nullable=False),
        pa.field("time", pa.timestamp("ns", tz="UTC"), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
_UINT64, _TIME, _BINARY = pa.uint64(), pa.timestamp("ns", tz="UTC"), pa.binary()
_buffer, _array = pa.py_buffer, pa.Array.from_buffers


def record_batch(columns: _Columns, header: FrameHeader, chosen: range | list[int]) -> pa.RecordBatch:
    """The chosen rows. A range is a slice of the frame's bytes; a list of rows is taken (copied)."""
    count = header.count
    if columns.sequences is None:
        first = header.first_sequence
        sequences = pa.arange(first, first + count).view(_UINT64)
    else:
        sequences = _array(_UINT64, count, [None, _buffer(columns.sequences)])
    batch = pa.RecordBatch.from_arrays(
        [
            sequences,
            _array(_TIME, count, [None, _buffer(columns.times)]),
            _array(_BINARY, count, [None, _buffer(columns.key_offsets), _buffer(columns.keys)]),
            _array(_BINARY, count, [None, _buffer(columns.value_offsets), _buffer(columns.values)]),
        ],
        schema=SCHEMA,
    )
    if isinstance(chosen, range):
        return batch if len(chosen) == count else batch.slice(chosen.start, len(chosen))
    return batch.take(pa.array(chosen, pa.int64()))
