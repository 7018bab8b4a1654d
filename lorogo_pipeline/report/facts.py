"""Gather the facts of a report from a lake's tables with two Spark queries.

The first returns totals and the time range, which determine the length of the periods of the charts. The
second returns everything else, by period.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from lorogo_pipeline.report import page
from lorogo_pipeline.report import queries as questions
from lorogo_pipeline.report.model import (
    BusyDocument,
    DocumentProblem,
    DocumentTotals,
    LakeSummary,
    LargeDocument,
    Peer,
    Period,
    ReasonCount,
    ReportFacts,
    ReportTotals,
)
from lorogo_pipeline.report.periods import starts, step_for
from lorogo_pipeline.report.quantities import quantile
from lorogo_pipeline.report.queries import ReportRow
from lorogo_protocol.errors import LorogoError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from lorogo_pipeline.report.queries import Answers

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local times have no zone here (see periods)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NOTHING = ReportRow("", 0, 0, 0, 0, {}, {}, "")
_OF_PERIODS = ("period", "document born", "peers", "peer born", "answered")


class UnknownTimeZone(LorogoError):
    """Unknown time zone."""

    code = "unknown-time-zone"

    def __init__(self, tz: str) -> None:
        super().__init__(f"{tz!r} is not a time zone; use a name like UTC, Europe/Berlin or Asia/Tokyo")


def report(
    tables: Mapping[str, DataFrame], *, now: datetime, tz: str = "UTC", lake: LakeSummary | None = None
) -> str:
    """Return the page for a lake's tables, given by name; missing tables are left out."""
    return page.render(gather(tables, now=now, tz=tz, lake=lake))


