"""A lake: a folder of tables, each a set of Parquet files that a Delta log names.

    {lake}/lake.json                                     version of the schemas, number of buckets
    {lake}/lake.lock                                     held (flock) by the job that writes, on local disks
    {lake}/follow.lock                                   held by the job that follows the stream
    {lake}/{table}/_delta_log/                           which files count
    {lake}/{table}/data/{bucket}-{label}-{run}.parquet   one bucket each

A file that no committed version names does not belong to the table. A commit expects the version that was
read: of two concurrent writers one fails and changes nothing. Only this module imports deltalake.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from lorogo_pipeline.errors import BadOption, LakeBusy, NoLake, OtherVersion, PipelineError
from lorogo_pipeline.tables.files import LakeFiles
from lorogo_pipeline.tables.schemas import TABLES, VERSION

if TYPE_CHECKING:
    import builtins

BUCKETS = 16
BUCKETS_MAX = 4096
LITTER_SECONDS = 86_400.0
_FACTS = "lake.json"
LOCK = "lake.lock"
_ODD = frozenset("*?[]{}\\%")  # in a path: glob patterns for Spark, escapes for Delta
#: old versions stay readable: the log is small compared with the data. `--follow` commits often: opening
#: a table then reads one checkpoint and a few entries
_LOG = {"delta.logRetentionDuration": "interval 36500 days", "delta.checkpointInterval": "20"}


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a table: one bucket, one label."""

    path: str  # below the table's folder
    rows: int
    bytes: int

    @property
    def bucket(self) -> int:
        return int(self.path.rpartition("/")[2].split("-", 1)[0])

    @property
    def label(self) -> str:
        """The purpose of the file; for `documents` its as-of time."""
        return self.path.rpartition("/")[2].split("-", 2)[1]

    def to_json(self) -> builtins.list[object]:
        return [self.path, self.rows, self.bytes]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> DataFile:
        return cls(str(value[0]), int(value[1]), int(value[2]))


def file_name(bucket: int, label: str, run: str) -> str:
    """The name of a data file, below its table."""
    assert "-" not in label
    return f"data/{bucket:04d}-{label}-{run}.parquet"


class LakeTable:
    """One version of a table: the newest at the time of opening."""

    def __init__(self, files: LakeFiles, name: str) -> None:
        self.name = name
        self.files = files
        self.schema: pa.Schema = TABLES[name]
        self._delta: DeltaTable | None = None
        try:
            self._delta = DeltaTable(files.at(name))
        except TableNotFoundError:
            pass
        except DeltaError as error:
            raise PipelineError(f"the table {files.at(name)} cannot be opened: {error}") from error

    @property
    def version(self) -> int:
        """The version of the table; -1 before the first commit."""
        return -1 if self._delta is None else int(self._delta.version())

    def list(self) -> builtins.list[DataFile]:
        """The files of this version, in a fixed order."""
        if self._delta is None:
            return []
        actions = pa.table(self._delta.get_add_actions(flatten=True))
        if "num_records" not in actions.column_names:
            return []
        rows = zip(
            actions["path"].to_pylist(),
            actions["num_records"].to_pylist(),
            actions["size_bytes"].to_pylist(),
            strict=True,
        )
        return sorted((DataFile(*row) for row in rows), key=lambda file: file.path)

    def rows(self) -> int:
        return sum(file.rows for file in self.list())

    def position(self, of: str) -> int | None:
        """Return a position that `commit` recorded; None if there is none."""
        if self._delta is None:
            return None
        found = self._delta.transaction_version(of)
        return None if found is None else int(found)

    def commit(
        self,
        added: Iterable[DataFile],
        removed: Iterable[DataFile] = (),
        *,
        positions: Mapping[str, int] | None = None,
        facts: Mapping[str, str] | None = None,
    ) -> None:
        """Commit the next version atomically. Raises LakeBusy if another job committed first."""
        now = time.time_ns() // 1_000_000
        actions: builtins.list[AddAction | RemoveAction] = [
            AddAction(file.path, file.bytes, {}, now, True, json.dumps({"numRecords": file.rows}))
            for file in added
        ]
        actions += [
            RemoveAction(
                path=file.path,
                data_change=True,
                deletion_timestamp=now,
                size=file.bytes,
                partition_values={},
            )
            for file in removed
        ]
        marks = [Transaction(of, at, now) for of, at in sorted((positions or {}).items())]
        if not actions and not marks and self._delta is not None:
            return
        try:
            if self._delta is None:
                self._delta = self._created()
            if actions or marks:
                self._delta.create_write_transaction(
                    actions,
                    "append",
                    self.schema,
                    commit_properties=CommitProperties(
                        custom_metadata=dict(facts or {}), max_commit_retries=0, app_transactions=marks
                    ),
                )
        except CommitFailedError:
            raise self._busy() from None
        except DeltaError as error:
            raise PipelineError(f"the table {self.name} could not be committed: {error}") from error
        self._delta = DeltaTable(self.files.at(self.name))

    def _created(self) -> DeltaTable:
        place = self.files.at(self.name)
        try:
            return DeltaTable.create(place, self.schema, name=self.name, configuration=_LOG)
        except DeltaError:
            if DeltaTable.is_deltatable(place):
                raise self._busy() from None
            raise

    def _busy(self) -> LakeBusy:
        return LakeBusy(
            f"another job changed the table {self.name} meanwhile: nothing was written; run it again"
        )


