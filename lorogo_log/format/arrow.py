"""Columns of batches as Arrow arrays. The only module that imports pyarrow.

The columns of a frame are Arrow columns already: `record_batch()` copies nothing. For many small frames the
arrays cost more than the bytes: `record_batches()` joins their columns first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lorogo_log import limits
from lorogo_log.errors import LogError
from lorogo_log.format.batch import decompressed, places
from lorogo_log.format.layout import SPARSE, FrameHeader

if TYPE_CHECKING:
    from lorogo_log.format.batch import Batch

SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.uint64(), nullable=False),
        pa.field("time", pa.timestamp("ns", tz="UTC"), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
_UINT64, _TIME, _BINARY, _INT32 = pa.uint64(), pa.timestamp("ns", tz="UTC"), pa.binary(), pa.int32()
_buffer, _array, _batch = pa.py_buffer, pa.Array.from_buffers, pa.RecordBatch.from_arrays
_int32 = struct.Struct("<i").pack


def record_batch(header: FrameHeader, stored: memoryview, chosen: range | list[int]) -> pa.RecordBatch:
    """Return the chosen rows of a frame: a range is a slice without a copy, a list of rows is copied."""
    count = header.count
    if not count:
        return pa.RecordBatch.from_pylist([], schema=SCHEMA)
    body = decompressed(header, stored)
    at = places(header, body)
    piece = _buffer(body).slice
    offsets = 4 * (count + 1)
    if header.flags & SPARSE:
        sequences = _array(_UINT64, count, [None, piece(0, 8 * count)])
    else:
        sequences = _sequences(header.first_sequence, count)
    keys = piece(at.keys, at.key_bytes) if at.key_bytes else _NOTHING
    values = piece(at.values, at.value_bytes) if at.value_bytes else _NOTHING
    batch = _batch(
        [
            sequences,
            _array(_TIME, count, [None, piece(at.times, 8 * count)]),
            _array(_BINARY, count, [None, piece(at.key_offsets, offsets), keys]),
            _array(_BINARY, count, [None, piece(at.value_offsets, offsets), values]),
        ],
        schema=SCHEMA,
    )
    if isinstance(chosen, range):
        return batch if len(chosen) == count else batch.slice(chosen.start, len(chosen))
    return batch.take(pa.array(chosen, pa.int64()))


def record_batches(
    batches: Iterable[Batch], *, join_bytes: int = limits.READ_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the same records in fewer batches: small frames are joined up to about `join_bytes`.

    At damage, the records before it are yielded first.
    """
    large = max(limits.ARROW_JOIN_BYTES, join_bytes // 16)
    group: list[Batch] = []
    size = 0
    try:
        for batch in batches:
            header = batch.header
            if not header.count:
                continue  # an empty frame only makes an epoch, or the log's id, durable
            if header.raw_bytes >= large or len(batch) != header.count:
                if group:
                    yield joined(group)
                    group, size = [], 0
                yield batch.to_arrow()
                continue
            group.append(batch)
            size += header.raw_bytes
            if size >= join_bytes:
                yield joined(group)
                group, size = [], 0
    except LogError:
        if group:
            yield joined(group)
        raise
    if group:
        yield joined(group)


def joined(batches: Sequence[Batch]) -> pa.RecordBatch:
    """Join whole frames: concatenate each column's bytes, and shift the offsets."""
    sequences: list[pa.Array] = []
    times: list[memoryview] = []
    key_offsets: list[memoryview | bytes] = []
    value_offsets: list[memoryview | bytes] = []
    key_bases: list[bytes] = []
    value_bases: list[bytes] = []
    keys: list[memoryview] = []
    values: list[memoryview] = []
    key_bytes = value_bytes = total = 0
    run_first = run_next = -1  # a run of consecutive sequences spans frames
    for batch in batches:
        header = batch.header
        count = header.count
        body = decompressed(header, batch.stored)
        _, time, key_offset, value_offset, key, value, key_size, value_size = at = places(header, body)
        if header.flags & SPARSE or header.first_sequence != run_next:
            if run_next != run_first:
                sequences.append(_sequences(run_first, run_next - run_first))
            run_first = run_next = header.first_sequence
        if header.flags & SPARSE:
            sequences.append(_array(_UINT64, count, [None, _buffer(body[at.sequences : time])]))
            run_first = run_next = -1
        else:
            run_next += count
        times.append(body[time : time + 8 * count])
        key_offsets.append(body[key_offset : key_offset + 4 * count])
        value_offsets.append(body[value_offset : value_offset + 4 * count])
        key_bases.append(_int32(key_bytes) * count)
        value_bases.append(_int32(value_bytes) * count)
        keys.append(body[key : key + key_size])
        values.append(body[value : value + value_size])
        key_bytes += key_size
        value_bytes += value_size
        total += count
    if run_next != run_first:
        sequences.append(_sequences(run_first, run_next - run_first))
    return _batch(
        [
            sequences[0] if len(sequences) == 1 else pa.concat_arrays(sequences),
            _array(_TIME, total, [None, _buffer(b"".join(times))]),
            _moved(total, key_offsets, key_bases, key_bytes, keys),
            _moved(total, value_offsets, value_bases, value_bytes, values),
        ],
        schema=SCHEMA,
    )


def _moved(
    total: int, offsets: list[memoryview | bytes], bases: list[bytes], size: int, data: list[memoryview]
) -> pa.Array:
    """Return a binary column of many frames: each offset shifted by its frame's base."""
    offsets.append(_int32(size))
    bases.append(_int32(0))
    moved = pc.add(
        _array(_INT32, total + 1, [None, _buffer(b"".join(offsets))]),
        _array(_INT32, total + 1, [None, _buffer(b"".join(bases))]),
    )
    return _array(_BINARY, total, [None, moved.buffers()[1], _buffer(b"".join(data))])


def _sequences(first: int, count: int) -> pa.Array:
    return pa.arange(first, first + count).view(_UINT64)


_NOTHING = pa.py_buffer(b"")
