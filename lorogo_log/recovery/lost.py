"""A segment that is lost as a whole: what it can have held, and what takes its place."""

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
from lorogo_log.recovery.broken import created, dropped
from lorogo_log.storage.disk import Directory, File, write_all
from lorogo_log.storage.segment import digest_of
from lorogo_log.write.engine import LogHead

#: The reason when a segment has a name and a header and nothing else.
FIRST_LOST = "nothing is left of the first frame, which was on the disk before the segment got its name"
#: The reason when a name leads nowhere.
NOT_THERE = "it is listed, but is not there: a broken link?"
#: A record takes at least this: its time, two offsets, and a byte of msgpack.
RECORD_BYTES = 16


def room_of(file: File | None, segment_bytes: int) -> int:
    """At least as many bytes as the frames of a segment can have taken: many small ones, or one huge one."""
    return padded(max(segment_bytes, limits.BODY_BYTES_MAX + FRAME_HEADER_BYTES, file.size() if file else 0))


def stand_in(directory: Directory, name: str, header: SegmentHeader, head: LogHead) -> None:
    """An empty sealed segment instead of one that is lost as a whole: it keeps the place of what was lost."""
    header = replace(header, flags=header.flags | REWRITTEN)
    index = IndexBuilder(max(head.high_time, header.first_time))
    trailer = index.trailer()
    temporary = name + names.TEMPORARY
    whole = False
    file = created(directory, temporary)
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
            dropped(directory, temporary)
    directory.rename(temporary, name)
    directory.sync()
