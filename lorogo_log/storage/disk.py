"""Storage of segments: protocols, and files on a disk. The only module that calls the operating system.

The log uses only these calls, so that a simulated disk in a test can lose, tear and refuse each of them.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from lorogo_log.errors import FormatError, LockedError
from lorogo_log.format.layout import Bytes
from lorogo_log.storage.workers import Workers

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_WRITEV_MAX = 512  # buffers in one call; the kernel's limit is 1024
#: minimum wait for an exclusive lock: a reader that tests for a writer holds the lock for an instant
_LOCK_SECONDS_LEAST = 0.25
#: (device, inode) of the lock files that this process holds, and the id of that process
_HELD: dict[tuple[int, int], int] = {}


class DiskFull(OSError):
    """A write failed for lack of space (ENOSPC, EDQUOT, or a short write). No sync raises it."""


class File(Protocol):
    """One open file."""

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the file."""
        ...

    def pwrite(self, parts: Sequence[Bytes], offset: int) -> int:
        """Return the number of bytes written; after a partial write the caller stops."""
        ...

    def sync(self) -> None:
        """Make the data, and the length needed to read it back, durable (fdatasync)."""
        ...

    def size(self) -> int: ...
    def truncate(self, size: int) -> None: ...
    def close(self) -> None: ...


class Lock(Protocol):
    """A held advisory lock."""

    def release(self) -> None: ...


class Directory(Protocol):
    """One log's directory."""

    @property
    def path(self) -> str: ...
    def list(self) -> list[str]: ...
    def open(self, name: str, *, write: bool = False) -> File:
        """Open an existing file. Raises FileNotFoundError."""
        ...

    def create(self, name: str) -> File:
        """Create a file that does not exist."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename atomically; replaces `new` if it exists."""
        ...

    def remove(self, name: str) -> None: ...
    def sync(self) -> None:
        """Make created, renamed and removed names durable."""
        ...

    def space(self) -> tuple[int, int] | None:
        """Return free bytes and size of the file system; None if unknown."""
        ...

    def lock(self, name: str, *, exclusive: bool, wait_seconds: float) -> Lock:
        """Take an advisory lock. Raises LockedError after the timeout."""
        ...

    def locked(self, name: str) -> bool:
        """Return True if a process holds this lock exclusively, or if that is unknown. Changes nothing."""
        ...


class Storage(Protocol):
    """Creates directories, and defines the workers of their writers."""

    @property
    def workers(self) -> Workers | None:
        """The workers of a writer; None: its own threads."""
        ...

    def directory(self, path: str | os.PathLike[str], *, create: bool) -> Directory:
        """Return a directory; raises FormatError if there is none."""
        ...


