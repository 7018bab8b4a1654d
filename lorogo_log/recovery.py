"""What is in a log's directory: listed for everybody, put in order for the appender that opens it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from lorogo_log import limits, names
from lorogo_log.engine import Head
from lorogo_log.errors import CorruptionError, DamageError, FormatError, TornError
from lorogo_log.format import (
    FRAME_MAGIC,
    REWRITTEN,
    SEGMENT_HEADER_BYTES,
    SEGMENT_MAGIC,
    TIME_MIN,
    Footer,
    SegmentHeader,
    unpack_frame_header,
    unpack_segment_header,
)
from lorogo_log.segment import Scan, Segment, digest_of, read_footer, scan
from lorogo_log.storage import Directory, File, write_all


class Recovery(Enum):
    """What to do with what a crash or a bad disk left."""

    TAIL = "tail"  # cut a torn tail; leave corruption alone, report it, serve the rest
    STRICT = "strict"  # refuse to open
    SALVAGE = "salvage"  # as TAIL; and rewrite corrupt segments from their good frames


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


@dataclass(slots=True)
class Recovered:
    """The log as found, in order again."""

    head: Head
    log_id: bytes | None = None
    damage: list[DamageError] = field(default_factory=list)
    torn: list[TornError] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


Report = Callable[[DamageError], None]


def recover(directory: Directory, mode: Recovery) -> Recovered:
    """Mend what a crash left, and say where the log stands. For the holder of the append lock."""
    result = Recovered(Head())
    present = directory.list()
    result.foreign = sorted(name for name in present if not names.is_ours(name))
    changed = False
    for name in sorted(present):
        if name.endswith(names.TEMPORARY):
            directory.remove(name)
            changed = True
        elif names.PREPARED.fullmatch(name):
            _adopt(directory, name, result, mode)
            changed = True
    if changed:
        directory.sync()
    listing = list_segments(directory)
    for number, entry in enumerate(listing):
        following = listing[number + 1] if number + 1 < len(listing) else None
        _one(directory, entry, following, mode, result)
    return result


def _adopt(directory: Directory, name: str, result: Recovered, mode: Recovery) -> None:
    """A prepared file: a segment whose rename was lost, or nothing."""
    file = directory.open(name)
    try:
        head = file.pread(SEGMENT_HEADER_BYTES, 0)
        try:
            header = unpack_segment_header(head)
        except ValueError as error:
            if not _any_frame(file):
                directory.remove(name)
                return
            damage = CorruptionError(f"{directory.path}/{name}", 0, f"{error}, but frames follow")
            if mode is Recovery.STRICT:
                raise damage from None
            result.damage.append(damage)
            directory.rename(name, f"{name}.{_free(directory, name, 0)}")
            return
    finally:
        file.close()
    segment = Segment.open(directory, name)
    try:
        found = scan(segment)
    finally:
        segment.close()
    if found.index.frames or found.bad:
        directory.rename(name, names.segment_name(header.first_sequence, header.first_time))
    else:
        directory.remove(name)


def _any_frame(file: File) -> bool:
    """Whether any frame header checks anywhere in a file that has no header of its own."""
    at, size = 0, file.size()
    while at < size:
        chunk = file.pread(limits.READ_BYTES + 80, at)
        found = chunk.find(FRAME_MAGIC)
        while found >= 0:
            with suppress(ValueError):
                unpack_frame_header(chunk, found)
                return True
            found = chunk.find(FRAME_MAGIC, found + 1)
        at += limits.READ_BYTES
    return False


def _one(
    directory: Directory, entry: SegmentName, following: SegmentName | None, mode: Recovery, result: Recovered
) -> None:
    path = f"{directory.path}/{entry.name}"
    try:
        segment = Segment.open(directory, entry.name)
    except CorruptionError as damage:
        _without_header(directory, entry, following, mode, result, damage)
        return
    try:
        header = segment.header
        if header.first_sequence != entry.first_sequence:
            raise FormatError(f"{path} is named for another sequence than its header says")
        if segment.damage is None:
            if result.log_id is not None and header.log_id != result.log_id:
                raise FormatError(f"{path} belongs to another log")
            result.log_id = header.log_id
        elif mode is Recovery.STRICT:
            raise segment.damage
        if segment.footer is not None:
            if segment.damage is not None:
                result.damage.append(segment.damage)
            result.head = _after(segment.footer)
            return
        found = scan(
            segment, header.first_time if result.head.high_time == TIME_MIN else result.head.high_time
        )
        _unsealed(directory, segment, found, following, mode, result)
    finally:
        segment.close()


def _after(footer: Footer) -> Head:
    return Head(footer.last_sequence + 1, footer.end_offset, footer.chain_out, footer.epoch, footer.high_time)


def _unsealed(
    directory: Directory,
    segment: Segment,
    found: Scan,
    following: SegmentName | None,
    mode: Recovery,
    result: Recovered,
) -> None:
    path, header = segment.path, segment.header
    damage: list[DamageError] = [segment.damage] if segment.damage else []
    damage += [CorruptionError(path, *where) for where in found.bad]
    missing = following is not None and following.first_sequence > found.next_sequence
    if missing and not header.flags & REWRITTEN:
        assert following is not None
        reason = found.torn or "the segment ends too early"
        lost = f"{reason}: records {found.next_sequence} to {following.first_sequence - 1} are missing"
        damage.append(CorruptionError(path, found.end, lost))
    result.head = Head(
        max(found.next_sequence, following.first_sequence if following else 0),
        found.end_offset,
        found.chain,
        max(found.index.epoch, header.epoch, result.head.epoch),
        max(found.index.high_time, result.head.high_time),
    )
    if damage:
        if mode is Recovery.STRICT:
            raise damage[0]
        result.damage += damage
        if mode is Recovery.SALVAGE:
            salvage(directory, segment, last_sequence=result.head.next_sequence - 1)
        elif not following:
            # the place of what may stand behind the damage is not given away
            result.head.end_offset = max(
                found.end_offset, header.first_offset + segment.file.size() - SEGMENT_HEADER_BYTES
            )
        return
    if found.torn:
        torn = TornError(path, found.end, found.torn)
        if mode is Recovery.STRICT:
            raise torn
        result.torn.append(torn)
        keep_broken(directory, segment.name, segment.file, found.end)
    reseal(directory, segment, found)


def _without_header(
    directory: Directory,
    entry: SegmentName,
    following: SegmentName | None,
    mode: Recovery,
    result: Recovered,
    damage: CorruptionError,
) -> None:
    """A segment whose header does not check: torn if it holds nothing and nothing follows; else corrupt."""
    file = directory.open(entry.name)
    try:
        footer = read_footer(file)
        head = file.pread(8, 0)
        empty = following is None and footer is None and not _any_frame(file)
        if empty and head.strip(b"\0") and not SEGMENT_MAGIC.startswith(head):
            raise FormatError(f"{directory.path}/{entry.name}: {damage.reason}")
        torn = TornError(damage.path, 0, damage.reason)
        if mode is Recovery.STRICT:
            raise torn if empty else damage
        if empty:
            result.torn.append(torn)
            keep_broken(directory, entry.name, file, 0)
            directory.remove(entry.name)
            directory.sync()
            return
        result.damage.append(damage)
        if footer is not None:
            result.head = _after(footer)
        else:
            result.head.next_sequence = max(
                result.head.next_sequence,
                following.first_sequence if following else _last_sequence(file, entry.first_sequence) + 1,
            )
            result.head.high_time = max(result.head.high_time, entry.first_time)
    finally:
        file.close()


def _last_sequence(file: File, least: int) -> int:
    """The greatest sequence that any checked frame header in a file names."""
    last, at, size = least, 0, file.size()
    while at < size:
        chunk = file.pread(limits.READ_BYTES + 80, at)
        found = chunk.find(FRAME_MAGIC)
        while found >= 0:
            with suppress(ValueError):
                last = max(last, unpack_frame_header(chunk, found).last_sequence)
            found = chunk.find(FRAME_MAGIC, found + 1)
        at += limits.READ_BYTES
    return last


def _free(directory: Directory, name: str, position: int) -> str:
    """An ending in `.broken` that is not taken."""
    taken = set(directory.list())
    number = 0
    while f"{name}.{(ending := f'{position}-{number}.broken' if number else f'{position}.broken')}" in taken:
        number += 1
    return ending


def keep_broken(directory: Directory, name: str, file: File, position: int) -> str:
    """Copy a file from a position on into a `.broken` file, synced before anything is cut."""
    broken = f"{name}.{_free(directory, name, position)}"
    copy = directory.create(broken)
    try:
        at, size = position, file.size()
        while at < size:
            chunk = file.pread(limits.READ_BYTES, at)
            if not chunk:
                break
            write_all(copy, [chunk], at - position, broken)
            at += len(chunk)
        copy.sync()
    finally:
        copy.close()
    directory.sync()
    return broken


def reseal(directory: Directory, segment: Segment, found: Scan) -> None:
    """Cut a found segment behind its last good frame and write its trailer. It gets no new frames."""
    file = directory.open(segment.name, write=True)
    try:
        if file.size() > found.end:
            file.truncate(found.end)
            file.sync()
        _finish(file, segment.header, found, segment.path)
    finally:
        file.close()


def _finish(file: File, header: SegmentHeader, found: Scan, path: str, *, flags: int = 0) -> None:
    trailer = found.index.trailer()
    footer = found.index.footer(
        header,
        trailer,
        position=found.end,
        last_sequence=found.next_sequence - 1,
        end_offset=found.end_offset,
        chain_out=found.chain,
        digest=digest_of(file, found.end),
        flags=flags,
    )
    write_all(file, [trailer, footer.pack()], found.end, path)
    file.sync()


def salvage(directory: Directory, segment: Segment, *, last_sequence: int) -> None:
    """Rewrite a damaged segment from its good frames; the original is kept as `.broken`."""
    from lorogo_log.rewrite import rewrite  # noqa: PLC0415 - rewriting needs names from here

    keep_broken(directory, segment.name, segment.file, 0)
    rewrite(directory, segment, lambda batch: batch, last_sequence=last_sequence)


def broken_files(directory: Directory) -> Iterable[str]:
    """Names of what recovery put aside."""
    return sorted(name for name in directory.list() if names.BROKEN.fullmatch(name))
