"""A batch of records: encoded into a frame by the writer, decoded from one by a cursor.

`encode()` lays out the columns as Arrow does; `Batch` reads them in place: it copies only the requested
records, and `to_arrow()` copies nothing.
"""

from __future__ import annotations

import struct
import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack
from crc32c import crc32c

from lorogo_log import limits
from lorogo_log.errors import CorruptionError, TooLargeError
from lorogo_log.format.layout import (
    FRAME_HEADER_BYTES,
    SPARSE,
    TIME_MIN,
    ZSTD,
    Bytes,
    FrameHeader,
    padded,
)

if TYPE_CHECKING:
    import pyarrow as pa

assert array("i").itemsize == 4 and array("q").itemsize == 8 and struct.pack("=H", 1) == b"\x01\x00", (
    "lorogo_log runs on little-endian machines"
)
_ZEROS = bytes(8)
_unpack_offset = struct.Struct("<i").unpack_from
#: lengths of the keys, and of the values
Sizes = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A position to continue reading from: saved as text, parsed by `LogPosition.parse`.

    `batch.next` is the position behind a batch, `cursor.position` the current one.
    The sequence decides; segment and offset only save a search.
    """

    sequence: int
    segment: int = 0
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.sequence}:{self.segment}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        """Parse the text of a position. Raises ValueError."""
        if not isinstance(text, str):
            raise TypeError(f"a position must be parsed from a str, not {type(text).__name__}")
        parts = text.split(":")
        if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
            raise ValueError(f"{text[:60]!r} is not a position: save str(batch.next), such as '17:1:4096'")
        sequence, segment, offset = map(int, parts)
        return cls(sequence, segment, offset)


@dataclass(frozen=True, slots=True)
class Record:
    """One record, with its payload as stored."""

    sequence: int
    time: int
    key: bytes
    payload: bytes

    @property
    def value(self) -> Any:
        """The payload, decoded from msgpack."""
        try:
            return msgpack.unpackb(self.payload, strict_map_key=False)
        except TypeError:  # a tuple key was packed as a list, which is not hashable
            return msgpack.unpackb(self.payload, strict_map_key=False, object_pairs_hook=_with_tuples)


def _with_tuples(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Decode a map whose keys may be tuples."""
    return {_hashable(key): value for key, value in pairs}


def _hashable(key: Any) -> Any:
    return tuple(map(_hashable, key)) if isinstance(key, list) else key


def pad(size: int) -> bytes:
    return _ZEROS[: -size % 8]


def encode_times(times: Sequence[int]) -> tuple[int, int, bytes]:
    """Return (least, greatest, column). Times are often equal, which is quicker to detect than to pack."""
    count = len(times)
    if not count:
        return TIME_MIN, TIME_MIN, b""
    if times.count(times[0]) == count:
        return times[0], times[0], struct.pack("<q", times[0]) * count
    return min(times), max(times), struct.pack(f"<{count}q", *times)


def encode_body(
    keys: Sequence[bytes],
    values: Sequence[bytes],
    times: bytes,
    sequences: Sequence[int] | None = None,
    sizes: Sizes | None = None,
) -> tuple[bytes, int]:
    """Return the columns as one value padded to 8, and their length without the final padding."""
    count = len(values)
    key_sizes, value_sizes = sizes or (list(map(len, keys)), list(map(len, values)))
    try:
        # struct takes an iterator's numbers faster than array does, and one join copies each byte once
        form = f"<{count + 1}i"
        key_offsets = struct.pack(form, *accumulate(key_sizes, initial=0))
        value_offsets = struct.pack(form, *accumulate(value_sizes, initial=0))
    except struct.error:
        raise TooLargeError(f"a batch of {count} records is above {limits.BODY_BYTES_MAX} bytes") from None
    key_bytes = int.from_bytes(key_offsets[-4:], "little")
    value_bytes = int.from_bytes(value_offsets[-4:], "little")
    gap = pad((count + 1) * 4)
    tail = pad(value_bytes)
    body = b"".join(
        (
            b"" if sequences is None else struct.pack(f"<{count}Q", *sequences),
            times,
            key_offsets,
            gap,
            value_offsets,
            gap,
            *(keys if key_bytes else ()),
            pad(key_bytes),
            *values,
            tail,
        )
    )
    return body, len(body) - len(tail)


@dataclass(frozen=True, slots=True)
class EncodedFrame:
    """A frame ready to be written (header and padded body), and the facts that the writer keeps."""

    parts: tuple[Bytes, Bytes]
    header: FrameHeader

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)


