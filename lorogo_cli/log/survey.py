"""What each segment of a log is worth. Changes nothing, takes no lock."""

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
from lorogo_log.maintenance import sealed_segments
from lorogo_log.recovery.lost import RECORD_BYTES
from lorogo_log.recovery.recovery import FOOTER_DAMAGED, SegmentName
from lorogo_log.recovery.rewrite import good_frames
from lorogo_log.storage.disk import Directory
from lorogo_log.storage.segment import Segment, all_zeros, read_footer, scan

#: At least so many sequences are left out by a writer that finds its newest segment lost as a whole.
LEFT_OUT = (limits.BODY_BYTES_MAX + FRAME_HEADER_BYTES) // RECORD_BYTES
_LOOKS = 5
_LOOK_SECONDS = 0.05


class SegmentCondition(StrEnum):
    """What a segment is worth."""

    GOOD = "good"
    SEALED = "sealed"  # by its footer; nobody has read the rest
    WRITING = "being written"  # its end is where the writer is: no damage
    OPEN = "not closed"  # not sealed, and nobody writes: a crash; the next writer seals it
    TORN = "torn"  # ends in a half-written commit
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"  # not by this program, or not by this user


@dataclass(frozen=True, slots=True)
class SegmentDamage:
    """One place that does not check."""

    kind: str  # torn, corrupt, seal
    path: str
    offset: int
    reason: str
    #: where good frames begin again
    goes_on: int | None = None
    #: first and last sequence that cannot be served; the last is None if nobody can tell
    lost: tuple[int, int | None] | None = None
    #: the last of them is only a bound: a writer went on behind all that can have been there
    bound: bool = False

    def sentence(self) -> str:
        text = f"{self.path} at byte {self.offset}: {self.reason}"
        if self.lost is not None:
            text += f"; {lost_words(*self.lost, bound=self.bound)} lost"
        if self.goes_on is not None:
            text += f"; good again from byte {self.goes_on}"
        return text


def lost_words(first: int, last: int | None, *, bound: bool = False) -> str:
    """Which sequences, with their verb."""
    if bound and last is not None:
        return f"records from {first} on (at least 1, at most {last - first + 1}) are"
    if last is None:
        return f"record {first} and all after it (nobody can tell how many) are"
    return f"record {first} is" if first == last else f"records {first} to {last} are"


@dataclass(frozen=True, slots=True)
class SegmentCheck:
    """One segment, read whole (or, for `ls`, as far as its footer tells)."""

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
    #: named as a segment, and nothing of a log in it
    foreign: bool = False
    #: first and last sequence between the segment before and this one that are in neither
    gap: tuple[int, int] | None = None
    #: the same, for sequences that were never given
    left_out: tuple[int, int] | None = None
    #: the time of its first record where the name does not tell; None: there is none, or nobody looked
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
    """The segment after one."""
    return here.entries[number + 1] if number + 1 < len(here.entries) else None


# -- ls --------------------------------------------------------------------------------------------------


def glance(here: LogListing, number: int) -> SegmentCheck | None:
    """A segment by its header and footer; one without a footer is read. None: it went away meanwhile."""
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
    return judged(here, number)


# -- verify ----------------------------------------------------------------------------------------------


def judged(here: LogListing, number: int) -> SegmentCheck | None:
    """A segment, read whole. None: it went away meanwhile, or holds nothing yet."""
    entry, after = here.entries[number], following(here, number)
    try:
        return _judged(here, entry, after)
    except FileNotFoundError:
        pass
    if names.PREPARED.fullmatch(entry.name):  # it got its name meanwhile
        entry = replace(entry, name=names.segment_name(entry.first_sequence, entry.first_time))
        with suppress(FileNotFoundError):
            return _judged(here, entry, after)
    return None  # expired or cleaned


def _judged(here: LogListing, entry: SegmentName, after: SegmentName | None) -> SegmentCheck | None:
    try:
        verdict = _steady(here, entry, after)
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
    if here.writer is None or verdict.sealed:
        return verdict
    if names.PREPARED.fullmatch(entry.name) and not verdict.records:
        return None  # its first commit is on the way
    return _while_written(verdict, newest=after is None)


def _steady(here: LogListing, entry: SegmentName, after: SegmentName | None) -> SegmentCheck:
    """What is found twice: a writer may be at it, and damage stands still where a commit does not."""
    verdict = _judge(here.directory, entry, after)
    for _ in range(_LOOKS):
        if verdict.sealed or not verdict.damage:
            return verdict
        time.sleep(_LOOK_SECONDS)
        before, verdict = verdict, _judge(here.directory, entry, after)
        if verdict.damage == before.damage:
            return verdict
        both = tuple(fault for fault in verdict.damage if fault in before.damage)
        if not both:
            # the file moves: somebody writes, also where the system does not tell who
            verdict = replace(verdict, state=SegmentCondition.WRITING, damage=())
        else:
            verdict = replace(verdict, damage=both)
    return verdict


