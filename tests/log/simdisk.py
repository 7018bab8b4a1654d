"""A disk that forgets: what was not synced may be lost, sector by sector and name by name, when it crashes.

Reads see everything written. `crash()` keeps what was synced and any subset of the rest. `plan` makes
one chosen call fail.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from typing import Literal

from lorogo_log import FormatError, LockedError
from lorogo_log.storage.workers import Workers
from tests.simulation.inode import Folder, Inode

Fault = Literal["enospc", "edquot", "eio", "short", "crash"]


class PowerCut(Exception):
    """The machine stopped within a call."""


class SimFile:
    def __init__(self, disk: SimDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def pread(self, size: int, offset: int) -> bytes:
        return bytes(self._inode.data[offset : offset + size])

    def pwrite(self, parts: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
        data = b"".join(parts)
        fault = self._disk.step("write")
        if fault == "short":
            data = data[: len(data) // 2]
        self._inode.write(data, offset)
        if fault == "crash":
            raise PowerCut
        return len(data)

    def sync(self) -> None:
        if self._disk.step("sync") == "crash":
            raise PowerCut
        self._inode.sync()

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        fault = self._disk.step("truncate")
        self._inode.truncate(size)
        if fault == "crash":
            raise PowerCut

    def close(self) -> None:
        pass


class SimLock:
    def __init__(self, disk: SimDisk, name: str) -> None:
        self._disk, self._name, self._boot = disk, name, disk.boots

    def release(self) -> None:
        if self._boot == self._disk.boots:
            self._disk.locks.discard(self._name)


class SimDisk:
    """A Storage and its one Directory."""

    path = "sim"
    workers: Workers | None = None

    def __init__(self) -> None:
        self._folder = Folder()
        self.locks: set[str] = set()
        self.boots = 0
        self.calls = 0
        self.kinds: list[str] = []
        self.plan: dict[int, Fault] = {}
        self.room: tuple[int, int] | None = None  # free and all bytes, as the file system says

    def step(self, kind: str) -> Fault | None:
        """Count a call that changes the disk; fail it if it was planned."""
        self.calls += 1
        self.kinds.append(kind)
        fault = self.plan.get(self.calls)
        if fault == "enospc":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if fault == "edquot":
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        if fault == "eio":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return fault

    def crash(self, rng: random.Random) -> None:
        """Lose any subset of what was not synced, and everybody's locks."""
        self.boots += 1
        self.locks.clear()
        self.plan.clear()
        self._folder.crash(rng)

    @property
    def entries(self) -> dict[str, Inode]:
        return self._folder.entries

    @property
    def durable(self) -> dict[str, Inode]:
        """The names that no crash takes away."""
        return self._folder.durable

    # -- Storage and Directory -------------------------------------------------------------------

    def directory(self, path: str | os.PathLike[str], *, create: bool) -> SimDisk:
        if os.fspath(path) != self.path:
            raise FormatError(f"{path} does not exist")
        return self

    def list(self) -> list[str]:
        return list(self.entries)

    def open(self, name: str, *, write: bool = False) -> SimFile:
        if name not in self.entries:
            raise FileNotFoundError(name)
        return SimFile(self, self.entries[name])

    def create(self, name: str) -> SimFile:
        fault = self.step("create")
        if name in self.entries:
            raise FileExistsError(name)
        inode = self._folder.create(name)
        if fault == "crash":
            raise PowerCut
        return SimFile(self, inode)

    def rename(self, old: str, new: str) -> None:
        fault = self.step("rename")
        self._folder.rename(old, new)
        if fault == "crash":
            raise PowerCut

    def remove(self, name: str) -> None:
        fault = self.step("remove")
        if name not in self.entries:
            raise FileNotFoundError(name)
        self._folder.remove(name)
        if fault == "crash":
            raise PowerCut

    def sync(self) -> None:
        if self.step("sync directory") == "crash":
            raise PowerCut
        self._folder.sync()

    def space(self) -> tuple[int, int] | None:
        return self.room

    def lock(self, name: str, *, exclusive: bool, wait_seconds: float) -> SimLock:
        if name in self.locks:
            raise LockedError(name)
        if exclusive:
            self.locks.add(name)
        return SimLock(self, name)

    def locked(self, name: str) -> bool:
        return name in self.locks
