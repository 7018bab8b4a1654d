"""The values of a report: `facts` gathers them, `page` renders them. No Spark, no HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lorogo_pipeline.report.periods import PeriodLength


@dataclass(frozen=True, slots=True)
class LakeSummary:
    """Name and table versions of a lake, and the problems of its ingest as sentences."""

    name: str = "lake"
    versions: Mapping[str, int] = field(default_factory=dict)  # of each table
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportTotals:
    """Totals of the lake."""

    updates: int = 0
    bytes: int = 0
    ops: int = 0
    documents: int = 0  # edited ones
    peers: int = 0
    acked: int = 0
    refused: int = 0
    p50_us: float | None = None
    p99_us: float | None = None
    servers: int = 0
    deleted: int = 0  # number of records; likewise restored, erased
    restored: int = 0
    erased: int = 0


@dataclass(frozen=True, slots=True)
class Period:
    """Numbers of one period: an hour, a day, a week, a month or a year."""

    at: datetime  # its start, local
    updates: int = 0
    bytes: int = 0
    ops: int = 0
    documents: int = 0  # edited in it
    documents_new: int = 0  # edited for the first time
    peers: int = 0
    peers_new: int = 0
    acked: int = 0
    refused: int = 0
    p50_us: float | None = None
    p99_us: float | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """The contribution of one replica; `inserted` and `deleted` need the table `changes`."""

    id: str
    ops: int
    inserted: int | None = None
    deleted: int | None = None


@dataclass(frozen=True, slots=True)
class BusyDocument:
    """A document with many updates, and their number by period."""

    id: str
    updates: int
    bytes: int
    ops: int
    history: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LargeDocument:
    """A document with a large snapshot."""

    id: str
    snapshot_bytes: int
    chars: int
    updates: int
    live: bool = True


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """A NACK reason, and its count by period."""

    name: str
    count: int
    history: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DocumentTotals:
    """Totals of the latest state in the table `documents`."""

    documents: int
    live: int
    chars: int
    snapshot_bytes: int
    incomplete: int
    as_of: datetime | None
    updates_since: int = 0  # accepted after that time
    documents_missing: int = 0  # edited, but not in the table


@dataclass(frozen=True, slots=True)
class DocumentProblem:
    """A damaged or incomplete document."""

    id: str
    digest_wrong: int = 0
    undecodable: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """All values of a report."""

    lake: LakeSummary
    made_at: datetime
    tz: str
    step: PeriodLength = PeriodLength.DAY
    first: datetime | None = None  # of updates and answers, local
    last: datetime | None = None
    totals: ReportTotals = ReportTotals()
    periods: tuple[Period, ...] = ()
    week: tuple[tuple[int, ...], ...] = ()  # updates by weekday (Monday first) and hour
    peers: tuple[Peer, ...] = ()  # the most active; `totals` includes the others
    peers_ops: int = 0  # of all peers
    peers_from_changes: bool = False
    busiest: tuple[BusyDocument, ...] = ()
    biggest: tuple[LargeDocument, ...] = ()
    reasons: tuple[ReasonCount, ...] = ()  # the most frequent; `totals` includes the others
    has_answers: bool = False
    materialised: DocumentTotals | None = None
    digest_wrong: int = 0
    undecodable: int = 0
    in_future: int = 0  # accepted after the report was made
    damaged: tuple[DocumentProblem, ...] = ()  # the most damaged
    incomplete: tuple[DocumentProblem, ...] = ()  # some of them

    @property
    def empty(self) -> bool:
        """True if the lake has no data."""
        return self.first is None
