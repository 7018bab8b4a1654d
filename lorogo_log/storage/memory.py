"""A log in memory, with the same contract tests as the disk."""

import os
import threading
import time
from collections.abc import Sequence

from lorogo_log.errors import FormatError, LockedError
from lorogo_log.format.layout import Bytes
from lorogo_log.storage.workers import Workers


class MemoryFile:
    """Bytes that behave like a file: open handles stay valid after a remove or rename."""

    def __init__(self, data: bytearray) -> None:
        self._data = data

    def pread(self, size: int, offset: int) -> bytes:
        return bytes(self._data[offset : offset + size])

    def pwrite(self, parts: Sequence[Bytes], offset: int) -> int:
        data = b"".join(parts)
        end = offset + len(data)
        if len(self._data) < offset:
            self._data.extend(bytes(offset - len(self._data)))
        self._data[offset:end] = data
        return len(data)

    def sync(self) -> None:
        pass

    def size(self) -> int:
        return len(self._data)

    def truncate(self, size: int) -> None:
        if size < len(self._data):
            del self._data[size:]
        else:
            self._data.extend(bytes(size - len(self._data)))

    def close(self) -> None:
        pass


class MemoryLock:
    """A lock among the users of one MemoryStorage."""

    def __init__(self, directory: "MemoryDirectory", name: str) -> None:
        self._directory = directory
        self._name = name
        self._held = True

    def release(self) -> None:
        if self._held:
            self._held = False
            self._directory.unlock(self._name)


class MemoryDirectory:
    """Names and their bytes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.files: dict[str, bytearray] = {}
        self._locks: dict[str, int] = {}  # -1: exclusive, n: shared by n
        self._guard = threading.Condition()

    @property
    def path(self) -> str:
        return self._path

    def list(self) -> list[str]:
        return list(self.files)

    def open(self, name: str, *, write: bool = False) -> MemoryFile:
        try:
            return MemoryFile(self.files[name])
        except KeyError:
            raise FileNotFoundError(f"{self._path}/{name}") from None

    def create(self, name: str) -> MemoryFile:
        if name in self.files:
            raise FileExistsError(f"{self._path}/{name}")
        self.files[name] = bytearray()
        return MemoryFile(self.files[name])

    def rename(self, old: str, new: str) -> None:
        try:
            self.files[new] = self.files.pop(old)
        except KeyError:
            raise FileNotFoundError(f"{self._path}/{old}") from None

    def remove(self, name: str) -> None:
        if self.files.pop(name, None) is None:
            raise FileNotFoundError(f"{self._path}/{name}")

    def sync(self) -> None:
        pass

    def space(self) -> tuple[int, int] | None:
        return None

    def lock(self, name: str, *, exclusive: bool, wait_seconds: float) -> MemoryLock:
        deadline = time.monotonic() + wait_seconds
        with self._guard:
            while (held := self._locks.get(name, 0)) < 0 or (exclusive and held):
                left = deadline - time.monotonic()
                if left <= 0 or not self._guard.wait(left):
                    raise LockedError(f"{self._path}/{name} is locked: this process already has it open")
            self._locks[name] = -1 if exclusive else held + 1
        return MemoryLock(self, name)

    def locked(self, name: str) -> bool:
        with self._guard:
            return self._locks.get(name, 0) < 0

    def unlock(self, name: str) -> None:
        with self._guard:
            held = self._locks[name]
            self._locks[name] = 0 if held < 0 else held - 1
            self._guard.notify_all()


class MemoryStorage:
    """Keeps directories for its own lifetime."""

    workers: Workers | None = None

    def __init__(self) -> None:
        self.directories: dict[str, MemoryDirectory] = {}

    def directory(self, path: str | os.PathLike[str], *, create: bool) -> MemoryDirectory:
        name = os.fspath(path)
        if name not in self.directories:
            if not create:
                raise FormatError(f"{name} does not exist")
            self.directories[name] = MemoryDirectory(name)
        return self.directories[name]
