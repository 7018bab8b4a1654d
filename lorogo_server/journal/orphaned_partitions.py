"""Orphaned journal partitions: of removed workers, or above the configured number of partitions.

Reconciliation and restore read them like any other, so an erasure must clean them as well. All functions
block; call them in a thread.
"""

from pathlib import Path

from lorogo_log import BlockingLog, Directory, FileStorage, LockedError, Reader
from lorogo_log.format import names
from lorogo_server.journal.journal_scan import has_siblings

_PARTITION = "[0-9][0-9]"


def unused(data: Path, opened: int) -> dict[int, Directory]:
    """Return this worker's own partitions that are not open, by number."""
    found = {int(path.name): path for path in (data / "journal").glob(_PARTITION) if path.is_dir()}
    return {number: _directory(path) for number, path in sorted(found.items()) if number >= opened}


def abandoned(data: Path) -> list[Directory]:
    """Return the unlocked partitions of sibling workers."""
    return _beside(data, f"journal/{_PARTITION}")


def copies_beside(data: Path) -> list[Directory]:
    """Return the unlocked journal replicas of sibling workers."""
    return _beside(data, f"replicas/*/{_PARTITION}")


def seal(directory: Directory) -> bool:
    """Seal the open segment so that it can be cleaned; False if the partition is locked. Raises LogError."""
    if all(info.sealed for info in Reader(directory).segments()):
        return True
    try:
        BlockingLog(directory.path).close()
    except LockedError:
        return False
    return True


def _beside(data: Path, pattern: str) -> list[Directory]:
    if not has_siblings(data):
        return []
    homes = sorted(home for home in data.parent.glob("worker-*") if home != data)
    paths = [path for home in homes for path in sorted(home.glob(pattern)) if path.is_dir()]
    return [directory for path in paths if not (directory := _directory(path)).locked(names.APPEND_LOCK)]


def _directory(path: Path) -> Directory:
    return FileStorage().directory(path, create=False)
