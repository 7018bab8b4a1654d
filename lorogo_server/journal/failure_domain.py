"""Where a server keeps its data: a copy of a journal counts only on another disk.

Workers under one DATA folder share the file `DATA/place`, so none of them takes another's copy for
safety (docs/JOURNAL.md, "Durability"). A random id and not the machine's: a disk may move.
"""

import os
from collections.abc import Callable
from pathlib import Path

_FILE = "place"
_WORKER = "worker-"


def root(data: Path) -> Path:
    """The folder of which this worker's folder is one; itself, if it stands alone."""
    return data.parent if data.name.startswith(_WORKER) else data


def place(data: Path, new_id: Callable[[], str]) -> str:
    """The id of the disk folder that a worker's folder lies in, made where there is none. Raises OSError."""
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
            path.hardlink_to(draft)  # whole or not at all, and only the first of the workers
        except FileExistsError:
            pass
        except OSError:  # a file system without links: the last one wins, and is read below
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return _read(path)


def _read(path: Path) -> str:
    text = path.read_text(encoding="ascii").strip()
    if not text:
        raise ValueError(f"{path} is empty")
    return text
