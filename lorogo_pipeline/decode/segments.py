"""Segments of journals: found below a place, read one at a time, damage told.

A place is a server's data folder, a journal, or an archive (an fsspec URL). The same segment may be in
several places (journal, replica, archive): it is one, with several copies.
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
    """One segment, wherever its copies are; the first copy is the best one."""

    log: str  # id of the log and its partition: what its sequences are counted in
    first_sequence: int
    last_sequence: int  # -1: it is open, or nobody can tell
    first_time: int
    last_time: int  # of an open one: the end of time
    copies: tuple[SegmentCopy, ...]
    damage: str = ""  # it cannot be opened, or does not say what it is
    next_first: int = 0  # the first sequence of the segment behind it; 0: it is the newest
    resume: tuple[int, int] | None = None  # place and checksum of the last frame that was read before
    began: int = 0  # when, as its name says: a journal that was put back uses sequences again
    checksum: int = 0  # of a sealed one: that of its last frame, as it was written

    @property
    def sealed(self) -> bool:
        return self.last_sequence >= 0

    @property
    def bytes(self) -> int:
        return self.copies[0].bytes

    @property
    def position(self) -> str:
        """The name under which a table notes that it was read, when it is sealed: its `end`."""
        return f"segment/{self.log}/{self.first_sequence}"

    @property
    def end(self) -> int:
        """Its last sequence and the checksum there: a journal that was put back uses sequences again."""
        return (self.checksum << 31) + self.last_sequence % (1 << 31)

    @property
    def tail(self) -> str:
        """The name under which a table notes the place of the last frame that it read."""
        return f"tail/{self.log}/{self.first_sequence}"

    @property
    def tail_checksum(self) -> str:
        """And that frame's checksum: the end of an open segment may be torn off and written again."""
        return f"tail-checksum/{self.log}/{self.first_sequence}"

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> SegmentFacts:
        """Back from what `asdict` and JSON made of it."""
        resume = raw["resume"]
        copies = tuple(SegmentCopy(**copy) for copy in raw["copies"])
        return cls(**{**raw, "copies": copies, "resume": None if resume is None else tuple(resume)})


_END_OF_TIME = (1 << 63) - 1
_Key = tuple[str, int, int]  # the log, the first sequence, and when it began


def find_segments(places: Sequence[str]) -> list[SegmentFacts]:
    """Every segment at or below the places, in order. Raises NoSource, ArchiveError, BadOption."""
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
    """Segments that are not there although one before and one behind them are."""
    found = []
    last = -1  # of all before: a journal that was put back has two of the same sequences
    for before, behind in pairwise(segments):
        last = max(last, before.last_sequence)
        if before.log != behind.log:
            last = -1
        elif before.sealed and last + 1 < behind.first_sequence:
            folder, until = before.copies[0].folder, behind.first_sequence - 1
            found.append(f"{folder}: records {last + 1} to {until} are in no segment")
    return found


def _with_next_first(segments: list[SegmentFacts]) -> list[SegmentFacts]:
    """Each with where the next one of its log begins."""
    follows = {
        (one.log, one.first_sequence): behind.first_sequence
        for one, behind in pairwise(segments)
        if one.log == behind.log
    }
    return [replace(one, next_first=follows.get((one.log, one.first_sequence), 0)) for one in segments]


def _labelled_by_neighbours(beside: list[SegmentFacts]) -> list[SegmentFacts]:
    """What does not say whose it is belongs to the log of those beside it, where they agree."""
    logs = {one.log for one in beside if not one.damage}
    if len(logs) != 1:
        return beside
    (log,) = logs
    return [replace(one, log=log) for one in beside]


def _with_unlabelled_copies(found: dict[_Key, list[SegmentFacts]]) -> dict[_Key, list[SegmentFacts]]:
    """Copies that do not say whose they are, put to the whole ones that begin as they do."""
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
    """The header of the first frame: its checksum covers the segment's own header, so it is no other's."""
    try:
        file = _directory(copy.folder).open(copy.name)
        try:
            return file.pread(FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES)
        finally:
            file.close()
    except (ArchiveError, OSError):
        return copy.folder.encode()  # like nothing else


def _is_empty_journal(place: str) -> bool:
    """A journal that is still empty is no mistake; a place that is not there is."""
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
    """Those that end alike: a journal that was put back may begin a segment with the same record again."""
    ends = sorted({facts.checksum for facts in same if facts.checksum})
    if len(ends) < 2:
        return [same]
    return [[facts for facts in same if facts.checksum in {0, end}] for end in ends]


def _merged(same: list[SegmentFacts]) -> SegmentFacts:
    """One of several copies: a sealed one before an open one, the longest first."""
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
    """Which records of a segment are wanted; the rest is not even decoded where the index tells."""

    keys: frozenset[bytes] | None = None  # None: of every document
    since_ns: int | None = None  # accepted at or after
    until_ns: int | None = None  # accepted at or before

    def misses(self, facts: SegmentFacts) -> bool:
        """Whether nothing in the segment can be wanted, by its times alone."""
        if self.since_ns is not None and facts.last_time < self.since_ns:
            return True
        return self.until_ns is not None and facts.sealed and facts.first_time > self.until_ns


@dataclass(slots=True)
class _Seen:
    """How far one copy was read, and what is wrong with it."""

    last: int
    sealed: bool = False
    damage: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SegmentReading:
    """Frames of one segment, and what was wrong with it. Read `batches()` to the end, then look."""

    facts: SegmentFacts
    wanted: JournalFilter = field(default_factory=JournalFilter)
    damaged: str = SKIP
    damage: list[str] = field(default_factory=list)
    bytes: int = 0  # that were read
    _last: tuple[int, int] | None = None  # place and checksum of the last frame

    def positions(self) -> dict[str, int]:
        """What a table notes of a segment that was read without damage."""
        if self.facts.sealed:
            return {self.facts.position: self.facts.end}
        if self._last is None:
            return {}
        return {self.facts.tail: self._last[0], self.facts.tail_checksum: self._last[1]}

    def batches(self) -> Iterator[Batch]:
        """Every good frame once: those of the best copy, and from the others what it lacks.

        A sealed copy without damage is enough. The end of an open segment is looked for in all of them: one
        that was cut off by a crash looks the same as one that is not longer.
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
        """Note what no copy makes good."""
        last = max([self.facts.last_sequence, *(one.last for one in seen)])
        if all(one.damage or one.last < last for one in seen):
            self.damage += [words for one in seen for words in one.damage]
        if not self.facts.sealed and last + 1 < self.facts.next_first:
            copy = self.facts.copies[0]
            lost = f"records {last + 1} to {self.facts.next_first - 1} are not in it"
            self.damage.append(f"{copy.folder}/{copy.name} is cut off: {lost}")
        if self.damage and self.damaged == FAIL:
            raise DamagedJournal(
                f"{self.damage[0]}: repair it (`lorogo log repair`), or go on without it (--damaged skip)"
            )

    def _of(self, copy: SegmentCopy, seen: _Seen) -> Iterator[Batch]:
        """The good frames of one copy; what is wrong with it is noted."""
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
        """(start, end) of what must be read: the index of a sealed segment knows keys and times."""
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
        """Where reading can go on: the frame that was the last one is still there, and still the same."""
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
            return  # nothing more is written there, or it is torn: it was never acknowledged
        error: CorruptionError = damage_at(segment, found, again)
        damage.append(str(error))
        if again is None or again >= end:
            return
        frames.jump(again)


def _directory(folder: str) -> Directory:
    if "://" in folder:
        return ArchiveStorage(folder).folder("")
    return FileStorage().directory(folder, create=False)
