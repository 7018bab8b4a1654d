"""Damage to files at rest, as disks cause it: flipped bits, lost tails, lost folders. Inside one folder only.

The process that wrote the files must have ended: a running one may have them in memory.
"""

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from lorogo_chaos.errors import ChaosError, FaultUnavailable
from lorogo_log.format.names import parse_segment
from lorogo_protocol.messages import subjects

_WINDOW_BYTES = 1024 * 1024
_TAIL_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class FileDamage:
    """The damage done to a file."""

    path: Path
    at: int  # the changed byte, or the remaining size
    lost_bytes: int = 0  # removed behind it

    @property
    def words(self) -> str:
        if self.lost_bytes:
            return f"{self.path.name} lost its last {self.lost_bytes} bytes"
        return f"a bit of byte {self.at} of {self.path.name} flipped"


def wal_blocks(store: Path) -> list[Path]:
    """Return the non-empty files in which a nats-server keeps WAL messages."""
    folder = store / "jetstream" / "$G" / "streams" / subjects.WAL_STREAM / "msgs"
    return [path for path in sorted(folder.glob("*.blk")) if path.stat().st_size]


def segments(journal: Path) -> list[Path]:
    """Return the non-empty segments of all partitions of a server's journal."""
    return [path for path in sorted(journal.glob("*/*.seg")) if parse_segment(path.name) and data_end(path)]


def data_end(path: Path) -> int:
    """Return the end of the data, before trailing zeros: the file may have been prepared ahead."""
    with path.open("rb") as file:
        end = os.fstat(file.fileno()).st_size
        while end:
            start = max(0, end - _WINDOW_BYTES)
            file.seek(start)
            kept = file.read(end - start).rstrip(b"\0")
            if kept:
                return start + len(kept)
            end = start
    return 0


def flip_bit(files: list[Path], rng: random.Random, *, within: Path) -> FileDamage:
    """Flip one bit of the written data of one of the files. Raises FaultUnavailable, ChaosError."""
    path, end = _chosen(files, rng, within)
    at = rng.randrange(end)
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << rng.randrange(8)]))
    return FileDamage(path, at)


def cut_tail(files: list[Path], rng: random.Random, *, within: Path) -> FileDamage:
    """Cut the end of the written data of the newest file. Raises FaultUnavailable, ChaosError."""
    path, end = _chosen(files[-1:], rng, within)
    lost = rng.randint(1, min(end, _TAIL_BYTES_MAX))
    os.truncate(path, end - lost)
    return FileDamage(path, end - lost, lost)


def lose_folder(folder: Path, *, within: Path) -> None:
    """Remove a folder with its content. Raises ChaosError if it is outside `within`."""
    check_inside(folder, within)
    shutil.rmtree(folder)


def check_inside(path: Path, within: Path) -> None:
    """Raise ChaosError unless the path, links followed, is below `within`."""
    if path.is_symlink() or within.resolve() not in path.resolve().parents:
        raise ChaosError(f"{path} is not inside {within}: nothing was damaged")


def _chosen(files: list[Path], rng: random.Random, within: Path) -> tuple[Path, int]:
    """Choose a file, weighted by size, and return the end of its data."""
    for path in files:
        check_inside(path, within)
    ends = [data_end(path) for path in files]
    if not any(ends):
        raise FaultUnavailable("there is no written data to damage yet")
    (at,) = rng.choices(range(len(files)), weights=ends)
    return files[at], ends[at]