def encode(
    keys: Sequence[bytes],
    values: Sequence[bytes],
    times: Sequence[int],
    *,
    first_sequence: int,
    epoch: int,
    offset: int,
    chain: int,
    sequences: Sequence[int] | None = None,
    last_sequence: int | None = None,
    sizes: Sizes | None = None,
) -> EncodedFrame:
    """Encode a whole frame. `sequences` only if they are not dense (after cleaning); `sizes` if known."""
    count = len(values)
    low, high, column = encode_times(times)
    body, body_bytes = encode_body(keys, values, column, sequences, sizes) if count else (b"", 0)
    if body_bytes > limits.BODY_BYTES_MAX:
        raise TooLargeError(f"a batch of {count} records is above {limits.BODY_BYTES_MAX} bytes")
    return frame(
        body,
        FrameHeader(
            flags=SPARSE if sequences is not None else 0,
            first_sequence=first_sequence,
            last_sequence=first_sequence + count - 1 if last_sequence is None else last_sequence,
            first_time=low,
            last_time=high,
            epoch=epoch,
            offset=offset,
            count=count,
            body_bytes=body_bytes,
            raw_bytes=body_bytes,
            body_checksum=crc32c(body),
            chain=chain,
        ),
    )


def frame(padded_body: Bytes, header: FrameHeader) -> EncodedFrame:
    """Return a frame of a body and a header whose own checksum is not computed yet."""
    packed = header.pack()
    own = int.from_bytes(packed[-4:], "little")
    return EncodedFrame((packed, padded_body), FrameHeader(*header[:-1], own))


def body_matches(header: FrameHeader, data: Bytes, at: int) -> bool:
    """Return True if the body of the frame at `at` is complete and matches its checksum."""
    start = at + FRAME_HEADER_BYTES
    end = start + padded(header.body_bytes)
    return end <= len(data) and crc32c(memoryview(data)[start:end]) == header.body_checksum


class Batch:
    """The records of one frame (or the chosen ones), in place.

    Its bytes are already verified.
    """

    __slots__ = ("_chosen", "_columns", "_stored", "header", "position", "segment")

    def __init__(
        self,
        header: FrameHeader,
        stored: memoryview,
        segment: int = 0,
        position: int = 0,
        chosen: range | list[int] | None = None,
    ) -> None:
        self.header = header
        self._stored = stored
        #: first sequence of the segment, and the frame's position in its file
        self.segment = segment
        self.position = position
        self._chosen = chosen
        self._columns: _Columns | None = None

    @property
    def chosen(self) -> range | list[int]:
        """The chosen rows."""
        return range(self.header.count) if self._chosen is None else self._chosen

    def __len__(self) -> int:
        return self.header.count if self._chosen is None else len(self._chosen)

    def __repr__(self) -> str:
        return f"Batch({self.header.first_sequence}..{self.header.last_sequence}, {len(self)} records)"

    @property
    def first_sequence(self) -> int:
        """The sequence of the first chosen record."""
        return self.columns.sequence(self.chosen[0])

    @property
    def last_sequence(self) -> int:
        """The sequence of the last chosen record."""
        return self.columns.sequence(self.chosen[-1])

    @property
    def stored(self) -> memoryview:
        """The frame's body as stored, padding included."""
        return self._stored

    @property
    def next(self) -> LogPosition:
        """The position behind this batch."""
        return LogPosition(
            self.header.last_sequence + 1, self.segment, self.position + self.header.frame_bytes
        )

    @property
    def columns(self) -> _Columns:
        """The columns of the body, decompressed if needed. Raises CorruptionError."""
        if self._columns is None:
            try:
                self._columns = _Columns(self.header, decompressed(self.header, self._stored))
            except ValueError as error:  # the checksums match: the writer wrote invalid columns
                where = f"the segment of record {self.segment}"
                raise CorruptionError(where, self.position, str(error)) from None
        return self._columns

    def select(self, rows: range | list[int]) -> Batch:
        """Return the same frame with only these rows."""
        batch = Batch(self.header, self._stored, segment=self.segment, position=self.position, chosen=rows)
        batch._columns = self._columns
        return batch

    def from_sequence(self, sequence: int) -> Batch:
        """Return only the rows at or after a sequence."""
        if sequence <= self.header.first_sequence:
            return self
        return self.select(range(self.columns.row_at(sequence), self.header.count))

    def from_time(self, time: int) -> Batch:
        """Return the rows from the first one at or after a time."""
        for row, when in enumerate(self.columns.times):
            if when >= time:
                return self.select(range(row, self.header.count)) if row else self
        return self.select([])

    def with_key(self, key: bytes) -> Batch:
        """Return only the rows with this key."""
        return self.select([row for row in self.columns.rows_of(key) if row in self.chosen])

    def record(self, row: int) -> Record:
        """Return the record in a row of the frame."""
        columns = self.columns
        return Record(columns.sequence(row), columns.times[row], columns.key(row), columns.value(row))

    def records(self) -> Iterator[Record]:
        """Yield the chosen records."""
        return map(self.record, self.chosen)

    def to_arrow(self) -> pa.RecordBatch:
        """Return sequence, time, key and value (msgpack) as Arrow columns, without copying bytes."""
        from lorogo_log.format.arrow import record_batch  # noqa: PLC0415 - pyarrow is optional and heavy

        return record_batch(self.header, self._stored, self.chosen)


