"""A log's directory as found: what is in it, what each segment is worth. Changes nothing, takes no lock."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from lorogo_cli.errors import Problem
from lorogo_cli.log_errors import disk_sentence
from lorogo_cli.values import show_count
from lorogo_log import maintain, names
from lorogo_log.errors import CorruptionError, FormatError, TornError
from lorogo_log.format import REWRITTEN, SEGMENT_HEADER_BYTES, SEGMENT_MAGIC, TRAILER_MAGIC
from lorogo_log.reader import Reader
from lorogo_log.recovery import FOOTER_DAMAGED, SegmentName, list_segments
from lorogo_log.rewrite import good_frames
from lorogo_log.segment import Segment, read_footer, scan
from lorogo_log.storage import Directory

_LOOKS = 5
_LOOK_SECONDS = 0.05
_NAMES_SHOWN = 3


class State(StrEnum):
    """What a segment is worth."""

    GOOD = "good"
    OPEN = "open"  # not sealed: being written, or its writer did not close it
    TORN = "torn"  # ends in a half-written commit
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"  # not by this program, or not by this user


@dataclass(frozen=True, slots=True)
class Damage:
    """One place that does not check."""

    kind: str  # torn, corrupt, seal
    path: str
    offset: int
    reason: str
    #: where good frames begin again
    goes_on: int | None = None
    #: first and last sequence that cannot be served, if that is known
    lost: tuple[int, int] | None = None

    def sentence(self) -> str:
        text = f"{self.path} at byte {self.offset}: {self.reason}"
        if self.lost is not None:
            first, last = self.lost
            text += f"; record {first} is lost" if first == last else f"; records {first} to {last} are lost"
        if self.goes_on is not None:
            text += f"; good again from byte {self.goes_on}"
        return text


@dataclass(frozen=True, slots=True)
class Verdict:
    """One segment, read whole (or, for `ls`, as far as its footer tells)."""

    name: str
    first_sequence: int
    first_time: int
    state: State
    last_sequence: int | None = None
    last_time: int | None = None
    records: int | None = None
    bytes: int = 0
    sealed: bool = False
    rewritten: bool = False
    damage: tuple[Damage, ...] = ()
    #: why it cannot be read
    problem: str = ""
    #: named as a segment, and nothing of a log in it
    foreign: bool = False
    #: sequences between the segment before and this one that are in neither
    gap_before: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """A log's directory, listed."""

    reader: Reader
    entries: list[SegmentName]
    foreign: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def directory(self) -> Directory:
        return self.reader.directory

    def bytes(self) -> int:
        """How much there is to read."""
        total = 0
        for entry in self.entries:
            try:
                file = self.directory.open(entry.name)
            except OSError:
                continue  # whoever reads it says why
            total += file.size()
            file.close()
        return total


def found(path: Path) -> Found:
    """The log in a directory. Raises Problem if there is none."""
    reader = Reader.open(path)
    present = sorted(reader.directory.list())
    if not present:
        raise Problem(f"{path} is empty: there is no log in it")
    foreign = [name for name in present if not names.is_ours(name)]
    if len(foreign) == len(present):
        raise Problem(_no_log(path, foreign))
    broken = [name for name in present if names.BROKEN.fullmatch(name)]
    return Found(reader, list_segments(reader.directory, prepared=True), foreign, broken)


def _no_log(path: Path, foreign: list[str]) -> str:
    for name in foreign:
        below = path / name
        if below.is_dir() and any(names.parse_segment(inner.name) for inner in below.iterdir()):
            return f"{path} is not a log itself, but there is one in {below}"
    return f"{path} is not a log: it holds only other files ({shown_names(foreign)})"


def shown_names(them: list[str]) -> str:
    """A few names, and how many more."""
    more = len(them) - _NAMES_SHOWN
    return ", ".join(them[:_NAMES_SHOWN]) + (f" and {show_count(more, 'other')}" if more > 0 else "")


@contextmanager
def _opened(directory: Directory, entry: SegmentName) -> Iterator[Segment]:
    segment = Segment.open(directory, entry.name)
    try:
        yield segment
    finally:
        segment.close()


def following(here: Found, number: int) -> SegmentName | None:
    """The segment after one."""
    return here.entries[number + 1] if number + 1 < len(here.entries) else None


# -- ls --------------------------------------------------------------------------------------------------


def glance(here: Found, number: int) -> Verdict | None:
    """A segment by its header and footer; one without a footer is read. None: it went away meanwhile."""
    entry = here.entries[number]
    try:
        with _opened(here.directory, entry) as segment:
            footer = segment.footer
            if footer is not None:
                return Verdict(
                    entry.name,
                    entry.first_sequence,
                    entry.first_time,
                    State.DAMAGED if segment.damage else State.GOOD,
                    footer.last_sequence,
                    footer.last_time if footer.records else None,
                    footer.records,
                    segment.file.size(),
                    sealed=True,
                    rewritten=bool(segment.header.flags & REWRITTEN),
                )
    except (FileNotFoundError, CorruptionError, FormatError, OSError):
        pass
    return judged(here, number)


