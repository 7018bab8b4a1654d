"""Folders on any storage that fsspec knows (`file://`, `s3://`, `memory://`): the border to fsspec."""

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
    """The storage did not do what it was asked; says what, and what it answered."""

    code = "archive"
    retriable = True


class NoSuchArchive(ArchiveError):
    """The URL cannot work on this machine: nobody knows its protocol, or its driver is not installed."""

    code = "no-such-archive"
    retriable = False


def check_driver(url: str) -> None:
    """Whether such a store can be spoken to from here; it is not asked. Raises ArchiveError."""
    with _translated(url):
        try:
            import fsspec  # noqa: PLC0415  # an extra

            fsspec.get_filesystem_class(fsspec.core.split_protocol(url)[0])
        except (ImportError, ValueError) as error:
            raise NoSuchArchive(_shown(f"the archive {url} cannot be used here: {error}")) from error


class ArchiveStorage:
    """Everything below one URL; names are relative to it. Every call may block. Raises ArchiveError."""

    def __init__(self, url: str) -> None:
        self.url = _shown(url).rstrip("/")  # for people
        check_driver(url)
        with _translated(url):
            import fsspec  # noqa: PLC0415  # an extra: a server without an archive starts without it

            self._fs, root = fsspec.core.url_to_fs(url)
        self._root = root.rstrip("/")

    def files(self, below: str = "") -> dict[str, int]:
        """Every file with its size; none if there is no such folder."""
        with _translated(self.url):
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self._at(below), detail=True)
            except FileNotFoundError:
                return {}
        prefix = len(self._root) + 1
        return {path[prefix:]: int(facts["size"] or 0) for path, facts in found.items()}

    def size(self, name: str) -> int | None:
        """How large the file is; None if there is none."""
        with _translated(self.url):
            self._fs.invalidate_cache()
            try:
                return int(self._fs.info(self._at(name))["size"])
            except FileNotFoundError:
                return None

    def read(self, name: str) -> Iterator[bytes]:
        """The file in pieces."""
        with _translated(self.url), self._fs.open(self._at(name), "rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece

    def read_small(self, name: str) -> bytes | None:
        """The whole file; None if there is none."""
        with _translated(self.url):
            try:
                return bytes(self._fs.cat_file(self._at(name)))
            except FileNotFoundError:
                return None

    def write(self, name: str, pieces: Iterator[bytes]) -> None:
        """Put a file there; half of it may be left by a crash: that is why manifests are written last."""
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
            raise ArchiveError(f"{self.url} does not give back what was written")
        with suppress(ArchiveError):  # a store that keeps everything is a good archive
            self.remove(name)

    def folder(self, name: str) -> "ArchiveFolder":
        """A folder of segments, as the log reads one."""
        return ArchiveFolder(self, name)

    def open(self, name: str) -> Any:
        """A file to read and seek in."""
        with _translated(self.url):
            try:
                return self._fs.open(self._at(name), "rb")
            except FileNotFoundError:
                raise FileNotFoundError(f"{self.url}/{name}") from None

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


class ArchiveFile:
    """A file of an archive, read only, as the log reads one."""

    def __init__(self, file: Any, size: int) -> None:
        self._file = file
        self._size = size

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
    """One partition of an archive, read only: a `lorogo_log` directory."""

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
        full = f"{self._name}/{name}" if self._name else name
        file = self._archive.open(full)
        return ArchiveFile(file, self._archive.size(full) or 0)

    def create(self, name: str) -> NoReturn:
        raise NotImplementedError("an archive is not written in place")

    def rename(self, old: str, new: str) -> NoReturn:
        raise NotImplementedError("an archive is not written in place")

    def remove(self, name: str) -> NoReturn:
        raise NotImplementedError("an archive is not written in place")

    def sync(self) -> None:
        pass

    def space(self) -> None:
        """Not known."""

    def lock(self, name: str, *, exclusive: bool, wait_seconds: float) -> Lock:
        raise NotImplementedError("an archive has no locks")

    def locked(self, name: str) -> bool:
        return False  # nobody writes to a segment there


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Whatever a driver raises becomes one sentence; each of them has errors of its own."""
    try:
        yield
    except (ArchiveError, FileNotFoundError, GeneratorExit):
        raise
    except ModuleNotFoundError as error:
        raise ArchiveError(_shown(f"{url} needs the package {error.name}: install it")) from error
    except Exception as error:
        raise ArchiveError(_shown(f"{url} cannot be used: {type(error).__name__}: {error}")) from error


def _shown(text: str) -> str:
    """Without names and passwords of addresses: what is said of an archive is in logs and statuses."""
    return _CREDENTIALS.sub("...@", text)
