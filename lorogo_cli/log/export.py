"""`lorogo log export`: write a log as Parquet to a file or a pipe, in bounded memory."""

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
from lorogo_cli.log.read import LogScan, RecordFilter
from lorogo_cli.render.output import byte_progress, note, say_json
from lorogo_cli.render.values import show_count, show_size

if TYPE_CHECKING:
    import pyarrow as pa

STDOUT = "-"
#: A row group ends at the first of these limits.
_GROUP_ROWS = 256 << 10
_GROUP_BYTES = 32 << 20


def export(path: Path, target: Path, what: RecordFilter, *, force: bool, as_json: bool) -> bool:
    """Write the file; return whether nothing was damaged. Raises CommandError, and leaves no file then."""
    import pyarrow as pa  # noqa: F401  # fails before a file is made if it is not installed

    here = found(path)
    if str(target) == STDOUT:
        return _to_stdout(here, what, as_json=as_json)
    _check(path, target, force=force)
    try:
        number, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    except OSError as error:
        raise CommandError(f"cannot write {target}: {error.strerror}; choose another file") from None
    reading = LogScan(here, what, word="exported")
    try:
        file = os.fdopen(number, "wb")
        try:
            rows = _write(reading, file, here.bytes(), lambda: _writing(target))
            with _writing(target):
                file.flush()
                os.fsync(file.fileno())
        finally:
            with suppress(OSError):  # the data was synced, or an error was raised already
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
        warn(f"{target} is incomplete: damaged records are left out")
    return reading.whole


def _to_stdout(here: LogListing, what: RecordFilter, *, as_json: bool) -> bool:
    """Write Parquet to a pipe; only the exit code shows the reader whether it is complete."""
    if as_json:
        raise CommandError("--json and `--to -` both use stdout: name a file, or leave out --json")
    if sys.stdout.isatty():
        raise CommandError(
            "Parquet is binary and stdout is a terminal: name a file or use a pipe; text: `lorogo log dump`"
        )
    reading = LogScan(here, what, word="exported")
    try:
        _write(reading, _Pipe(sys.stdout.buffer), here.bytes(), printing)
    finally:
        reading.close()
    return reading.whole


class _Pipe:
    """stdout as a file for pyarrow, which needs a position and must not close it."""

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
        raise CommandError(f"{target} already exists: --force overwrites it")
    if target.parent.resolve() == path.resolve():
        raise CommandError(f"{target} is in the log's own directory: choose another one")


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Report errors of the written file as such, not as errors of the log."""
    try:
        yield
    except OSError as error:
        named = OSError(error.errno, error.strerror or str(error), str(target))
        raise CommandError(disk_sentence(named, target)) from None


@dataclass(slots=True)
class _Group:
    """Batches collected for the next row group."""

    batches: list["pa.RecordBatch"] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def add(self, batch: "pa.RecordBatch") -> bool:
        """Add a batch; return whether the group is full."""
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
    with byte_progress("exporting", total) as advance:
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
            arrow.validate(full=True)  # code that trusts offsets must not get a forged frame
        except ValueError as error:
            reading.bad(batch, error)
            continue
        if group.add(arrow):
            yield group
            group = _Group()
        advance(batch.header.frame_bytes)
    if group.batches:
        yield group
