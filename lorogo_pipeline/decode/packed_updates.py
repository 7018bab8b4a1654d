"""Parse a column of msgpack update records field by field, all rows at once.

Python objects for each record would cost more than everything else that ingest does (docs/decisions/0013).
A row in any other form than this version's servers write is left to the record-by-record parser (records.py):
another kind or layout, more fields, numbers below zero or above 63 bits, empty spans.

    9b  a1 'u'  02   epoch sequence   log id  digest   lease generation   9n (93 peer first end)*
    payload  term
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lorogo_protocol.journal.records import LAYOUT

_HEAD = int.from_bytes(bytes([0x9B, 0xA1, ord("u"), LAYOUT]))
_SPANS_MAX = 15  # of a fixarray
_SPAN = 0x93
_INT_MAX = np.uint64((1 << 63) - 1)
#: padding: how far a reader can pass the end of a value before the row is rejected
_BEHIND = 4 + 2 * 9 + 2 * (2 + 255) + 2 * 9 + 1 + _SPANS_MAX * 28 + 5 + 257 + 8

# By the first byte of a packed value: the number of bytes of its number or length that follow. 9: another
# type.
_NO = 9
_UINT_BYTES = np.full(256, _NO, np.uint8)
_UINT_BYTES[:0x80] = 0
_UINT_BYTES[[0xCC, 0xCD, 0xCE, 0xCF]] = [1, 2, 4, 8]
_STR_BYTES = np.full(256, _NO, np.uint8)
_STR_BYTES[0xA0:0xC0] = 0
_STR_BYTES[0xD9] = 1
_BIN_BYTES = np.full(256, _NO, np.uint8)
_BIN_BYTES[[0xC4, 0xC5, 0xC6]] = [1, 2, 4]


@dataclass(slots=True)
class PackedUpdates:
    """The fields of update records; numbers are signed, texts are not checked for UTF-8."""

    epoch: np.ndarray
    sequence: np.ndarray
    log_id: pa.BinaryArray
    digest: pa.BinaryArray
    lease: np.ndarray
    generation: np.ndarray
    span_offsets: np.ndarray
    peers: np.ndarray  # unsigned
    firsts: np.ndarray
    ends: np.ndarray
    payload: pa.BinaryArray
    term: pa.BinaryArray


def read(values: pa.BinaryArray) -> tuple[PackedUpdates, np.ndarray]:
    """Return the update records among the values, and their row numbers."""
    reader = _Reader(values)
    reader.expect(_HEAD)
    epoch, sequence = reader.uint(), reader.uint()
    log_id, digest = reader.text(), reader.text()
    lease, generation = reader.uint(), reader.uint()
    counts, spans = reader.spans()
    payload = reader.content(_BIN_BYTES)
    term = reader.text()
    rows = reader.finish()
    whole = len(rows) == len(values)

    def chosen(column: np.ndarray) -> np.ndarray:
        return (column if whole else column[rows]).view(np.int64)

    span_counts = counts if whole else counts[rows]
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(span_counts, out=offsets[1:])
    peers, firsts, ends = _by_row(spans, rows, offsets)
    return PackedUpdates(
        chosen(epoch),
        chosen(sequence),
        reader.pieces(log_id, rows),
        reader.pieces(digest, rows),
        chosen(lease),
        chosen(generation),
        offsets,
        peers,
        firsts.view(np.int64),
        ends.view(np.int64),
        reader.pieces(payload, rows),
        reader.pieces(term, rows),
    ), rows


_Piece = tuple[np.ndarray, np.ndarray]  # start and end offsets
_Span = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # rows, peers, firsts, ends


class _Reader:
    """The parse position of every row, and a mask of valid rows."""

    def __init__(self, values: pa.BinaryArray) -> None:
        count = len(values)
        _, offsets, data = values.buffers()
        at = np.frombuffer(offsets, np.int32, count + 1, values.offset * 4).astype(np.int64)
        first, last = int(at[0]), int(at[-1])
        room = np.empty(last - first + _BEHIND, np.uint8)
        room[last - first :] = 0
        if last > first:
            room[: last - first] = np.frombuffer(data, np.uint8, last - first, first)
        self._bytes = room
        size = len(room) - 7
        self._words = np.ndarray(size, ">u8", room, 0, (1,))  # the eight bytes at each offset
        self._at = at[:-1] - first
        self._end = at[1:] - first
        self._good = np.ones(count, bool)

    def expect(self, head: int) -> None:
        """Check the first four bytes of each row."""
        self._good &= self._words[self._at] >> np.uint64(32) == head
        self._at = self._at + 4

    def uint(self) -> np.ndarray:
        value, self._at, good = self._uint(self._at)
        self._good &= good
        self._good &= value <= _INT_MAX
        return value

    def text(self) -> _Piece:
        """Read a text of at most 255 bytes."""
        return self.content(_STR_BYTES)

    def content(self, sizes: np.ndarray) -> _Piece:
        """Read a value with a length prefix."""
        tag = self._bytes[self._at]
        size = sizes[tag]
        length = np.where(size == _NO, 0, self._number(self._at + 1, size))
        if sizes is _STR_BYTES:
            length = np.where(size == 0, tag & 0x1F, length)
        start = self._at + 1 + size
        end = start + length.astype(np.int64)
        self._good &= size != _NO
        self._good &= end <= self._end
        self._at = np.minimum(end, self._end)
        return start, self._at

    def spans(self) -> tuple[np.ndarray, list[_Span]]:
        """Return the number of spans of each row, and the first spans of all rows, the second spans, ..."""
        tag = self._bytes[self._at]
        self._good &= tag >> 4 == 0x9
        counts = np.where(self._good, tag & 0x0F, 0)
        self._at = self._at + 1
        found: list[_Span] = []
        for number in range(int(counts.max(initial=0))):
            rows = np.flatnonzero(counts > number)
            at = self._at[rows]
            good = self._bytes[at] == _SPAN
            peers, at, fine = self._uint(at + 1)
            good &= fine
            firsts, at, fine = self._uint(at)
            good &= fine
            ends, at, fine = self._uint(at)
            good &= fine & (firsts < ends) & (ends <= _INT_MAX)
            self._at[rows] = at
            self._good[rows] &= good
            found.append((rows, peers, firsts, ends))
        return counts, found

    def finish(self) -> np.ndarray:
        """Return the rows that are valid up to their end."""
        self._good &= self._at == self._end
        return np.flatnonzero(self._good)

    def pieces(self, piece: _Piece, rows: np.ndarray) -> pa.BinaryArray:
        """Return the pieces of these rows as a column: slice at all offsets, then take every second slice."""
        count = len(rows)
        offsets = np.zeros(2 * count + 1, np.int32)
        offsets[0:-1:2], offsets[1::2] = (side[rows] for side in piece)
        offsets[-1] = offsets[-2] if count else 0
        both = pa.BinaryArray.from_buffers(
            pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(self._bytes)]
        )
        return both.take(pa.array(np.arange(0, 2 * count, 2)))

    def _uint(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        tag = self._bytes[at]
        size = _UINT_BYTES[tag]
        value = np.where(size == 0, tag, self._number(at + 1, size))
        good = size != _NO
        return value, at + 1 + np.where(good, size, 0), good

    def _number(self, at: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Read a big-endian number of 1 to 8 bytes; undefined for other sizes."""
        shift = (64 - (size.astype(np.uint64) << np.uint64(3))) & np.uint64(63)
        number: np.ndarray = self._words[at].astype(np.uint64) >> shift
        return number


def _by_row(spans: list[_Span], rows: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return peers, firsts and ends of the valid rows, row by row."""
    total = int(offsets[-1])
    if len(spans) == 1 and len(rows) == len(spans[0][0]) == total:
        return spans[0][1:]
    columns = tuple(np.zeros(total, np.uint64) for _ in range(3))
    place_of = np.full(int(max((span[0].max() for span in spans), default=-1)) + 1, -1)
    place_of[rows[rows < len(place_of)]] = offsets[:-1][rows < len(place_of)]
    for number, (of, *found) in enumerate(spans):
        places = place_of[of]
        good = places >= 0
        for column, values in zip(columns, found, strict=True):
            column[places[good] + number] = values[good]
    return columns
