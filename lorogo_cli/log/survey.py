"""Check each segment of a log. Read-only, without locks."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from lorogo_cli.log.errors import disk_sentence, not_readable
from lorogo_cli.log.found import LogListing
from lorogo_log import limits
from lorogo_log.errors import CorruptionError, FormatError, TornError
from lorogo_log.format import names
from lorogo_log.format.layout import (
    FRAME_HEADER_BYTES,
    REWRITTEN,
    SEGMENT_HEADER_BYTES,
    SEGMENT_MAGIC,
    TRAILER_MAGIC,
)
from lorogo_log.recovery import sealed_segments
from lorogo_log.recovery.lost import RECORD_BYTES
from lorogo_log.recovery.recovery import FOOTER_DAMAGED, SegmentName
from lorogo_log.recovery.rewrite import good_frames
from lorogo_log.storage.disk import Directory
from lorogo_log.storage.segment import Segment, all_zeros, read_footer, scan

#: A writer that finds its newest segment lost as a whole leaves out at least this many sequences.
LEFT_OUT = (limits.BODY_BYTES_MAX + FRAME_HEADER_BYTES) // RECORD_BYTES
_LOOKS = 5
_LOOK_SECONDS = 0.05


class SegmentCondition(StrEnum):
    """The condition of a segment."""

    GOOD = "good"
    SEALED = "sealed"  # by its footer; the rest was not read
    WRITING = "being written"  # a writer is appending to its end: no damage
    OPEN = "not closed"  # not sealed, and no writer: a crash; the next writer seals it
    TORN = "torn"  # ends with an incomplete commit
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"  # not by this program, or not by this user


@dataclass(frozen=True, slots=True)
class SegmentDamage:
    """One damaged range."""

    kind: str  # torn, corrupt, seal
    path: str
    offset: int
    reason: str
    #: offset of the next good frame
    goes_on: int | None = None
    #: first and last lost sequence; the last is None if it is unknown
    lost: tuple[int, int | None] | None = None
    #: the last lost sequence is an upper bound: a writer continued after the highest possible sequence
    bound: bool = False

    def sentence(self) -> str:
        text = f"{self.path} at byte {self.offset}: {self.reason}"
        if self.lost is not None:
            text += f"; {lost_words(*self.lost, bound=self.bound)} lost"
        if self.goes_on is not None:
            text += f"; good again from byte {self.goes_on}"
        return text


def lost_words(first: int, last: int | None, *, bound: bool = False) -> str:
    """Return the lost sequences as text, with their verb."""
    if bound and last is not None:
        return f"records from {first} on (at least 1, at most {last - first + 1}) are"
    if last is None:
        return f"record {first} and an unknown number of later records are"
    return f"record {first} is" if first == last else f"records {first} to {last} are"


@dataclass(frozen=True, slots=True)
class SegmentCheck:
    """The result of reading one segment completely (for `ls`, only its footer)."""

    name: str
    first_sequence: int
    first_time: int
    state: SegmentCondition
    last_sequence: int | None = None
    last_time: int | None = None
    records: int | None = None
    bytes: int = 0
    sealed: bool = False
    rewritten: bool = False
    damage: tuple[SegmentDamage, ...] = ()
    #: why it cannot be read
    problem: str = ""
    #: has a segment's name, but is not a file of a log
    foreign: bool = False
    #: first and last missing sequence between the previous segment and this one
    gap: tuple[int, int] | None = None
    #: first and last sequence before this segment that were never assigned
    left_out: tuple[int, int] | None = None
    #: the time of its first record if the name does not have it; None: no record, or not read
    least_time: int | None = None
    first_offset: int | None = None


@contextmanager
def _opened(directory: Directory, entry: SegmentName) -> Iterator[Segment]:
    segment = Segment.open(directory, entry.name)
    try:
        yield segment
    finally:
        segment.close()


def following(here: LogListing, number: int) -> SegmentName | None:
    """Return the next segment, if any."""
    return here.entries[number + 1] if number + 1 < len(here.entries) else None


# -- ls --------------------------------------------------------------------------------------------------


def read_summary(here: LogListing, number: int) -> SegmentCheck | None:
    """Read a segment's header and footer, or all of it without a footer. None: it was removed meanwhile."""
    entry = here.entries[number]
    try:
        with _opened(here.directory, entry) as segment:
            footer = segment.footer
            if footer is not None:
                return SegmentCheck(
                    entry.name,
                    entry.first_sequence,
                    entry.first_time,
                    SegmentCondition.DAMAGED if segment.damage else SegmentCondition.SEALED,
                    footer.last_sequence,
                    footer.last_time if footer.records else None,
                    footer.records,
                    segment.file.size(),
                    sealed=True,
                    rewritten=bool(segment.header.flags & REWRITTEN),
                    least_time=footer.first_time if footer.records else None,
                )
    except (FileNotFoundError, CorruptionError, FormatError, OSError):
        pass
    return check_segment(here, number)