class DiskFile:
    """A file on a disk."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        """The file descriptor, for `sendfile`."""
        return self._fd

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        have = len(data)
        while have < size:
            more = os.pread(self._fd, size - have, offset + have)
            if not more:
                break
            parts.append(more)
            have += len(more)
        return b"".join(parts)

    def pwrite(self, parts: Sequence[Bytes], offset: int) -> int:
        if len(parts) == 1:
            return os.pwrite(self._fd, parts[0], offset)
        return os.pwritev(self._fd, list(parts[:_WRITEV_MAX]), offset)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # a cursor dropped without close must not keep a removed segment's blocks
        if getattr(self, "_fd", -1) >= 0:
            self.close()


class DiskLock:
    """An flock on a file of the directory; the kernel drops it with the process."""

    __slots__ = ("_fd", "_file", "_process")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._process = os.getpid()
        self._file = identity(fd)
        _HELD[self._file] = self._process

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            _HELD.pop(self._file, None)
            if os.getpid() == self._process:
                # forked children share the lock: closing the descriptor alone would leave it with them
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


def identity(fd: int) -> tuple[int, int]:
    """The identity of the file, whatever its name."""
    facts = os.fstat(fd)
    return facts.st_dev, facts.st_ino


class DiskDirectory:
    """A directory on a disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> str:
        return str(self._path)

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def list(self) -> list[str]:
        return os.listdir(self._path)  # noqa: PTH208 - names alone are wanted

    def open(self, name: str, *, write: bool = False) -> DiskFile:
        try:
            fd = os.open(self._at(name), (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC)
        except IsADirectoryError:
            raise self._no_file(name) from None
        if stat.S_ISDIR(os.fstat(fd).st_mode):  # the kernel opens directories for reading, too
            os.close(fd)
            raise self._no_file(name)
        return DiskFile(fd)

    def _no_file(self, name: str) -> FormatError:
        return FormatError(f"{self._at(name)} is a directory, and a log keeps a file under such a name")

    def create(self, name: str) -> DiskFile:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return DiskFile(os.open(self._at(name), flags, 0o644))

    def rename(self, old: str, new: str) -> None:
        os.rename(self._at(old), self._at(new))  # noqa: PTH104 - on the hot side of a rotation

    def remove(self, name: str) -> None:
        try:
            os.unlink(self._at(name))  # noqa: PTH108
        except IsADirectoryError:
            raise self._no_file(name) from None

    def sync(self) -> None:
        fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def space(self) -> tuple[int, int] | None:
        found = os.statvfs(self._path)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def lock(self, name: str, *, exclusive: bool, wait_seconds: float) -> DiskLock:
        try:
            fd = os.open(self._at(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except IsADirectoryError:
            raise self._no_file(name) from None
        except OSError as error:  # another user's log: a shared lock needs no right to write
            if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
                raise
            try:
                fd = os.open(self._at(name), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                raise error from None
        kind = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB
        deadline = time.monotonic() + (max(wait_seconds, _LOCK_SECONDS_LEAST) if exclusive else wait_seconds)
        try:
            while True:
                try:
                    fcntl.flock(fd, kind)
                    lock = DiskLock(fd)
                    fd = -1
                    return lock
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        ours = _HELD.get(identity(fd)) == os.getpid()
                        who = "this process already has it open" if ours else "another process has it open"
                        raise LockedError(f"{self._at(name)} is locked: {who}") from None
                    time.sleep(0.002)
        finally:
            if fd >= 0:
                os.close(fd)

    def locked(self, name: str) -> bool:
        try:
            fd = os.open(self._at(name), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except PermissionError:
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False


class FileStorage:
    """Segments as files on a disk: the default."""

    workers: Workers | None = None

    def directory(self, path: str | os.PathLike[str], *, create: bool) -> DiskDirectory:
        where = Path(path)
        if where.exists() and not where.is_dir():
            raise FormatError(f"{where} is a file, not a log directory")
        if not where.is_dir():
            if not create:
                raise FormatError(f"{where} does not exist")
            missing = [where, *where.parents]
            where.mkdir(parents=True, exist_ok=True)
            for folder in missing:
                # the names of created directories must survive a crash, too
                with suppress(PermissionError):
                    DiskDirectory(folder).sync()
        return DiskDirectory(where)


def write_all(file: File, parts: Sequence[Bytes], offset: int, path: str) -> int:
    """Return the bytes written: all, or raise OSError; DiskFull for lack of space. No write is repeated."""
    total = 0
    for start in range(0, len(parts), _WRITEV_MAX):
        some = parts[start : start + _WRITEV_MAX]
        size = sum(map(len, some))
        try:
            done = file.pwrite(some, offset + total)
        except OSError as error:
            raise full_or(error, path) from error
        if done != size:
            raise DiskFull(errno.ENOSPC, f"short write, {done} of {size} bytes", path)
        total += size
    return total


def full_or(error: OSError, path: str) -> OSError:
    """Return DiskFull if a write failed for lack of space, else the error itself."""
    if error.errno in _FULL:
        return DiskFull(error.errno, os.strerror(error.errno), path)
    return error
