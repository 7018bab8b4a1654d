"""List a log's directory: its segments, its writer, and blocking files with names of the log.

Read-only, without locks.
"""

import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from lorogo_cli.errors import CommandError
from lorogo_cli.render.values import show_count
from lorogo_log.format import names
from lorogo_log.format.layout import SEGMENT_HEADER_BYTES, SegmentHeader, unpack_segment_header
from lorogo_log.reader import Reader
from lorogo_log.recovery.recovery import SegmentName, list_segments
from lorogo_log.storage.disk import Directory, DiskDirectory

_NAMES_SHOWN = 3
_LEVELS = 4  # DATA/worker-0/replicas/SERVER/00
_LOCKS = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class BlockingFile:
    """A file with a name of the log that is not a file of this log; the next writer cannot open the log."""

    path: str
    reason: str

    def sentence(self) -> str:
        return f"{self.path} {self.reason}: move it out of the log's directory; it is not served"


class ReadableDirectory(DiskDirectory):
    """A log's directory without its blocking files, so that the rest can be read."""

    def __init__(self, path: Path, hidden: frozenset[str]) -> None:
        super().__init__(path)
        self._hidden = hidden

    def list(self) -> list[str]:
        return [name for name in super().list() if name not in self._hidden]


@dataclass(frozen=True, slots=True)
class LogListing:
    """The files of a log's directory, by kind."""

    reader: Reader
    entries: list[SegmentName]
    foreign: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    blocking: list[BlockingFile] = field(default_factory=list)
    #: the id of the writing process, if this process can see it
    writer: int | None = None

    @property
    def directory(self) -> Directory:
        return self.reader.directory

    def bytes(self) -> int:
        """Return the size of all segments."""
        total = 0
        for entry in self.entries:
            try:
                file = self.directory.open(entry.name)
            except OSError:
                continue  # reading it reports the error
            total += file.size()
            file.close()
        return total


def found(path: Path) -> LogListing:
    """List the log in a directory. Raises CommandError if there is none."""
    if not path.exists():
        raise CommandError(f"{path} does not exist: check the path")
    if not path.is_dir():
        inside = f": use its directory, {path.parent}" if names.is_ours(path.name) else ""
        raise CommandError(f"{path} is a file, not a log directory{inside}")
    present = sorted(DiskDirectory(path).list())
    if not present:
        raise CommandError(f"{path} is empty: it has no log; check the path")
    foreign = [name for name in present if not names.is_ours(name)]
    if len(foreign) == len(present):
        raise CommandError(_no_log(path, foreign))
    strange = dict(_find_blocking(path, present))
    reader = Reader(ReadableDirectory(path, frozenset(strange)))
    entries = list_segments(reader.directory, prepared=True)
    for entry in entries:
        for name in entry.hidden:
            strange[name] = f"starts with the same record as {entry.name}, which is served instead"
    return LogListing(
        reader,
        entries,
        foreign,
        [name for name in present if names.BROKEN.fullmatch(name)],
        [BlockingFile(str(path / name), reason) for name, reason in strange.items()],
        writer_of(path),
    )


def _no_log(path: Path, foreign: list[str]) -> str:
    logs = [found for name in foreign for found in _logs_below(path / name, _LEVELS)]
    if len(logs) == 1:
        return f"{path} is not a log: use {logs[0]}, the log inside it"
    if logs:
        return f"{path} is not a log: choose one of the {len(logs)} logs inside it: {shown_names(logs)}"
    return f"{path} is not a log: it has only other files ({shown_names(foreign)}); check the path"


def _logs_below(path: Path, levels: int) -> list[str]:
    """Return the logs at a path or up to `levels` below it, for example the journals of a data folder."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            inner = sorted(path.iterdir())
            if any(names.parse_segment(one.name) for one in inner):
                return [str(path)]
            if levels > 1:
                return [found for one in inner for found in _logs_below(one, levels - 1)]
    return []


def shown_names(them: list[str]) -> str:
    """Return the first names and the number of others."""
    more = len(them) - _NAMES_SHOWN
    return ", ".join(them[:_NAMES_SHOWN]) + (f" and {show_count(more, 'other')}" if more > 0 else "")


# -- blocking files --------------------------------------------------------------------------------------


def _find_blocking(path: Path, present: list[str]) -> Iterator[tuple[str, str]]:
    """Yield names and problems of blocking files. Damaged segments are not among them."""
    headers: dict[str, SegmentHeader] = {}
    for name in present:
        if not names.is_ours(name) or names.BROKEN.fullmatch(name):
            continue
        what = _no_file(path / name)
        if what:
            yield name, what
        elif names.parse_segment(name):
            header = _header(path / name)
            if header is None:
                continue
            right = names.segment_name(header.first_sequence, header.first_time)
            if right != name:
                yield name, f"has another segment's name (by its header it is {right})"
            else:
                headers[name] = header
    logs = Counter(header.log_id for header in headers.values())
    if len(logs) > 1:
        ((ours, _),) = logs.most_common(1)
        for name, header in headers.items():
            if header.log_id != ours:
                yield name, "belongs to another log"


def _no_file(path: Path) -> str:
    """Return why this path cannot be a file of the log; empty if it can."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "is a broken link" if path.is_symlink() else ""
    except OSError:
        return ""  # opening it reports the error
    if stat.S_ISDIR(mode):
        return "is a directory, not a file of the log"
    return "" if stat.S_ISREG(mode) else "is not a regular file"


def _header(path: Path) -> SegmentHeader | None:
    """Return the header, or None if it is damaged: reading the segment reports that."""
    try:
        with path.open("rb", buffering=0) as file:
            return unpack_segment_header(file.read(SEGMENT_HEADER_BYTES) or b"")
    except (OSError, ValueError):
        return None


# -- the writer ------------------------------------------------------------------------------------------


def writer_of(path: Path) -> int | None:
    """Return the process that holds the append lock; None if there is none, or the system does not show it.

    Read from the kernel's list: taking the lock could stop a writer that starts at this moment.
    """
    try:
        lock = (path / names.APPEND_LOCK).stat()
        held = _LOCKS.read_text()
    except OSError:
        return None
    place = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
    for line in held.splitlines():
        match line.split():
            case [_, "FLOCK", _, "WRITE", process, where, *_] if where == place and process.isdigit():
                return int(process)
    return None
