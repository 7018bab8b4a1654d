"""A journal in memory, for servers whose tests are not about the disk."""

import os
import threading
from pathlib import Path
from typing import TypedDict

from lorogo_log import MemoryStorage
from lorogo_log.storage.memory import MemoryDirectory, MemoryFile
from lorogo_protocol.journal.records import TermKind, TermRecord


class Kept(TypedDict):
    """The place of a server's journal."""

    data: Path
    storage: MemoryStorage


def in_memory() -> Kept:
    """For `Server(..., **in_memory())`."""
    return {"data": Path("data"), "storage": MemoryStorage()}


class SlowFile:
    """A file whose syncs wait for the test, or fail."""

    def __init__(self, file: MemoryFile, disk: "TestDisk") -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def sync(self) -> None:
        self._disk.on_sync()
        self._file.sync()


class SlowDirectory(MemoryDirectory):
    """A folder of such files."""

    disk: "TestDisk"

    def create(self, name: str) -> MemoryFile:
        return SlowFile(super().create(name), self.disk)  # type: ignore[return-value]  # the same calls

    def open(self, name: str, *, write: bool = False) -> MemoryFile:
        return SlowFile(super().open(name, write=write), self.disk)  # type: ignore[return-value]


class TestDisk(MemoryStorage):
    """A disk in memory: `hold()` makes syncs wait, `let_go()` lets them through, `break_()` fails them."""

    __test__ = False

    def __init__(self) -> None:
        super().__init__()
        self._open = threading.Event()
        self._open.set()
        self._broken = False
        self.waiting = 0  # syncs that wait

    def directory(self, path: str | os.PathLike[str], *, create: bool) -> MemoryDirectory:
        found = super().directory(path, create=create)
        if not isinstance(found, SlowDirectory):
            slow = SlowDirectory(found.path)
            slow.files = found.files
            slow.disk = self
            self.directories[os.fspath(path)] = slow
            return slow
        return found

    def hold(self) -> None:
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    def break_(self) -> None:
        self._broken = True
        self._open.set()

    def on_sync(self) -> None:
        self.waiting += 1
        assert self._open.wait(10)
        self.waiting -= 1
        if self._broken:
            raise OSError(5, "the disk is broken")


def restored_record(lease: int, generation: int) -> TermRecord:
    """Return the record of a restore that undoes the deletion `tombstone`."""
    return TermRecord("restored", (), TermKind.RESTORED, ("tombstone",), lease, generation)
