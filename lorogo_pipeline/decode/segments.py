"""Find the segments of journals, and read their frames; damage is reported.

A place is a server's data folder, a journal, or an archive (an fsspec URL). A segment may have copies in
several places (journal, replica, archive).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from lorogo_log import CorruptionError, FileStorage, LogError
from lorogo_log.format.batch import Batch
from lorogo_log.format.layout import FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES
from lorogo_log.format.names import APPEND_LOCK
from lorogo_log.recovery.rewrite import damage_at
from lorogo_log.storage.disk import Directory
from lorogo_log.storage.segment import Segment, find_frame
from lorogo_pipeline.errors import BadOption, DamagedJournal
from lorogo_server.journal.archive import ArchiveError, ArchiveStorage
from lorogo_server.recovery.restore_sources import NoSource, find

FAIL, SKIP = "fail", "skip"


@dataclass(frozen=True, slots=True)
class SegmentCopy:
    """One file that holds a segment."""

    folder: str  # the log's directory or URL
    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """One segment with all its copies, the best copy first."""

    log: str  # id of the log and its partition: the scope of its sequences
    first_sequence: int
    last_sequence: int  # -1: open, or unknown
    first_time: int
    last_time: int  # of an open one: the largest time
    copies: tuple[SegmentCopy, ...]
    damage: str = ""  # why it cannot be opened or identified
    next_first: int = 0  # first sequence of the next segment; 0: it is the newest
    resume: tuple[int, int] | None = (
        None  # position and checksum of the last frame that an earlier ingest read
    )
    began: int = 0  # start time in its name: a journal restored from a backup reuses sequences
    checksum: int = 0  # of the last frame of a sealed one

    @property
    def sealed(self) -> bool:
        return self.last_sequence >= 0

    @property
    def bytes(self) -> int:
        return self.copies[0].bytes

    @property
    def position(self) -> str:
        """The name of the position that a table records for a sealed segment; the value is `end`."""
        return f"segment/{self.log}/{self.first_sequence}"

    @property
    def end(self) -> int:
        """Last sequence and its checksum: a journal restored from a backup reuses sequences."""
        return (self.checksum << 31) + self.last_sequence % (1 << 31)

    @property
    def tail(self) -> str:
        """The name under which a table records the position of the last frame that it read."""
        return f"tail/{self.log}/{self.first_sequence}"

    @property
    def tail_checksum(self) -> str:
        """The name for that frame's checksum: the end of an open segment may be truncated and rewritten."""
        return f"tail-checksum/{self.log}/{self.first_sequence}"

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> SegmentFacts:
        """Convert back from `asdict` and JSON."""
        resume = raw["resume"]
        copies = tuple(SegmentCopy(**copy) for copy in raw["copies"])
        return cls(**{**raw, "copies": copies, "resume": None if resume is None else tuple(resume)})


_END_OF_TIME = (1 << 63) - 1
_Key = tuple[str, int, int]  # the log, the first sequence, the start time


def find_segments(places: Sequence[str]) -> list[SegmentFacts]:
    """Return every segment at or below the places, in order. Raises NoSource, ArchiveError, BadOption."""
    if not places:
        raise BadOption("name a journal: a server's data folder, a journal, or the URL of an archive")
    found: dict[_Key, list[SegmentFacts]] = {}
    for place in places:
        try:
            sources = find(place)
        except NoSource:
            if _is_empty_journal(place):
                continue
            raise
        for source in sources:
            directory = source.reader.directory
            beside = [
                _facts(directory, info.name, info.bytes, info.first_sequence, info.first_time)
                for info in source.reader.segments()
            ]
            for facts in _labelled_by_neighbours(beside):
                found.setdefault((facts.log, facts.first_sequence, facts.began), []).append(facts)
    whole = [same for _, same in sorted(_with_unlabelled_copies(found).items())]
    return _with_next_first([_merged(one) for same in whole for one in _incarnations(same)])


def gaps(segments: Sequence[SegmentFacts]) -> list[str]:
    """Describe missing segments between existing ones."""
    found = []
    last = -1  # maximum so far: a restored journal has sequences twice
    for before, behind in pairwise(segments):
        last = max(last, before.last_sequence)
        if before.log != behind.log:
            last = -1
        elif before.sealed and last + 1 < behind.first_sequence:
            folder, until = before.copies[0].folder, behind.first_sequence - 1
            found.append(f"{folder}: records {last + 1} to {until} are in no segment")
    return found


def _with_next_first(segments: list[SegmentFacts]) -> list[SegmentFacts]:
    """Set the first sequence of each segment's successor."""
    follows = {
        (one.log, one.first_sequence): behind.first_sequence
        for one, behind in pairwise(segments)
        if one.log == behind.log
    }
    return [replace(one, next_first=follows.get((one.log, one.first_sequence), 0)) for one in segments]


