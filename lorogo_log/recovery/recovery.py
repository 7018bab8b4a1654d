"""Recovery of a log's directory after a crash or disk damage, before the appender opens it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum

from lorogo_log import limits
from lorogo_log.errors import CorruptionError, DamageError, FormatError, LockedError, TornError
from lorogo_log.format import names
from lorogo_log.format.layout import (
    FOOTER_BYTES,
    FRAME_MAGIC,
    KEPT,
    LOG_ID,
    REWRITTEN,
    SEAL_MAGIC,
    SEGMENT_HEADER_BYTES,
    TIME_MIN,
    Footer,
    NewerVersion,
    SegmentHeader,
    unpack_frame_header,
    unpack_segment_header,
)
from lorogo_log.recovery.broken import (
    broken_files,
    create_temporary,
    free_suffix,
    keep_broken,
    remove_temporary,
)
from lorogo_log.recovery.lost import FIRST_LOST, NOT_THERE, RECORD_BYTES, frames_bound, replace_lost
from lorogo_log.storage.disk import Directory, File, Lock, write_all
from lorogo_log.storage.listing import SegmentName, list_segments, twin_damage
from lorogo_log.storage.segment import Scan, Segment, digest_of, read_footer, scan
from lorogo_log.write.engine import LogHead

__all__ = [
    "FOOTER_DAMAGED",
    "RecoveredLog",
    "RecoveryMode",
    "SegmentName",
    "broken_files",
    "create_temporary",
    "damage_of",
    "damaged_footer",
    "keep_broken",
    "list_segments",
    "missing_before",
    "recover",
    "remove_temporary",
    "reseal",
    "salvage",
]

#: The reason when frames are complete and the end of a sealed segment is not.
FOOTER_DAMAGED = "the footer does not check"
_GUESS_MAX = 1 << 32


class RecoveryMode(Enum):
    """The treatment of torn tails and corruption at open."""

    TAIL = "tail"  # cut a torn tail; leave corruption alone, report it, serve the rest
    STRICT = "strict"  # refuse to open
    SALVAGE = "salvage"  # as TAIL; and rewrite corrupt segments from their good frames


@dataclass(slots=True)
class RecoveredLog:
    """The log after recovery."""

    head: LogHead
    log_id: bytes | None = None
    #: the id in a damaged header; used if no segment with a good header has one
    damaged_log_id: bytes | None = None
    #: None: no segment with a good header has it
    partition: int | None = None
    damage: list[DamageError] = field(default_factory=list)
    #: tails that were cut; each was copied to a `.broken` file
    torn: list[TornError] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


Report = Callable[[DamageError], None]


def recover(
    directory: Directory,
    mode: RecoveryMode,
    *,
    log_id: bytes | None = None,
    segment_bytes: int = limits.SEGMENT_BYTES,
) -> RecoveredLog:
    """Recover the directory and return the end of the log. The caller holds the append lock.

    `log_id` is used if no segment with a good header has one. `segment_bytes` is the writer's option: it
    bounds the content of a segment lost as a whole.
    """
    cleaning = _exclude_cleaners(directory, mode)
    try:
        return _recover(directory, mode, log_id, segment_bytes, alone=cleaning is not None)
    except struct.error as error:
        raise FormatError(f"{directory.path} has values beyond the limits of a log: {error}") from None
    finally:
        if cleaning is not None:
            cleaning.release()


def _exclude_cleaners(directory: Directory, mode: RecoveryMode) -> Lock | None:
    """Return the clean lock. Only salvage requires it; other modes leave an active cleaner alone."""
    wait = limits.LOCK_SECONDS if mode is RecoveryMode.SALVAGE else 0
    try:
        return directory.lock(names.CLEAN_LOCK, exclusive=True, wait_seconds=wait)
    except LockedError:
        if mode is RecoveryMode.SALVAGE:
            raise
        return None


def _recover(
    directory: Directory, mode: RecoveryMode, log_id: bytes | None, segment_bytes: int, *, alone: bool
) -> RecoveredLog:
    result = RecoveredLog(LogHead())
    present = directory.list()
    _refuse_newer(directory, present)
    result.foreign = sorted(name for name in present if not names.is_ours(name))
    changed = False
    for name in sorted(present):
        if names.is_temporary(name):
            if alone:  # otherwise a cleaner in another process may be writing it
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
        for damage in twin_damage(directory, entry):
            if mode is RecoveryMode.STRICT:
                raise damage
            result.damage.append(damage)
        _recover_segment(directory, entry, following, mode, result, log_id, segment_bytes)
        if entry.hidden and following is None:  # its sequences must not be used again
            result.head.next_sequence = max(result.head.next_sequence, *_hidden_ends(directory, entry))
    return result


def _hidden_ends(directory: Directory, entry: SegmentName) -> list[int]:
    """Return the ends of files that are not served."""
    reach = [entry.first_sequence + 1]
    for name in entry.hidden:
        try:
            file = directory.open(name)
        except FileNotFoundError:
            continue
        try:
            footer = read_footer(file)
            reach.append((footer.last_sequence if footer else _last_sequence(file, entry.first_sequence)) + 1)
        finally:
            file.close()
    return reach


def _refuse_newer(directory: Directory, present: list[str]) -> None:
    """Raise FormatError if a newer lorogo wrote a file, before any change."""
    for name in sorted(present):
        prepared = names.PREPARED.fullmatch(name)
        if not prepared and not names.parse_segment(name):
            continue
        path = f"{directory.path}/{name}"
        try:
            file = directory.open(name)
        except FileNotFoundError:
            if prepared:
                raise FormatError(f"{path}: {NOT_THERE}: move it away") from None
            continue
        try:
            unpack_segment_header(file.pread(SEGMENT_HEADER_BYTES, 0))
        except NewerVersion as error:
            raise FormatError(f"{path}: {error}") from None
        except ValueError:
            pass
        finally:
            file.close()


def _adopt(directory: Directory, name: str, result: RecoveredLog, mode: RecoveryMode) -> None:
    """Rename a prepared file whose rename a crash lost, or remove it."""
    file = directory.open(name, write=True)
    try:
        # its writer may have died before its sync: a segment's name proves that its first frame is durable
        file.sync()
        head = file.pread(SEGMENT_HEADER_BYTES, 0)
        try:
            header = unpack_segment_header(head)
        except ValueError as error:
            if not _any_frame(file):
                directory.remove(name)
                return
            damage = CorruptionError(f"{directory.path}/{name}", 0, f"{error}, but frames follow")
            if mode is RecoveryMode.STRICT:
                raise damage from None
            result.damage.append(damage)
            directory.rename(name, f"{name}.{free_suffix(directory, name, 0)}")
            return
    finally:
        file.close()
    segment = Segment.open(directory, name)
    try:
        found = scan(segment)
    finally:
        segment.close()
    if not (found.index.frames or found.bad):
        directory.remove(name)
        return
    named = names.segment_name(header.first_sequence, header.first_time)
    if named in directory.list():
        _keep_better(directory, name, header, found, result)
    else:
        directory.rename(name, named)


def _keep_better(
    directory: Directory, name: str, header: SegmentHeader, found: Scan, result: RecoveredLog
) -> None:
    """Choose between a prepared file and an existing segment of that name; keep both files.

    No rename was lost, so the existing one stays unless the prepared file has all of its records.
    """
    named = names.segment_name(header.first_sequence, header.first_time)
    better = False
    if not (found.bad or found.torn):
        try:
            segment = Segment.open(directory, named)
        except CorruptionError:
            better = True
        else:
            try:
                better = _has_less(segment, header, found)
            finally:
                segment.close()
    loser = named if better else name
    reason = f"two files of the segment {named}: this one is kept aside"
    result.torn.append(TornError(f"{directory.path}/{loser}", 0, reason))
    if better:
        file = directory.open(named)
        try:
            keep_broken(directory, named, file, 0)
        finally:
            file.close()
        directory.rename(name, named)
    else:
        directory.rename(name, f"{name}.{free_suffix(directory, name, 0)}")


def _has_less(segment: Segment, header: SegmentHeader, other: Scan) -> bool:
    """Return True if a segment is damaged or shorter, and the other, complete file reaches as far."""
    mine = scan(segment, keys=False)
    footer = segment.footer
    reach = max(mine.end_offset, footer.end_offset if footer is not None else 0)
    if segment.header.flags & REWRITTEN or (segment.damage is None and segment.header != header):
        return False
    damaged = segment.damage is not None or bool(mine.bad)
    return other.end_offset > reach or (damaged and other.end_offset >= reach)


def _any_frame(file: File) -> bool:
    """Return True if a frame header checks anywhere in a file without a header."""
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


def _recover_segment(
    directory: Directory,
    entry: SegmentName,
    following: SegmentName | None,
    mode: RecoveryMode,
    result: RecoveredLog,
    log_id: bytes | None,
    segment_bytes: int,
) -> None:
    path = f"{directory.path}/{entry.name}"
    try:
        segment = Segment.open(directory, entry.name)
    except FileNotFoundError:
        _broken_link(entry, following, mode, result, CorruptionError(path, 0, NOT_THERE), segment_bytes)
        return
    except CorruptionError as damage:
        _without_header(directory, entry, following, mode, result, damage, log_id, segment_bytes)
        return
    try:
        header = segment.header
        if header.first_sequence != entry.first_sequence:
            raise FormatError(f"{path} is named for another sequence than its header has")
        if segment.damage is None:
            if result.log_id is not None and header.log_id != result.log_id:
                raise FormatError(f"{path} belongs to another log")
            result.log_id = header.log_id
            result.partition = header.partition
        elif mode is RecoveryMode.STRICT:
            raise segment.damage
        elif mode is RecoveryMode.TAIL:
            result.damaged_log_id = result.damaged_log_id or _stored_log_id(segment)
        else:
            segment.header = restored_header(directory, segment, result.log_id or log_id)
            result.log_id = segment.header.log_id
        if segment.footer is not None:
            _sealed(directory, segment, segment.footer, mode, result)
            return
        found = scan(
            segment, header.first_time if result.head.high_time == TIME_MIN else result.head.high_time
        )
        _unsealed(directory, segment, found, following, mode, result, segment_bytes)
    finally:
        segment.close()


def _sealed(
    directory: Directory, segment: Segment, footer: Footer, mode: RecoveryMode, result: RecoveredLog
) -> None:
    """Adopt a sealed segment by its footer; to salvage, read all of it."""
    result.head = replace(_head_after(footer), epoch=max(footer.epoch, result.head.epoch))
    damage = [segment.damage] if segment.damage else []
    if mode is RecoveryMode.SALVAGE:
        found = scan(segment)
        inside = damage_of(segment, found)
        damage += inside
        if inside == [] and not damage and segment.index() is None:
            damage.append(
                CorruptionError(segment.path, footer.trailer_position, "the trailer does not check")
            )
            if not footer.flags & KEPT:  # the frames confirm the trailer
                result.damage += damage
                reseal(directory, segment, found)
                return
        if damage:
            salvage(directory, segment, last_sequence=footer.last_sequence)
    result.damage += damage


def missing_before(found: Scan, after: SegmentName) -> str:
    """Describe the records that an unsealed segment lacks before the next one."""
    if not found.index.frames:  # the writer left out sequences behind it: the number of records is unknown
        return f"{found.torn or FIRST_LOST}: records from {found.next_sequence} on are missing"
    reason = found.torn or "the segment ends too early"
    return f"{reason}: records {found.next_sequence} to {after.first_sequence - 1} are missing"


def damage_of(segment: Segment, found: Scan) -> list[CorruptionError]:
    """Return the damage of a sealed segment's frames, once per position."""
    footer = segment.footer
    assert footer is not None
    damage = [CorruptionError(segment.path, *where) for where in found.bad]
    if found.torn:
        damage.append(CorruptionError(segment.path, found.end, found.torn))
    if not damage and (found.end != footer.trailer_position or found.index.records != footer.records):
        damage.append(CorruptionError(segment.path, found.end, "frames are missing before the trailer"))
    return damage


