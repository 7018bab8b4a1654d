"""`spark.read.format("lorogo.journal").load(path)`: every record of journals, replicas and archives.

One segment is one partition (small ones share one). Filters on `document_id`, `accepted_at` and
`accepted_ns` are pushed down to the index of each segment; Spark applies them again, so they may be inexact
here. A record in two journals yields two rows: use `dropDuplicates(["document_id", "log_id", "digest"])`, or
the table `updates`.
Damage is a row of kind `damaged` with its place and reason (`damaged=skip`), or an error (`fail`). Such rows
have no document id: a filter on `document_id` removes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

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
from lorogo_pipeline.sources.times import datetime_ns, parse_time_ns
from lorogo_pipeline.tables.schemas import RECORDS, spark_schema

_OPTIONS = {"path", "payload", "damaged", "documents", "since", "until"}
_TRUE, _FALSE = {"true", "1", "yes"}, {"false", "0", "no"}
_PACK_BYTES = 32 << 20  # segments below this share a partition
_MICRO = 1000  # nanoseconds in the resolution of a Spark timestamp
_NO_TEXT = "\ufffd"
_ZONES_NS = 26 * 3600 * 1_000_000_000  # the largest distance of two time zones


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """Options of a read."""

    paths: tuple[str, ...]
    payload: bool
    damaged: str
    wanted: JournalFilter


def parse_options(options: Mapping[str, str]) -> JournalOptions:
    """Parse Spark's options, whose names are case-insensitive. Raises BadOption."""
    given = {name.lower(): value for name, value in options.items()}
    if unknown := sorted(given.keys() - _OPTIONS):
        raise BadOption(f"lorogo.journal has no option {unknown[0]!r}; it has {', '.join(sorted(_OPTIONS))}")
    paths = tuple(part.strip() for part in given.get("path", "").split(",") if part.strip())
    if not paths:
        raise BadOption('name a journal: .load("DATA"), a folder or the URL of an archive')
    payload = given.get("payload", "true").lower()
    if payload not in _TRUE | _FALSE:
        raise BadOption(f"option payload is {payload!r}; it must be true or false")
    damaged = given.get("damaged", FAIL)
    if damaged not in {FAIL, SKIP}:
        raise BadOption(f"option damaged is {damaged!r}; it must be {FAIL} or {SKIP}")
    keys = [part.strip().encode() for part in given.get("documents", "").split(",") if part.strip()]
    wanted = JournalFilter(
        frozenset(keys) if keys else None,
        parse_time_ns(given["since"]) if "since" in given else None,
        parse_time_ns(given["until"]) if "until" in given else None,
    )
    return JournalOptions(paths, payload in _TRUE, damaged, wanted)


class JournalSource(DataSource):
    """Journals as a table of records."""

    @classmethod
    def name(cls) -> str:
        return "lorogo.journal"

    def schema(self) -> StructType:
        return spark_schema(RECORDS)

    def reader(self, schema: StructType) -> JournalReader:
        return JournalReader(parse_options(self.options))


class SegmentPartition(InputPartition):
    """The segments of one task, or the descriptions of missing ones."""

    def __init__(self, segments: list[SegmentFacts], gaps_found: list[str] | None = None) -> None:
        super().__init__(None)
        self.segments = segments
        self.gaps_found = gaps_found or []


