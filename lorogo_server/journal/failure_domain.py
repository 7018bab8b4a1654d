"""Failure domain of a server's data: a journal replica counts only on another disk.

Workers under one DATA folder share the file `DATA/place`, so a replica on a sibling worker does not count
(docs/JOURNAL.md, "Durability"). The id is random instead of the machine's id, because a disk may move.
"""

from collections.abc import Callable
from pathlib import Path

from lorogo_transport.atomic_file import write_atomically

_FILE = "place"
_WORKER = "worker-"


def root(data: Path) -> Path:
    """Return the folder that contains the workers' folders; `data` itself for a server without workers."""
    return data.parent if data.name.startswith(_WORKER) else data


def domain_id(data: Path, new_id: Callable[[], str]) -> str:
    """Return the failure domain's id of a worker's folder; create it if missing. Raises OSError."""
    path = root(data) / _FILE
    try:
        return _read(path)
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    mine = new_id().encode("ascii")
    try:
        write_atomically(path, mine, mode=0o644, replace=False)  # succeeds for the first worker only
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links: the last writer wins, and all read its id below
        write_atomically(path, mine, mode=0o644, replace=True)
    return _read(path)


def _read(path: Path) -> str:
    text = path.read_text(encoding="ascii").strip()
    if not text:
        raise ValueError(f"{path} is empty")
    return text
