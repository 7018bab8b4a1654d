"""The trailer of a sealed segment: an index by sequence, time and key, built frame by frame."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from crc32c import crc32c

from lorogo_log import limits
from lorogo_log.format.batch import pad
from lorogo_log.format.layout import (
    SEGMENT_HEADER_BYTES,
    TIME_MIN,
    TRAILER_MAGIC,
    Bytes,
    Footer,
    FrameHeader,
    SegmentHeader,
    padded,
)


def key_hash(key: bytes) -> int:
    """Return the compact hash of a key in the postings."""
    return crc32c(key)


class IndexBuilder:
    """Collects each frame as it is written, and returns the trailer at the end.

    Each commit does a part of the work (a few microseconds), so sealing computes nothing: a long computation
    in a background thread would hold the interpreter lock and delay appends.
    """

    def __init__(self, high_time: int = TIME_MIN) -> None:
        self.positions = array("Q")
        self.sequences = array("Q")
        self._times = array("q")
        self._records = array("Q")
        self._counts = array("I")
        self._hashes = array("I")
        self._keys: set[bytes] = set()
        self._block_records = 0
        self._open = False
        self.high_time = high_time
        self.records = 0
        self.frames = 0
        self.first_time = (1 << 63) - 1
        self.last_time = TIME_MIN
        self.epoch = 0

    def add(self, position: int, header: FrameHeader, keys: Collection[bytes]) -> None:
        """Add a frame at a file position, and its keys."""
        if not self._open:
            self._open = True
            self.positions.append(position)
            self.sequences.append(header.first_sequence)
        count = header.count
        self._keys.update(keys)
        self._block_records += count
        self.records += count
        self.frames += 1
        self.epoch = max(self.epoch, header.epoch)
        if count:
            self.first_time = min(self.first_time, header.first_time)
            self.last_time = max(self.last_time, header.last_time)
            self.high_time = max(self.high_time, header.last_time)
        if position + header.frame_bytes - self.positions[-1] >= limits.BLOCK_BYTES:
            self._close_block()

    def _close_block(self) -> None:
        self._keys.discard(b"")
        hashes = sorted(set(map(crc32c, self._keys)))
        self._times.append(self.high_time)
        self._records.append(self._block_records)
        self._counts.append(len(hashes))
        self._hashes.extend(hashes)
        self._keys.clear()
        self._block_records = 0
        self._open = False

    def trailer(self) -> bytes:
        """Return the trailer without the footer."""
        if self._open:
            self._close_block()
        rows = array("Q", bytes(32 * len(self.positions)))
        rows[0::4] = self.positions
        rows[1::4] = self.sequences
        rows[2::4] = array("Q", self._times.tobytes())
        rows[3::4] = self._records
        counts, hashes = self._counts.tobytes(), self._hashes.tobytes()
        return b"".join((TRAILER_MAGIC, rows.tobytes(), counts, pad(len(counts)), hashes, pad(len(hashes))))

    def footer(
        self,
        header: SegmentHeader,
        trailer: bytes,
        *,
        position: int,
        last_sequence: int,
        end_offset: int,
        chain_out: int,
        digest: bytes,
        flags: int = 0,
    ) -> Footer:
        """Return the footer of this trailer."""
        return Footer(
            trailer_position=position,
            trailer_bytes=len(trailer),
            first_sequence=header.first_sequence,
            last_sequence=last_sequence,
            first_time=self.first_time if self.records else TIME_MIN,
            last_time=self.last_time,
            records=self.records,
            frames=self.frames,
            blocks=len(self.positions),
            postings=len(self._hashes),
            epoch=max(self.epoch, header.epoch),
            end_offset=end_offset,
            chain_out=chain_out,
            flags=flags,
            digest=digest,
            trailer_checksum=crc32c(trailer),
            high_time=self.high_time,
        )


def _check(positions: Sequence[int], counts: Sequence[int], hashes: bytes, footer: Footer) -> None:
    """Raise ValueError for an invalid index. Its checksum matches, so the writer wrote it wrong."""
    blocks = footer.blocks
    if (
        not len(positions) == len(counts) == blocks
        or not len(hashes) == 4 * sum(counts) == 4 * footer.postings
    ):
        raise ValueError("the trailer contradicts its footer")
    places = [SEGMENT_HEADER_BYTES - 1, *positions, footer.trailer_position]
    if not all(before < place for before, place in pairwise(places)):
        raise ValueError("the trailer has positions outside the segment")


class Index:
    """A decoded trailer."""

    def __init__(self, trailer: Bytes, footer: Footer) -> None:
        if len(trailer) != footer.trailer_bytes or crc32c(trailer) != footer.trailer_checksum:
            raise ValueError("the trailer does not match its checksum")
        if trailer[:8] != TRAILER_MAGIC:
            raise ValueError("no trailer at the footer's position")
        blocks = footer.blocks
        view = memoryview(trailer)[8:]
        rows = array("Q", bytes(view[: 32 * blocks]))
        self.end = footer.trailer_position
        self.positions = rows[0::4]
        self.sequences = rows[1::4]
        self.times = array("q", rows[2::4].tobytes())
        self.records = rows[3::4]
        at = 32 * blocks
        self._counts = array("I", bytes(view[at : at + 4 * blocks]))
        at += padded(4 * blocks)
        self._hashes = bytes(view[at : at + 4 * footer.postings])
        _check(self.positions, self._counts, self._hashes, footer)

    def at_sequence(self, sequence: int) -> int:
        """Return the position of the block that holds a sequence (the first block if it is before all)."""
        block = bisect_right(self.sequences, sequence) - 1
        return self.positions[max(0, block)] if self.positions else self.end

    def at_time(self, time: int) -> int:
        """Return the position of the block with the first record at or after a time, or the end."""
        block = bisect_left(self.times, time)
        return self.positions[block] if block < len(self.positions) else self.end

    def with_key(self, key: bytes) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of each block that may hold the key, in order."""
        starts = array("Q", [0])
        for count in self._counts:
            starts.append(starts[-1] + count)
        needle = key_hash(key).to_bytes(4, "little")
        at = self._hashes.find(needle)
        while at >= 0:
            if at % 4 == 0:
                block = bisect_right(starts, at // 4) - 1
                after = block + 1
                end = self.positions[after] if after < len(self.positions) else self.end
                yield self.positions[block], end
            at = self._hashes.find(needle, at + 1)
