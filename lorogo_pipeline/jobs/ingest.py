"""Read journals into the tables `updates`, `events` and `answers`; idempotent, each record once.

1. Find segments that are not ingested yet (sealed ones are read once, the open end each time).
2. Tasks read them and write new data files, a few per bucket, which no table version names yet.
3. Tasks deduplicate each bucket with new files: repeated rows and rows of erased documents are dropped.
4. One commit per table; that of `updates` comes last and records the positions.

A crashed job leaves files that no version names; the next job repeats its work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lorogo_pipeline.decode.records import record_rows
from lorogo_pipeline.decode.segments import (
    FAIL,
    SKIP,
    JournalFilter,
    SegmentFacts,
    SegmentReading,
    find_segments,
    gaps,
)
from lorogo_pipeline.errors import BadOption, DamagedJournal
from lorogo_pipeline.spark import tasks
from lorogo_pipeline.spark.progress import Progress
from lorogo_pipeline.tables import parquet
from lorogo_pipeline.tables.bucket_merge import dedupe_bucket
from lorogo_pipeline.tables.files import LakeFiles
from lorogo_pipeline.tables.lake import DataFile, Lake, LakeTable
from lorogo_pipeline.tables.table_rows import by_bucket, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGETS = ("events", "answers", "updates")  # in the order of their commits
_FLUSH_BYTES = 192 << 20  # of rows in memory of one task: above its input, so it writes once
_TASK_BYTES = 128 << 20  # input of one task
_TASK_BYTES_MIN = 8 << 20
_SMALL_BYTES = 16 << 20  # of journals; below this, reading them takes less time than starting workers


@dataclass(slots=True)
class IngestReport:
    """The result of an ingest."""

    segments: int = 0  # read now
    known: int = 0  # read by an earlier ingest
    bytes: int = 0
    records: int = 0
    updates: int = 0  # new in the table
    events: int = 0
    answers: int = 0
    repeated: int = 0  # records whose row the tables already had
    erased: int = 0  # rows of erased documents, left out
    unknown: int = 0  # records of kinds that this version cannot read
    malformed: int = 0  # records that do not parse
    damage: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """True if the tables have new rows, or damage was found."""
        return bool(self.updates or self.events or self.answers or self.damage)

    def __add__(self, other: IngestReport) -> IngestReport:
        """The sum of two results."""
        mine, theirs = asdict(self), asdict(other)
        return IngestReport(**{name: mine[name] + theirs[name] for name in mine})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def ingest(
    spark: SparkSession,
    lake: Lake,
    journals: Sequence[str],
    *,
    damaged: str = SKIP,
    progress: Progress | None = None,
) -> IngestReport:
    """Ingest new records of the journals. Raises NoSource, DamagedJournal, LakeBusy, JobFailed."""
    if damaged not in {FAIL, SKIP}:
        raise BadOption(f"damaged is {damaged!r}; it must be {FAIL} or {SKIP}")
    with lake.writing("ingest"):
        done = _ingest(spark, lake, find_segments(journals), damaged, progress)
        lake.sweep()
        return done


def _ingest(
    spark: SparkSession,
    lake: Lake,
    segments: Sequence[SegmentFacts],
    damaged: str,
    progress: Progress | None,
) -> IngestReport:
    done = IngestReport()
    tables = open_targets(lake)
    holes = gaps(segments)
    if holes and damaged == FAIL:
        raise DamagedJournal(f"{holes[0]}: restore it (`lorogo log repair`), or pass --damaged skip")
    new = [one for one in segments if not _known(tables["updates"], one)]
    done.segments, done.known = len(new), len(segments) - len(new)
    lake.files.require_space(2 * sum(one.bytes for one in new))
    small = sum(one.bytes for one in new) < _SMALL_BYTES
    specs = [
        {"lake": lake.files.root, "buckets": lake.buckets, "damaged": damaged, "segments": pack}
        for pack in _packed([_resumed(tables["updates"], one) for one in new], tasks.parallelism(spark))
    ]
    answers = tasks.run(spark, read_segments, specs, what="reading journals", progress=progress, small=small)
    staged: dict[str, list[DataFile]] = {name: [] for name in TARGETS}
    positions: dict[str, int] = {}
    done.damage += holes
    for answer in answers:
        for name, files in answer["files"].items():
            staged[name] += map(DataFile.from_json, files)
        for name in ("bytes", "records", "unknown", "malformed"):
            setattr(done, name, getattr(done, name) + answer[name])
        done.damage += answer["damage"]
        positions |= answer["positions"]
    commit_staged(spark, lake, tables, staged, positions, done, progress=progress)
    return done


def open_targets(lake: Lake) -> dict[str, LakeTable]:
    """Open the tables before staging, so that a concurrent erasure makes the commit fail.

    `events` opens last: an erasure is then either visible in `events`, or changes `updates` after it was
    opened, and our commit fails.
    """
    return {name: lake.table(name) for name in reversed(TARGETS)}


def commit_staged(
    spark: SparkSession,
    lake: Lake,
    tables: dict[str, LakeTable],
    staged: dict[str, list[DataFile]],
    positions: dict[str, int],
    done: IngestReport,
    *,
    progress: Progress | None = None,
) -> None:
    """Commit staged files to the tables, without rows that the tables already have."""
    there = {name: table.list() for name, table in tables.items()}
    specs = list(_bucket_specs(lake, there, staged))
    added: dict[str, list[DataFile]] = {name: [] for name in TARGETS}
    removed: dict[str, list[DataFile]] = {name: [] for name in TARGETS}
    for answer in tasks.run(
        spark, dedupe_bucket, specs, what="comparing", progress=progress, small=_is_small(specs)
    ):
        for name, files in answer["added"].items():
            added[name] += map(DataFile.from_json, files)
        for name, files in answer["removed"].items():
            removed[name] += map(DataFile.from_json, files)
        for name, count in answer["new"].items():
            setattr(done, name, getattr(done, name) + count)
        done.repeated += answer["repeated"]
        done.erased += answer["erased"]
    for name in TARGETS:  # `updates` last: its commit records the positions
        tables[name].commit(
            added[name],
            removed[name],
            positions=positions if name == "updates" else None,
            facts={"job": "ingest"},
        )


def _is_small(specs: Sequence[dict[str, Any]]) -> bool:
    files = [
        file
        for spec in specs
        for part in ("there", "staged")
        for found in spec[part].values()
        for file in found
    ]
    return sum(int(file[2]) for file in files) < _SMALL_BYTES


def _known(updates: LakeTable, one: SegmentFacts) -> bool:
    return one.sealed and updates.position(one.position) == one.end


def _resumed(updates: LakeTable, one: SegmentFacts) -> SegmentFacts:
    """Set the last frame that the previous ingest read."""
    at, checksum = updates.position(one.tail), updates.position(one.tail_checksum)
    return one if at is None or checksum is None else replace(one, resume=(at, checksum))


def _packed(segments: Sequence[SegmentFacts], slots: int) -> Iterator[list[dict[str, Any]]]:
    """Group segments so that every slot has a task of sufficient size."""
    total = sum(one.bytes for one in segments)
    limit = max(_TASK_BYTES_MIN, min(_TASK_BYTES, total // max(1, slots) + 1))
    pack: list[dict[str, Any]] = []
    size = 0
    for one in segments:
        if pack and size + one.bytes > limit:
            yield pack
            pack, size = [], 0
        pack.append(asdict(one))
        size += one.bytes
    if pack:
        yield pack


def _bucket_specs(
    lake: Lake, there: dict[str, list[DataFile]], staged: dict[str, list[DataFile]]
) -> Iterator[dict[str, Any]]:
    """One specification for each bucket with staged files."""
    for bucket in sorted({file.bucket for files in staged.values() for file in files}):
        yield {
            "lake": lake.files.root,
            "bucket": bucket,
            "there": {name: _json(files, bucket) for name, files in there.items()},
            "staged": {name: _json(files, bucket) for name, files in staged.items()},
        }


def _json(files: Iterable[DataFile], bucket: int) -> list[list[object]]:
    return [file.to_json() for file in files if file.bucket == bucket]


# --- on a worker -----------------------------------------------------------------------------------


def read_segments(spec: dict[str, Any]) -> dict[str, Any]:
    """Read segments and write their records as data files, by bucket."""
    writer = parquet.DataFileWriter(LakeFiles(spec["lake"]), tasks.attempt("ingest"))
    staging = Staging(writer, spec["buckets"])
    damage: list[str] = []
    positions: dict[str, int] = {}
    size = 0
    for raw in spec["segments"]:
        facts = SegmentFacts.from_json(raw)
        reading = SegmentReading(facts, damaged=spec["damaged"])
        for rows in record_rows(reading.batches(), facts.log, JournalFilter()):
            staging.add(rows)
        size += reading.bytes
        damage += reading.damage
        if not reading.damage and not facts.damage:
            positions |= reading.positions()
    staging.flush()
    return {
        "files": {name: [file.to_json() for file in files] for name, files in writer.written.items()},
        "damage": damage,
        "positions": positions,
        "bytes": size,
        **staging.counts(),
    }


class Staging:
    """Buffer rows by table and bucket; write them at about `_FLUSH_BYTES`."""

    def __init__(self, writer: parquet.DataFileWriter, buckets: int, source: str = "journal") -> None:
        self._writer = writer
        self._buckets = buckets
        self._source = source
        self._rows: dict[tuple[str, int], list[pa.Table]] = {}  # by table and bucket
        self._bytes = 0
        self.kinds: Counter[str] = Counter()  # of all records

    def add(self, records: pa.RecordBatch) -> None:
        """Add records of a journal."""
        counts = records["kind"].value_counts()
        for kind, count in zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True):
            self.kinds[kind] += count
        for name, rows in rows_of(records, self._buckets, source=self._source).items():
            for bucket, piece in by_bucket(rows):
                self._rows.setdefault((name, bucket), []).append(pa.Table.from_batches([piece]))
            self._bytes += rows.nbytes
        if self._bytes >= _FLUSH_BYTES:
            self.flush()

    def counts(self) -> dict[str, int]:
        """Count all records, and the unusable ones."""
        return {
            "records": self.kinds.total(),
            "unknown": self.kinds["unknown"],
            "malformed": self.kinds["malformed"],
        }

    def flush(self) -> None:
        """Write the buffered rows."""
        while self._rows:  # frees each piece once it is written
            (name, bucket), pieces = self._rows.popitem()
            self._writer.put_pieces(name, bucket, pieces)
        self._bytes = 0
