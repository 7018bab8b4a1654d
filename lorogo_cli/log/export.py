"""`lorogo log export`: a log as one Parquet file, or as Parquet into a pipe, in bounded memory."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lorogo_cli.errors import CommandError
from lorogo_cli.log.errors import disk_sentence, printing, warn
from lorogo_cli.log.found import LogListing, found
from lorogo_cli.log.progress import progress
from lorogo_cli.log.read import LogScan, RecordFilter
from lorogo_cli.render.output import note, say_json
from lorogo_cli.render.values import show_count, show_size

if TYPE_CHECKING:
    import pyarrow as pa

STDOUT = "-"
#: A row group ends at whichever comes first.
_GROUP_ROWS = 256 << 10
_GROUP_BYTES = 32 << 20


def export(path: Path, target: Path, what: RecordFilter, *, force: bool, as_json: bool) -> bool:
    """Write the file; whether nothing was damaged. Raises Problem; then nothing is left of it."""
    import pyarrow as pa  # noqa: F401  # before any file is made: it may be missing

    here = found(path)
    if str(target) == STDOUT:
        return _to_stdout(here, what, as_json=as_json)
    _check(path, target, force=force)
    try:
        number, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    except OSError as error:
        raise CommandError(f"{target} cannot be written: {error.strerror}; name a file elsewhere") from None
    reading = LogScan(here, what, word="exported")
    try:
        file = os.fdopen(number, "wb")
        try:
            rows = _write(reading, file, here.bytes(), lambda: _writing(target))
            with _writing(target):
                file.flush()
                os.fsync(file.fileno())
        finally:
            with suppress(OSError):  # what matters was synced, or has failed already
                file.close()
        size = Path(temporary).stat().st_size
        with _writing(target):
            Path(temporary).chmod(0o666 & ~_umask())
            Path(temporary).replace(target)
    finally:
        reading.close()
        with suppress(OSError):
            Path(temporary).unlink()
    if as_json:
        facts = {"file": str(target), "records": rows, "bytes": size, "whole": reading.whole}
        say_json(facts, pretty=False)
    else:
        note(f"{show_count(rows, 'record')}, {show_size(size)} in {target}")
    if not reading.whole:
        warn(f"{target} holds what could be read: what is damaged is not in it")
    return reading.whole


def _to_stdout(here: LogListing, what: RecordFilter, *, as_json: bool) -> bool:
    """The same bytes into a pipe: whoever reads them must look at the exit code."""
    if as_json:
        raise CommandError("--json and `--to -` both want stdout: name a file, or leave --json away")
    if sys.stdout.isatty():
        raise CommandError(
            "Parquet is nothing for a terminal: name a file, or pipe it; `lorogo log dump` is text"
        )
    reading = LogScan(here, what, word="exported")
    try:
        _write(reading, _Pipe(sys.stdout.buffer), here.bytes(), printing)
    finally:
        reading.close()
    return reading.whole


class _Pipe:
    """stdout as pyarrow wants a file: it asks for the position, and must not close it."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._at = 0

    def write(self, data: Any) -> int:
        self._at += self._file.write(data)
        return len(data)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.flush()

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True


def _check(path: Path, target: Path, *, force: bool) -> None:
    if target.is_dir():
        raise CommandError(f"{target} is a directory: name a file in it")
    if target.exists() and not force:
        raise CommandError(f"{target} is there already: --force writes over it")
    if target.parent.resolve() == path.resolve():
        raise CommandError(f"{target} would be among the log's own files: name one elsewhere")


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Errors of the file that is written are told as such, not as the log's."""
    try:
        yield
    except OSError as error:
        told = OSError(error.errno, error.strerror or str(error), str(target))
        raise CommandError(disk_sentence(told, target)) from None


@dataclass(slots=True)
class _Group:
    """Batches that wait to be a row group."""

    batches: list["pa.RecordBatch"] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def add(self, batch: "pa.RecordBatch") -> bool:
        """Whether it is full now."""
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes
        return self.rows >= _GROUP_ROWS or self.bytes >= _GROUP_BYTES


def _write(
    reading: LogScan, file: Any, total: int, writing: Callable[[], AbstractContextManager[None]]
) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from lorogo_log.format.arrow import SCHEMA

    schema = SCHEMA.with_metadata({"lorogo.value": "msgpack"})
    rows = 0
    with progress("exporting", total) as advance:
        with writing():
            writer = pq.ParquetWriter(file, schema, compression="zstd")
        try:
            for group in _groups(reading, advance):
                rows += group.rows
                with writing():
                    writer.write_table(pa.Table.from_batches(group.batches, SCHEMA).cast(schema))
            with writing():
                writer.close()
        finally:
            writer.is_open = False  # else it would write to the closed file when it is collected
    return rows


def _groups(reading: LogScan, advance: Callable[[int], None]) -> Iterator[_Group]:
    group = _Group()
    for batch in reading.batches():
        try:
            arrow = batch.to_arrow()
            arrow.validate(full=True)  # a forged frame must not reach code that trusts offsets
        except ValueError as error:
            reading.bad(batch, error)
            continue
        if group.add(arrow):
            yield group
            group = _Group()
        advance(batch.header.frame_bytes)
    if group.batches:
        yield group
