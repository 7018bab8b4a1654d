"""Files that are written completely or not at all, and durable when the call returns."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

_PRIVATE: Final = 0o600


def write_atomically(path: Path, content: bytes, *, mode: int, replace: bool) -> None:
    """Write the file with exactly this mode. Raises OSError; FileExistsError without `replace`."""
    beside = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(beside, flags, _PRIVATE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode != _PRIVATE:  # not every file system has permissions
                os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            beside.replace(path)
        else:
            os.link(beside, path, follow_symlinks=False)
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