# -- verify ----------------------------------------------------------------------------------------------


def check_segment(here: LogListing, number: int) -> SegmentCheck | None:
    """Read and check a whole segment. None: it was removed meanwhile, or is still empty."""
    entry, after = here.entries[number], following(here, number)
    try:
        return _check_file(here, entry, after)
    except FileNotFoundError:
        pass
    if names.PREPARED.fullmatch(entry.name):  # it was renamed meanwhile
        entry = replace(entry, name=names.segment_name(entry.first_sequence, entry.first_time))
        with suppress(FileNotFoundError):
            return _check_file(here, entry, after)
    return None  # expired or cleaned


def _check_file(here: LogListing, entry: SegmentName, after: SegmentName | None) -> SegmentCheck | None:
    try:
        check = _check_until_stable(here, entry, after)
    except FileNotFoundError:
        raise
    except FormatError as error:
        why = not_readable(error)
        return SegmentCheck(
            entry.name, entry.first_sequence, entry.first_time, SegmentCondition.UNREADABLE, problem=why
        )
    except OSError as error:
        why = disk_sentence(error, Path(here.directory.path, entry.name))
        return SegmentCheck(
            entry.name, entry.first_sequence, entry.first_time, SegmentCondition.UNREADABLE, problem=why
        )
    if here.writer is None or check.sealed:
        return check
    if names.PREPARED.fullmatch(entry.name) and not check.records:
        return None  # its first commit is being written
    return _ignore_open_end(check, newest=after is None)


def _check_until_stable(here: LogListing, entry: SegmentName, after: SegmentName | None) -> SegmentCheck:
    """Check until two results agree: damage stays where it is, while a writer's commits move."""
    check = _check_once(here.directory, entry, after)
    for _ in range(_LOOKS):
        if check.sealed or not check.damage:
            return check
        time.sleep(_LOOK_SECONDS)
        before, check = check, _check_once(here.directory, entry, after)
        if check.damage == before.damage:
            return check
        both = tuple(fault for fault in check.damage if fault in before.damage)
        # without common damage the file changes: a process writes, even if the system does not show which
        check = (
            replace(check, damage=both) if both else replace(check, state=SegmentCondition.WRITING, damage=())
        )
    return check


def _ignore_open_end(check: SegmentCheck, *, newest: bool) -> SegmentCheck:
    """Drop damage at the end of a segment that a process is writing or sealing."""
    moving = {"torn", "seal"} if newest else {"seal"}
    damage = tuple(fault for fault in check.damage if fault.kind not in moving)
    return replace(
        check, state=SegmentCondition.DAMAGED if damage else SegmentCondition.WRITING, damage=damage
    )


def _check_once(directory: Directory, entry: SegmentName, after: SegmentName | None) -> SegmentCheck:
    report = sealed_segments.verify(directory, entry, newest=after is None)
    try:
        with _opened(directory, entry) as segment:
            return _classify(segment, entry, after, report)
    except CorruptionError as damage:
        return _without_frames(directory, entry, after, damage)


