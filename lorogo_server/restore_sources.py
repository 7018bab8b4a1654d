"""Where a restore reads from: every log below a folder or a URL, whoever wrote it."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lorogo_log import CorruptionError, DamageError, LogError, Reader, Record, TornError
from lorogo_log.names import PREPARED, parse_segment
from lorogo_log.segment import Segment
from lorogo_protocol.errors import LorogoError
from lorogo_server.archive import Archive, ArchiveError


class NoSource(LorogoError):
    """There is no journal where one was named."""

    code = "no-journal"


@dataclass(slots=True)
class Source:
    """One log: a partition of a journal, of a replica or of an archive."""

    name: str
    reader: Reader
    size: int
    damage: dict[str, str] = field(default_factory=dict)  # what was lost of it -> in which segment
    torn: str = ""  # a record that was being written: never ACKed

    def records(
        self, document_id: str | None = None, on_bytes: Callable[[int], None] = lambda _: None
    ) -> Iterator[Record]:
        """Every record that is whole, or those of one document; what is not is noted, the rest is read."""
        key = None if document_id is None else document_id.encode()
        with self.reader.cursor(key=key) as cursor:
            while True:
                try:
                    batch = cursor.next()
                except CorruptionError as error:
                    self._note(error)
                    continue
                except TornError as error:
                    self.torn = str(error)
                    return
                except (OSError, ArchiveError) as error:
                    self.damage[f"{self.name} cannot be read: {error}"] = ""
                    return
                except LogError as error:
                    if isinstance(error, DamageError):
                        self._note(error)
                    return  # the end
                on_bytes(batch.header.frame_bytes)
                yield from batch.records()

    def _note(self, error: DamageError) -> None:
        self.damage[str(error)] = error.path.rpartition("/")[2]

    def segments(self) -> dict[str, bytes]:
        """Every segment that can be opened, with the id of its log."""
        found = {}
        for info in self.reader.segments():
            try:
                segment = Segment.open(self.reader.directory, info.name)
            except (LogError, OSError, ArchiveError):
                continue
            found[info.name] = segment.header.log_id
            segment.close()
        return found


def judge(sources: Sequence[Source]) -> tuple[list[str], list[str]]:
    """Damage that no other copy of the same segment makes good, and damage that one does."""
    lost: list[str] = []
    mended: list[str] = []
    hurt = [source for source in sources if source.damage]
    logs = {source.name: source.segments() for source in sources} if hurt else {}
    for source in hurt:
        ids = set(logs[source.name].values())
        for words, segment in source.damage.items():
            whole = any(
                segment not in other.damage.values()
                and "" not in other.damage.values()
                and logs[other.name].get(segment) in ids
                for other in sources
                if other is not source
            )
            (mended if segment and whole else lost).append(words)
    return lost, mended


def find(place: str) -> list[Source]:
    """The logs at or below a folder or an fsspec URL. Raises NoSource, ArchiveError."""
    found = _in_archive(place) if "://" in place else _in_folder(Path(place))
    if not found:
        raise NoSource(
            f"there is no journal in {place}: name a server's data folder, a journal, or an archive"
        )
    return found


def _in_folder(folder: Path) -> list[Source]:
    if not folder.is_dir():
        raise NoSource(f"{folder} is not a folder")
    found = []
    for path, folders, files in os.walk(folder):
        folders.sort()
        segments = [name for name in files if _is_segment(name)]
        if segments:
            size = sum((Path(path) / name).stat().st_size for name in segments)
            found.append(Source(path, Reader.open(path), size))
    return found


def _in_archive(url: str) -> list[Source]:
    archive = Archive(url)
    sizes: dict[str, int] = {}
    for name, size in archive.files().items():
        folder, _, file = name.rpartition("/")
        if _is_segment(file):
            sizes[folder] = sizes.get(folder, 0) + size
    return [
        Source(f"{archive.url}/{folder}".rstrip("/"), Reader(archive.folder(folder)), size)
        for folder, size in sorted(sizes.items())
    ]


def _is_segment(name: str) -> bool:
    return parse_segment(name) is not None or PREPARED.fullmatch(name) is not None
