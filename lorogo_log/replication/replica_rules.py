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

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from lorogo_log.format.layout import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    SEGMENT_MAGIC,
    Bytes,
    FrameHeader,
    SegmentHeader,
    unpack_frame_header,
    unpack_segment_header,
)
from lorogo_log.transfer.wire import PeerError, SegmentEntry


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
class ReplicaBehind:
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

    def frame(self, piece: Piece) -> Apply | Ignore | ReplicaBehind:
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
                return ReplicaBehind(dropped + piece.size)
        self._buffer.append(piece)
        self.buffered_bytes += piece.size
        return ReplicaBehind(dropped)

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

    def lost(self) -> None:
        """Something that was here is gone: compare again; frames wait meanwhile."""
        self.behind = True

    def _drop(self) -> int:
        dropped, self.buffered_bytes = self.buffered_bytes, 0
        self._buffer.clear()
        self.drops += bool(dropped)
        return dropped


@dataclass(frozen=True, slots=True)
class WantedSegment:
    """A sealed segment to fetch whole; `have` is a local one whose frames (seem to) begin it."""

    entry: SegmentEntry
    have: SegmentEntry | None = None


@dataclass(frozen=True, slots=True)
class CatchUpPlan:
    """What brings a replica to where the other side is."""

    #: local segments that contradict the other side's history: put aside, newest first
    aside: tuple[SegmentEntry, ...] = ()
    #: why they may not be put aside: the other side has no newer epoch, and less (or other) records
    ahead: str = ""
    #: segments that are missing here between others
    fill: tuple[SegmentEntry, ...] = ()
    #: local segments that hold less than the other side's and are followed by others: to be repaired
    suspect: tuple[SegmentEntry, ...] = ()
    #: sealed segments to fetch at the end, in order
    fetch: tuple[WantedSegment, ...] = ()
    #: the open segment to go on in
    follow: SegmentEntry | None = None
    #: the first segment that is not whole here and damaged at the other side: nothing is taken behind it
    blocked: SegmentEntry | None = None
    #: everything that the other side offers up to here is held; None: up to the end of the log here
    covered: int | None = None


def same_history(mine: SegmentEntry, theirs: SegmentEntry) -> bool:
    """Whether two segments hold the same frames (one may be cleaned or compressed since).

    The chain value vouches for all frames. The last sequences may differ by the one that a segment without
    records takes for itself when it is sealed.
    """
    return (mine.first_sequence, mine.first_offset, mine.end_offset, mine.chain) == (
        theirs.first_sequence,
        theirs.first_offset,
        theirs.end_offset,
        theirs.chain,
    )


def lacks(mine: SegmentEntry, theirs: SegmentEntry) -> bool:
    """Whether our file of the same history may hold less than theirs: it was cleaned or salvaged here.

    Equal hashes are equal records, and a file that was only compressed has one for each sequence. Where
    theirs was cleaned and holds less, nothing is lacking here.
    """
    dense = mine.records > mine.last_sequence - mine.first_sequence
    if not mine.rewritten or dense or mine.digest == theirs.digest:
        return False
    if theirs.damaged or not theirs.sealed:
        return True
    return mine.records < theirs.records + theirs.rewritten  # as many after two cleanings may be others


class _Verdict(Enum):
    WHOLE = "the same, or only here"
    PREFIX = "the beginning of theirs"
    LESS = "not whole, and nothing contradicts it"
    REPLACE = "theirs was rewritten, or ours is damaged, and theirs reaches as far"
    OTHER = "another history"


def plan(
    local: Sequence[SegmentEntry], remote: Sequence[SegmentEntry], *, end: int = 0, epoch: int = 0
) -> CatchUpPlan:
    """Compare both lists of segments (each in order). `end` and `epoch` are the other side's.

    What a replica has before the other side's first segment, or where the other side has nothing, stays.
    What contradicts is put aside with everything after it, if the other side's epoch is newer than that of
    every frame in it; else it stays, and that is said. What the other side offers and is not whole here is
    fetched, wherever it is missing.
    """
    end = max(end, remote[-1].end_offset if remote else 0)
    place = {entry.first_sequence: number for number, entry in enumerate(remote)}
    firsts = [entry.first_sequence for entry in remote]
    held: set[int] = set()
    less: dict[int, SegmentEntry] = {}
    kept: SegmentEntry | None = None
    prefix: SegmentEntry | None = None
    for number, mine in enumerate(local):
        at = place.get(mine.first_sequence)
        last = number + 1 == len(local)
        if at is None:
            verdict = _alone(mine, remote, firsts, end)
        else:
            after = remote[at + 1] if at + 1 < len(remote) else None
            verdict = _judge(mine, remote[at], after, end, last=last)
        match verdict:
            case _Verdict.WHOLE:
                held.add(mine.first_sequence)
            case _Verdict.LESS:
                less[mine.first_sequence] = mine
            case _Verdict.PREFIX:
                prefix = mine
                break
            case _Verdict.REPLACE | _Verdict.OTHER:
                rest = tuple(reversed(local[number:]))
                newest = max(one.epoch for one in rest)
                if verdict is _Verdict.REPLACE or epoch > newest:
                    return CatchUpPlan(aside=rest)
                return CatchUpPlan(
                    ahead=f"{mine.name} holds other records than the coordinator's log, or more of them,"
                    f" and its epoch {epoch} is not above {newest}",
                    covered=mine.first_sequence - 1,
                )
        kept = mine
    return _missing(remote, held, less, kept, prefix)


