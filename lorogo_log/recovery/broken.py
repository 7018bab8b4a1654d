"""Copies of bytes before a cut or replacement, and temporary files."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from lorogo_log import limits
from lorogo_log.format import names
from lorogo_log.storage.disk import Directory, File, write_all


def free_suffix(directory: Directory, name: str, position: int) -> str:
    """Return a free name suffix that ends in `.broken`."""
    taken = set(directory.list())
    number = 0
    while f"{name}.{(ending := f'{position}-{number}.broken' if number else f'{position}.broken')}" in taken:
        number += 1
    return ending


def keep_broken(directory: Directory, name: str, file: File, position: int) -> str:
    """Copy a file from a position on into a `.broken` file, synced before anything is cut."""
    broken = f"{name}.{free_suffix(directory, name, position)}"
    temporary = broken + names.TEMPORARY  # the final name is given to a complete copy only
    try:
        copy = create_temporary(directory, temporary)
        try:
            at, size = position, file.size()
            while at < size:
                chunk = file.pread(limits.READ_BYTES, at)
                if not chunk:
                    break
                write_all(copy, [chunk], at - position, broken)
                at += len(chunk)
            copy.sync()
        finally:
            copy.close()
        directory.rename(temporary, broken)
    except OSError:
        remove_temporary(directory, temporary)
        raise
    directory.sync()
    return broken


def create_temporary(directory: Directory, temporary: str) -> File:
    """Create a temporary file, replacing one of a failed attempt."""
    remove_temporary(directory, temporary)
    return directory.create(temporary)


def remove_temporary(directory: Directory, temporary: str) -> None:
    """Remove a temporary file; the next open removes it if the disk refuses now."""
    with suppress(OSError):
        if temporary in directory.list():
            directory.remove(temporary)


def broken_files(directory: Directory) -> Iterable[str]:
    """Return the names of `.broken` files."""
    return sorted(name for name in directory.list() if names.BROKEN.fullmatch(name))