def _labelled_by_neighbours(beside: list[SegmentFacts]) -> list[SegmentFacts]:
    """Assign segments without a readable header to the log of the others in the folder, if it is one log."""
    logs = {one.log for one in beside if not one.damage}
    if len(logs) != 1:
        return beside
    (log,) = logs
    return [replace(one, log=log) for one in beside]


def _with_unlabelled_copies(found: dict[_Key, list[SegmentFacts]]) -> dict[_Key, list[SegmentFacts]]:
    """Group copies without a readable header with intact copies that begin with the same frame."""
    known = [(key, one.copies[0]) for key, same in found.items() for one in same if not one.damage]
    result: dict[_Key, list[SegmentFacts]] = {}
    for key, same in found.items():
        for one in same:
            mine = one.copies[0]
            homes = [
                home
                for home, copy in known
                if one.log.startswith("?")
                and copy.name == mine.name
                and _first_frame_header(copy) == _first_frame_header(mine)
            ]
            result.setdefault(homes[0] if homes else key, []).append(one)
    return result


def _first_frame_header(copy: SegmentCopy) -> bytes:
    """Read the first frame's header: its checksum covers the segment header and identifies the segment."""
    try:
        file = _directory(copy.folder).open(copy.name)
        try:
            return file.pread(FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES)
        finally:
            file.close()
    except (ArchiveError, OSError):
        return copy.folder.encode()  # unique


def _is_empty_journal(place: str) -> bool:
    """True for the folder of an empty journal; False for a place that does not exist."""
    if "://" in place:
        return False
    folder = Path(place)
    if not folder.is_dir():
        return False
    return folder.name == "journal" or any(any(folder.rglob(name)) for name in ("journal", APPEND_LOCK))


def _facts(directory: Directory, name: str, size: int, first_sequence: int, began: int) -> SegmentFacts:
    copy = SegmentCopy(directory.path, name, size)
    unknown = SegmentFacts(f"?{directory.path}", first_sequence, -1, 0, _END_OF_TIME, (copy,), began=began)
    try:
        segment = Segment.open(directory, name)
    except (LogError, ArchiveError, OSError) as error:
        return replace(unknown, damage=str(error))
    try:
        header, footer = segment.header, segment.footer
        if segment.damage is not None:
            last = footer.last_sequence if footer else -1
            return replace(unknown, damage=str(segment.damage), last_sequence=last)
        return SegmentFacts(
            log=f"{header.log_id.hex()}/{header.partition}",
            first_sequence=header.first_sequence,
            last_sequence=footer.last_sequence if footer else -1,
            first_time=min(header.first_time, footer.first_time) if footer else header.first_time,
            last_time=footer.last_time if footer else _END_OF_TIME,
            copies=(copy,),
            began=max(0, header.first_time),
            checksum=footer.chain_out if footer else 0,
        )
    finally:
        segment.close()


def _incarnations(same: list[SegmentFacts]) -> list[list[SegmentFacts]]:
    """Split by end: a restored journal may write a segment with the same first record again."""
    ends = sorted({facts.checksum for facts in same if facts.checksum})
    if len(ends) < 2:
        return [same]
    return [[facts for facts in same if facts.checksum in {0, end}] for end in ends]


def _merged(same: list[SegmentFacts]) -> SegmentFacts:
    """Merge copies: sealed before open, the longest first."""
    best, *rest = sorted(
        same, key=lambda facts: (not facts.damage, facts.last_sequence, facts.bytes), reverse=True
    )
    copies = dict.fromkeys([*best.copies, *(copy for facts in rest for copy in facts.copies)])
    return SegmentFacts(
        best.log,
        best.first_sequence,
        best.last_sequence,
        min(facts.first_time for facts in same),
        best.last_time,
        tuple(copies),
        best.damage,
        began=best.began,
        checksum=best.checksum,
    )


@dataclass(slots=True)
class JournalFilter:
    """A filter of records; the index of a segment lets readers skip the rest."""

    keys: frozenset[bytes] | None = None  # None: of every document
    since_ns: int | None = None  # accepted at or after
    until_ns: int | None = None  # accepted at or before

    def misses(self, facts: SegmentFacts) -> bool:
        """True if the times of the segment exclude every record."""
        if self.since_ns is not None and facts.last_time < self.since_ns:
            return True
        return self.until_ns is not None and facts.sealed and facts.first_time > self.until_ns


