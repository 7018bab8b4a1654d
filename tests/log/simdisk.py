"""A disk that forgets: what was not synced may be lost, sector by sector and name by name, when it crashes.

Reads see everything written. `crash()` keeps what was synced and any subset of the rest. `plan` makes
one chosen call fail.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from lorogo_log import FormatError, LockedError

SECTOR = 512
Fault = Literal["enospc", "eio", "short", "crash"]


class PowerCut(Exception):
    """The machine stopped within a call."""


@dataclass
class Inode:
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    #: since the last sync: (offset, sector bytes), or the new size of a truncate
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)

    def sync(self) -> None:
        self.durable = bytes(self.data)
        self.pending.clear()

    def crash(self, rng: random.Random) -> None:
        after = bytearray(self.durable)
        for change in self.pending:
            if rng.random() < 0.5:
                continue
            if isinstance(change, int):
                del after[change:]
                after.extend(bytes(change - len(after)))
            else:
                offset, sector = change
                after.extend(bytes(max(0, offset - len(after))))
                after[offset : offset + len(sector)] = sector
        self.data = after
        self.sync()


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
        self._write(data, offset)
        if fault == "crash":
            raise PowerCut
        return len(data)

    def _write(self, data: bytes, offset: int) -> None:
        inode = self._inode
        inode.data.extend(bytes(max(0, offset - len(inode.data))))
        inode.data[offset : offset + len(data)] = data
        at = 0
        while at < len(data):
            size = SECTOR - (offset + at) % SECTOR
            inode.pending.append((offset + at, data[at : at + size]))
            at += size

    def sync(self) -> None:
        if self._disk.step("sync") == "crash":
            raise PowerCut
        self._inode.sync()

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        fault = self._disk.step("truncate")
        del self._inode.data[size:]
        self._inode.data.extend(bytes(size - len(self._inode.data)))
        self._inode.pending.append(size)
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

    def __init__(self) -> None:
        self.entries: dict[str, Inode] = {}
        self._durable: dict[str, Inode] = {}
        self._changes: list[tuple[str, str, str, Inode | None]] = []
        self.locks: set[str] = set()
        self.boots = 0
        self.calls = 0
        self.kinds: list[str] = []
        self.plan: dict[int, Fault] = {}

    def step(self, kind: str) -> Fault | None:
        """Count a call that changes the disk; fail it if it was planned."""
        self.calls += 1
        self.kinds.append(kind)
        fault = self.plan.get(self.calls)
        if fault == "enospc":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if fault == "eio":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return fault

    def crash(self, rng: random.Random) -> None:
        """Lose any subset of what was not synced, and everybody's locks."""
        self.boots += 1
        self.locks.clear()
        self.plan.clear()
        names = dict(self._durable)
        for kind, old, new, inode in self._changes:
            if rng.random() < 0.5:
                continue
            if kind == "create" and inode is not None:
                names[new] = inode
            elif kind == "rename" and old in names:
                names[new] = names.pop(old)
            elif kind == "remove":
                names.pop(old, None)
        for inode in {id(inode): inode for inode in names.values()}.values():
            inode.crash(rng)
        self.entries = names
        self._durable = dict(names)
        self._changes.clear()

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
        inode = self.entries[name] = Inode()
        self._changes.append(("create", "", name, inode))
        if fault == "crash":
            raise PowerCut
        return SimFile(self, inode)

    def rename(self, old: str, new: str) -> None:
        fault = self.step("rename")
        self.entries[new] = self.entries.pop(old)
        self._changes.append(("rename", old, new, None))
        if fault == "crash":
            raise PowerCut

    def remove(self, name: str) -> None:
        fault = self.step("remove")
        if name not in self.entries:
            raise FileNotFoundError(name)
        del self.entries[name]
        self._changes.append(("remove", name, "", None))
        if fault == "crash":
            raise PowerCut

    def sync(self) -> None:
        if self.step("sync directory") == "crash":
            raise PowerCut
        self._durable = dict(self.entries)
        self._changes.clear()

    def lock(self, name: str, *, exclusive: bool, wait_seconds: float) -> SimLock:
        if name in self.locks:
            raise LockedError(name)
        if exclusive:
            self.locks.add(name)
        return SimLock(self, name)

    def locked(self, name: str) -> bool:
        return name in self.locks
