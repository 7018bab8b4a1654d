"""A disk in memory that is full for a while."""

import errno
import os
from typing import Any

from lorogo_log import MemoryStorage
from lorogo_log.storage.memory import MemoryDirectory, MemoryFile


class FullFile:
    """A file of a disk that may be full: the first write that finds no room is short."""

    def __init__(self, file: MemoryFile, disk: "FullDisk") -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def pwrite(self, parts: Any, offset: int) -> int:
        data = b"".join(parts)
        if not self._disk.full:
            return self._file.pwrite([data], offset)
        if self._disk.refused:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._disk.refused = True
        return self._file.pwrite([data[: len(data) // 2]], offset)


class FullDirectory(MemoryDirectory):
    """A folder of such files."""

    disk: "FullDisk"

    def create(self, name: str) -> MemoryFile:
        return FullFile(super().create(name), self.disk)  # type: ignore[return-value]  # the same calls

    def open(self, name: str, *, write: bool = False) -> MemoryFile:
        return FullFile(super().open(name, write=write), self.disk)  # type: ignore[return-value]


class FullDisk(MemoryStorage):
    """A disk in memory that is full while `full` is set."""

    full = refused = False

    def directory(self, path: str | os.PathLike[str], *, create: bool) -> MemoryDirectory:
        found = super().directory(path, create=create)
        if not isinstance(found, FullDirectory):
            made = FullDirectory(found.path)
            made.files, made.disk = found.files, self
            self.directories[os.fspath(path)] = found = made
        return found
