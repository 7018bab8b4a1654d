"""Content of a file and of a folder on the disk, and the part that a crash may lose."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

SECTOR = 512


@dataclass(eq=False)
class Inode:
    """A file's bytes: as they are read now, and as they are on the platter."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    #: since the last sync: (offset, bytes), or the new size of a truncate
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)

    def write(self, data: bytes, offset: int) -> None:
        _write(self.data, data, offset)
        self.pending.append((offset, data))

    def truncate(self, size: int) -> None:
        _truncate(self.data, size)
        self.pending.append(size)

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()

    def engrave(self, data: bytes | bytearray) -> None:
        """Put these bytes there, on the platter as well, whatever was written before."""
        self.data, self.durable = bytearray(data), bytearray(data)
        self.pending.clear()

    def crash(self, rng: random.Random) -> None:
        """Any subset of the sectors written since the last sync is there."""
        for change in self.pending:
            for part in _sectors(change):
                if rng.random() >= 0.5:
                    _apply(self.durable, part)
        self.pending.clear()
        self.data = bytearray(self.durable)


class Folder:
    """Names of files: as they are listed now, and as they are on the platter."""

    def __init__(self) -> None:
        self.entries: dict[str, Inode] = {}
        self.durable: dict[str, Inode] = {}
        #: since the last sync: (the old name, "" for a new file; the new one, "" for none; the new file)
        self._changes: list[tuple[str, str, Inode | None]] = []

    def create(self, name: str) -> Inode:
        inode = self.entries[name] = Inode()
        self._changes.append(("", name, inode))
        return inode

    def rename(self, old: str, new: str) -> None:
        self.entries[new] = self.entries.pop(old)
        self._changes.append((old, new, None))

    def remove(self, name: str) -> None:
        del self.entries[name]
        self._changes.append((name, "", None))

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self._changes.clear()

    def crash(self, rng: random.Random) -> None:
        """Any subset of the changes since the last sync is there, of the names and of the files' bytes."""
        names = dict(self.durable)
        for old, new, inode in self._changes:
            if rng.random() < 0.5:
                continue
            if inode is not None:
                names[new] = inode
            elif not new:
                names.pop(old, None)
            elif old in names:
                names[new] = names.pop(old)
        for inode in {id(inode): inode for inode in names.values()}.values():
            inode.crash(rng)
        self.entries = names
        self.sync()


def _sectors(change: tuple[int, bytes] | int) -> Iterator[tuple[int, bytes] | int]:
    if isinstance(change, int):
        yield change
        return
    offset, data = change
    at = 0
    while at < len(data):
        size = SECTOR - (offset + at) % SECTOR
        yield offset + at, data[at : at + size]
        at += size


def _apply(data: bytearray, change: tuple[int, bytes] | int) -> None:
    if isinstance(change, int):
        _truncate(data, change)
    else:
        _write(data, change[1], change[0])


def _write(into: bytearray, data: bytes, offset: int) -> None:
    if offset > len(into):
        into.extend(bytes(offset - len(into)))
    into[offset : offset + len(data)] = data


def _truncate(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))
