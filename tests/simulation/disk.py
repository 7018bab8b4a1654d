"""A machine's disk: it forgets what was not synced when the machine stops, and can be full, slow and wrong.

`crash()` is for the machine. A process that is killed leaves what it has written, synced or not, but its
locks and its open files go with it: `let_go()`.
"""

import asyncio
import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lorogo_log import FormatError, LockedError, Workers
from lorogo_testing.process import SimulatedCrash
from tests.simulation.inode import Folder, Inode

_WALL_BEGIN_NS = 1_794_800_000_000_000_000
_COMMIT_SECONDS = (0.0002, 0.004)
_ROOM_BYTES = (512, 8192)  # at most, on a disk that is called full


class SimWorkers:
    """The log's work is done by the loop, after the time that the disk takes."""

    def __init__(self, storage: "SimStorage", rng: random.Random, now: Callable[[], int] | None) -> None:
        self._storage = storage
        self._rng = rng
        self._now = now

    def later(self, work: Callable[[], None], seconds: float = 0.0) -> None:
        takes = self._rng.uniform(*_COMMIT_SECONDS) + self._storage.slow_seconds * self._rng.random()
        asyncio.get_running_loop().call_later(seconds + takes, self._do, self._storage.life, work)

    def _do(self, life: int, work: Callable[[], None]) -> None:
        if life == self._storage.life:
            work()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> int:
        return _WALL_BEGIN_NS + int(self.monotonic() * 1e9) if self._now is None else self._now()

    def random_bytes(self, size: int) -> bytes:
        return self._rng.randbytes(size)


class SimStorage:
    """The disk of one machine, as the one process on it sees it: a `lorogo_log.Storage`."""

    def __init__(self, rng: random.Random, *, now: Callable[[], int] | None = None) -> None:
        """`now`: the machine's wall clock, in nanoseconds."""
        self.workers: Workers | None = SimWorkers(self, random.Random(rng.getrandbits(64)), now)
        self.folders: dict[str, Held] = {}
        self.capacity: int | None = None  # bytes of all files together
        self.overwrites_need_room = False  # as where nothing is written in place
        self.slow_seconds = 0.0  # at most, more than usual for each commit
        self.calls = 0  # that changed something, or synced
        self.life = 0  # which process it is
        self._rng = rng
        self._stop_at: int | None = None
        self._stopped: Callable[[], None] = lambda: None

    def directory(self, path: str | os.PathLike[str], *, create: bool) -> "SimDirectory":
        name = os.fspath(path)
        if name not in self.folders:
            if not create:
                raise FormatError(f"{name} does not exist")
            self.folders[name] = Held()
        return SimDirectory(self, name)

    # --- what the world does to it --------------------------------------------------------------------

    def let_go(self) -> None:
        """Its process is gone: locks are free, and nothing that it still does reaches the disk."""
        self.life += 1
        self._stop_at = None
        for held in self.folders.values():
            held.locks.clear()

    def crash(self) -> None:
        """The machine has stopped: any subset of what was not synced is lost."""
        self.let_go()
        for held in self.folders.values():
            held.folder.crash(self._rng)

    def stop_in(self, calls: int, stopped: Callable[[], None]) -> None:
        """Stop the machine within that call from now: `stopped` kills it, then the call raises PowerCut."""
        self._stop_at, self._stopped = self.calls + calls, stopped

    def fill(self) -> None:
        """Full, but for a little; whether what is overwritten needs room as well is chance."""
        self.capacity = self.used() + self._rng.randrange(self._rng.choice(_ROOM_BYTES))
        self.overwrites_need_room = self._rng.random() < 0.5

    def slow(self, seconds: float) -> None:
        """Each commit takes up to so much longer."""
        self.slow_seconds = seconds

    def repair(self) -> None:
        """There is room, it is as fast as ever, and nothing is about to stop it."""
        self.capacity, self.overwrites_need_room, self.slow_seconds = None, False, 0.0
        self._stop_at = None

    def used(self) -> int:
        """Bytes of all files."""
        return sum(
            len(inode.data) for held in self.folders.values() for inode in held.folder.entries.values()
        )

    def flip_bit(self) -> str | None:
        """Turn one bit of a segment that is on the platter; which one, None if there is none."""
        found = [
            (f"{path}/{name}", inode)
            for path, held in sorted(self.folders.items())
            for name, inode in sorted(held.folder.entries.items())
            if name.endswith(".seg") and inode.durable.rstrip(b"\0") and not inode.pending
        ]
        if not found:
            return None
        where, inode = self._rng.choice(found)
        size = len(inode.durable.rstrip(b"\0"))  # zeros that wait to be written over hold nothing
        at, bit = self._rng.randrange(size), self._rng.randrange(8)
        inode.durable[at] ^= 1 << bit
        inode.data[at] = inode.durable[at]
        return f"bit {bit} of byte {at} of {size} in {where}"

    # --- what its files and directories ask -----------------------------------------------------------

    def check(self, life: int) -> None:
        """Raises PowerCut for a process that is gone."""
        if life != self.life:
            raise SimulatedCrash

    def step(self, life: int) -> bool:
        """A call that changes something: whether the machine stops within it."""
        self.check(life)
        self.calls += 1
        return self.calls == self._stop_at

    def stop(self) -> None:
        """The machine stops now. Raises PowerCut."""
        stopped, life = self._stopped, self.life
        self._stop_at = None
        stopped()
        if self.life == life:
            self.let_go()
        raise SimulatedCrash

    def room(self, inode: Inode, size: int, offset: int) -> int:
        """The number of those bytes that fit. Raises OSError if none do, or by chance."""
        if self.capacity is None:
            return size
        new = size if self.overwrites_need_room else offset + size - len(inode.data)
        left = self.capacity - self.used()
        if new <= 0 or new <= left:
            return size
        fits = max(0, size - new + max(0, left))
        if fits and self._rng.random() < 0.5:
            return fits
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@dataclass(eq=False)
class Held:
    """A folder, and who has locked what in it."""

    folder: Folder = field(default_factory=Folder)
    locks: dict[str, int] = field(default_factory=dict)  # -1: exclusive, n: shared by n


