"""A log's directory, listed: its segments, its writer, and what has a segment's name and is none.

Changes nothing, takes no lock.
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
from lorogo_log.read.reader import Reader
from lorogo_log.recovery.recovery import SegmentName, list_segments
from lorogo_log.storage.disk import Directory, DiskDirectory

_NAMES_SHOWN = 3
_LEVELS = 4  # DATA/worker-0/replicas/SERVER/00
_LOCKS = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class BlockingFile:
    """Something under a name of the log's that keeps the next writer from opening it."""

    path: str
    reason: str

    def sentence(self) -> str:
        return f"{self.path} {self.reason}: move it out of the log's directory; it is not served"


class ReadableDirectory(DiskDirectory):
    """A log's directory without its strangers, so that the rest can be read past them."""

    def __init__(self, path: Path, hidden: frozenset[str]) -> None:
        super().__init__(path)
        self._hidden = hidden

    def list(self) -> list[str]:
        return [name for name in super().list() if name not in self._hidden]


@dataclass(frozen=True, slots=True)
class LogListing:
    """A log's directory, listed."""

    reader: Reader
    entries: list[SegmentName]
    foreign: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    strangers: list[BlockingFile] = field(default_factory=list)
    #: the process that writes to it, as far as this one can see
    writer: int | None = None

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


def found(path: Path) -> LogListing:
    """The log in a directory. Raises Problem if there is none."""
    if not path.exists():
        raise CommandError(f"{path} does not exist: check the path")
    if not path.is_dir():
        inside = f": give the directory that it is in, {path.parent}" if names.is_ours(path.name) else ""
        raise CommandError(f"{path} is a file, not a log directory{inside}")
    present = sorted(DiskDirectory(path).list())
    if not present:
        raise CommandError(f"{path} is empty: there is no log in it; check the path")
    foreign = [name for name in present if not names.is_ours(name)]
    if len(foreign) == len(present):
        raise CommandError(_no_log(path, foreign))
    strange = dict(_strangers(path, present))
    reader = Reader(ReadableDirectory(path, frozenset(strange)))
    entries = list_segments(reader.directory, prepared=True)
    for entry in entries:
        for name in entry.hidden:
            strange[name] = f"begins with the same record as {entry.name}, which is served instead"
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
        return f"{path} is not a log itself, but there is one in {logs[0]}"
    if logs:
        return f"{path} is not a log itself, but there are {len(logs)} in it: {shown_names(logs)}"
    return f"{path} is not a log: it holds only other files ({shown_names(foreign)}); check the path"


def _logs_below(path: Path, levels: int) -> list[str]:
    """The logs at a place, or so many levels below it: of a data folder, those of its journals."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            inner = sorted(path.iterdir())
            if any(names.parse_segment(one.name) for one in inner):
                return [str(path)]
            if levels > 1:
                return [found for one in inner for found in _logs_below(one, levels - 1)]
    return []


def shown_names(them: list[str]) -> str:
    """A few names, and how many more."""
    more = len(them) - _NAMES_SHOWN
    return ", ".join(them[:_NAMES_SHOWN]) + (f" and {show_count(more, 'other')}" if more > 0 else "")


# -- strangers -------------------------------------------------------------------------------------------


def _strangers(path: Path, present: list[str]) -> Iterator[tuple[str, str]]:
    """Names of the log's that hold something else, and what. Damaged segments are not among them."""
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
                yield name, f"has another segment's name (its header says {right})"
            else:
                headers[name] = header
    logs = Counter(header.log_id for header in headers.values())
    if len(logs) > 1:
        ((ours, _),) = logs.most_common(1)
        for name, header in headers.items():
            if header.log_id != ours:
                yield name, "belongs to another log"


def _no_file(path: Path) -> str:
    """Why this cannot be a file of the log; empty if it can."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "is a link that leads nowhere" if path.is_symlink() else ""
    except OSError:
        return ""  # whoever opens it says why
    if stat.S_ISDIR(mode):
        return "is a directory, not a file of the log"
    return "" if stat.S_ISREG(mode) else "is no plain file"


def _header(path: Path) -> SegmentHeader | None:
    """The header if it checks; what is wrong otherwise is told by whoever reads the segment."""
    try:
        with path.open("rb", buffering=0) as file:
            return unpack_segment_header(file.read(SEGMENT_HEADER_BYTES) or b"")
    except (OSError, ValueError):
        return None


# -- the writer ------------------------------------------------------------------------------------------


def writer_of(path: Path) -> int | None:
    """The process that holds the append lock; None if there is none, or this system does not tell.

    Asked of the kernel's list: trying the lock itself could keep a writer out that starts just then.
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
