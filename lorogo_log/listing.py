"""The segments of a log's directory, in order, told by their names."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from lorogo_log import names
from lorogo_log.format import SEGMENT_HEADER_BYTES, unpack_segment_header
from lorogo_log.storage import Directory


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """A segment as the listing shows it."""

    first_sequence: int
    first_time: int
    name: str


def list_segments(directory: Directory, *, prepared: bool = False) -> list[SegmentName]:
    """Segments in order. With `prepared`, also a file whose rename was lost in a crash and not yet mended."""
    found: dict[int, SegmentName] = {}
    for name in directory.list():
        if parsed := names.parse_segment(name):
            found[parsed[0]] = SegmentName(*parsed, name)
        elif prepared and names.PREPARED.fullmatch(name):
            with suppress(FileNotFoundError, ValueError):
                file = directory.open(name)
                try:
                    header = unpack_segment_header(file.pread(SEGMENT_HEADER_BYTES, 0))
                finally:
                    file.close()
                found.setdefault(
                    header.first_sequence, SegmentName(header.first_sequence, header.first_time, name)
                )
    return sorted(found.values())