class SimDirectory:
    """One folder, as one process has it open."""

    def __init__(self, storage: SimStorage, path: str) -> None:
        self._storage, self._path, self._life = storage, path, storage.life
        self._held = storage.folders[path]

    @property
    def path(self) -> str:
        return self._path

    def list(self) -> list[str]:
        self._storage.check(self._life)
        return list(self._held.folder.entries)

    def open(self, name: str, *, write: bool = False) -> "SimFile":
        self._storage.check(self._life)
        return SimFile(self._storage, self._there(name), self._life)

    def create(self, name: str) -> "SimFile":
        stops = self._storage.step(self._life)
        if name in self._held.folder.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), f"{self._path}/{name}")
        inode = self._held.folder.create(name)
        if stops:
            self._storage.stop()
        return SimFile(self._storage, inode, self._life)

    def rename(self, old: str, new: str) -> None:
        stops = self._storage.step(self._life)
        self._there(old)
        self._held.folder.rename(old, new)
        if stops:
            self._storage.stop()

    def remove(self, name: str) -> None:
        stops = self._storage.step(self._life)
        self._there(name)
        self._held.folder.remove(name)
        if stops:
            self._storage.stop()

    def sync(self) -> None:
        if self._storage.step(self._life):
            self._storage.stop()  # within it: some of it is there
        self._held.folder.sync()

    def space(self) -> tuple[int, int] | None:
        self._storage.check(self._life)
        capacity = self._storage.capacity
        return None if capacity is None else (max(0, capacity - self._storage.used()), capacity)

    def lock(self, name: str, *, exclusive: bool, wait_seconds: float) -> "SimLock":
        """Take the lock at once, or fail: no other process can release it while this one waits."""
        self._storage.check(self._life)
        held = self._held.locks.get(name, 0)
        if held < 0 or (exclusive and held):
            raise LockedError(f"{self._path}/{name} is locked: this process already has it open")
        self._held.locks[name] = -1 if exclusive else held + 1
        return SimLock(self._storage, self._held, name)

    def locked(self, name: str) -> bool:
        self._storage.check(self._life)
        return self._held.locks.get(name, 0) < 0

    def _there(self, name: str) -> Inode:
        try:
            return self._held.folder.entries[name]
        except KeyError:
            where = f"{self._path}/{name}"
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where) from None


class SimFile:
    """One file, as one process has it open; renamed or removed, it goes on."""

    def __init__(self, storage: SimStorage, inode: Inode, life: int) -> None:
        self._storage, self._inode, self._life = storage, inode, life

    def pread(self, size: int, offset: int) -> bytes:
        self._storage.check(self._life)
        return bytes(self._inode.data[offset : offset + size])

    def pwrite(self, parts: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
        stops = self._storage.step(self._life)
        data = b"".join(parts)
        size = self._storage.room(self._inode, len(data), offset)
        self._inode.write(data[:size], offset)
        if stops:
            self._storage.stop()
        return size

    def sync(self) -> None:
        if self._storage.step(self._life):
            self._storage.stop()  # within it: some of it is there
        self._inode.sync()

    def size(self) -> int:
        self._storage.check(self._life)
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        stops = self._storage.step(self._life)
        self._inode.truncate(size)
        if stops:
            self._storage.stop()

    def close(self) -> None:
        """Nothing is lost or kept by it."""


class SimLock:
    """A lock that goes with its process."""

    def __init__(self, storage: SimStorage, held: Held, name: str) -> None:
        self._storage, self._locks, self._name, self._life = storage, held.locks, name, storage.life
        self._held = True

    def release(self) -> None:
        if self._held and self._life == self._storage.life:
            count = self._locks[self._name]
            self._locks[self._name] = 0 if count < 0 else count - 1
        self._held = False
