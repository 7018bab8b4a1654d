"""The files of a lake, on any storage that fsspec supports; the only module that imports fsspec."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lorogo_pipeline.errors import PipelineError

_LOCAL = "file://"
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
#: a job needs at least this much free space: Spark and Parquet would fail halfway
FREE_BYTES_MIN = 64 << 20


class LakeFiles:
    """Everything below one folder or URL; names are relative to it. Picklable."""

    def __init__(self, place: str) -> None:
        place = place.removeprefix(_LOCAL) if place.startswith(_LOCAL) else place
        self.local = "://" not in place
        self.root = str(Path(place).absolute()) if self.local else place.rstrip("/")

    def __repr__(self) -> str:
        return f"Files({self.root!r})"

    def at(self, name: str) -> str:
        """The full path or URL."""
        return f"{self.root}/{name}" if name else self.root

    def spark_uri(self, name: str) -> str:
        """The URI in the form that Spark (Hadoop) expects."""
        if self.local:
            return _LOCAL + self.at(name)
        return self.at(name).replace("s3://", "s3a://", 1)

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        """Open a new file for writing; it is complete when the block ends."""
        with self._translated_errors(name):
            path = self._path(name)
            if self.local:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            else:
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            with self._fs.open(path, "wb") as file:
                yield file

    def put(self, name: str, body: bytes) -> None:
        """Write a small file atomically."""
        if not self.local:  # object stores write atomically
            with self.create(name) as file:
                file.write(body)
            return
        part = f"{name}.{os.getpid()}.part"
        with self.create(part) as file:
            file.write(body)
        with self._translated_errors(name):
            Path(self._path(part)).replace(self._path(name))

    @contextmanager
    def open(self, name: str) -> Iterator[Any]:
        """Open a file for reading and seeking."""
        with self._translated_errors(name):
            try:
                opened = self._fs.open(self._path(name), "rb")
            except FileNotFoundError:
                raise PipelineError(
                    f"{self.at(name)} is gone: if another job erased meanwhile, run it again; else restore"
                    " the file, or ingest into a new lake"
                ) from None
            with opened as file:
                yield file

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file; None if it does not exist."""
        with self._translated_errors(name):
            try:
                return bytes(self._fs.cat_file(self._path(name)))
            except FileNotFoundError:
                return None

    def size(self, name: str) -> int:
        with self._translated_errors(name):
            return int(self._fs.info(self._path(name))["size"])

    def list(self, below: str) -> dict[str, int]:
        """Return every file below a folder with its size; empty if the folder does not exist."""
        with self._translated_errors(below):
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self._path(below), detail=True)
            except FileNotFoundError:
                return {}
        prefix = len(self._path("")) + 1
        return {path[prefix:]: int(facts["size"] or 0) for path, facts in found.items()}

    def remove(self, name: str) -> None:
        """Remove a file; a missing one is no error."""
        with self._translated_errors(name), suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def require_space(self, wanted: int = FREE_BYTES_MIN) -> None:
        """Raise PipelineError if a local disk has less free space than a job needs."""
        if not self.local:
            return
        place = Path(self.root)
        while not place.exists():
            place = place.parent
        free = shutil.disk_usage(place).free
        if free < max(wanted, FREE_BYTES_MIN):
            raise PipelineError(
                f"{self.root} has {free >> 20} MiB of free space and this job needs about"
                f" {max(wanted, FREE_BYTES_MIN) >> 20} MiB: free disk space, or name another lake"
            )

    @property
    def _fs(self) -> Any:
        import fsspec  # noqa: PLC0415 - instances are cached by fsspec, and must not be pickled

        return fsspec.core.url_to_fs(self.root)[0]

    def _path(self, name: str) -> str:
        import fsspec  # noqa: PLC0415

        root = self.root if self.local else str(fsspec.core.url_to_fs(self.root)[1]).rstrip("/")
        return f"{root}/{name}" if name else root

    @contextmanager
    def _translated_errors(self, name: str) -> Iterator[None]:
        """Raise PipelineError for the errors of any fsspec driver."""
        try:
            yield
        except (PipelineError, FileNotFoundError, GeneratorExit):
            raise
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise PipelineError(f"the disk of {self.root} is full: free space and run it again") from None
            raise PipelineError(f"{self.at(name)} cannot be used: {error.strerror or error}") from error
        except (ImportError, ValueError) as error:
            raise PipelineError(f"{self.root} cannot be used here: {error}") from error