def damaged_footer(file: File, end: int) -> bool:
    """Return True if a file whose frames end at `end` was sealed and its footer is damaged.

    A seal that a crash interrupted leaves no footer.
    """
    size = file.size()
    if size < end + FOOTER_BYTES or read_footer(file) is not None:
        return False
    tail = file.pread(FOOTER_BYTES, size - FOOTER_BYTES)
    return tail[:8] == SEAL_MAGIC or int.from_bytes(tail[8:16], "little") == end


def _named_last_sequence(file: File) -> int:
    """Return the last sequence in a damaged footer: a gap is better than a sequence used twice."""
    size = file.size()
    return int.from_bytes(file.pread(8, max(0, size - FOOTER_BYTES) + 32), "little")


def _head_after(footer: Footer) -> LogHead:
    return LogHead(
        footer.last_sequence + 1, footer.end_offset, footer.chain_out, footer.epoch, footer.high_time
    )


def _unsealed(
    directory: Directory,
    segment: Segment,
    found: Scan,
    following: SegmentName | None,
    mode: RecoveryMode,
    result: RecoveredLog,
    segment_bytes: int,
) -> None:
    path, header = segment.path, segment.header
    damage: list[DamageError] = [segment.damage] if segment.damage else []
    damage += [CorruptionError(path, *where) for where in found.bad]
    missing = following is not None and following.first_sequence > found.reach
    # a segment of that name existed, so its first sequence was used
    next_sequence = max(found.next_sequence, header.first_sequence + 1)
    if header.flags & REWRITTEN:  # a rewritten segment is sealed before it gets its name
        damage.append(CorruptionError(path, found.end, FOOTER_DAMAGED))
        named = _named_last_sequence(segment.file) + 1
        # the damage may be in this number: never go beyond the next segment, which readers would skip
        most = following.first_sequence if following else next_sequence + _GUESS_MAX
        if next_sequence < named <= most:
            next_sequence = named
    elif missing:
        assert following is not None
        damage.append(CorruptionError(path, found.end, missing_before(found, following)))
    end_offset = found.end_offset
    if not found.index.frames and following is None:
        # the number of records is unknown: skip every sequence that may have been used
        room = frames_bound(segment.file, segment_bytes)
        next_sequence = max(next_sequence, header.first_sequence + room // RECORD_BYTES)
        end_offset = max(end_offset, header.first_offset + room)
        if not damage:
            damage.append(CorruptionError(path, found.end, found.torn or FIRST_LOST))
    result.head = LogHead(
        max(next_sequence, following.first_sequence if following else 0),
        end_offset,
        found.chain,
        max(found.index.epoch, header.epoch, result.head.epoch),
        max(found.index.high_time, result.head.high_time),
    )
    if damage:
        if mode is RecoveryMode.STRICT:
            raise damage[0]
        result.damage += damage
        if mode is RecoveryMode.SALVAGE and not found.index.frames:
            keep_broken(directory, segment.name, segment.file, 0)
            replace_lost(directory, segment.name, header, result.head)
        elif mode is RecoveryMode.SALVAGE:
            salvage(directory, segment, last_sequence=result.head.next_sequence - 1)
        elif not following:
            # keep the range of records that may follow the damage
            result.head.end_offset = max(
                end_offset, header.first_offset + segment.file.size() - SEGMENT_HEADER_BYTES
            )
        return
    if found.torn:
        torn = TornError(path, found.end, found.torn)
        if mode is RecoveryMode.STRICT:
            raise torn
        result.torn.append(torn)
        keep_broken(directory, segment.name, segment.file, found.end)
    reseal(directory, segment, found)


def _broken_link(
    entry: SegmentName,
    following: SegmentName | None,
    mode: RecoveryMode,
    result: RecoveredLog,
    damage: CorruptionError,
    segment_bytes: int,
) -> None:
    """Handle a broken link: its target may come back, so it stays, also in salvage."""
    if mode is RecoveryMode.STRICT:
        raise damage
    result.damage.append(damage)
    before = result.head
    room = 0 if following else frames_bound(None, segment_bytes)
    reach = following.first_sequence if following else entry.first_sequence + room // RECORD_BYTES
    result.head = replace(
        before,
        next_sequence=max(before.next_sequence, reach),
        end_offset=before.end_offset + room,
        high_time=max(before.high_time, entry.first_time),
    )


def _without_header(
    directory: Directory,
    entry: SegmentName,
    following: SegmentName | None,
    mode: RecoveryMode,
    result: RecoveredLog,
    damage: CorruptionError,
    log_id: bytes | None,
    segment_bytes: int,
) -> None:
    """Handle a segment without a header and without a frame to restore it from.

    Its name proves that it had a first frame, so this is corruption at any place, and its file stays.
    """
    if mode is RecoveryMode.STRICT:
        raise damage
    file = directory.open(entry.name)
    try:
        result.damage.append(damage)
        before = result.head
        if (footer := read_footer(file)) is not None:
            result.head = replace(_head_after(footer), epoch=max(footer.epoch, before.epoch))
        else:
            room = frames_bound(file, segment_bytes)
            least = _last_sequence(file, entry.first_sequence) + 1
            result.head = replace(
                before,
                next_sequence=max(
                    before.next_sequence,
                    following.first_sequence
                    if following
                    else max(least, entry.first_sequence + room // RECORD_BYTES),
                ),
                end_offset=before.end_offset if following else before.end_offset + room,
                high_time=max(before.high_time, entry.first_time),
            )
        log_id = result.log_id or log_id
        if mode is RecoveryMode.SALVAGE and log_id is not None:
            keep_broken(directory, entry.name, file, 0)
            header = SegmentHeader(
                entry.first_sequence,
                entry.first_time,
                before.epoch,
                before.end_offset,
                result.partition or 0,
                before.chain,
                log_id,
            )
            replace_lost(directory, entry.name, header, result.head)
    finally:
        file.close()


def _last_sequence(file: File, least: int) -> int:
    """Return the greatest sequence in any valid frame header of a file."""
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


def reseal(directory: Directory, segment: Segment, found: Scan) -> None:
    """Cut a segment behind its last good frame and write its trailer. It gets no new frames."""
    file = directory.open(segment.name, write=True)
    try:
        if file.size() > found.end:
            file.truncate(found.end)
        file.sync()  # a writer may have died before its sync: a trailer must not be durable before its frames
        _finish(file, segment.header, found, segment.path)
    finally:
        file.close()


def _finish(file: File, header: SegmentHeader, found: Scan, path: str, *, flags: int = 0) -> None:
    trailer = found.index.trailer()
    footer = found.index.footer(
        header,
        trailer,
        position=found.end,
        last_sequence=max(found.next_sequence - 1, header.first_sequence),
        end_offset=found.end_offset,
        chain_out=found.chain,
        digest=digest_of(file, found.end),
        flags=flags,
    )
    write_all(file, [trailer, footer.pack()], found.end, path)
    file.sync()


def salvage(directory: Directory, segment: Segment, *, last_sequence: int) -> None:
    """Rewrite a damaged segment from its good frames; the original is kept as `.broken`."""
    from lorogo_log.recovery.rewrite import rewrite  # noqa: PLC0415 - rewriting needs names from here

    if segment.damage is not None:
        segment.header = restored_header(directory, segment, segment.header.log_id or None)
    keep_broken(directory, segment.name, segment.file, 0)
    rewrite(directory, segment, lambda batch: batch, last_sequence=last_sequence)


def restored_header(directory: Directory, segment: Segment, log_id: bytes | None) -> SegmentHeader:
    """Restore a damaged header from its frames, and from the neighbours for fields that frames lack."""
    header = segment.header
    partition, chain = header.partition, 0
    for entry in list_segments(directory):
        if entry.name == segment.name:
            continue
        try:
            other = Segment.open(directory, entry.name)
        except (CorruptionError, FormatError, FileNotFoundError):
            continue
        try:
            if entry.first_sequence < header.first_sequence and other.footer is not None:
                chain = other.footer.chain_out
            if other.damage is None:
                log_id, partition = other.header.log_id, other.header.partition
        finally:
            other.close()
    if log_id is None:  # the only source left: the bytes themselves
        log_id = _stored_log_id(segment) or bytes(16)
    return replace(header, partition=partition, chain=chain, log_id=log_id)


def _stored_log_id(segment: Segment) -> bytes | None:
    """Return the id in a header, also a damaged one; None if it is cut off or zeros."""
    stored = segment.file.pread(SEGMENT_HEADER_BYTES, 0)[LOG_ID]
    return stored if len(stored) == 16 and any(stored) else None