class Lake:
    """The tables below one folder or URL."""

    def __init__(self, files: LakeFiles, buckets: int) -> None:
        self.files = files
        self.buckets = buckets

    @classmethod
    def open(cls, place: str, *, create: bool = False, buckets: int | None = None) -> Lake:
        """Open the lake; `create` makes one in an empty place. Raises NoLake, OtherVersion, BadOption."""
        if not place:
            raise BadOption("name a lake: a folder, or a URL such as s3://bucket/lake")
        files = LakeFiles(place)
        if odd := sorted(set(files.root) & _ODD if files.local else ()):
            raise BadOption(
                f"{files.root} contains {odd[0]!r}, which Spark or Delta interprets: rename the folder"
            )
        raw = files.read(_FACTS)
        if raw is None:
            if not create:
                raise NoLake(f"there is no lake in {files.root}: `lorogo pipeline ingest` creates one")
            return cls._create(files, BUCKETS if buckets is None else buckets)
        try:
            facts = json.loads(raw)
            version, there = int(facts["version"]), int(facts["buckets"])
        except (ValueError, KeyError, TypeError):
            version = there = 0
        if not 1 <= there <= BUCKETS_MAX:
            raise NoLake(f"{files.at(_FACTS)} does not parse: restore it, or ingest into a new lake")
        if version != VERSION:
            raise OtherVersion(
                f"the lake in {files.root} has tables of version {version}, this lorogo reads version"
                f" {VERSION}: use the lorogo that wrote it, or ingest into a new lake"
            )
        if buckets is not None and buckets != there:
            raise BadOption(f"the lake in {files.root} has {there} buckets: their number cannot change")
        return cls(files, there)

    @classmethod
    def _create(cls, files: LakeFiles, buckets: int) -> Lake:
        if not 1 <= buckets <= BUCKETS_MAX:
            raise BadOption(f"buckets is {buckets}; it must be 1 to {BUCKETS_MAX}")
        if files.local and Path(files.root).is_file():
            raise BadOption(f"{files.root} is a file: a lake is a folder")
        others = [name for name in files.list("") if name != LOCK and not name.startswith(_FACTS)]
        if others:
            raise BadOption(
                f"{files.root} is not a lake and not empty ({others[0]}, ...): name an empty or a new folder"
            )
        files.require_space()
        files.put(_FACTS, json.dumps({"version": VERSION, "buckets": buckets}).encode())
        return cls(files, buckets)

    def table(self, name: str) -> LakeTable:
        return LakeTable(self.files, name)

    def sweep(self, *, older_seconds: float = LITTER_SECONDS) -> int:
        """Remove data files that no table names and that are older than a day; return their number.

        They were replaced, or a crashed job left them. Readers of an older version have until then. Only on a
        local disk, where the caller holds the lock: elsewhere they may belong to a running job.
        """
        if not self.files.local:
            return 0
        removed = 0
        before = time.time() - older_seconds
        for name in TABLES:
            named = {f"{name}/{file.path}" for file in self.table(name).list()}
            for path in self.files.list(f"{name}/data"):
                if path not in named and Path(self.files.at(path)).stat().st_mtime < before:
                    self.files.remove(path)
                    removed += 1
        return removed

    @contextmanager
    def writing(self, job: str, *, lock: str = LOCK) -> Iterator[None]:
        """Hold the writers' lock on a local disk; elsewhere the commit detects a concurrent writer."""
        if not self.files.local:
            yield
            return
        try:
            opened = Path(self.files.at(lock)).open("a+", encoding="utf-8")  # noqa: SIM115 - closed below
        except OSError as error:
            raise PipelineError(
                f"the lake in {self.files.root} cannot be written: {error.strerror}"
            ) from None
        with opened as file:
            _lock(file, self.files.root)
            file.truncate(0)
            file.write(f"{job}, process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            try:
                yield
            finally:
                file.truncate(0)


def _lock(file: IO[str], root: str) -> None:
    import fcntl  # noqa: PLC0415 - not on every system

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        who = file.read(200) or "another job"
        raise LakeBusy(f"the lake in {root} is being written by {who}: wait for it, or stop it") from None