def _classify(
    segment: Segment, entry: SegmentName, after: SegmentName | None, report: sealed_segments.SegmentReport
) -> SegmentCheck:
    footer, header = segment.footer, segment.header
    check = SegmentCheck(
        entry.name,
        entry.first_sequence,
        entry.first_time,
        SegmentCondition.GOOD,
        records=report.records,
        bytes=segment.file.size(),
        sealed=footer is not None,
        rewritten=bool(header.flags & REWRITTEN),
        least_time=footer.first_time if footer is not None and footer.records else None,
        first_offset=header.first_offset if segment.damage is None else None,
    )
    if footer is not None:
        last_time = footer.last_time if footer.records else None
        check = replace(check, last_sequence=footer.last_sequence, last_time=last_time)
        if not report.damage:
            return check
    unusable = {fault.offset for fault in report.damage}  # some have good checksums and invalid columns
    good = [
        (batch.position, batch.header)
        for batch in good_frames(segment, skip_bad=True)
        if batch.position not in unusable
    ]
    next_sequence = good[-1][1].last_sequence + 1 if good else header.first_sequence
    records = sum(head.count for _, head in good)
    if good and not records:
        next_sequence += 1  # a segment that only carries an epoch takes one sequence for itself
    if footer is None:
        # all from the same read: a writer may have continued since the report
        last_time = max((head.last_time for _, head in good if head.count), default=None)
        last = next_sequence - 1 if good else None
        check = replace(
            check,
            state=SegmentCondition.OPEN,
            last_sequence=last,
            last_time=last_time,
            least_time=min((head.first_time for _, head in good if head.count), default=None),
            records=records,
        )
        if not good and after is None and names.parse_segment(entry.name):
            reason = "it has no complete commit, though a segment gets its name with the first one"
            empty = SegmentDamage(
                "corrupt", segment.path, SEGMENT_HEADER_BYTES, reason, None, (header.first_sequence, None)
            )
            return replace(check, state=SegmentCondition.DAMAGED, damage=(empty,))
    end = footer.last_sequence if footer else after.first_sequence - 1 if after else None
    missing = end is not None and next_sequence <= end and not header.flags & REWRITTEN

    def lost(offset: int, resume: int | None) -> tuple[int, int] | None:
        if offset < SEGMENT_HEADER_BYTES or (resume is None and not missing):
            return None  # the header, the trailer or the digest: they contain no records
        before = [head.last_sequence for position, head in good if position < offset]
        behind = [head.first_sequence for position, head in good if position >= (resume or segment.end)]
        first = before[-1] + 1 if before else header.first_sequence
        last = behind[0] - 1 if behind else end
        return (first, last) if last is not None and first <= last else None

    damage = []
    kept = bool(header.flags & REWRITTEN)
    # the frames have all facts of the footer, unless the segment was rewritten: then it is a damaged seal
    faults = [fault for fault in report.damage if kept or fault.reason != FOOTER_DAMAGED]
    for fault in faults:
        open_end = footer is None and fault.resume is None and not missing and not kept
        torn = isinstance(fault, TornError) or open_end
        where = (fault.path, fault.offset, fault.reason, fault.resume)
        if torn and fault.offset >= SEGMENT_HEADER_BYTES:
            damage.append(SegmentDamage("torn", *where))
        else:
            gone = lost(fault.offset, fault.resume)
            damage.append(
                SegmentDamage("corrupt", *where, gone, not good and footer is None and _bound(gone))
            )
    if footer is None and not any(fault.resume is None for fault in faults):
        stopped = scan(segment).end
        if missing:
            damage.append(
                SegmentDamage(
                    "corrupt",
                    segment.path,
                    stopped,
                    "the segment ends too early",
                    None,
                    lost(stopped, None),
                    not good and _bound(lost(stopped, None)),
                )
            )
        elif segment.file.pread(len(TRAILER_MAGIC), stopped) == TRAILER_MAGIC:
            reason = (
                "the trailer is incomplete, all records are present; the next writer seals the segment again"
            )
            damage.append(SegmentDamage("seal", segment.path, stopped, reason))
    kinds = {one.kind for one in damage}
    state = SegmentCondition.DAMAGED if kinds - {"torn"} else SegmentCondition.TORN if kinds else check.state
    return replace(check, state=state, damage=tuple(damage))


def _bound(lost: tuple[int, int | None] | None) -> bool:
    """Return whether the range is an upper bound: a writer continued after the highest possible sequence.

    A segment of usual size has fewer records, and for a larger segment the writer leaves out as many.
    """
    return lost is not None and lost[1] is not None and lost[1] - lost[0] + 1 >= LEFT_OUT


def _without_frames(
    directory: Directory, entry: SegmentName, after: SegmentName | None, fault: CorruptionError
) -> SegmentCheck:
    """Return the result for a segment with a damaged header and no good frame."""
    file = directory.open(entry.name)
    try:
        footer, size, head = read_footer(file), file.size(), file.pread(len(SEGMENT_MAGIC), 0)
        blank = "the file is empty" if not size else "the file has only zeros"
        if size and not all_zeros(file, 0, size):
            blank = ""
    finally:
        file.close()
    last = footer.last_sequence if footer else after.first_sequence - 1 if after else None
    lost = (entry.first_sequence, last) if last is None or last >= entry.first_sequence else None
    reason = blank or f"{fault.reason}, and no good frame follows"
    return SegmentCheck(
        entry.name,
        entry.first_sequence,
        entry.first_time,
        SegmentCondition.DAMAGED,
        records=0,
        bytes=size,
        damage=(
            SegmentDamage(
                "corrupt", fault.path, fault.offset, reason, None, lost, footer is None and _bound(lost)
            ),
        ),
        foreign=footer is None and bool(head.strip(b"\0")) and not SEGMENT_MAGIC.startswith(head),
    )


def survey(here: LogListing) -> Iterator[SegmentCheck]:
    """Check every segment in order, with the gaps between them."""
    before: SegmentCheck | None = None
    for number in range(len(here.entries)):
        check = check_segment(here, number)
        if check is None:
            before = None
            continue
        check = _with_gap(before, check)
        before = check
        yield check


def _with_gap(before: SegmentCheck | None, check: SegmentCheck) -> SegmentCheck:
    """Add the sequences between two segments: missing, or never assigned."""
    if before is None or not before.sealed or before.last_sequence is None:
        return check
    if check.first_sequence <= before.last_sequence + 1:
        return check
    between = (before.last_sequence + 1, check.first_sequence - 1)
    if before.first_offset is not None and check.first_offset is not None:
        # a writer that found the newest segment lost left out as many sequences as it can have had records
        room = check.first_offset - before.first_offset
        sequences = check.first_sequence - before.first_sequence
        if sequences >= LEFT_OUT and sequences == room // RECORD_BYTES:
            return replace(check, left_out=between)
    return replace(check, gap=between)
