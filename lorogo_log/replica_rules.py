"""The rules of a replica, purely: what to do with an incoming frame, and what to fetch.

The four catch-up rules:

1. A frame that begins where the log ends is applied.
2. A frame behind a gap is buffered, and what is missing is fetched.
3. A buffer above its bound (a segment) is dropped: that part is fetched too.
4. When what was fetched reaches the buffer, the buffer is applied.

`CatchUp` decides about frames by their log offsets; `plan` compares two lists of segments. Neither touches a
disk or a socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from lorogo_log.format import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    SEGMENT_MAGIC,
    Bytes,
    FrameHeader,
    SegmentHeader,
    unpack_frame_header,
    unpack_segment_header,
)
from lorogo_log.wire import Entry, PeerError


@dataclass(frozen=True, slots=True)
class Piece:
    """One frame as it travels: its bytes, and the segment's header if it is the first of a segment."""

    frame: FrameHeader
    raw: Bytes
    segment: SegmentHeader | None = None

    @property
    def offset(self) -> int:
        return self.frame.offset

    @property
    def size(self) -> int:
        return self.frame.frame_bytes

    @property
    def end(self) -> int:
        return self.frame.offset + self.frame.frame_bytes


def unpack_pieces(body: Bytes) -> list[Piece]:
    """The frames of a FRAMES message: headers checked; bodies are checked when they are applied."""
    view = memoryview(body)
    pieces: list[Piece] = []
    at = 0
    try:
        while at < len(view):
            segment = None
            if bytes(view[at : at + 8]) == SEGMENT_MAGIC:
                segment = unpack_segment_header(view[at : at + SEGMENT_HEADER_BYTES])
                at += SEGMENT_HEADER_BYTES
            frame = unpack_frame_header(view[at : at + FRAME_HEADER_BYTES])
            end = at + frame.frame_bytes
            if end > len(view):
                raise PeerError("a frame is longer than its message")
            pieces.append(Piece(frame, view[at:end], segment))
            at = end
    except ValueError as error:
        raise PeerError(f"a FRAMES message with something else in it: {error}") from None
    return pieces


@dataclass(frozen=True, slots=True)
class Apply:
    """Rule 1: apply it now."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """It is there already, or comes again."""


@dataclass(frozen=True, slots=True)
class Behind:
    """Rules 2 and 3: it waits in the buffer (or was dropped with it), something before it must be fetched."""

    dropped_bytes: int = 0


@dataclass(slots=True)
class CatchUp:
    """Where a replica stands among the frames that come in."""

    #: log offset up to which frames were given out to be applied
    at: int
    buffer_bytes_max: int
    behind: bool = True
    #: the furthest end of the log that was heard of
    heard: int = 0
    buffered_bytes: int = 0
    drops: int = 0
    _buffer: deque[Piece] = field(default_factory=deque)

    @property
    def buffer_start(self) -> int | None:
        """The log offset of the first frame that waits; None if none does."""
        return self._buffer[0].offset if self._buffer else None

    def frame(self, piece: Piece) -> Apply | Ignore | Behind:
        """An incoming frame."""
        self.heard = max(self.heard, piece.end)
        if piece.end <= self.at:
            return Ignore()
        if not self.behind and piece.offset == self.at:
            self.at = piece.end
            return Apply()
        self.behind = True
        if self._buffer and piece.offset < self._buffer[-1].end:
            return Ignore()
        dropped = 0
        if self._buffer and piece.offset > self._buffer[-1].end:
            dropped = self._drop()  # frames were left out: what waited cannot be joined to this one
        if self.buffered_bytes + piece.size > self.buffer_bytes_max:
            dropped += self._drop()
            if piece.size > self.buffer_bytes_max:
                return Behind(dropped + piece.size)
        self._buffer.append(piece)
        self.buffered_bytes += piece.size
        return Behind(dropped)

    def head(self, end_offset: int) -> bool:
        """The coordinator's log ends there; True if something must be fetched."""
        self.heard = max(self.heard, end_offset)
        if not self.behind and end_offset > self.at:
            self.behind = True
        return self.behind

    def fetched(self, at: int) -> list[Piece] | None:
        """The log now ends there. Rule 4: the frames to apply, or None if more must be fetched."""
        self.at = at
        while self._buffer and self._buffer[0].end <= at:
            self.buffered_bytes -= self._buffer.popleft().size
        if self._buffer and self._buffer[0].offset < at:
            self._drop()  # it does not join what is on the disk: ask again
        start = self.buffer_start
        if start is None:
            if at < self.heard:
                return None
        elif start != at:
            return None
        ready = list(self._buffer)
        self._buffer.clear()
        self.buffered_bytes = 0
        self.behind = False
        if ready:
            self.at = ready[-1].end
        return ready

    def _drop(self) -> int:
        dropped, self.buffered_bytes = self.buffered_bytes, 0
        self._buffer.clear()
        self.drops += bool(dropped)
        return dropped