def gather(
    tables: Mapping[str, DataFrame], *, now: datetime, tz: str = "UTC", lake: LakeSummary | None = None
) -> ReportFacts:
    """Gather the facts of the page; days and hours are in the time zone `tz`."""
    zone = _zone(tz)
    facts = ReportFacts(lake=lake or LakeSummary(), made_at=now.astimezone(zone), tz=tz)
    found = questions.totals(tables, (now - _EPOCH_UTC) // _MICROSECOND)
    if (span := _span(found)) is None:
        return facts
    first, last = (_moment(us, zone) for us in span)
    step = step_for(first.replace(tzinfo=None), last.replace(tzinfo=None))
    places = _places(starts(first.replace(tzinfo=None), last.replace(tzinfo=None), step))
    answers = questions.details(
        {name: tables[name] for name in tables if found.get(name)},
        questions.PeriodClock(tz, step),
        as_of_us=found["documents"][0].last if found.get("documents") else None,
        authors=bool(found.get("changes")),
    )
    facts = replace(facts, step=step, first=first, last=last, periods=_periods(answers, places))
    facts = _with_totals(facts, found, answers)
    facts = _with_tops(facts, found, answers, places)
    return _with_troubles(facts, found, answers, zone)


def _span(found: Answers) -> tuple[int, int] | None:
    """Return the first and the last microsecond with data; None without data."""
    rows = [*found.get("updates", []), *found.get("answers", [])]
    return (min(row.first for row in rows), max(row.last for row in rows)) if rows else None


def _periods(answers: Answers, places: Mapping[int, datetime]) -> tuple[Period, ...]:
    by = {kind: {row.at: row for row in answers.get(kind, [])} for kind in _OF_PERIODS}
    latencies = _latencies(answers)

    def period(at: int, start: datetime) -> Period:
        edits, documents, peers, newcomers, answered = (by[kind].get(at, _NOTHING) for kind in _OF_PERIODS)
        return Period(
            at=start,
            updates=edits.numbers.get("updates", 0),
            bytes=edits.numbers.get("bytes", 0),
            ops=edits.numbers.get("ops", 0),
            documents=edits.rows,
            documents_new=documents.rows,
            peers=peers.rows,
            peers_new=newcomers.rows,
            acked=answered.numbers.get("acked", 0),
            refused=answered.numbers.get("refused", 0),
            p50_us=quantile(latencies.get(at, []), 0.5),
            p99_us=quantile(latencies.get(at, []), 0.99),
        )

    return tuple(period(at, start) for at, start in places.items())


def _with_totals(facts: ReportFacts, found: Answers, answers: Answers) -> ReportFacts:
    latencies = [sum(column) for column in zip(*_latencies(answers).values(), strict=True)]
    week = [[0] * 24 for _ in range(7)]
    for row in answers.get("hour", []):
        week[row.at // 24][row.at % 24] = row.numbers["updates"]
    updates, answered = _only(found, "updates"), _only(found, "answers")
    events = {row.key: row.rows for row in found.get("events", [])}
    return replace(
        facts,
        totals=ReportTotals(
            updates=updates.rows,
            bytes=updates.numbers.get("bytes", 0),
            ops=updates.numbers.get("ops", 0),
            documents=sum(period.documents_new for period in facts.periods),
            peers=sum(period.peers_new for period in facts.periods),
            acked=answered.numbers.get("acked", 0),
            refused=answered.numbers.get("refused", 0),
            p50_us=quantile(latencies, 0.5),
            p99_us=quantile(latencies, 0.99),
            servers=_only(answers, "server").rows,
            deleted=events.get("deleted", 0),
            restored=events.get("restored", 0),
            erased=events.get("erased", 0),
        ),
        week=tuple(tuple(day) for day in week),
        has_answers=bool(answered.rows),
        digest_wrong=updates.numbers.get("wrong", 0),
        undecodable=updates.numbers.get("undecodable", 0),
        in_future=updates.numbers.get("in_future", 0),
    )


def _with_tops(
    facts: ReportFacts, found: Answers, answers: Answers, places: Mapping[int, datetime]
) -> ReportFacts:
    def most(kind: str) -> list[ReportRow]:
        by = questions.NUMBERS[kind][0]
        return sorted(answers.get(kind, []), key=lambda row: (-row.numbers[by], row.key))

    def history(row: ReportRow) -> tuple[int, ...]:
        return tuple(row.history.get(at, 0) for at in places)

    def numbers(row: ReportRow, *names: str) -> dict[str, int]:
        return {name: row.numbers[name] for name in names}

    authors = bool(found.get("changes"))
    peers = [Peer(row.key, **row.numbers) for row in most("author" if authors else "peer")]
    from_updates = sum(row.numbers["ops"] for row in answers.get("peer born", []))
    return replace(
        facts,
        peers=tuple(peers),
        peers_ops=_only(found, "changes").numbers["ops"] if authors else from_updates,
        peers_from_changes=authors,
        busiest=tuple(
            BusyDocument(row.key, **numbers(row, "updates", "bytes", "ops"), history=history(row))
            for row in most("document")
        ),
        biggest=tuple(
            LargeDocument(
                row.key, **numbers(row, "snapshot_bytes", "chars", "updates"), live=bool(row.numbers["live"])
            )
            for row in most("biggest")
        ),
        reasons=tuple(ReasonCount(row.key, row.numbers["count"], history(row)) for row in most("reason")),
    )


def _with_troubles(facts: ReportFacts, found: Answers, answers: Answers, zone: ZoneInfo) -> ReportFacts:
    kept = _only(found, "documents")
    materialised = None
    if kept.rows:
        materialised = DocumentTotals(
            documents=kept.rows,
            **kept.numbers,
            as_of=_moment(kept.last, zone),
            updates_since=sum(row.numbers["late"] for row in answers.get("period", [])),
            documents_missing=max(0, facts.totals.documents - kept.rows),
        )
    damaged = [
        DocumentProblem(row.key, digest_wrong=row.numbers["wrong"], undecodable=row.numbers["undecodable"])
        for row in answers.get("damaged", [])
    ]
    incomplete = [DocumentProblem(row.key, problem=row.text) for row in answers.get("incomplete", [])]
    return replace(
        facts,
        materialised=materialised,
        damaged=tuple(sorted(damaged, key=lambda one: (-one.digest_wrong - one.undecodable, one.id))),
        incomplete=tuple(sorted(incomplete, key=lambda one: one.id)),
    )


def _latencies(answers: Answers) -> dict[int, list[int]]:
    found = answers.get("power", [])
    powers = 1 + max((int(row.key) for row in found), default=0)
    counts: dict[int, list[int]] = defaultdict(lambda: [0] * powers)
    for row in found:
        counts[row.at][int(row.key)] = row.numbers["count"]
    return dict(counts)


def _only(answers: Answers, kind: str) -> ReportRow:
    rows = answers.get(kind, [])
    return rows[0] if rows else _NOTHING


def _places(periods: list[datetime]) -> dict[int, datetime]:
    return {(start - _EPOCH) // timedelta(hours=1): start for start in periods}


def _moment(us: int, zone: ZoneInfo) -> datetime:
    return (_EPOCH_UTC + us * _MICROSECOND).astimezone(zone)


def _zone(tz: str) -> ZoneInfo:
    try:
        return ZoneInfo(tz)
    except (ValueError, OSError, KeyError) as error:
        raise UnknownTimeZone(tz) from error