# -- verify ----------------------------------------------------------------------------------------------


def judged(here: Found, number: int) -> Verdict | None:
    """A segment, read whole. None: it went away meanwhile."""
    entry, after = here.entries[number], following(here, number)
    try:
        verdict = _judge(here.directory, entry, after)
        for _ in range(_LOOKS):
            if verdict.sealed or not verdict.damage:
                break
            # a writer may be at it: damage stands still, a commit does not
            time.sleep(_LOOK_SECONDS)
            before, verdict = verdict, _judge(here.directory, entry, after)
            if verdict.damage == before.damage:
                break
    except FileNotFoundError:
        return None  # expired or cleaned
    except FormatError as error:
        return Verdict(
            entry.name, entry.first_sequence, entry.first_time, State.UNREADABLE, problem=str(error)
        )
    except OSError as error:
        sentence = disk_sentence(error, Path(here.directory.path, entry.name))
        return Verdict(entry.name, entry.first_sequence, entry.first_time, State.UNREADABLE, problem=sentence)
    return verdict


def _judge(directory: Directory, entry: SegmentName, after: SegmentName | None) -> Verdict:
    report = maintain.verify(directory, entry, newest=after is None)
    try:
        with _opened(directory, entry) as segment:
            return _weigh(segment, entry, after, report)
    except CorruptionError as damage:
        return _without_frames(directory, entry, after, damage)


def _weigh(
    segment: Segment, entry: SegmentName, after: SegmentName | None, report: maintain.SegmentReport
) -> Verdict:
    footer, header = segment.footer, segment.header
    verdict = Verdict(
        entry.name,
        entry.first_sequence,
        entry.first_time,
        State.GOOD,
        records=report.records,
        bytes=segment.file.size(),
        sealed=footer is not None,
        rewritten=bool(header.flags & REWRITTEN),
    )
    if footer is not None:
        last_time = footer.last_time if footer.records else None
        verdict = replace(verdict, last_sequence=footer.last_sequence, last_time=last_time)
        if not report.damage:
            return verdict
    good = [(batch.position, batch.header) for batch in good_frames(segment, skip_bad=True)]
    next_sequence = good[-1][1].last_sequence + 1 if good else header.first_sequence
    if footer is None:
        last_time = max((head.last_time for _, head in good if head.count), default=None)
        last = next_sequence - 1 if good else None
        verdict = replace(verdict, state=State.OPEN, last_sequence=last, last_time=last_time)
    end = footer.last_sequence if footer else after.first_sequence - 1 if after else None
    missing = end is not None and next_sequence <= end and not header.flags & REWRITTEN

    def lost(offset: int, resume: int | None) -> tuple[int, int] | None:
        if resume is None and (offset < SEGMENT_HEADER_BYTES or not missing):
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
            damage.append(Damage("torn", *where))
        else:
            damage.append(Damage("corrupt", *where, lost(fault.offset, fault.resume)))
    if footer is None and not any(fault.resume is None for fault in faults):
        stopped = scan(segment).end
        if missing:
            damage.append(
                Damage(
                    "corrupt", segment.path, stopped, "the segment ends too early", None, lost(stopped, None)
                )
            )
        elif segment.file.pread(len(TRAILER_MAGIC), stopped) == TRAILER_MAGIC:
            reason = (
                "the trailer is not whole, all records are there; the next writer seals the segment again"
            )
            damage.append(Damage("seal", segment.path, stopped, reason))
    kinds = {one.kind for one in damage}
    state = State.DAMAGED if kinds - {"torn"} else State.TORN if kinds else verdict.state
    return replace(verdict, state=state, damage=tuple(damage))


def _without_frames(
    directory: Directory, entry: SegmentName, after: SegmentName | None, fault: CorruptionError
) -> Verdict:
    """A segment whose header does not check and that holds no good frame either."""
    file = directory.open(entry.name)
    try:
        footer, size, head = read_footer(file), file.size(), file.pread(len(SEGMENT_MAGIC), 0)
    finally:
        file.close()
    last = footer.last_sequence if footer else after.first_sequence - 1 if after else None
    lost = (entry.first_sequence, last) if last is not None and last >= entry.first_sequence else None
    reason = f"{fault.reason}, and no good frame follows"
    return Verdict(
        entry.name,
        entry.first_sequence,
        entry.first_time,
        State.DAMAGED,
        records=0,
        bytes=size,
        damage=(Damage("corrupt", fault.path, fault.offset, reason, None, lost),),
        foreign=footer is None and bool(head) and head != SEGMENT_MAGIC,
    )


def survey(here: Found) -> Iterator[Verdict]:
    """Every segment, read whole, one after another, with the gaps between them."""
    expected: int | None = None
    for number, entry in enumerate(here.entries):
        verdict = judged(here, number)
        if verdict is None:
            expected = None
            continue
        gap = 0 if expected is None else max(0, entry.first_sequence - expected)
        expected = verdict.last_sequence + 1 if verdict.sealed and verdict.last_sequence is not None else None
        yield replace(verdict, gap_before=gap)
