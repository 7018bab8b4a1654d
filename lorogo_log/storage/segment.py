"""One segment file opened for reading: its header, its footer if sealed, and its frames in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

import xxhash
from crc32c import crc32c

from lorogo_log import limits
from lorogo_log.errors import CorruptionError, FormatError
from lorogo_log.format.batch import Batch, body_matches
from lorogo_log.format.index import Index, IndexBuilder
from lorogo_log.format.layout import (
    FOOTER_BYTES,
    FRAME_FIELDS,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    KEPT,
    REWRITTEN,
    SEGMENT_HEADER_BYTES,
    TRAILER_MAGIC,
    Footer,
    FrameHeader,
    NewerVersion,
    SegmentHeader,
    frame_header,
    padded,
    unpack_footer,
    unpack_frame_header,
    unpack_segment_header,
)
from lorogo_log.format.names import parse_segment
from lorogo_log.storage.disk import Directory, File

_ZEROS = bytes(limits.READ_BYTES)
_BODY_BYTES_MAX = limits.BODY_BYTES_MAX


class FrameStop(Enum):
    """Reasons why there is no frame at a position."""

    ZEROS = "zeros: nothing here yet"
    END = "the end of the file"
    TRAILER = "a trailer: the segment ends here"
    BAD = "bytes that do not check"


@dataclass(frozen=True, slots=True)
class NoFrame:
    """No frame at this position, with the reason."""

    stop: FrameStop
    position: int
    reason: str = ""


class Segment:
    """A segment opened for reading. It stays readable when the file is replaced or removed."""

    def __init__(self, directory: Directory, name: str, file: File) -> None:
        self.name = name
        self.path = f"{directory.path}/{name}"
        self.file = file
        head = file.pread(SEGMENT_HEADER_BYTES, 0)
        try:
            self.header = unpack_segment_header(head)
            self.damage: CorruptionError | None = None
        except NewerVersion as error:
            raise FormatError(f"{self.path}: {error}") from None
        except ValueError as error:
            guess = header_from_frames(file, name)
            if guess is None:
                raise CorruptionError(self.path, 0, str(error)) from None
            self.damage = CorruptionError(self.path, 0, str(error), SEGMENT_HEADER_BYTES)
            self.header = guess
        self.footer: Footer | None = None
        self._index: Index | None = None
        self.refresh()

    @classmethod
    def open(cls, directory: Directory, name: str) -> Segment:
        """Open a segment. Raises FileNotFoundError, FormatError (newer version), CorruptionError (header)."""
        file = directory.open(name)
        try:
            return cls(directory, name, file)
        except (CorruptionError, FormatError):
            file.close()
            raise

    def close(self) -> None:
        self.file.close()

    def refresh(self) -> None:
        """Update the footer if the segment was sealed meanwhile."""
        if self.footer is None:
            self.footer = read_footer(self.file)

    def sealed(self) -> bool:
        """Return True if the segment is sealed now."""
        self.refresh()
        return self.footer is not None

    @property
    def end(self) -> int:
        """The position where frames end: the trailer, or the end of the file."""
        return self.footer.trailer_position if self.footer else self.file.size()

    def index(self) -> Index | None:
        """The trailer of a sealed segment; None if it is open, or if the trailer is damaged."""
        if self._index is None and self.footer is not None:
            trailer = self.file.pread(self.footer.trailer_bytes, self.footer.trailer_position)
            try:
                self._index = Index(trailer, self.footer)
            except ValueError:
                return None  # frames stay readable in order; scrub reports the damage
        return self._index

    def frames(
        self,
        position: int = SEGMENT_HEADER_BYTES,
        end: int | None = None,
        *,
        read_bytes: int = limits.READ_BYTES,
    ) -> Frames:
        """Return the frames from a position on; `read_bytes` is smaller for a single frame."""
        return Frames(self, position, end, read_bytes)


def header_from_frames(file: File, name: str) -> SegmentHeader | None:
    """Reconstruct a damaged header from the first good frame; None if there is none."""
    parsed = parse_segment(name)
    if parsed is None:
        return None
    sealed = read_footer(file)
    at, size = SEGMENT_HEADER_BYTES, file.size()
    while at < size:
        chunk = file.pread(limits.READ_BYTES + FRAME_HEADER_BYTES, at)
        found = chunk.find(FRAME_MAGIC)
        while 0 <= found < limits.READ_BYTES:
            with suppress(ValueError):
                frame = unpack_frame_header(chunk, found)
                first_offset = frame.offset - (at + found - SEGMENT_HEADER_BYTES)
                if first_offset < 0:
                    raise ValueError("the frame is not possible here")
                return SegmentHeader(
                    first_sequence=parsed[0],
                    first_time=parsed[1],
                    epoch=frame.epoch,
                    first_offset=first_offset,
                    partition=0,
                    chain=0,
                    log_id=b"",
                    flags=REWRITTEN if sealed and sealed.flags & KEPT else 0,
                )
            found = chunk.find(FRAME_MAGIC, found + 1)
        at += limits.READ_BYTES
    return None


def read_footer(file: File) -> Footer | None:
    """Return the footer if the file is sealed."""
    size = file.size()
    if size < SEGMENT_HEADER_BYTES + FOOTER_BYTES:
        return None
    try:
        return unpack_footer(file.pread(FOOTER_BYTES, size - FOOTER_BYTES), size)
    except ValueError:
        return None


class Frames:
    """Reads and checks frames in order; `next()` returns a batch, or the reason why there is none.

    Each length is used only after its header's checksum matched, a body after its own checksum, and a frame
    only at its position (log offset) and behind its predecessor (chain).
    """

    __slots__ = (
        "_buffer",
        "_chain",
        "_end",
        "_first",
        "_read_bytes",
        "_shift",
        "_start",
        "position",
        "segment",
    )

    def __init__(self, segment: Segment, position: int, end: int | None, read_bytes: int) -> None:
        self.segment = segment
        self._read_bytes = read_bytes
        self.position = position
        self._end = end
        header = segment.header
        self._first = header.first_sequence
        # log offset - file position; not defined for a rewritten segment
        rewritten = header.flags & REWRITTEN
        self._shift = None if rewritten else header.first_offset - SEGMENT_HEADER_BYTES
        self._buffer = memoryview(b"")
        self._start = position  # file position of the buffer's first byte
        known = position == SEGMENT_HEADER_BYTES and segment.damage is None
        self._chain = header.checksum if known else None

    def jump(self, position: int) -> None:
        """Continue at another position, without a predecessor to chain to."""
        self.position = position
        self._chain = None

    def limit(self, end: int) -> None:
        """Set the end of frames: the segment was sealed meanwhile."""
        self._end = end

    def peek(self) -> Batch | NoFrame:
        """Return the result of `next()` on a fresh read of the file, without moving."""
        position, chain = self.position, self._chain
        self._buffer = memoryview(b"")
        found = self.next()
        self.position, self._chain = position, chain
        return found

    def continues_in(self, other: Segment) -> bool:
        """Return True if another file with the same beginning has a frame where these end."""
        frames = other.frames(self.position)
        frames._chain = self._chain  # noqa: SLF001 - of the same class
        return isinstance(frames.next(), Batch)

    def _fill(self, size: int) -> None:
        want = max(size, self._read_bytes)
        if self._end is not None:
            want = max(size, min(want, self._end - self.position))
        self._buffer = memoryview(self.segment.file.pread(want, self.position))
        self._start = self.position

    def next(self) -> Batch | NoFrame:
        """Return the frame at the position and move behind it, or the reason why there is none."""
        # The checksum of a small frame takes less time than the calls around it: a frame that is in the
        # buffer and follows its predecessor is checked inline. `_read_frame` handles every other case.
        position, view = self.position, self._buffer
        at = position - self._start
        body = at + FRAME_HEADER_BYTES
        if at >= 0 and body <= len(view) and (self._end is None or position < self._end):
            fields = FRAME_FIELDS.unpack_from(view, at)
            magic, _, first, _, _, _, _, offset, _, body_bytes, raw_bytes, checksum, chain, own = fields
            if (
                chain == self._chain
                and magic == FRAME_MAGIC
                and crc32c(view[at : body - 4]) == own
                and raw_bytes <= _BODY_BYTES_MAX  # raw_bytes is bounded here, the other length by the buffer
                and first >= self._first
                and (self._shift is None or offset == position + self._shift)
                and (end := body + ((body_bytes + 7) & ~7)) <= len(view)
                and crc32c(stored := view[body:end]) == checksum
            ):
                self.position = position + end - at
                self._chain = own
                return Batch(frame_header(fields), stored, self._first, position)
        return self._read_frame()

    def _read_frame(self) -> Batch | NoFrame:
        if self._end is not None and self.position >= self._end:
            return NoFrame(FrameStop.TRAILER, self.position)
        fresh = False
        if (
            self.position + FRAME_HEADER_BYTES > self._start + len(self._buffer)
            or self.position < self._start
        ):
            self._fill(FRAME_HEADER_BYTES)
            fresh = True
        found = self._parse()
        if isinstance(found, NoFrame) and not fresh:
            # the buffer may be older than the writer's last commit
            self._fill(FRAME_HEADER_BYTES)
            found = self._parse()
        return found

    def _parse(self) -> Batch | NoFrame:
        position, view = self.position, self._buffer
        at = position - self._start
        body = at + FRAME_HEADER_BYTES
        if len(view) < body:
            rest = bytes(view[at:])
            if not rest.strip(b"\0"):
                return NoFrame(FrameStop.END if not rest else FrameStop.ZEROS, self.position)
            if rest.startswith(TRAILER_MAGIC):
                return NoFrame(FrameStop.TRAILER, self.position)
            return NoFrame(FrameStop.BAD, self.position, "the file ends within a frame header")
        try:
            header = unpack_frame_header(view, at)
        except ValueError as error:
            head = bytes(view[at : at + FRAME_HEADER_BYTES])
            if not head.strip(b"\0"):
                return NoFrame(FrameStop.ZEROS, self.position)
            if head.startswith(TRAILER_MAGIC):
                return NoFrame(FrameStop.TRAILER, self.position)
            return NoFrame(FrameStop.BAD, self.position, str(error))
        if wrong := misplaced(header, self.segment.header, position):
            return NoFrame(FrameStop.BAD, position, wrong)
        if self._chain is not None and header.chain != self._chain:
            return NoFrame(FrameStop.BAD, position, "the frame does not follow the one before it (chain)")
        size = header.frame_bytes
        if at + size > len(view):
            self._fill(size)
            at, body, view = 0, FRAME_HEADER_BYTES, self._buffer
            if len(view) < size:
                return NoFrame(FrameStop.BAD, position, "the file ends within a frame")
        stored = view[body : at + size]
        if crc32c(stored) != header.body_checksum:
            return NoFrame(FrameStop.BAD, position, "the frame's body does not match its checksum")
        self.position = position + size
        self._chain = header.checksum
        return Batch(header, stored, self._first, position)


def misplaced(header: FrameHeader, segment: SegmentHeader, position: int) -> str:
    """Return the reason why a frame with a good checksum is not valid here; empty if it is."""
    if header.body_bytes > limits.BODY_BYTES_MAX or header.raw_bytes > limits.BODY_BYTES_MAX:
        return f"the frame has a body of {header.body_bytes} bytes"
    if header.first_sequence < segment.first_sequence:
        return f"sequence {header.first_sequence} is before the segment's first"
    expected = segment.first_offset + position - SEGMENT_HEADER_BYTES
    if not segment.flags & REWRITTEN and header.offset != expected:
        return f"log offset {header.offset} instead of {expected}"
    return ""


def find_frame(segment: Segment, position: int, end: int | None = None) -> int | None:
    """Return the position of the next valid frame behind `position`; None if there is none."""
    file, size = segment.file, segment.end if end is None else end
    at = padded(position + 1)
    while at < size:
        chunk = file.pread(limits.READ_BYTES + FRAME_HEADER_BYTES, at)
        found = chunk.find(FRAME_MAGIC)
        while 0 <= found < limits.READ_BYTES:
            if found % 8 == 0 and _checks(
                segment, at + found, chunk[found : found + FRAME_HEADER_BYTES], size
            ):
                return at + found
            found = chunk.find(FRAME_MAGIC, found + 1)
        at += limits.READ_BYTES
    return None


def _checks(segment: Segment, position: int, head: bytes, size: int) -> bool:
    try:
        header = unpack_frame_header(head)
    except ValueError:
        return False
    if misplaced(header, segment.header, position) or position + header.frame_bytes > size:
        return False
    return body_matches(header, segment.file.pread(header.frame_bytes, position), 0)


def all_zeros(file: File, position: int, size: int) -> bool:
    """Return True if only zeros follow."""
    while position < size:
        chunk = file.pread(limits.READ_BYTES, position)
        if not chunk:
            return True
        if chunk != _ZEROS[: len(chunk)]:
            return False
        position += len(chunk)
    return True


@dataclass(slots=True)
class Scan:
    """The content of a whole segment, found by reading all of it."""

    index: IndexBuilder
    #: position behind the last good frame
    end: int
    next_sequence: int
    end_offset: int
    chain: int
    #: (position, reason, position of the next good frames or None) of each range that does not check
    bad: list[tuple[int, str, int | None]] = field(default_factory=list)
    #: the reason if the bytes behind the last good frame are neither zeros nor a trailer
    torn: str = ""

    @property
    def reach(self) -> int:
        """The sequence that must follow. A segment that only carries an epoch uses one sequence."""
        alone = self.index.frames and not self.index.records and not self.torn
        return self.next_sequence + 1 if alone else self.next_sequence


def scan(segment: Segment, high_time: int | None = None, *, keys: bool = True) -> Scan:
    """Read every frame, also behind damage. Without `keys`, the index has no postings."""
    header = segment.header
    index = IndexBuilder(header.first_time if high_time is None else high_time)
    result = Scan(
        index,
        SEGMENT_HEADER_BYTES,
        header.first_sequence,
        header.first_offset,
        header.checksum,
    )
    size = segment.end
    frames = segment.frames(end=size)
    while True:
        found = frames.next()
        if isinstance(found, Batch):
            head = found.header
            try:
                columns = found.columns
                distinct = columns.distinct_keys() if keys else set[bytes]()
            except CorruptionError as error:
                result.bad.append((found.position, error.reason, frames.position))
                continue
            if head.first_sequence < result.next_sequence:
                result.bad.append((found.position, "sequences decrease", frames.position))
                continue
            index.add(found.position, head, distinct)
            result.end = frames.position
            result.next_sequence = head.last_sequence + 1
            result.end_offset = head.offset + head.frame_bytes
            result.chain = head.checksum
            continue
        if found.stop is FrameStop.TRAILER or found.position >= size:
            return result
        if found.stop is FrameStop.ZEROS and all_zeros(segment.file, found.position, size):
            return result
        reason = found.reason or "zeros where a frame should be"
        again = find_frame(segment, found.position, size)
        if again is None:
            result.torn = reason
            return result
        result.bad.append((found.position, reason, again))
        frames.jump(again)


def digest_of(file: File, size: int) -> bytes:
    """XXH3-128 of a file's first bytes: limited by memory speed, so that sealing does not delay appends."""
    result = xxhash.xxh3_128()
    for chunk in chunks(file, size):
        result.update(chunk)
    return result.digest()


def chunks(file: File, size: int) -> Iterator[bytes]:
    """Yield a file's first bytes in chunks."""
    at = 0
    while at < size:
        chunk = file.pread(min(limits.READ_BYTES, size - at), at)
        if not chunk:
            return
        yield chunk
        at += len(chunk)
