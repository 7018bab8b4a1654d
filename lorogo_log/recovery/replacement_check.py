"""Checks that a received segment fits its place: its neighbours, and the file that it replaces."""

from __future__ import annotations

from collections.abc import Iterator

from lorogo_log.errors import CorruptionError, FormatError
from lorogo_log.format.batch import Batch, Record
from lorogo_log.format.layout import REWRITTEN, Footer
from lorogo_log.recovery.rewrite import good_frames
from lorogo_log.storage.disk import Directory
from lorogo_log.storage.listing import SegmentName, list_segments
from lorogo_log.storage.segment import Segment, scan
from lorogo_log.write.engine import LogHead


def require_place(directory: Directory, entry: SegmentName, coming: Segment, head: LogHead | None) -> None:
    """Raise FormatError unless a complete sealed segment may take the name of `entry`.

    It must follow its predecessor, lead to its successor, contain no sequence that the log has yet to assign,
    and contain every good record of the file that it replaces. `head`: the end of the open log.
    """
    footer = coming.footer
    assert footer is not None
    listing = list_segments(directory)
    for other in listing:
        _same_log(directory, entry, other, coming)
    for other in listing:
        if other.first_sequence == entry.first_sequence and (other.name != entry.name or other.hidden):
            twin = other.name if other.name != entry.name else other.hidden[0]
            raise FormatError(f"{entry.name}: {twin} begins with the same record; move one of them away")
    before = [other for other in listing if other.first_sequence < entry.first_sequence]
    after = [other for other in listing if other.first_sequence > entry.first_sequence]
    if before:
        _follows(directory, entry, coming, before[-1])
    if after:
        _leads_to(directory, entry, footer, after[0])
    if head is not None:
        if footer.last_sequence >= head.next_sequence:
            raise FormatError(
                f"{entry.name}: it ends with record {footer.last_sequence}, but the next record"
                f" of this log is {head.next_sequence}: sequences would be used twice"
            )
        if not after and not _joins(footer, head.next_sequence, head.end_offset, head.chain):
            raise FormatError(f"{entry.name}: this log does not continue at its end")
    _holds_all(directory, entry, coming, footer)


def _same_log(directory: Directory, entry: SegmentName, other: SegmentName, coming: Segment) -> None:
    """Raise FormatError for a segment of another log: with it, the log would not open any more."""
    try:
        segment = Segment.open(directory, other.name)
    except (FileNotFoundError, CorruptionError):
        return
    segment.close()
    ours, theirs = segment.header, coming.header
    if segment.damage is None and (ours.log_id, ours.partition) != (theirs.log_id, theirs.partition):
        raise FormatError(f"{entry.name}: the received segment belongs to another log")


def _follows(directory: Directory, entry: SegmentName, coming: Segment, before: SegmentName) -> None:
    try:
        segment = Segment.open(directory, before.name)
    except (FileNotFoundError, CorruptionError):
        return  # the predecessor cannot be read: there is nothing to compare
    try:
        footer, header = segment.footer, coming.header
        if footer is not None:
            last, offset, chain = footer.last_sequence, footer.end_offset, footer.chain_out
        else:
            found = scan(segment, keys=False)
            last, offset, chain = found.next_sequence - 1, found.end_offset, found.chain
    finally:
        segment.close()
    # (a segment begun while its predecessor was damaged left a range for the lost records)
    if (
        last >= header.first_sequence
        or offset > header.first_offset
        or (offset == header.first_offset and chain != header.chain)
    ):
        raise FormatError(f"{entry.name}: the received segment does not follow {before.name}")


def _leads_to(directory: Directory, entry: SegmentName, footer: Footer, after: SegmentName) -> None:
    try:
        segment = Segment.open(directory, after.name)
    except (FileNotFoundError, CorruptionError):
        segment = None
    fits = footer.last_sequence < after.first_sequence
    if segment is not None:
        segment.close()
        header = segment.header
        if segment.damage is None:
            fits = fits and _joins(footer, header.first_sequence, header.first_offset, header.chain)
    if not fits:
        raise FormatError(f"{entry.name}: the received segment does not lead to {after.name}")


def _joins(footer: Footer, sequence: int, offset: int, chain: int) -> bool:
    """Return True if a segment that begins there can follow the footer's, directly or after a gap."""
    if footer.end_offset > offset:
        return False
    return footer.chain_out == chain or (footer.end_offset < offset and footer.last_sequence + 1 < sequence)


def _holds_all(directory: Directory, entry: SegmentName, coming: Segment, footer: Footer) -> None:
    """Raise FormatError if the replacement loses a good record: if it is shorter or has other records."""
    try:
        old = Segment.open(directory, entry.name)
    except (FileNotFoundError, CorruptionError):
        return
    try:
        if old.footer is not None:
            here = (old.footer.last_sequence, old.footer.end_offset, old.footer.chain_out)
            there = (footer.last_sequence, footer.end_offset, footer.chain_out)
            longer = here[0] <= there[0] and here[1] < there[1]
            if here != there and not longer:
                raise FormatError(f"{entry.name}: the received segment ends elsewhere than the stored one")
        if (old.header.flags | coming.header.flags) & REWRITTEN:
            _same_records(entry.name, old, coming)
        else:
            _same_frames(entry.name, old, coming)
    finally:
        old.close()


def _same_frames(name: str, old: Segment, coming: Segment) -> None:
    """Compare frames of two segments that were not rewritten: positions are equal, headers cover bodies."""
    for batch in good_frames(old, skip_bad=True):
        packed = batch.header.pack()
        if coming.file.pread(len(packed), batch.position) != packed:
            raise _other(name, batch.header.first_sequence)


def _same_records(name: str, old: Segment, coming: Segment) -> None:
    theirs = _records(good_frames(coming, skip_bad=True))
    candidate = next(theirs, None)
    for record in _records(good_frames(old, skip_bad=True)):
        while candidate is not None and candidate.sequence < record.sequence:
            candidate = next(theirs, None)
        if candidate is None or _content(candidate) != _content(record):
            raise _other(name, record.sequence)


def _other(name: str, sequence: int) -> FormatError:
    return FormatError(f"{name}: record {sequence} is good here, but not in the received segment")


def _records(batches: Iterator[Batch]) -> Iterator[Record]:
    for batch in batches:
        yield from batch.records()


def _content(record: Record) -> tuple[int, int, bytes, bytes]:
    return record.sequence, record.time, record.key, record.payload
