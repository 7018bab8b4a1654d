"""The segments of a log's directory, in order, from their names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from lorogo_log.errors import CorruptionError, FormatError
from lorogo_log.format import names
from lorogo_log.format.layout import SEGMENT_HEADER_BYTES, NewerVersion, unpack_segment_header
from lorogo_log.storage.disk import Directory
from lorogo_log.storage.segment import Segment


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """A segment in the listing."""

    first_sequence: int
    first_time: int
    name: str
    #: files with the same first sequence that are not served, because this one fits the log better
    hidden: tuple[str, ...] = field(default=(), compare=False)


def list_segments(directory: Directory, *, prepared: bool = False) -> list[SegmentName]:
    """Return segments in order. With `prepared`, also a file whose rename a crash lost."""
    found: dict[int, SegmentName] = {}
    twins: dict[int, list[SegmentName]] = {}
    for name in directory.list():
        if parsed := names.parse_segment(name):
            entry = SegmentName(*parsed, name)
            known = found.setdefault(parsed[0], entry)
            if known is not entry and names.parse_segment(known.name):
                twins.setdefault(parsed[0], [known]).append(entry)
            found[parsed[0]] = entry
        elif prepared and names.PREPARED.fullmatch(name):
            with suppress(FileNotFoundError, ValueError):
                file = directory.open(name)
                try:
                    header = unpack_segment_header(file.pread(SEGMENT_HEADER_BYTES, 0))
                except NewerVersion as error:
                    raise FormatError(f"{directory.path}/{name}: {error}") from None
                finally:
                    file.close()
                found.setdefault(
                    header.first_sequence, SegmentName(header.first_sequence, header.first_time, name)
                )
    listing = sorted(found.values())
    return [_chosen(directory, listing, at, twins) for at in range(len(listing))] if twins else listing


def twin_damage(directory: Directory, entry: SegmentName) -> Iterator[CorruptionError]:
    """Yield the damage of files that share their first sequence with the served one, and are not served."""
    for name in entry.hidden:
        reason = f"it begins with the same record as {entry.name}, which is served instead"
        yield CorruptionError(f"{directory.path}/{name}", 0, reason)


def _chosen(
    directory: Directory, listing: list[SegmentName], at: int, twins: dict[int, list[SegmentName]]
) -> SegmentName:
    """Return the file with this first sequence that fits its neighbours; else the longest."""
    same = twins.get(listing[at].first_sequence)
    if same is None:
        return listing[at]
    before = _ends(directory, listing[at - 1].name)[1] if at else None
    after = _ends(directory, listing[at + 1].name)[0] if at + 1 < len(listing) else None

    def fit(entry: SegmentName) -> tuple[int, int, str]:
        begin, end = _ends(directory, entry.name)
        joins = (begin is not None, begin is not None and begin == before, end is not None and end == after)
        return sum(joins), end[0] if end else 0, entry.name

    best = max(same, key=fit)
    return replace(best, hidden=tuple(sorted(entry.name for entry in same if entry is not best)))


_Joint = tuple[int, int, int]


def _ends(directory: Directory, name: str) -> tuple[_Joint | None, _Joint | None]:
    """Return (sequence, log offset, chain) at a segment's start, and those after its end, if known."""
    try:
        segment = Segment.open(directory, name)
    except (FileNotFoundError, CorruptionError, FormatError):
        return None, None
    segment.close()
    header, footer = segment.header, segment.footer
    begin = (header.first_sequence, header.first_offset, header.chain) if segment.damage is None else None
    end = (footer.last_sequence + 1, footer.end_offset, footer.chain_out) if footer else None
    return begin, end