class JournalReader(DataSourceReader):
    """Plan by names, footers and indexes; read segment by segment."""

    def __init__(self, options: JournalOptions) -> None:
        self.options = options

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Use the filters to skip data; Spark still applies all of them."""
        self.options = replace(self.options, wanted=narrowed(self.options.wanted, filters))
        return filters

    def partitions(self) -> list[SegmentPartition]:
        segments = find_segments(self.options.paths)
        gaps_found = gaps(segments)
        if gaps_found and self.options.damaged == FAIL:
            raise DamagedJournal(f"{gaps_found[0]}: restore it, or read without it (damaged=skip)")
        wanted = [one for one in segments if not self.options.wanted.misses(one)]
        gap_partition = [SegmentPartition(segments[:1], gaps_found)] if gaps_found else []
        return [*gap_partition, *_packed(wanted)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SegmentPartition)
        if partition.gaps_found:
            yield damage_rows(partition.segments[0], partition.gaps_found)
            return
        for facts in partition.segments:
            reading = SegmentReading(facts, self.options.wanted, self.options.damaged)
            yield from record_rows(
                reading.batches(), facts.log, self.options.wanted, payload=self.options.payload
            )
            if reading.damage:
                yield damage_rows(facts, reading.damage)


def _packed(segments: Iterable[SegmentFacts]) -> Iterator[SegmentPartition]:
    pack: list[SegmentFacts] = []
    size = 0
    for one in segments:
        if pack and size + one.bytes > _PACK_BYTES:
            yield SegmentPartition(pack)
            pack, size = [], 0
        pack.append(one)
        size += one.bytes
    if pack:
        yield SegmentPartition(pack)


def damage_rows(facts: SegmentFacts, damage: list[str]) -> pa.RecordBatch:
    """Return one row for each description of damage to a segment."""
    when = max(0, facts.first_time)
    row: dict[str, Any] = {
        "document_id": "",
        "kind": "damaged",
        "accepted_at": when // _MICRO,
        "accepted_ns": when,
        "log": facts.log,
        "log_sequence": facts.first_sequence,
    }
    return pa.RecordBatch.from_pylist([{**row, "problem": words} for words in damage], schema=RECORDS)


def narrowed(wanted: JournalFilter, filters: Iterable[Filter]) -> JournalFilter:
    """Return a filter of records that includes everything that passes the filters."""
    keys, since, until = wanted.keys, wanted.since_ns, wanted.until_ns
    for one in filters:
        match one:
            case EqualTo(("document_id",), str(value)):
                keys = _both(keys, [value])
            case In(("document_id",), values):
                keys = _both(keys, [value for value in values if isinstance(value, str)])
            case GreaterThan((("accepted_at" | "accepted_ns"),), value):
                since = _latest(since, _first_ns(value, behind=True))
            case GreaterThanOrEqual((("accepted_at" | "accepted_ns"),), value):
                since = _latest(since, _first_ns(value))
            case LessThan((("accepted_at" | "accepted_ns"),), value):
                until = _earliest(until, _last_ns(value, before=True))
            case LessThanOrEqual((("accepted_at" | "accepted_ns"),), value):
                until = _earliest(until, _last_ns(value))
            case EqualTo((("accepted_at" | "accepted_ns"),), value):
                since, until = _latest(since, _first_ns(value)), _earliest(until, _last_ns(value))
            case _:
                pass
    return JournalFilter(keys, since, until)


def _both(keys: frozenset[bytes] | None, values: Sequence[str]) -> frozenset[bytes] | None:
    if any(_NO_TEXT in value for value in values):
        return keys  # a replacement character: the bytes of the key are unknown
    found = frozenset(value.encode() for value in values)
    return found if keys is None else keys & found


def _first_ns(value: object, *, behind: bool = False) -> int | None:
    """Return the first nanosecond of a filter's value, or the one after its last."""
    if isinstance(value, datetime):
        return datetime_ns(value) - _slack(value) + (_MICRO if behind else 0)
    return value + behind if isinstance(value, int) else None


def _last_ns(value: object, *, before: bool = False) -> int | None:
    """Return the last nanosecond of a filter's value, or the one before its first."""
    if isinstance(value, datetime):
        return datetime_ns(value) + _slack(value) + (-1 if before else _MICRO - 1)
    return value - before if isinstance(value, int) else None


def _slack(value: datetime) -> int:
    return 0 if value.tzinfo else _ZONES_NS  # without a zone it may be in any


def _latest(one: int | None, other: int | None) -> int | None:
    return max((time for time in (one, other) if time is not None), default=None)


def _earliest(one: int | None, other: int | None) -> int | None:
    return min((time for time in (one, other) if time is not None), default=None)