def _missing(
    remote: Sequence[SegmentEntry],
    held: set[int],
    less: dict[int, SegmentEntry],
    kept: SegmentEntry | None,
    prefix: SegmentEntry | None,
) -> CatchUpPlan:
    """What to fetch, in the order of the other side's segments."""
    fill: list[SegmentEntry] = []
    suspect: list[SegmentEntry] = []
    fetch: list[WantedSegment] = []
    follow: SegmentEntry | None = None
    covered: int | None = None
    blocked: SegmentEntry | None = None
    newest = prefix or kept
    for entry in remote:
        if entry.first_sequence in held:
            if not entry.sealed and not entry.damaged:
                follow = entry
            continue
        begins = prefix is not None and entry.first_sequence == prefix.first_sequence
        inside = newest is not None and entry.first_sequence <= newest.first_sequence and not begins
        mine = less.get(entry.first_sequence)
        if inside and covered is None:
            same = mine is not None and mine.header_checksum == entry.header_checksum
            dense = mine is not None and not (mine.damaged or mine.rewritten)
            covered = mine.last_sequence if mine is not None and same and dense else entry.first_sequence - 1
        if entry.damaged:
            if blocked is None:
                blocked = entry
            if not inside or mine is newest:
                break  # nothing behind it can be joined to what is here
        elif mine is not None:
            if not mine.damaged:  # else it is known, and being repaired
                suspect.append(mine)
        elif inside:
            if entry.sealed:
                fill.append(entry)
        elif entry.sealed:
            fetch.append(WantedSegment(entry, prefix if begins else None))
        else:
            follow = entry
            break
    return CatchUpPlan(
        fill=tuple(fill),
        suspect=tuple(suspect),
        fetch=tuple(fetch),
        follow=follow,
        blocked=blocked,
        covered=covered,
    )


def _alone(mine: SegmentEntry, remote: Sequence[SegmentEntry], firsts: Sequence[int], end: int) -> _Verdict:
    """A segment where the other side has none that begins with the same sequence."""
    at = bisect_right(firsts, mine.first_sequence)
    before = at > 0 and remote[at - 1].last_sequence >= mine.first_sequence
    guess = mine.damaged and not mine.sealed
    behind = at < len(remote) and remote[at].first_sequence <= mine.last_sequence and not guess
    # beyond everything that it lists: its file may be gone, or it has never written that
    beyond = at == len(remote) and mine.end_offset > end
    return _Verdict.OTHER if before or behind or beyond else _Verdict.WHOLE


def _judge(
    mine: SegmentEntry, other: SegmentEntry, after: SegmentEntry | None, end: int, *, last: bool
) -> _Verdict:
    """Two segments that begin with the same sequence."""
    if mine.damaged and not mine.sealed and not last:
        return _Verdict.LESS  # without a footer its end is only a guess
    if after is not None and mine.last_sequence >= after.first_sequence:
        return _Verdict.OTHER
    if other.damaged:
        same = same_history(mine, other) or _leads_to(mine, after)
        whole = not mine.damaged and same and not lacks(mine, other)
        return _Verdict.WHOLE if whole else _Verdict.LESS
    reaches = other.last_sequence >= mine.last_sequence and other.end_offset >= mine.end_offset
    if mine.damaged:
        if not reaches:
            return _Verdict.OTHER
        # in the middle, or at the end: what is damaged is repaired; at the end it may also just be fetched
        return _Verdict.REPLACE if last else _Verdict.LESS
    if same_history(mine, other):
        if lacks(mine, other):
            return _Verdict.REPLACE if last else _Verdict.LESS
        return _Verdict.WHOLE
    if not reaches or mine.first_offset != other.first_offset:
        return _Verdict.OTHER
    if mine.end_offset == other.end_offset:
        return _Verdict.OTHER  # as long, with another chain
    if other.rewritten:
        return _Verdict.REPLACE if last else _Verdict.LESS
    if mine.header_checksum != other.header_checksum or mine.rewritten:
        return _Verdict.OTHER
    return _Verdict.PREFIX if last else _Verdict.LESS


def _leads_to(mine: SegmentEntry, after: SegmentEntry | None) -> bool:
    """Whether the other side's next segment says that it comes after this one.

    One that was begun while the segment before it was damaged may leave room for what stood there.
    """
    return (
        after is not None
        and not after.damaged
        and mine.last_sequence + 1 == after.first_sequence
        and mine.chain == after.chain_before
        and mine.end_offset <= after.first_offset
    )
