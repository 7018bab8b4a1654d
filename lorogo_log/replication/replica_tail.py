"""The durable end of a coordinator's log, as pieces to send: each frame is read once for all. May block."""

from __future__ import annotations

from lorogo_log.core import BlockingLog
from lorogo_log.errors import CorruptionError
from lorogo_log.format.batch import Batch
from lorogo_log.format.layout import SEGMENT_HEADER_BYTES
from lorogo_log.recovery.recovery import list_segments
from lorogo_log.replication.replica_rules import Piece
from lorogo_log.storage.segment import Segment
from lorogo_log.transfer.catalog import log_end
from lorogo_log.transfer.wire import STREAM_BYTES_MAX

#: One hop to the reading thread brings at most about this much.
HOP_BYTES = 4 << 20


class TailLost(Exception):
    """The next frame cannot be read from the files: go on at the end, replicas fetch what is between."""


class Tail:
    """Reads frames from where it stands to the durable end."""

    def __init__(self, core: BlockingLog) -> None:
        self._core = core
        self._segment: Segment | None = None
        self._position = 0
        self.offset = 0
        #: frames too large for one message were left out since the last `read`
        self.skipped = False

    def close(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.close()

    def seek_end(self) -> None:
        """Go on from the end as it is now."""
        self.close()
        now = log_end(self._core)
        self.offset = now.end_offset
        if now.header is not None:
            self._open(now.header.first_sequence)
            self._position = now.position

    def _open(self, first_sequence: int) -> None:
        for place in list_segments(self._core.directory):
            if place.first_sequence == first_sequence:
                try:
                    self._segment = Segment.open(self._core.directory, place.name)
                except (FileNotFoundError, CorruptionError):
                    break
                self._position = SEGMENT_HEADER_BYTES
                return
        raise TailLost

    def read(self) -> list[Piece]:
        """What is durable and was not read yet, up to a hop's worth; empty at the end. Raises TailLost."""
        head = self._core.writer.engine.head
        limit = head.end_offset
        pieces: list[Piece] = []
        size = 0
        self.skipped = False
        while self.offset < limit and size < HOP_BYTES:
            if self._segment is None:
                self._enter()
            segment = self._segment
            assert segment is not None
            end = limit - segment.header.first_offset + SEGMENT_HEADER_BYTES
            frames = segment.frames(self._position, min(end, segment.end))
            while size < HOP_BYTES and isinstance(batch := frames.next(), Batch):
                frame = batch.header
                if frame.offset != self.offset:
                    raise TailLost
                first = batch.position == SEGMENT_HEADER_BYTES
                if frame.frame_bytes + SEGMENT_HEADER_BYTES > STREAM_BYTES_MAX:
                    self.skipped = True
                else:
                    raw = frame.pack() + batch.stored
                    pieces.append(Piece(frame, raw, segment.header if first else None))
                self._position = frames.position
                self.offset = frame.offset + frame.frame_bytes
                size += frame.frame_bytes
            if self.offset < limit and size < HOP_BYTES:
                self.close()  # the rest is in the next segment
                self._enter()
        return pieces

    def _enter(self) -> None:
        """Open the segment that begins where this one stands."""
        for place in reversed(list_segments(self._core.directory)):
            try:
                segment = Segment.open(self._core.directory, place.name)
            except (FileNotFoundError, CorruptionError):
                continue
            if segment.header.first_offset == self.offset and segment.damage is None:
                self._segment, self._position = segment, SEGMENT_HEADER_BYTES
                return
            before = segment.header.first_offset < self.offset
            segment.close()
            if before:
                break
        raise TailLost
