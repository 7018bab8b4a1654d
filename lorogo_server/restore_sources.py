"""Where a restore reads from: every log below a folder or a URL, whoever wrote it."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lorogo_log import CorruptionError, DamageError, LogError, Reader, Record, TornError
from lorogo_log.names import PREPARED, parse_segment
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
    bytes: int
    damage: list[str] = field(default_factory=list)  # what was lost of it
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
                    self.damage.append(f"{self.name} cannot be read: {error}")
                    return
                except LogError as error:
                    if isinstance(error, DamageError):
                        self._note(error)
                    return  # the end
                on_bytes(batch.header.frame_bytes)
                yield from batch.records()

    def _note(self, error: DamageError) -> None:
        if str(error) not in self.damage:
            self.damage.append(str(error))


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
