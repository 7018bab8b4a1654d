"""A cursor over all segments, from a sequence, a time or a position, to the end or following the writer.

A cursor holds one open file and one buffer. It takes no lock and needs no writer, so any number of cursors do
not slow the writer. It returns complete and verified batches only.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

from lorogo_log import limits
from lorogo_log.checks import kind, whole_or_none
from lorogo_log.errors import CorruptionError, End, TornError
from lorogo_log.format import names
from lorogo_log.format.batch import Batch, LogPosition
from lorogo_log.format.layout import SEGMENT_HEADER_BYTES, Footer
from lorogo_log.recovery.lost import NOT_THERE
from lorogo_log.recovery.recovery import SegmentName, list_segments
from lorogo_log.recovery.rewrite import damage_at
from lorogo_log.storage.disk import Directory, Lock
from lorogo_log.storage.listing import twin_damage
from lorogo_log.storage.segment import Frames, FrameStop, NoFrame, Segment, find_frame

_TORN_TRIES = 8
_SLOWER = 1.5


class Cursor:
    """Batches in order. `next()` returns one, or raises `End`, `TornError` or `CorruptionError`.

    After `CorruptionError` the cursor is behind the damage: call `next()` again for the rest.
    After `End` more batches may arrive: call again.
    """

    def __init__(
        self,
        directory: Directory,
        *,
        from_seq: int | None = None,
        from_time: int | None = None,
        from_pos: LogPosition | None = None,
        key: bytes | None = None,
        durable: Callable[[], int] | None = None,
    ) -> None:
        if sum(start is not None for start in (from_seq, from_time, from_pos)) > 1:
            raise ValueError("from_seq, from_time and from_pos exclude each other")
        from_seq = whole_or_none("from_seq", from_seq)
        from_time = whole_or_none("from_time", from_time)
        if from_pos is not None:
            kind("from_pos", from_pos, LogPosition, "LogPosition.parse(text)")
        if key is not None and not isinstance(key, bytes):
            raise TypeError(f"key must be bytes, not {type(key).__name__}")
        self._directory = directory
        self._key = key
        #: position from which every frame is returned whole (a start within a frame is found by its sequence)
        self._plain = durable is None and key is None and from_time is None
        #: the last sequence to return (in the writer's process); None: every complete frame in the file
        self._durable = durable
        self._start = (from_seq, from_time, from_pos)
        self._segment: Segment | None = None
        self._frames: Frames | None = None
        self._ranges: Iterator[tuple[int, int]] | None = None
        self._lock: Lock | None = None
        self._known: list[SegmentName] = []
        self._after = -1  # first sequence of the last finished segment
        self._done: tuple[Footer | None, int] = (None, -1)  # to detect a longer replacement
        self.reset()

    def reset(self) -> None:
        """Return to the start position."""
        from_seq, from_time, from_pos = self._start
        self._leave()
        self._after = -1
        self._wanted = from_pos.sequence if from_pos else from_seq or 0
        self._time = from_time
        self._hint = from_pos
        self._seen = 0

    @property
    def segment(self) -> str | None:
        """The name of the current segment."""
        return self._segment.name if self._segment else None

    @property
    def position(self) -> LogPosition:
        """The position where `next()` continues: save it, and pass it as `from_pos`."""
        if self._frames is None or self._segment is None:
            return LogPosition(self._wanted)
        return LogPosition(self._wanted, self._segment.header.first_sequence, self._frames.position)

    def lock(self, wait_seconds: float = limits.LOCK_SECONDS) -> None:
        """Exclude cleaners until `unlock()`, for a consistent view."""
        if self._lock is None:
            self._lock = self._directory.lock(names.CLEAN_LOCK, exclusive=False, wait_seconds=wait_seconds)

    def unlock(self) -> None:
        """Release the lock against cleaners."""
        lock, self._lock = self._lock, None
        if lock:
            lock.release()

    def close(self) -> None:
        """Close the file and release the lock."""
        self._leave()
        self.unlock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches up to the end; raise at damage."""
        with suppress(End):
            while True:
                yield self.next()

    def follow(self, *, wait_seconds: float) -> Batch:
        """Return the next batch, or raise `End` after a timeout. For a writer in another process.

        No event crosses processes: the cursor polls every 20 ms, less often while no record arrives.
        """
        deadline = clock.monotonic() + wait_seconds
        pause = limits.POLL_SECONDS
        while True:
            try:
                return self.next(following=True)
            except End:
                left = deadline - clock.monotonic()
                if left <= 0:
                    raise
                clock.sleep(min(pause, left))
                pause = min(pause * _SLOWER, limits.POLL_SECONDS_MAX)

    def next(self, *, following: bool = False) -> Batch:
        """Return the next batch with matching records."""
        while True:
            if self._durable is not None and self._wanted > self._durable():
                raise End("everything durable has been read")
            frames = self._frames
            if frames is None:
                if not self._enter():
                    raise End("there is no segment to read")
                continue
            found = frames.next()
            if isinstance(found, NoFrame):
                self._no_frame(found, following=following)
                continue
            header = found.header
            if self._plain and self._wanted <= header.first_sequence and header.count:
                self._wanted = header.last_sequence + 1
                return found
            batch = self._select(found)
            if batch is not None:
                return batch

    # -- one frame -----------------------------------------------------------------------------

    def _select(self, batch: Batch) -> Batch | None:
        """Select the matching records of a frame; None if it has none."""
        header = batch.header
        if self._durable is not None and header.last_sequence > self._durable():
            # complete, but not durable yet: retry later
            assert self._frames is not None
            self._frames.position = batch.position
            self._frames.jump(batch.position)
            raise End("everything durable has been read")
        if header.last_sequence < self._wanted or not header.count:
            self._wanted = max(self._wanted, header.last_sequence + 1)
            return None
        if self._time is not None:
            if header.last_time < self._time:
                self._wanted = header.last_sequence + 1
                return None
            batch = batch.from_time(self._time)
            self._time = None
        wanted, self._wanted = self._wanted, header.last_sequence + 1
        batch = batch.from_sequence(wanted) if wanted > header.first_sequence else batch
        if self._key is not None:
            batch = batch.with_key(self._key)
        return batch if len(batch) else None

    def _no_frame(self, found: NoFrame, *, following: bool) -> None:
        """Handle a position without a frame: continue elsewhere, or raise."""
        segment, frames = self._segment, self._frames
        assert segment is not None and frames is not None
        if self._ranges is not None and found.stop is FrameStop.TRAILER:
            if (area := next(self._ranges, None)) is not None:
                self._frames = segment.frames(*area)
            else:
                self._finish()
            return
        was_sealed = segment.footer is not None
        segment.refresh()
        if segment.footer is not None:
            if not was_sealed:
                frames.limit(segment.footer.trailer_position)  # sealed meanwhile: its end is known
            elif found.position >= segment.footer.trailer_position:
                self._finish()
            else:
                self._damaged(found, segment.footer.trailer_position)
            return
        next_segment = self._next_segment()
        if found.stop is FrameStop.TRAILER:  # the trailer is being written, or its footer is damaged
            if next_segment is not None:
                self._finish()
            elif not self._reopen_longer():
                raise End("the segment ends here and there is no other yet")
            return
        if next_segment is None:
            try:
                self._at_end(found, following=following)
            except (End, TornError):
                if not self._reopen_longer():
                    raise
            return
        # a newer segment exists, so this one gets no more frames: read once more, then judge
        if isinstance(frames.peek(), Batch):
            return
        if segment.sealed():
            return
        if self._wanted >= next_segment.first_sequence and find_frame(segment, found.position) is None:
            self._finish()
            return
        if not self._reopen_longer():
            self._damaged(found, segment.end)

    def _at_end(self, found: NoFrame, *, following: bool) -> None:
        """Judge the end of the newest segment: nothing yet, incomplete, torn, or damaged."""
        segment, frames = self._segment, self._frames
        assert segment is not None and frames is not None
        if found.position == SEGMENT_HEADER_BYTES and names.parse_segment(segment.name):
            # the first frame was durable before the file got this name
            self._damaged(found, segment.end)
        if found.stop is FrameStop.ZEROS or found.stop is FrameStop.END:
            if self._durable is None and found.stop is FrameStop.ZEROS:
                again = find_frame(segment, found.position)
                if again is not None and again > found.position:
                    self._recheck(found, again)
                    return
            raise End("the end of the log")
        again = find_frame(segment, found.position)
        if again is not None:
            self._recheck(found, again)
            return
        if following:
            raise End("a record is being written")
        if self._durable is None and self._directory.locked(names.APPEND_LOCK):
            # a writer may be active, for any time: the frame was not acknowledged, so the log ends here
            raise End("a record is being written")
        # no writer: a frame completed before it exited shows on this read, an incomplete one stays incomplete
        for _ in range(1 if self._durable is None else _TORN_TRIES):
            if isinstance(frames.peek(), Batch) or self._next_segment() is not None:
                return
            if segment.sealed():
                return
            if self._durable is not None:
                clock.sleep(limits.POLL_SECONDS / 4)
        raise TornError(segment.path, found.position, found.reason)

    def _recheck(self, found: NoFrame, again: int) -> None:
        """Read again because a good frame follows: the writer wrote between two reads, or this is damage."""
        assert self._segment is not None and self._frames is not None
        if isinstance(self._frames.peek(), NoFrame):
            self._damaged(found, self._segment.end, again)

    def _damaged(self, found: NoFrame, end: int, again: int | None = None) -> None:
        segment, frames = self._segment, self._frames
        assert segment is not None and frames is not None
        if again is None:
            again = find_frame(segment, found.position, end)
        if again is None:
            self._finish()
        else:
            frames.jump(again)
        raise damage_at(segment, found, again)

    # -- from segment to segment ---------------------------------------------------------------

    def _leave(self) -> None:
        segment, self._segment, self._frames, self._ranges = self._segment, None, None, None
        if segment is not None:
            segment.close()

    def _finish(self) -> None:
        segment = self._segment
        assert segment is not None
        if segment.footer is not None:
            self._wanted = max(self._wanted, segment.footer.last_sequence + 1)
        self._after = segment.header.first_sequence
        self._done = (segment.footer, segment.file.size())
        self._leave()

    def _skip(self, entry: SegmentName) -> None:
        """Continue behind a segment that cannot be read."""
        self._after = entry.first_sequence
        self._done = (None, -1)

    def _reopen_longer(self) -> bool:
        """Open the file again by name if a longer one replaced it; return True if reading continues there.

        A replica replaces its files by longer ones; the old file gets no more frames.
        """
        segment, frames = self._segment, self._frames
        assert segment is not None and frames is not None
        try:
            now = Segment.open(self._directory, segment.name)
        except (FileNotFoundError, CorruptionError):
            return False
        try:
            if segment.sealed() or now.header.first_sequence != segment.header.first_sequence:
                return False
            if now.header == segment.header:
                more = frames.continues_in(now)
            else:
                more = now.footer is not None and now.footer.last_sequence >= self._wanted
        finally:
            now.close()
        if more:
            self._hint = self.position
            self._after = segment.header.first_sequence - 1  # this name is the first behind it
            self._leave()
        return more

    def _has_grown(self, entry: SegmentName) -> bool:
        """Return True if a finished segment has grown since it was read."""
        try:
            segment = Segment.open(self._directory, entry.name)
        except (FileNotFoundError, CorruptionError):
            return False
        size = segment.file.size()
        segment.close()
        if segment.damage is not None or segment.header.first_sequence != entry.first_sequence:
            return False
        footer = segment.footer
        if footer is not None:
            return footer.last_sequence >= self._wanted
        return (footer, size) != self._done

    def _list(self) -> list[SegmentName]:
        return list_segments(self._directory, prepared=self._durable is None)

    def _next_segment(self) -> SegmentName | None:
        """Return the segment after the current one, if it exists."""
        assert self._segment is not None
        here = self._segment.header.first_sequence
        return next((entry for entry in self._list() if entry.first_sequence > here), None)

    def _enter(self) -> bool:
        """Open the segment to read next; False if there is none."""
        missing = ""
        while True:
            entry = self._choose()
            if entry is None:
                return False
            path = f"{self._directory.path}/{entry.name}"
            try:
                segment = Segment.open(self._directory, entry.name)
            except FileNotFoundError:
                if entry.name != missing:
                    missing = entry.name
                    continue  # cleaned, expired or renamed since the listing
                self._skip(entry)
                raise CorruptionError(path, 0, NOT_THERE) from None
            except CorruptionError:
                self._skip(entry)
                raise
            if (begins := segment.header.first_sequence) != entry.first_sequence and segment.damage is None:
                segment.close()
                self._skip(entry)
                raise CorruptionError(path, 0, f"renamed: it begins with record {begins}, unlike its name")
            self._segment = segment
            self._seek(segment)
            if segment.damage is not None:
                raise segment.damage
            for damage in twin_damage(self._directory, entry):
                raise damage
            return True

    def _choose(self) -> SegmentName | None:
        present = self._list()
        listing = [entry for entry in present if entry.first_sequence > self._after]
        if self._after >= 0:
            following = listing[0] if listing else None
            if following is None or following.first_sequence > self._wanted:
                # Cleaned, expired, or not created yet. Or a longer file has replaced the file that was read
                # to its end: a replica does that.
                last = next((entry for entry in present if entry.first_sequence == self._after), None)
                if last is not None and self._has_grown(last):
                    return last
            return following
        if not listing:
            return None
        chosen = listing[0]
        for entry in listing:
            if self._time is not None:
                # strictly: records of exactly this time may end the previous segment
                if entry.first_time < max(0, self._time):
                    chosen = entry
            elif entry.first_sequence <= self._wanted:
                chosen = entry
        return chosen

    def _seek(self, segment: Segment) -> None:
        """Move to the first frame of a segment that can match."""
        footer = segment.footer
        end = footer.trailer_position if footer else None
        index = segment.index() if footer else None
        start = SEGMENT_HEADER_BYTES
        hint, self._hint = self._hint, None
        if hint is not None and hint.segment == segment.header.first_sequence:
            found = segment.frames(hint.offset, end).next() if hint.offset >= start else None
            if isinstance(found, Batch) and found.header.first_sequence <= self._wanted:
                start = hint.offset
        if index is not None:
            if self._time is not None:
                start = max(start, index.at_time(self._time))
            elif self._wanted > segment.header.first_sequence:
                start = max(start, index.at_sequence(self._wanted))
            # a time is searched in log order, whatever the keys: blocks may be skipped only behind it
            if self._key and self._time is None:
                areas = ((max(low, start), high) for low, high in index.with_key(self._key) if high > start)
                self._ranges = areas
                area = next(areas, None)
                self._frames = segment.frames(*area) if area else segment.frames(index.end, index.end)
                return
        self._frames = segment.frames(start, end)
