"""Segments of journals: found below a place, read one at a time, damage told.

A place is a server's data folder, a journal, or an archive (an fsspec URL). The same segment may be in
several places (journal, replica, archive): it is one, with several copies.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from lorogo_log import CorruptionError, FileStorage, LogError
from lorogo_log.batch import Batch
from lorogo_log.format import SEGMENT_HEADER_BYTES
from lorogo_log.rewrite import bad
from lorogo_log.segment import Segment, find_frame
from lorogo_log.storage import Directory
from lorogo_pipeline.errors import BadOption, DamagedJournal
from lorogo_server.archive import Archive, ArchiveError
from lorogo_server.restore_sources import NoSource, find

FAIL, SKIP = "fail", "skip"


@dataclass(frozen=True, slots=True)
class Copy:
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
    copies: tuple[Copy, ...]
    damage: str = ""  # it cannot be opened, or does not say what it is
    next_first: int = 0  # the first sequence of the segment behind it; 0: it is the newest
    resume: tuple[int, int] | None = None  # place and checksum of the last frame that was read before

    @property
    def sealed(self) -> bool:
        return self.last_sequence >= 0

    @property
    def bytes(self) -> int:
        return self.copies[0].bytes

    @property
    def position(self) -> str:
        """The name under which a table notes that it was read, when it is sealed: its last sequence."""
        return f"segment/{self.log}/{self.first_sequence}"

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
        copies = tuple(Copy(**copy) for copy in raw["copies"])
        return cls(**{**raw, "copies": copies, "resume": None if resume is None else tuple(resume)})


_END_OF_TIME = (1 << 63) - 1
_Key = tuple[str, int]


def find_segments(places: Sequence[str]) -> list[SegmentFacts]:
    """Every segment at or below the places, in order. Raises NoSource, ArchiveError, BadOption."""
    if not places:
        raise BadOption("name a journal: a server's data folder, a journal, or the URL of an archive")
    found: dict[_Key, list[SegmentFacts]] = {}
    for place in places:
        try:
            sources = find(place)
        except NoSource:
            if _holds_nothing(place):
                continue
            raise
        for source in sources:
            for info in source.reader.segments():
                facts = _facts(source.reader.directory, info.name, info.bytes, info.first_sequence)
                found.setdefault((facts.log, facts.first_sequence), []).append(facts)
    return _in_line([_merged(same) for _, same in sorted(_adopted(found).items())])


def gaps(segments: Sequence[SegmentFacts]) -> list[str]:
    """Segments that are not there although one before and one behind them are."""
    return [
        f"{before.copies[0].folder}: records {before.last_sequence + 1} to {behind.first_sequence - 1} are in"
        " no segment"
        for before, behind in pairwise(segments)
        if before.log == behind.log and before.sealed and before.last_sequence + 1 < behind.first_sequence
    ]


def _in_line(segments: list[SegmentFacts]) -> list[SegmentFacts]:
    """Each with where the next one of its log begins."""
    follows = {
        (one.log, one.first_sequence): behind.first_sequence
        for one, behind in pairwise(segments)
        if one.log == behind.log
    }
    return [replace(one, next_first=follows.get((one.log, one.first_sequence), 0)) for one in segments]


def _adopted(found: dict[_Key, list[SegmentFacts]]) -> dict[_Key, list[SegmentFacts]]:
    """Copies that do not say whose they are, put to the whole ones of the same name."""
    known = {
        copy.name: key for key, same in found.items() for one in same if not one.damage for copy in one.copies
    }
    result: dict[_Key, list[SegmentFacts]] = {}
    for key, same in found.items():
        for one in same:
            home = known.get(one.copies[0].name, key) if one.damage else key
            result.setdefault(home, []).append(one)
    return result


def _holds_nothing(place: str) -> bool:
    """A journal that is still empty is no mistake; a place that is not there is."""
    if "://" in place:
        return False
    folder = Path(place)
    return folder.is_dir() and (folder.name == "journal" or any(folder.rglob("journal")))


def _facts(directory: Directory, name: str, size: int, first_sequence: int) -> SegmentFacts:
    copy = Copy(directory.path, name, size)
    try:
        segment = Segment.open(directory, name)
    except (LogError, FileNotFoundError) as error:
        return SegmentFacts(f"?{directory.path}", first_sequence, -1, 0, _END_OF_TIME, (copy,), str(error))
    try:
        header, footer = segment.header, segment.footer
        if segment.damage is not None:
            told = str(segment.damage)
            return SegmentFacts(f"?{directory.path}", first_sequence, -1, 0, _END_OF_TIME, (copy,), told)
        return SegmentFacts(
            log=f"{header.log_id.hex()}/{header.partition}",
            first_sequence=header.first_sequence,
            last_sequence=footer.last_sequence if footer else -1,
            first_time=min(header.first_time, footer.first_time) if footer else header.first_time,
            last_time=footer.last_time if footer else _END_OF_TIME,
            copies=(copy,),
        )
    finally:
        segment.close()


def _merged(same: list[SegmentFacts]) -> SegmentFacts:
    """One of several copies: a sealed one before an open one, the longest first."""
    best, *rest = sorted(
        same, key=lambda facts: (not facts.damage, facts.last_sequence, facts.bytes), reverse=True
    )
    copies = (*best.copies, *(copy for facts in rest for copy in facts.copies))
    return SegmentFacts(
        best.log,
        best.first_sequence,
        best.last_sequence,
        min(facts.first_time for facts in same),
        best.last_time,
        copies,
        best.damage,
    )


@dataclass(slots=True)
class Wanted:
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
class Reading:
    """Frames of one segment, and what was wrong with it. Read `batches()` to the end, then look."""

    facts: SegmentFacts
    wanted: Wanted = field(default_factory=Wanted)
    damaged: str = SKIP
    damage: list[str] = field(default_factory=list)
    bytes: int = 0  # that were read
    _last: tuple[int, int] | None = None  # place and checksum of the last frame

    def positions(self) -> dict[str, int]:
        """What a table notes of a segment that was read without damage."""
        if self.facts.sealed:
            return {self.facts.position: self.facts.last_sequence}
        if self._last is None:
            return {}
        return {self.facts.tail: self._last[0], self.facts.tail_checksum: self._last[1]}

    def batches(self) -> Iterator[Batch]:
        """Every good frame of the best copy; where it is damaged, those of the other copies, too.

        So a record may come twice: readers count by identity.
        """
        for number, copy in enumerate(self.facts.copies):
            found = yield from self._of(copy)
            if not found:
                if number:
                    self.damage.clear()  # this copy is whole
                return
            if self.damaged == FAIL and number + 1 == len(self.facts.copies):
                raise DamagedJournal(
                    f"{found[0]}: repair it (`lorogo log repair`), or go on without it (--damaged skip)"
                )
            self.damage += found

    def _of(self, copy: Copy) -> Generator[Batch, None, list[str]]:
        """The good frames of one copy; returns what is damaged."""
        damage: list[str] = []
        last = self.facts.first_sequence - 1
        try:
            segment = Segment.open(_directory(copy.folder), copy.name)
        except (LogError, ArchiveError, FileNotFoundError) as error:
            return [str(error)]
        try:
            if segment.damage is not None:
                damage.append(str(segment.damage))
            for start, end in self._areas(segment):
                for batch in _frames(segment, start, end, damage):
                    last = max(last, batch.header.last_sequence)
                    self.bytes += batch.header.frame_bytes
                    self._last = (batch.position, batch.header.checksum)
                    yield batch
            if segment.footer is None and last + 1 < self.facts.next_first:
                lost = f"records {last + 1} to {self.facts.next_first - 1} are not in it"
                damage.append(f"{segment.path} is cut off: {lost}")
        except ArchiveError as error:
            damage.append(str(error))
        finally:
            segment.close()
        return damage

    def _areas(self, segment: Segment) -> Iterator[tuple[int, int]]:
        """(start, end) of what must be read: the index of a sealed segment knows keys and times."""
        if (again := self._goes_on(segment)) is not None:
            yield again, segment.end
            return
        index = segment.index() if segment.footer is not None else None
        if index is None:
            yield SEGMENT_HEADER_BYTES, segment.end
            return
        start = SEGMENT_HEADER_BYTES
        if self.wanted.since_ns is not None:
            start = index.at_time(self.wanted.since_ns)
        if self.wanted.keys is None:
            yield start, segment.end
            return
        areas = {area for key in self.wanted.keys for area in index.with_key(key)}
        yield from sorted(area for area in areas if area[0] >= start)

    def _goes_on(self, segment: Segment) -> int | None:
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
        error: CorruptionError = bad(segment, found, again)
        damage.append(str(error))
        if again is None or again >= end:
            return
        frames.jump(again)


def _directory(folder: str) -> Directory:
    if "://" in folder:
        return Archive(folder).folder("")
    return FileStorage().directory(folder, create=False)
