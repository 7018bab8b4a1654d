"""The user's cache folder, for the Java wrapper and class archives.

    Linux   $XDG_CACHE_HOME/lorogo, else ~/.cache/lorogo
    macOS   ~/Library/Caches/lorogo

Its files are executed. The folder must belong to this user and must not be writable for others; otherwise it
is not used.
"""

import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def place(environ: Mapping[str, str], platform: str) -> Path | None:
    """Return the path of the folder; None without a home directory."""
    named = environ.get("XDG_CACHE_HOME", "")
    if named.startswith("/"):
        return Path(named, "lorogo")
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        return None
    return Path(home, "Library/Caches/lorogo") if platform == "darwin" else Path(home, ".cache/lorogo")


def folder(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the folder, created if needed; None if it is not exclusively writable for this user."""
    path = place(os.environ if environ is None else environ, sys.platform)
    if path is None:
        return None
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path if is_ours(path.lstat()) and os.access(path, os.W_OK | os.X_OK) else None
    except OSError:
        return None


def is_ours(status: os.stat_result) -> bool:
    """True for a real folder of this user that is not writable for others."""
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not stat.S_IMODE(status.st_mode) & _OTHERS_WRITE
    )


def put(path: Path, content: bytes, mode: int) -> None:
    """Write a file atomically; several processes may write the same one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        Path(name).replace(path)
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()