@dataclass(slots=True)
class _Seen:
    """The read position in one copy, and its damage."""

    last: int
    sealed: bool = False
    damage: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SegmentReading:
    """Read the frames of one segment; `damage` is complete after the end of `batches()`."""

    facts: SegmentFacts
    wanted: JournalFilter = field(default_factory=JournalFilter)
    damaged: str = SKIP
    damage: list[str] = field(default_factory=list)
    bytes: int = 0  # read so far
    _last: tuple[int, int] | None = None  # position and checksum of the last frame

    def positions(self) -> dict[str, int]:
        """Return the positions that a table records for a segment without damage."""
        if self.facts.sealed:
            return {self.facts.position: self.facts.end}
        if self._last is None:
            return {}
        return {self.facts.tail: self._last[0], self.facts.tail_checksum: self._last[1]}

    def batches(self) -> Iterator[Batch]:
        """Yield every intact frame once: those of the best copy, and its missing ones from the others.

        A sealed copy without damage is enough. For an open segment all copies are read: a copy truncated by a
        crash is indistinguishable from a complete one.
        """
        given: set[tuple[int, int, int]] | None = set() if len(self.facts.copies) > 1 else None
        seen: list[_Seen] = []
        for copy in self.facts.copies:
            one = _Seen(self.facts.first_sequence - 1)
            seen.append(one)
            for batch in self._of(copy, one):
                header = batch.header
                which = (header.first_sequence, header.last_sequence, header.count)
                if given is None or which not in given:
                    yield batch
                if given is not None:
                    given.add(which)
            if one.sealed and not one.damage:
                return
        self._collect_damage(seen)

    def _collect_damage(self, seen: Sequence[_Seen]) -> None:
        """Record damage that no other copy repairs."""
        last = max([self.facts.last_sequence, *(one.last for one in seen)])
        if all(one.damage or one.last < last for one in seen):
            self.damage += [words for one in seen for words in one.damage]
        if not self.facts.sealed and last + 1 < self.facts.next_first:
            copy = self.facts.copies[0]
            lost = f"records {last + 1} to {self.facts.next_first - 1} are missing"
            self.damage.append(f"{copy.folder}/{copy.name} is truncated: {lost}")
        if self.damage and self.damaged == FAIL:
            raise DamagedJournal(
                f"{self.damage[0]}: repair it (`lorogo log repair`), or read without it (--damaged skip)"
            )

    def _of(self, copy: SegmentCopy, seen: _Seen) -> Iterator[Batch]:
        """Yield the intact frames of one copy, and record its damage."""
        try:
            segment = Segment.open(_directory(copy.folder), copy.name)
        except (LogError, ArchiveError, OSError) as error:
            seen.damage.append(str(error))
            return
        try:
            seen.sealed = segment.footer is not None
            if segment.damage is not None:
                seen.damage.append(str(segment.damage))
            for start, end in self._byte_ranges(segment):
                for batch in _frames(segment, start, end, seen.damage):
                    header = batch.header
                    seen.last = max(seen.last, header.last_sequence)
                    self.bytes += header.frame_bytes
                    if self._last is None or batch.position > self._last[0]:
                        self._last = (batch.position, header.checksum)
                    yield batch
        except (ArchiveError, OSError) as error:
            seen.damage.append(f"{segment.path} cannot be read: {error}")
        finally:
            segment.close()

    def _byte_ranges(self, segment: Segment) -> Iterator[tuple[int, int]]:
        """Yield the ranges (start, end) to read; a sealed segment has an index of keys and times."""
        if (again := self._resume_position(segment)) is not None:
            yield again, segment.end
            return
        index = segment.index() if segment.footer is not None else None
        if index is None:
            yield SEGMENT_HEADER_BYTES, segment.end
            return
        start = SEGMENT_HEADER_BYTES
        if self.wanted.since_ns is not None:
            start = index.at_time(self.wanted.since_ns)
        if self.wanted.keys is None or b"" in self.wanted.keys:  # the index has no empty keys
            yield start, segment.end
            return
        ranges = {range_ for key in self.wanted.keys for range_ in index.with_key(key)}
        yield from sorted(range_ for range_ in ranges if range_[0] >= start)

    def _resume_position(self, segment: Segment) -> int | None:
        """Return where to resume: the last frame read, if it is unchanged."""
        if self.facts.resume is None:
            return None
        position, checksum = self.facts.resume
        if not SEGMENT_HEADER_BYTES <= position < segment.end:
            return None
        found = segment.frames(position, segment.end).next()
        same = isinstance(found, Batch) and found.header.checksum == checksum
        return position if same else None


def _frames(segment: Segment, start: int, end: int, damage: list[str]) -> Iterator[Batch]:
    frames = segment.frames(start, end)
    while True:
        found = frames.next()
        if isinstance(found, Batch):
            yield found
            continue
        if found.position >= end:
            return
        again = find_frame(segment, found.position)
        if again is None and segment.footer is None:
            return  # the end, or a torn write that was never acknowledged
        error: CorruptionError = damage_at(segment, found, again)
        damage.append(str(error))
        if again is None or again >= end:
            return
        frames.jump(again)


def _directory(folder: str) -> Directory:
    if "://" in folder:
        return ArchiveStorage(folder).folder("")
    return FileStorage().directory(folder, create=False)