def decompressed(header: FrameHeader, stored: memoryview) -> memoryview:
    """Return the body's columns, decompressed if needed. ValueError if they cannot be unpacked."""
    if not header.flags & ZSTD:
        return stored
    import zstandard  # noqa: PLC0415 - optional

    try:
        raw = zstandard.ZstdDecompressor().decompress(
            stored[: header.body_bytes], max_output_size=min(header.raw_bytes, limits.BODY_BYTES_MAX)
        )
    except zstandard.ZstdError as error:
        raise ValueError(f"the body cannot be unpacked: {error}") from None
    return memoryview(raw + pad(len(raw)))


class ColumnOffsets(NamedTuple):
    """Offsets of the columns of a body, and lengths of the last two."""

    sequences: int
    times: int
    key_offsets: int
    value_offsets: int
    keys: int
    values: int
    key_bytes: int
    value_bytes: int


def places(header: FrameHeader, body: memoryview) -> ColumnOffsets:
    """Return the column offsets of a frame with records; ValueError if they exceed the frame."""
    count = header.count
    times = 8 * count if header.flags & SPARSE else 0
    key_offsets = times + 8 * count
    offsets = padded(4 * (count + 1))
    value_offsets = key_offsets + offsets
    keys = value_offsets + offsets
    if keys > len(body):
        raise ValueError("the columns do not fit into the body")
    (key_bytes,) = _unpack_offset(body, key_offsets + 4 * count)
    (value_bytes,) = _unpack_offset(body, value_offsets + 4 * count)
    values = keys + padded(key_bytes)
    if key_bytes < 0 or value_bytes < 0 or values + value_bytes > len(body):
        raise ValueError("the columns do not fit into the body")
    return ColumnOffsets(0, times, key_offsets, value_offsets, keys, values, key_bytes, value_bytes)


class _Columns:
    """The columns of a body, by their offsets."""

    __slots__ = (
        "count",
        "first_sequence",
        "key_offsets",
        "keys",
        "sequences",
        "times",
        "value_offsets",
        "values",
    )

    def __init__(self, header: FrameHeader, body: memoryview) -> None:
        count = header.count
        self.count = count
        self.first_sequence = header.first_sequence
        self.sequences: memoryview | None = None
        if not count:
            empty = memoryview(b"")
            self.times = empty.cast("q")
            self.key_offsets = self.value_offsets = memoryview(bytes(4)).cast("i")
            self.keys = self.values = empty
            return
        at = places(header, body)
        if header.flags & SPARSE:
            self.sequences = body[at.sequences : at.times].cast("Q")
        offsets = 4 * (count + 1)
        self.times = body[at.times : at.key_offsets].cast("q")
        self.key_offsets = body[at.key_offsets : at.key_offsets + offsets].cast("i")
        self.value_offsets = body[at.value_offsets : at.value_offsets + offsets].cast("i")
        self.keys = body[at.keys : at.keys + at.key_bytes]
        self.values = body[at.values : at.values + at.value_bytes]

    def sequence(self, row: int) -> int:
        return self.first_sequence + row if self.sequences is None else self.sequences[row]

    def key(self, row: int) -> bytes:
        return bytes(self.keys[self.key_offsets[row] : self.key_offsets[row + 1]])

    def value(self, row: int) -> bytes:
        return bytes(self.values[self.value_offsets[row] : self.value_offsets[row + 1]])

    def row_at(self, sequence: int) -> int:
        """Return the first row at or after a sequence (`count` if there is none)."""
        if self.sequences is None:
            return min(max(0, sequence - self.first_sequence), self.count)
        return bisect_left(self.sequences, sequence)

    def row_of(self, sequence: int) -> int | None:
        row = self.row_at(sequence)
        return row if row < self.count and self.sequence(row) == sequence else None

    def rows_of(self, key: bytes) -> Iterator[int]:
        """Return the rows with this key, found by searching the key column's bytes."""
        if not key:
            offsets = self.key_offsets
            yield from (row for row in range(self.count) if offsets[row] == offsets[row + 1])
            return
        haystack = bytes(self.keys)
        offsets = self.key_offsets
        at = haystack.find(key)
        while at >= 0:
            row = bisect_left(offsets, at + 1) - 1
            if offsets[row] == at and offsets[row + 1] == at + len(key):
                yield row
            at = haystack.find(key, at + 1)

    def distinct_keys(self) -> set[bytes]:
        keys = bytes(self.keys)
        offsets = self.key_offsets.tolist()
        return {keys[a:b] for a, b in pairwise(offsets)}


_PACKED_BYTES_KEPT = 64 * 1024
_per_thread = threading.local()  # one packer per thread


def pack_value(value: Any) -> bytes:
    """Encode a value as msgpack."""
    try:
        packer = _per_thread.packer
    except AttributeError:
        packer = _per_thread.packer = msgpack.Packer(use_bin_type=True)  # creating one is expensive
    packed: bytes = b""
    try:
        packed = packer.pack(value)
        return packed
    finally:
        if not packed or len(packed) > _PACKED_BYTES_KEPT:
            del _per_thread.packer  # it may hold half a value, or much memory


def pack_values(values: Iterable[Any]) -> list[bytes]:
    """Encode values as msgpack, with one packer."""
    pack = msgpack.Packer(use_bin_type=True).pack
    return list(map(pack, values))
