"""Folders on any storage of fsspec (`file://`, `s3://`, `memory://`). Only this file imports fsspec."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from lorogo_log import Lock
from lorogo_protocol.errors import LorogoError

PIECE_BYTES = 4 << 20
_TRIAL = "write-test"
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")


class ArchiveError(LorogoError):
    """An operation of the storage failed; the message has the operation and the cause."""

    code = "archive"
    retriable = True


class NoSuchArchive(ArchiveError):
    """The URL cannot work on this machine: its protocol is unknown, or its driver is not installed."""

    code = "no-such-archive"
    retriable = False


def check_driver(url: str) -> None:
    """Check that the driver of a URL is installed, without a connection. Raises ArchiveError."""
    with _translated(url):
        try:
            import fsspec  # noqa: PLC0415  # an extra

            fsspec.get_filesystem_class(fsspec.core.split_protocol(url)[0])
        except (ImportError, ValueError) as error:
            raise NoSuchArchive(_shown(f"the archive {url} cannot be used here: {error}")) from error


class ArchiveStorage:
    """Files below one URL; names are relative to it. Every call may block and may raise ArchiveError."""

    def __init__(self, url: str) -> None:
        self.url = _shown(url).rstrip("/")  # for messages
        check_driver(url)
        with _translated(url):
            import fsspec  # noqa: PLC0415  # optional: only a server with an archive needs it

            self._fs, root = fsspec.core.url_to_fs(url)
        self._root = root.rstrip("/")

    def files(self, below: str = "") -> dict[str, int]:
        """Return every file with its size; empty if the folder does not exist."""
        with _translated(self.url):
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self._at(below), detail=True)
            except FileNotFoundError:
                return {}
        prefix = len(self._root) + 1
        return {path[prefix:]: int(facts["size"] or 0) for path, facts in found.items()}

    def read(self, name: str) -> Iterator[bytes]:
        """Yield the file's content in pieces."""
        with _translated(self.url), self._fs.open(self._at(name), "rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece

    def read_small(self, name: str) -> bytes | None:
        """Return the file's content; None if it does not exist."""
        with _translated(self.url):
            try:
                return bytes(self._fs.cat_file(self._at(name)))
            except FileNotFoundError:
                return None

    def write(self, name: str, pieces: Iterator[bytes]) -> None:
        """Write a file. A crash may leave half of it, which is why manifests are written last."""
        path = self._at(name)
        with _translated(self.url):
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            with self._fs.open(path, "wb") as file:
                for piece in pieces:
                    file.write(piece)

    def remove(self, name: str) -> None:
        """Remove a file; no error if it is gone."""
        with _translated(self.url):
            try:
                self._fs.rm_file(self._at(name))
            except FileNotFoundError:
                return

    def try_out(self, below: str) -> None:
        """Write a small file, read it back and remove it."""
        name = f"{below}/{_TRIAL}"
        self.write(name, iter([_TRIAL.encode()]))
        if self.read_small(name) != _TRIAL.encode():
            raise ArchiveError(f"{self.url} does not return the data that was written")
        with suppress(ArchiveError):  # a store that forbids deletion is a good archive
            self.remove(name)

    def folder(self, name: str) -> "ArchiveFolder":
        """Return a folder of segments that `lorogo_log` can read."""
        return ArchiveFolder(self, name)

    def open(self, name: str) -> "ArchiveFile":
        """Open a file for reading."""
        with _translated(self.url):
            try:
                return ArchiveFile(self._fs.open(self._at(name), "rb"))
            except FileNotFoundError:
                raise FileNotFoundError(f"{self.url}/{name}") from None

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


class ArchiveFile:
    """A read-only file of an archive, with the file interface of `lorogo_log`."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._size = int(file.seek(0, os.SEEK_END))

    def pread(self, size: int, offset: int) -> bytes:
        with _translated("the archive"):
            self._file.seek(offset)
            return bytes(self._file.read(size))

    def size(self) -> int:
        return self._size

    def close(self) -> None:
        self._file.close()

    def pwrite(self, parts: Sequence[object], offset: int) -> NoReturn:
        raise NotImplementedError("an archive is not written in place")

    def sync(self) -> NoReturn:
        raise NotImplementedError("an archive is not written in place")

    def truncate(self, size: int) -> NoReturn:
        raise NotImplementedError("an archive is not written in place")


class ArchiveFolder:
    """One partition of an archive, as a read-only `lorogo_log` directory."""

    def __init__(self, archive: ArchiveStorage, name: str) -> None:
        self._archive = archive
        self._name = name

    @property
    def path(self) -> str:
        return f"{self._archive.url}/{self._name}".rstrip("/")

    def list(self) -> list[str]:
        prefix = f"{self._name}/" if self._name else ""
        below = (name.removeprefix(prefix) for name in self._archive.files(self._name))
        return [name for name in below if "/" not in name]

    def open(self, name: str, *, write: bool = False) -> ArchiveFile:
        if write:
            raise NotImplementedError("an archive is not written in place")
        return self._archive.open(f"{self._name}/{name}" if self._name else name)

    def create(self, name: str) -> NoReturn:
        raise NotImplementedError("an archive is not written in place")

    def rename(self, old: str, new: str) -> NoReturn:
        raise NotImplementedError("an archive is not written in place")

    def remove(self, name: str) -> NoReturn:
        raise NotImplementedError("an archive is not written in place")

    def sync(self) -> None:
        pass

    def space(self) -> None:
        """Return None: the free space is unknown."""

    def lock(self, name: str, *, exclusive: bool, wait_seconds: float) -> Lock:
        raise NotImplementedError("an archive has no locks")

    def locked(self, name: str) -> bool:
        return False  # segments in an archive have no writer


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Translate the errors of all drivers to ArchiveError."""
    try:
        yield
    except (ArchiveError, FileNotFoundError, GeneratorExit):
        raise
    except ModuleNotFoundError as error:
        raise ArchiveError(_shown(f"{url} needs the package {error.name}: install it")) from error
    except Exception as error:
        raise ArchiveError(_shown(f"{url} cannot be used: {type(error).__name__}: {error}")) from error


def _shown(text: str) -> str:
    """Remove credentials of URLs from a text for logs and statuses."""
    return _CREDENTIALS.sub("...@", text)
