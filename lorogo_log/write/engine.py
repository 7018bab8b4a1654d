"""The writer's disk operations: prepare, commit, swap, seal. No queue, no policy, no threads.

`prepare()` and `seal()` run in the background: the writer waits for them only if it is faster than the disk.
A simulation calls all of them in order, in one thread.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import xxhash

from lorogo_log import limits
from lorogo_log.errors import StaleEpochError
from lorogo_log.format.batch import EncodedFrame, Sizes, encode
from lorogo_log.format.index import IndexBuilder
from lorogo_log.format.layout import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    TIME_MIN,
    Bytes,
    FrameHeader,
    SegmentHeader,
)
from lorogo_log.format.names import prepared_name, segment_name
from lorogo_log.storage.disk import Directory, DiskFull, File, full_or, write_all
from lorogo_log.storage.segment import digest_of

_ZEROS = bytes(limits.AHEAD_BYTES)


@dataclass(slots=True)
class LogHead:
    """The end of the log, which the next frame must continue."""

    next_sequence: int = 1
    end_offset: int = 0
    chain: int = 0
    epoch: int = 0
    high_time: int = TIME_MIN


class OpenSegment:
    """A file being written: prepared, then active, then waiting for its seal."""

    def __init__(self, file: File, name: str, filled: int) -> None:
        self.file = file
        self.name = name
        self.header: SegmentHeader | None = None
        self.index = IndexBuilder()
        self.position = 0
        self.last_sequence = 0
        self.end_offset = 0
        self.chain = 0
        self.frame_bytes = 0  # of the last frame
        self.filled = filled  # end of the prepared zeros
        self._hash = xxhash.xxh3_128()
        self._hashed = 0  # bytes included in the digest

    def hash(self, parts: Sequence[Bytes], start: int, end: int) -> None:
        """Add the written bytes to the digest, so that sealing need not read them again."""
        if self._hashed == start:
            for part in parts:
                self._hash.update(part)
            self._hashed = end

    def digest(self) -> bytes:
        """Return the digest up to the position; read back if this process did not write the whole segment."""
        if self._hashed == self.position:
            return self._hash.digest()
        return digest_of(self.file, self.position)

    def records(self) -> bool:
        """True if it has any record; empty frames do not count."""
        return self.header is not None and self.last_sequence >= self.header.first_sequence

    def claim(self, end: int) -> None:
        """Note that bytes are written up to `end`, over the prepared zeros."""
        self.filled = max(self.filled, end)


class SegmentAppender:
    """Writes to one active segment, with one prepared to follow it."""

    def __init__(
        self,
        directory: Directory,
        head: LogHead,
        *,
        log_id: bytes,
        partition: int = 0,
        segment_bytes: int = limits.SEGMENT_BYTES,
        ahead_bytes: int = limits.AHEAD_BYTES,
        monotonic: Callable[[], float] = clock.perf_counter,
    ) -> None:
        self.directory = directory
        self.head = head
        self.log_id = log_id
        self.partition = partition
        self.segment_bytes = segment_bytes
        self.ahead_bytes = min(ahead_bytes, segment_bytes, len(_ZEROS))
        self.sync_us_counts = [0] * 32  # syncs of commits, by duration: below 2**i microseconds
        self.sync_seconds = 0.0  # their sum
        self._monotonic = monotonic
        self._prepared = 0
        self.active = self.prepare()
        self.standby: OpenSegment | None = None

    # -- background ------------------------------------------------------------------------------

    def prepare(self) -> OpenSegment:
        """Create a file of zeros, synced with its directory entry, and with the last rename."""
        self._prepared += 1
        name = prepared_name(self._prepared)
        try:
            file = self.directory.create(name)
        except OSError as error:
            raise full_or(error, self._path(name)) from error
        try:
            if self.ahead_bytes:
                write_all(file, [_ZEROS[: self.ahead_bytes]], 0, self._path(name))
        except DiskFull:
            file.close()
            self.directory.remove(name)  # the next attempt creates another
            raise
        file.sync()
        self.directory.sync()
        return OpenSegment(file, name, self.ahead_bytes)

    def seal(self, segment: OpenSegment) -> None:
        """Write the trailer of a segment that gets no more frames, and cut the zeros behind it."""
        assert segment.header is not None
        trailer = segment.index.trailer()
        footer = segment.index.footer(
            segment.header,
            trailer,
            position=segment.position,
            # a segment with only an epoch uses one sequence: no two segments begin with the same
            last_sequence=max(segment.last_sequence, segment.header.first_sequence),
            end_offset=segment.end_offset,
            chain_out=segment.chain,
            digest=segment.digest(),
        )
        try:
            size = write_all(
                segment.file, [trailer, footer.pack()], segment.position, self._path(segment.name)
            )
        except DiskFull:
            self.cut(segment)  # it may be sealed later
            raise
        segment.file.sync()
        if segment.file.size() > segment.position + size:
            segment.file.truncate(segment.position + size)
            segment.file.sync()
        segment.file.close()

    def cut(self, segment: OpenSegment) -> None:
        """Remove the bytes that a write on a full disk left behind the last whole frame; synced."""
        segment.file.truncate(segment.position)
        segment.file.sync()
        segment.filled = segment.position

    def fill(self, segment: OpenSegment) -> None:
        """Write the zeros again that `cut` removed, which proves that there is space. Raises DiskFull."""
        if self.ahead_bytes:
            try:
                write_all(segment.file, [_ZEROS[: self.ahead_bytes]], segment.position, segment.name)
            except DiskFull:
                self.cut(segment)
                raise
            segment.file.sync()
            segment.claim(segment.position + self.ahead_bytes)

    def has_room(self) -> bool:
        """Return True if two segments fit on the disk; on a small disk, if a quarter of it is free."""
        space = self.directory.space()
        return space is None or space[0] >= min(2 * self.segment_bytes, space[1] // 4)

    # -- the writer's thread ------------------------------------------------------------------------

    def fits(self, body_bytes: int) -> bool:
        """Return True if a frame of about this size fits the active segment (an empty one takes any)."""
        active = self.active
        return (
            active.header is None or active.position + body_bytes + FRAME_HEADER_BYTES <= self.segment_bytes
        )

    def commit(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        times: Sequence[int],
        *,
        sync: bool = True,
        sizes: Sizes | None = None,
        distinct: Collection[bytes] | None = None,
    ) -> FrameHeader:
        """Write one frame (and the segment's header before the first), sync it, and advance the head.

        Pass the sizes and the distinct keys if they are known.
        """
        active = self.active
        header = active.header
        if header is None:
            high = max(self.head.high_time, times[0]) if times else self.head.high_time
            header = self._begin(high)
        # the first frame of a segment is chained to the segment's header
        head = self.head
        frame = encode(
            keys,
            values,
            times,
            first_sequence=head.next_sequence,
            epoch=head.epoch,
            offset=head.end_offset,
            chain=head.chain if active.position else header.checksum,
            sizes=sizes,
        )
        return self._write(header, frame, keys if distinct is None else distinct, sync=sync)

    def mirror(
        self, header: SegmentHeader | None, frame: EncodedFrame, keys: Collection[bytes], *, sync: bool
    ) -> None:
        """Write a coordinator's frame unchanged, so that the replica's file becomes byte for byte equal.

        The frame must continue this log exactly; the caller has checked its body.
        """
        head = self.head
        if frame.header.epoch < head.epoch:
            raise StaleEpochError(f"epoch {frame.header.epoch} is older than {head.epoch}")
        expected = head.next_sequence
        if header is None:
            header = self.active.header
        elif header.chain == head.chain and header.first_offset == head.end_offset:
            # the previous segment may have ended with a sequence without a record
            expected = max(expected, header.first_sequence)
        if header is None or frame.header.first_sequence != expected:
            raise ValueError("the frame does not continue this log")
        chain = head.chain if self.active.position else header.checksum
        if frame.header.offset != head.end_offset or frame.header.chain != chain:
            raise ValueError("the frame does not continue this log")
        self._write(header, frame, keys, sync=sync)
        head.epoch = frame.header.epoch

    def _begin(self, high_time: int) -> SegmentHeader:
        head = self.head
        return SegmentHeader(
            first_sequence=head.next_sequence,
            first_time=high_time,
            epoch=head.epoch,
            first_offset=head.end_offset,
            partition=self.partition,
            chain=head.chain,
            log_id=self.log_id,
        )

    def _write(
        self, header: SegmentHeader, frame: EncodedFrame, keys: Collection[bytes], *, sync: bool
    ) -> FrameHeader:
        active, head = self.active, self.head
        first = active.header is None
        parts: Sequence[Bytes] = frame.parts
        if first:
            parts = (header.pack(), *parts)
            active.index.high_time = head.high_time
        done = frame.header
        frame_bytes = done.frame_bytes
        start = active.position + (SEGMENT_HEADER_BYTES if first else 0)
        end = start + frame_bytes
        size = end - active.position
        written = parts
        if end > active.filled:
            # A commit into zeros changes no metadata, so its sync is one write to the disk instead of
            # two. New zeros are written with the frame that runs out of them: writing them in the
            # background increased latency more than it saved.
            ahead = self.ahead_bytes if size <= limits.AHEAD_FRAME_BYTES else 0
            ahead = max(0, min(ahead, self.segment_bytes - end))
            if ahead:
                parts = (*parts, _ZEROS[:ahead])
            active.claim(end + ahead)
        write_all(active.file, parts, active.position, active.name)
        if sync or first:
            self._sync(active.file)
        if first:
            # only now the first sequence and the first time of the file's name are known
            name = segment_name(header.first_sequence, header.first_time)
            self.directory.rename(active.name, name)
            active.name = name
            active.header = header
        active.index.add(start, done, keys)
        active.hash(written, active.position, end)
        active.position = end
        active.frame_bytes = size
        active.last_sequence = done.last_sequence
        active.end_offset = head.end_offset = done.offset + frame_bytes
        active.chain = head.chain = done.checksum
        head.next_sequence = done.last_sequence + 1
        head.high_time = active.index.high_time
        return done

    def swap(self, *, synced: bool) -> OpenSegment:
        """Make the prepared segment the active one; return the old one, to be sealed."""
        assert self.standby is not None
        old = self.active
        if not synced:
            old.file.sync()  # a newer segment must not be durable before its predecessor
        self.active, self.standby = self.standby, None
        return old

    def sync(self) -> None:
        """Sync every commit so far."""
        self._sync(self.active.file)

    def _sync(self, file: File) -> None:
        """Sync for waiting callers, and record the duration."""
        begun = self._monotonic()
        file.sync()
        took = max(0.0, self._monotonic() - begun)
        self.sync_seconds += took
        self.sync_us_counts[min(int(took * 1e6).bit_length(), 31)] += 1

    def discard(self, segment: OpenSegment) -> None:
        """Remove a prepared file that was never used."""
        segment.file.close()
        self.directory.remove(segment.name)

    def _path(self, name: str) -> str:
        return f"{self.directory.path}/{name}"
