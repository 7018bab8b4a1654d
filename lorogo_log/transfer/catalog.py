"""The catalog of a log: its segments as entries that two processes exchange and compare."""

from __future__ import annotations

from dataclasses import dataclass

from lorogo_log.core import BlockingLog
from lorogo_log.errors import CorruptionError
from lorogo_log.format.layout import REWRITTEN, SEGMENT_HEADER_BYTES, SegmentHeader
from lorogo_log.recovery.recovery import SegmentName, list_segments
from lorogo_log.storage.segment import Segment
from lorogo_log.transfer.wire import SegmentEntry

ORDER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class LogState:
    """The end of a log, taken between two commits."""

    next_sequence: int
    end_offset: int
    chain: int
    epoch: int
    #: the segment being written; None if it has no frame yet
    header: SegmentHeader | None
    position: int


def log_end(core: BlockingLog, wait_seconds: float = ORDER_SECONDS) -> LogState:
    """Return the end of the log, from the writer's thread, so that all numbers are consistent."""

    def read_end() -> LogState:
        head, active = core.writer.engine.head, core.writer.engine.active
        return LogState(
            head.next_sequence, head.end_offset, head.chain, head.epoch, active.header, active.position
        )

    result: LogState = core.writer.command(read_end, writes=False).result(wait_seconds)
    return result


def catalog(core: BlockingLog, from_offset: int = 0) -> list[SegmentEntry]:
    """Return every segment that ends behind a log offset, in order; the last may be open."""
    now = log_end(core)
    listing = [entry for entry in list_segments(core.directory) if entry.first_sequence <= now.next_sequence]
    if now.header is not None:
        listing = [entry for entry in listing if entry.first_sequence <= now.header.first_sequence]
    result: list[SegmentEntry] = []
    following = _end(now)
    for place in reversed(listing):
        found = _entry(core, place, now, following)
        if found is None:
            continue  # cleaned or expired since the listing
        entry, chain = found
        if entry.end_offset <= from_offset:
            break
        result.append(entry)
        following = (entry.first_sequence, entry.first_offset, chain)
    result.reverse()
    return result


def _end(now: LogState) -> tuple[int, int, int]:
    return now.next_sequence, now.end_offset, now.chain


def _entry(
    core: BlockingLog, place: SegmentName, now: LogState, following: tuple[int, int, int]
) -> tuple[SegmentEntry, int] | None:
    """Return the entry and the chain value before it; None if the file is gone."""
    next_sequence, next_offset, next_chain = following
    try:
        segment = Segment.open(core.directory, place.name)
    except FileNotFoundError:
        return None
    except CorruptionError:
        lost = SegmentEntry(
            first_sequence=place.first_sequence,
            first_time=place.first_time,
            first_offset=0,
            last_sequence=next_sequence - 1,
            end_offset=next_offset,
            position=0,
            size=0,
            epoch=0,
            header_checksum=0,
            chain=next_chain,
            sealed=False,
            rewritten=False,
            damaged=True,
        )
        return lost, 0
    try:
        header, footer = segment.header, segment.footer
        if footer is None:  # being written, or being sealed
            next_sequence, next_offset, next_chain = following
        else:
            next_sequence = footer.last_sequence + 1
            next_offset, next_chain = footer.end_offset, footer.chain_out
        entry = SegmentEntry(
            first_sequence=header.first_sequence,
            first_time=place.first_time,
            first_offset=header.first_offset,
            last_sequence=next_sequence - 1,
            end_offset=next_offset,
            position=footer.trailer_position
            if footer
            else next_offset - header.first_offset + SEGMENT_HEADER_BYTES,
            size=segment.file.size() if footer else 0,
            epoch=footer.epoch if footer else now.epoch,
            header_checksum=header.checksum,
            chain=next_chain,
            sealed=footer is not None,
            rewritten=bool(header.flags & REWRITTEN),
            digest=footer.digest if footer else bytes(16),
            damaged=segment.damage is not None or any(known.path == segment.path for known in core.damage),
            chain_before=header.chain,
            records=footer.records if footer else 0,
        )
        return entry, header.chain
    finally:
        segment.close()
