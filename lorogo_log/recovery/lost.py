"""A segment lost as a whole: the bound of its content, and its replacement."""

from __future__ import annotations

from dataclasses import replace

from lorogo_log import limits
from lorogo_log.format import names
from lorogo_log.format.index import IndexBuilder
from lorogo_log.format.layout import (
    FRAME_HEADER_BYTES,
    KEPT,
    REWRITTEN,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    padded,
)
from lorogo_log.recovery.broken import create_temporary, remove_temporary
from lorogo_log.storage.disk import Directory, File, write_all
from lorogo_log.storage.segment import digest_of
from lorogo_log.write.engine import LogHead

#: The reason when a segment has only a name and a header.
FIRST_LOST = "the first frame is lost, although it was on the disk before the segment got its name"
#: The reason when a name is a broken link.
NOT_THERE = "it is listed, but is not there: a broken link?"
#: The least size of a record: its time, two offsets, and a byte of msgpack.
RECORD_BYTES = 16


def frames_bound(file: File | None, segment_bytes: int) -> int:
    """Return an upper bound of the bytes of the segment's frames: many small ones, or one huge one."""
    return padded(max(segment_bytes, limits.BODY_BYTES_MAX + FRAME_HEADER_BYTES, file.size() if file else 0))


def replace_lost(directory: Directory, name: str, header: SegmentHeader, head: LogHead) -> None:
    """Write an empty sealed segment in place of a lost one, with its range of sequences."""
    header = replace(header, flags=header.flags | REWRITTEN)
    index = IndexBuilder(max(head.high_time, header.first_time))
    trailer = index.trailer()
    temporary = name + names.TEMPORARY
    whole = False
    file = create_temporary(directory, temporary)
    try:
        write_all(file, [header.pack()], 0, temporary)
        footer = index.footer(
            header,
            trailer,
            position=SEGMENT_HEADER_BYTES,
            last_sequence=head.next_sequence - 1,
            end_offset=head.end_offset,
            chain_out=head.chain,
            digest=digest_of(file, SEGMENT_HEADER_BYTES),
            flags=KEPT,
        )
        footer = replace(footer, epoch=max(footer.epoch, head.epoch))
        write_all(file, [trailer, footer.pack()], SEGMENT_HEADER_BYTES, temporary)
        file.sync()
        whole = True
    finally:
        file.close()
        if not whole:
            remove_temporary(directory, temporary)
    directory.rename(temporary, name)
    directory.sync()