@dataclass(frozen=True, slots=True)
class Wanted:
    """A sealed segment to fetch whole; `have` is a local one whose frames (seem to) begin it."""

    entry: Entry
    have: Entry | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What brings a replica to where the other side is."""

    #: local segments that contradict the other side's history: put aside, newest first
    aside: tuple[Entry, ...] = ()
    #: sealed segments to fetch, in order
    fetch: tuple[Wanted, ...] = ()
    #: the open segment to go on in
    follow: Entry | None = None


def same_history(mine: Entry, theirs: Entry) -> bool:
    """Whether two segments hold the same frames (one may be cleaned or compressed since)."""
    return (mine.first_sequence, mine.first_offset, mine.last_sequence, mine.end_offset, mine.chain) == (
        theirs.first_sequence,
        theirs.first_offset,
        theirs.last_sequence,
        theirs.end_offset,
        theirs.chain,
    )


def plan(local: Sequence[Entry], remote: Sequence[Entry]) -> Plan:
    """Compare both lists of segments (each in order).

    What a replica has before the other side's first segment, or where the other side has nothing, stays:
    retention and cleaning are each side's own. What contradicts is put aside, with everything after it.
    """
    theirs = {entry.first_sequence: entry for entry in remote}
    end = remote[-1].end_offset if remote else 0
    good: Entry | None = None
    prefix: Entry | None = None
    aside: tuple[Entry, ...] = ()
    for number, mine in enumerate(local):
        other = theirs.get(mine.first_sequence)
        last = number + 1 == len(local)
        if other is None:
            overlaps = any(
                entry.first_sequence <= mine.last_sequence and mine.first_sequence <= entry.last_sequence
                for entry in remote
            )
            contradicts = overlaps or mine.end_offset > end
        elif same_history(mine, other) or other.damaged or (mine.damaged and not last):
            contradicts = False  # what is damaged is for repair, not for catching up
        elif last and _may_be_prefix(mine, other):
            prefix = mine
            break
        else:
            contradicts = True
        if contradicts:
            aside = tuple(reversed(local[number:]))
            break
        good = mine
    at = good.end_offset if good else 0
    fetch: list[Wanted] = []
    follow: Entry | None = None
    for entry in remote:
        covered = good is not None and entry.first_sequence <= good.first_sequence
        if (covered or entry.end_offset <= at) and (entry.sealed or entry.damaged):
            continue
        if entry.damaged:
            break  # nothing behind it can be joined to what is here: wait, or ask another
        begins = prefix is not None and entry.first_sequence == prefix.first_sequence
        if entry.sealed:
            fetch.append(Wanted(entry, prefix if begins else None))
        elif follow is None or follow.end_offset <= at:
            follow = entry
    return Plan(aside, tuple(fetch), follow)


def _may_be_prefix(mine: Entry, other: Entry) -> bool:
    return (
        mine.first_offset == other.first_offset
        and mine.header_checksum == other.header_checksum
        and mine.end_offset < other.end_offset
        and not mine.rewritten
        and not other.rewritten
    )
