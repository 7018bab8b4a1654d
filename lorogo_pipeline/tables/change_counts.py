"""Count the changes of many updates from their bytes, without decoding them.

`crdt.change_count` costs more than everything else that ingest does with an update. An update begins with
22 bytes (magic, checksum, mode); blocks follow, each with its length and, among its first numbers, its
number of changes (all numbers are varints):

    "loro"  16 bytes  00 04  (length  first-counter counters first-lamport lamports CHANGES  more bytes)*

Loro counts everything else: other modes, and updates whose last block does not end with the update. Both
ways agree on bytes that Loro wrote. Only Loro can detect damaged or forged bytes, so the caller marks the
updates that are `accepted`: byte for byte what a server accepted.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lorogo_protocol.loro import crdt

_MARK = int.from_bytes(b"loro")
_MODE = 4  # updates, not a snapshot
_MODE_AT = 20
_BLOCKS_AT = 22
_BEFORE = 4  # numbers of a block before its number of changes
_ROOM = 64  # padding: a length and five numbers of at most 10 bytes each
_STOPS = np.uint64(0x8080808080808080)
_ONE, _SEVEN = np.uint64(1), np.uint64(7)


def change_counts(updates: pa.BinaryArray, accepted: np.ndarray) -> pa.Array:
    """Return the number of changes of each update; null if it does not decode."""
    counts, sure = _counted(updates)
    sure &= accepted
    found = pa.array(counts)
    if sure.all():
        return found
    unsure = np.flatnonzero(~sure)
    asked = pa.array([crdt.change_count(updates[place].as_py()) for place in unsure.tolist()], pa.int64())
    places = np.arange(len(counts))
    places[unsure] = len(counts) + np.arange(len(unsure))
    return pa.concat_arrays([found, asked]).take(pa.array(places))


def _counted(updates: pa.BinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts, and a mask of the rows with an exact count."""
    count = len(updates)
    _, offsets, data = updates.buffers()
    ends = np.frombuffer(offsets, np.int32, count + 1, updates.offset * 4).astype(np.int64)
    first, size = int(ends[0]), int(ends[-1] - ends[0])
    room = np.empty(size + _BLOCKS_AT + _ROOM, np.uint8)
    room[size:] = 0
    if size:
        room[:size] = np.frombuffer(data, np.uint8, size, first)
    at, end = ends[:-1] - first, ends[1:] - first
    words = np.ndarray(len(room) - 7, "<u8", room, 0, (1,))  # the eight bytes at each offset
    marks = np.ndarray(len(room) - 3, ">u4", room, 0, (1,))
    modes = np.ndarray(len(room) - 1, ">u2", room, 0, (1,))
    sure = (end - at > _BLOCKS_AT) & (marks[at] == _MARK) & (modes[at + _MODE_AT] == _MODE)
    counts = np.zeros(count, np.int64)
    rows = np.flatnonzero(sure)
    at = at[rows] + _BLOCKS_AT
    while len(rows):
        length, at, good = _varint(words, at)
        after = at + np.where(good, length, 0)
        for _ in range(_BEFORE):
            _, at, fine = _varint(words, at)
            good &= fine
        changes, at, fine = _varint(words, at)
        good &= fine & (at <= after) & (after <= end[rows])
        counts[rows] += np.where(good, changes, 0)
        sure[rows] &= good
        more = good & (after < end[rows])
        rows, at = rows[more], after[more]
    return counts, sure


def _varint(words: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the number at each offset, the offset behind it, and a mask of numbers of at most four bytes."""
    word = words[at].astype(np.uint64)
    stops = ~word & _STOPS
    size = (np.bitwise_count((stops & -stops) - _ONE) >> 3) + 1
    value = word & np.uint64(0x7F)
    for byte in range(1, 4):
        wide = size > byte
        if not wide.any():
            break
        part = (word >> np.uint64(8 * byte)) & np.uint64(0x7F)
        value |= np.where(wide, part << (_SEVEN * np.uint64(byte)), np.uint64(0))
    return value.astype(np.int64), at + size, size <= 4