def _while_written(verdict: SegmentCheck, *, newest: bool) -> SegmentCheck:
    """The end of a segment that a process is writing or sealing is no damage."""
    moving = {"torn", "seal"} if newest else {"seal"}
    damage = tuple(fault for fault in verdict.damage if fault.kind not in moving)
    return replace(
        verdict, state=SegmentCondition.DAMAGED if damage else SegmentCondition.WRITING, damage=damage
    )


def _judge(directory: Directory, entry: SegmentName, after: SegmentName | None) -> SegmentCheck:
    report = sealed_segments.verify(directory, entry, newest=after is None)
    try:
        with _opened(directory, entry) as segment:
            return _weigh(segment, entry, after, report)
    except CorruptionError as damage:
        return _without_frames(directory, entry, after, damage)


def _weigh(
    segment: Segment, entry: SegmentName, after: SegmentName | None, report: sealed_segments.SegmentReport
) -> SegmentCheck:
    footer, header = segment.footer, segment.header
    verdict = SegmentCheck(
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
        verdict = replace(verdict, last_sequence=footer.last_sequence, last_time=last_time)
        if not report.damage:
            return verdict
    unusable = {fault.offset for fault in report.damage}  # some check, and their columns make no sense
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
        # all from the same look: a writer may have gone on since the report
        last_time = max((head.last_time for _, head in good if head.count), default=None)
        last = next_sequence - 1 if good else None
        verdict = replace(
            verdict,
            state=SegmentCondition.OPEN,
            last_sequence=last,
            last_time=last_time,
            least_time=min((head.first_time for _, head in good if head.count), default=None),
            records=records,
        )
        if not good and after is None and names.parse_segment(entry.name):
            reason = "no whole commit is in it, and a segment gets its name only with the first"
            empty = SegmentDamage(
                "corrupt", segment.path, SEGMENT_HEADER_BYTES, reason, None, (header.first_sequence, None)
            )
            return replace(verdict, state=SegmentCondition.DAMAGED, damage=(empty,))
    end = footer.last_sequence if footer else after.first_sequence - 1 if after else None
    missing = end is not None and next_sequence <= end and not header.flags & REWRITTEN

    def lost(offset: int, resume: int | None) -> tuple[int, int] | None:
        if offset < SEGMENT_HEADER_BYTES or (resume is None and not missing):
            return None  # the header, the trailer or the digest: no record is in them
        before = [head.last_sequence for position, head in good if position < offset]
        behind = [head.first_sequence for position, head in good if position >= (resume or segment.end)]
        first = before[-1] + 1 if before else header.first_sequence
        last = behind[0] - 1 if behind else end
        return (first, last) if last is not None and first <= last else None

    damage = []
    kept = bool(header.flags & REWRITTEN)
    # frames tell all that the footer said, unless the segment was rewritten: then it is a matter of the seal
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
                "the trailer is not whole, all records are there; the next writer seals the segment again"
            )
            damage.append(SegmentDamage("seal", segment.path, stopped, reason))
    kinds = {one.kind for one in damage}
    state = (
        SegmentCondition.DAMAGED if kinds - {"torn"} else SegmentCondition.TORN if kinds else verdict.state
    )
    return replace(verdict, state=state, damage=tuple(damage))


def _bound(lost: tuple[int, int | None] | None) -> bool:
    """Whether so many records are missing only because a writer went on behind all that can have been there.

    A segment of usual size does not hold so many, and one of another size would be left out as wide.
    """
    return lost is not None and lost[1] is not None and lost[1] - lost[0] + 1 >= LEFT_OUT


def _without_frames(
    directory: Directory, entry: SegmentName, after: SegmentName | None, fault: CorruptionError
) -> SegmentCheck:
    """A segment whose header does not check and that holds no good frame either."""
    file = directory.open(entry.name)
    try:
        footer, size, head = read_footer(file), file.size(), file.pread(len(SEGMENT_MAGIC), 0)
        blank = "the file is empty" if not size else "the file holds only zeros"
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
    """Every segment, read whole, one after another, with the gaps between them."""
    before: SegmentCheck | None = None
    for number in range(len(here.entries)):
        verdict = judged(here, number)
        if verdict is None:
            before = None
            continue
        verdict = _with_gap(before, verdict)
        before = verdict
        yield verdict


def _with_gap(before: SegmentCheck | None, verdict: SegmentCheck) -> SegmentCheck:
    """What lies between two segments: missing, or never given."""
    if before is None or not before.sealed or before.last_sequence is None:
        return verdict
    if verdict.first_sequence <= before.last_sequence + 1:
        return verdict
    between = (before.last_sequence + 1, verdict.first_sequence - 1)
    if before.first_offset is not None and verdict.first_offset is not None:
        # a writer that found the newest lost left out as many sequences as its bytes can have held records
        room = verdict.first_offset - before.first_offset
        sequences = verdict.first_sequence - before.first_sequence
        if sequences >= LEFT_OUT and sequences == room // RECORD_BYTES:
            return replace(verdict, left_out=between)
    return replace(verdict, gap=between)
