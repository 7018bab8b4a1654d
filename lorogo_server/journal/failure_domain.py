"""Failure domain of a server's data: a journal replica counts only on another disk.

Workers under one DATA folder share the file `DATA/place`, so a replica on a sibling worker does not count
(docs/JOURNAL.md, "Durability"). The id is random instead of the machine's id, because a disk may move.
"""

import os
from collections.abc import Callable
from pathlib import Path

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
    mine = new_id()
    draft = path.with_name(f"{_FILE}.{mine}.new")
    try:
        with draft.open("w", encoding="ascii") as file:
            file.write(mine)
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(draft)  # atomic, and succeeds for the first worker only
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links: the last writer wins, and all read its id below
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return _read(path)


def _read(path: Path) -> str:
    text = path.read_text(encoding="ascii").strip()
    if not text:
        raise ValueError(f"{path} is empty")
    return text
