"""What a report says, as values: gathered by `facts`, shown by `page`. No Spark, no HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lorogo_pipeline.report.periods import PeriodLength


@dataclass(frozen=True, slots=True)
class LakeSummary:
    """Which lake it is, in which state, and what ingest could not read of it (sentences)."""

    name: str = "lake"
    versions: Mapping[str, int] = field(default_factory=dict)  # of each table
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportTotals:
    """Everything in the lake."""

    updates: int = 0
    bytes: int = 0
    ops: int = 0
    documents: int = 0  # that were edited
    peers: int = 0
    acked: int = 0
    refused: int = 0
    p50_us: float | None = None
    p99_us: float | None = None
    servers: int = 0
    deleted: int = 0  # records of it, as of restored and erased
    restored: int = 0
    erased: int = 0


@dataclass(frozen=True, slots=True)
class Period:
    """What happened in an hour, a day, a week, a month or a year."""

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
    """What one replica contributed; `inserted` and `deleted` are known from `changes` only."""

    id: str
    ops: int
    inserted: int | None = None
    deleted: int | None = None


@dataclass(frozen=True, slots=True)
class BusyDocument:
    """A document with many updates, and how they came over the periods."""

    id: str
    updates: int
    bytes: int
    ops: int
    history: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LargeDocument:
    """A document that is large as it stands."""

    id: str
    snapshot_bytes: int
    chars: int
    updates: int
    live: bool = True


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """Why servers said no, and how often in each period."""

    name: str
    count: int
    history: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DocumentTotals:
    """What the table `documents` holds of the newest state."""

    documents: int
    live: int
    chars: int
    snapshot_bytes: int
    incomplete: int
    as_of: datetime | None
    updates_since: int = 0  # accepted after that time
    documents_missing: int = 0  # edited, but not in it


@dataclass(frozen=True, slots=True)
class DocumentProblem:
    """A document with damage: how many updates are wrong, or what is missing."""

    id: str
    digest_wrong: int = 0
    undecodable: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """All that a page needs."""

    lake: LakeSummary
    made_at: datetime
    tz: str
    step: PeriodLength = PeriodLength.DAY
    first: datetime | None = None  # of updates and answers, local
    last: datetime | None = None
    totals: ReportTotals = ReportTotals()
    periods: tuple[Period, ...] = ()
    week: tuple[tuple[int, ...], ...] = ()  # updates by weekday (Monday first) and hour
    peers: tuple[Peer, ...] = ()  # the most active; the rest is totals minus these
    peers_ops: int = 0  # of all peers
    peers_from_changes: bool = False
    busiest: tuple[BusyDocument, ...] = ()
    biggest: tuple[LargeDocument, ...] = ()
    reasons: tuple[ReasonCount, ...] = ()  # the most frequent; the rest is totals minus these
    has_answers: bool = False
    materialised: DocumentTotals | None = None
    digest_wrong: int = 0
    undecodable: int = 0
    in_future: int = 0  # accepted after the report was made
    damaged: tuple[DocumentProblem, ...] = ()  # the worst
    incomplete: tuple[DocumentProblem, ...] = ()  # some of them

    @property
    def empty(self) -> bool:
        """Nothing was ingested yet."""
        return self.first is None
