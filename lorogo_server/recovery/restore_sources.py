"""Sources of a restore: every log below a folder or a URL, of any server."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lorogo_log import CorruptionError, DamageError, LogError, Reader, Record, TornError
from lorogo_log.format.batch import Batch
from lorogo_log.format.layout import SEGMENT_HEADER_BYTES
from lorogo_log.format.names import PREPARED, parse_segment
from lorogo_log.storage.segment import Segment
from lorogo_protocol.errors import LorogoError
from lorogo_server.journal.archive import ArchiveError, ArchiveStorage


class NoSource(LorogoError):
    """A named folder or URL has no journal."""

    code = "no-journal"


@dataclass(slots=True)
class SourceDamage:
    """The unreadable sequences of one segment in one source."""

    segment: str  # empty: the source as a whole
    after: int = 0  # the last sequence that was read before it
    until: int | None = None  # the last lost one; None: no later record of the segment is read


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """The readable part of one segment in one source."""

    log_id: bytes
    last: int  # the last readable sequence
    sealed: bool

    def covers(self, damage: SourceDamage) -> bool:
        """Return True if the damaged part is readable here; the end of an open segment proves nothing."""
        if damage.until is None:
            return self.sealed and self.last > damage.after
        return self.last >= damage.until


@dataclass(slots=True)
class RestoreSource:
    """One log: a partition of a journal, of a replica or of an archive."""

    name: str
    reader: Reader
    size: int
    damage: dict[str, SourceDamage] = field(default_factory=dict)  # by its message
    torn: str = ""  # a record that was being written: never ACKed

    def records(
        self, document_id: str | None = None, on_bytes: Callable[[int], None] = lambda _: None
    ) -> Iterator[Record]:
        """Yield every undamaged record, or those of one document; note damage."""
        key = None if document_id is None else document_id.encode()
        last, open_ended = 0, list[SourceDamage]()
        with self.reader.cursor(key=key) as cursor:
            while True:
                try:
                    batch = cursor.next()
                except CorruptionError as error:
                    open_ended.append(self._note(error, last))
                    continue
                except TornError as error:
                    self.torn = str(error)
                    return
                except (OSError, ArchiveError) as error:
                    self.damage[f"{self.name} cannot be read: {error}"] = SourceDamage("")
                    return
                except LogError as error:
                    if isinstance(error, DamageError):
                        self._note(error, last)
                    return  # the end
                for damage in open_ended:
                    if (parse_segment(damage.segment) or (0, 0))[0] == batch.segment:
                        damage.until = batch.header.first_sequence - 1
                open_ended.clear()
                last = batch.header.last_sequence
                on_bytes(batch.header.frame_bytes)
                yield from batch.records()

    def _note(self, error: DamageError, after: int) -> SourceDamage:
        return self.damage.setdefault(str(error), SourceDamage(error.path.rpartition("/")[2], after))

    def segments(self) -> dict[str, SourceSegment]:
        """Return the readable part of every segment that can be opened."""
        found = {}
        for info in self.reader.segments():
            try:
                segment = Segment.open(self.reader.directory, info.name)
            except (LogError, OSError, ArchiveError):
                continue
            try:
                found[info.name] = _held(segment)
            except (LogError, OSError, ArchiveError):
                continue
            finally:
                segment.close()
        return found


def _held(segment: Segment) -> SourceSegment:
    if segment.footer is not None:
        return SourceSegment(segment.header.log_id, segment.footer.last_sequence, sealed=True)
    last = segment.header.first_sequence - 1
    frames = segment.frames(SEGMENT_HEADER_BYTES, None)
    while isinstance(found := frames.next(), Batch):
        last = found.header.last_sequence
    return SourceSegment(segment.header.log_id, last, sealed=False)


def unrepaired(sources: Sequence[RestoreSource]) -> tuple[list[str], list[str]]:
    """Return damage that no other copy of its segment repairs, and damage that one repairs."""
    lost: list[str] = []
    repaired: list[str] = []
    hurt = [source for source in sources if source.damage]
    logs = {source.name: source.segments() for source in sources} if hurt else {}
    for source in hurt:
        held = logs[source.name]
        ids = {one.log_id for one in held.values()}
        for words, damage in source.damage.items():
            own = held.get(damage.segment)
            if damage.until is None and own is not None and own.sealed:
                damage.until = own.last
            others = [other for other in sources if other is not source and _whole(other, damage.segment)]
            copies = [copy for other in others if (copy := logs[other.name].get(damage.segment))]
            whole = any(copy.log_id in ids and copy.covers(damage) for copy in copies)
            (repaired if damage.segment and whole else lost).append(words)
    return lost, repaired


def _whole(source: RestoreSource, segment: str) -> bool:
    """Return True if the source has no damage of that segment."""
    return not any(damage.segment in {"", segment} for damage in source.damage.values())


def find(place: str) -> list[RestoreSource]:
    """Return the logs at or below a folder or an fsspec URL. Raises NoSource, ArchiveError."""
    found = _in_archive(place) if "://" in place else _in_folder(Path(place))
    if not found:
        raise NoSource(
            f"there is no journal in {place}: name a server's data folder, a journal, or an archive"
        )
    return found


def _in_folder(folder: Path) -> list[RestoreSource]:
    if not folder.is_dir():
        raise NoSource(f"{folder} is not a folder")
    found = []
    for path, folders, files in os.walk(folder):
        folders.sort()
        segments = [name for name in files if _is_segment(name)]
        if segments:
            size = sum((Path(path) / name).stat().st_size for name in segments)
            found.append(RestoreSource(path, Reader.open(path), size))
    return found


def _in_archive(url: str) -> list[RestoreSource]:
    archive = ArchiveStorage(url)
    sizes: dict[str, int] = {}
    for name, size in archive.files().items():
        folder, _, file = name.rpartition("/")
        if _is_segment(file):
            sizes[folder] = sizes.get(folder, 0) + size
    return [
        RestoreSource(f"{archive.url}/{folder}".rstrip("/"), Reader(archive.folder(folder)), size)
        for folder, size in sorted(sizes.items())
    ]


def _is_segment(name: str) -> bool:
    return parse_segment(name) is not None or PREPARED.fullmatch(name) is not None
