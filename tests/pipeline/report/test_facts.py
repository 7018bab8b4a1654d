"""The facts of a report are exactly those of the tables, read in few jobs that return few rows."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lorogo_pipeline.report import queries
from lorogo_pipeline.report.facts import UnknownTimeZone, gather, report
from lorogo_pipeline.report.model import (
    BusyDocument,
    DocumentProblem,
    LakeSummary,
    LargeDocument,
    Peer,
    ReasonCount,
    ReportTotals,
)
from lorogo_pipeline.report.periods import PeriodLength
from lorogo_pipeline.tables import schemas

NOW = datetime(2026, 11, 10, 12, tzinfo=UTC)
MONDAY = datetime(2026, 11, 2, tzinfo=UTC)
MAX = str(2**64 - 1)  # a peer that no number of Spark holds
BYTES_OF_DOCUMENTS = {"payload", "snapshot", "content", "json", "text"}
EMPTY: dict[pa.DataType, Any] = {
    pa.string(): "",
    pa.int64(): 0,
    pa.int32(): 0,
    pa.bool_(): True,
    pa.binary(): b"",
    schemas.TIME: MONDAY,
}


def table(spark: SparkSession, name: str, rows: list[dict[str, Any]]) -> DataFrame:
    """A table of the lake, without its columns of bytes: a report must not read them."""
    schema = pa.schema([field for field in schemas.TABLES[name] if field.name not in BYTES_OF_DOCUMENTS])
    plain = {field.name: None if field.nullable else EMPTY.get(field.type, []) for field in schema}
    whole = pa.Table.from_pylist([plain | row for row in rows], schema=schema)
    return spark.createDataFrame(whole.to_pylist(), schemas.spark_schema(schema))


def update(document: str, at: datetime, *spans: tuple[str, int, int], **more: Any) -> dict[str, Any]:
    ops = sum(end - first for _, first, end in spans)
    return {
        "document_id": document,
        "accepted_at": at,
        "spans": [{"peer": peer, "first": first, "end": end} for peer, first, end in spans],
        "peers": [peer for peer, _, _ in spans],
        "bytes": 100,
        "changes": 1,
        "ops": ops,
    } | more


def hours(day: int, hour: float) -> datetime:
    return MONDAY + timedelta(days=day, hours=hour)


UPDATES = [
    update("a", hours(0, 9), ("1", 0, 10)),
    update("a", hours(0, 9.5), (MAX, 0, 5)),
    update("b", hours(0, 23.5), ("1", 0, 1), bytes=1000),
    update("a", hours(2, 14), ("1", 10, 30), (MAX, 5, 6)),
    update("c", hours(5, 9), ("2", 0, 4), digest_ok=False),
    update("c", hours(5, 9), bytes=7, changes=None),
]
ANSWERS: list[dict[str, Any]] = [
    {
        "server": "s1",
        "since": hours(0, 9),
        "until": hours(0, 9.1),
        "acked": 90,
        "refused": 3,
        "latency_us": [0] * 10 + [90],
        "reasons": [{"reason": "not-owner", "count": 2}, {"reason": "</svg>", "count": 1}],
    },
    {
        "server": "s2",
        "since": hours(5, 9),
        "until": hours(5, 9.1),
        "acked": 10,
        "refused": 1,
        "latency_us": [0] * 16 + [10],
        "reasons": [{"reason": "not-owner", "count": 1}],
    },
]
DOCUMENTS: list[dict[str, Any]] = [
    {
        "document_id": "a",
        "as_of": hours(4, 0),
        "state": "live",
        "updates": 3,
        "chars": 30,
        "snapshot_bytes": 400,
    },
    {
        "document_id": "b",
        "as_of": hours(4, 0),
        "state": "deleted",
        "complete": False,
        "problem": "peer 1 from 0 is missing",
        "updates": 1,
        "chars": 1,
        "snapshot_bytes": 90,
    },
    {
        "document_id": "a",
        "as_of": hours(1, 0),
        "state": "live",
        "latest": False,
        "snapshot_bytes": 10**9,
    },
]
CHANGES: list[dict[str, Any]] = [
    {"document_id": "a", "peer": "1", "ops": 30, "inserted": 25, "deleted": 5},
    {"document_id": "b", "peer": "1", "ops": 1, "inserted": 1},
    {"document_id": "a", "peer": MAX, "ops": 6, "inserted": 6},
]
EVENTS: list[dict[str, Any]] = [
    {"document_id": "b", "kind": "deleted", "accepted_at": hours(3, 0)},
    {"document_id": "a", "kind": "base", "accepted_at": hours(3, 0)},
    {"document_id": "z", "kind": "erased", "accepted_at": hours(3, 0)},
]


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, DataFrame]:
    rows = {
        "updates": UPDATES,
        "answers": ANSWERS,
        "documents": DOCUMENTS,
        "changes": CHANGES,
        "events": EVENTS,
    }
    return {name: table(spark, name, listed) for name, listed in rows.items()}


@pytest.fixture
def elsewhere(spark: SparkSession) -> Iterator[None]:
    """A session whose own clock is not UTC."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    yield
    spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def test_all_facts_of_a_small_lake(tables: dict[str, DataFrame]) -> None:
    """Every number of the page is the one that counting by hand gives."""
    facts = gather(tables, now=NOW, lake=LakeSummary("lake", {"updates": 2}))
    assert (facts.first, facts.last, facts.step) == (hours(0, 9), hours(5, 9), PeriodLength.DAY)
    assert facts.totals == ReportTotals(
        updates=6, bytes=1407, ops=41, documents=3, peers=3, acked=100, refused=4,
        p50_us=facts.totals.p50_us, p99_us=facts.totals.p99_us, servers=2, deleted=1, restored=0, erased=1,
    )  # fmt: skip
    assert 512 < (facts.totals.p50_us or 0) < 1024
    assert 32_768 < (facts.totals.p99_us or 0) < 65_536
    days = facts.periods
    assert [day.at for day in days] == [hours(n, 0).replace(tzinfo=None) for n in range(6)]
    assert [day.updates for day in days] == [3, 0, 1, 0, 0, 2]
    assert [day.bytes for day in days] == [1200, 0, 100, 0, 0, 107]
    assert [day.ops for day in days] == [16, 0, 21, 0, 0, 4]
    assert [day.documents for day in days] == [2, 0, 1, 0, 0, 1]
    assert [day.documents_new for day in days] == [2, 0, 0, 0, 0, 1]
    assert [day.peers for day in days] == [2, 0, 2, 0, 0, 1]
    assert [day.peers_new for day in days] == [2, 0, 0, 0, 0, 1]
    assert [day.acked for day in days] == [90, 0, 0, 0, 0, 10]
    assert [day.refused for day in days] == [3, 0, 0, 0, 0, 1]
    assert [day.p50_us is not None for day in days] == [True, False, False, False, False, True]
    busy = {(day, hour): n for day, row in enumerate(facts.week) for hour, n in enumerate(row) if n}
    assert busy == {(0, 9): 2, (0, 23): 1, (2, 14): 1, (5, 9): 2}
    assert facts.peers == (Peer("1", 31, 26, 5), Peer(MAX, 6, 6, 0))
    assert (facts.peers_ops, facts.peers_from_changes) == (37, True)
    assert facts.busiest == (
        BusyDocument("a", 3, 300, 36, (2, 0, 1, 0, 0, 0)),
        BusyDocument("c", 2, 107, 4, (0, 0, 0, 0, 0, 2)),
        BusyDocument("b", 1, 1000, 1, (1, 0, 0, 0, 0, 0)),
    )
    assert facts.biggest == (LargeDocument("a", 400, 30, 3), LargeDocument("b", 90, 1, 1, live=False))
    assert facts.reasons == (
        ReasonCount("not-owner", 3, (2, 0, 0, 0, 0, 1)),
        ReasonCount("</svg>", 1, (1, 0, 0, 0, 0, 0)),
    )
    assert (facts.digest_wrong, facts.undecodable, facts.in_future) == (1, 1, 0)
    assert facts.damaged == (DocumentProblem("c", digest_wrong=1, undecodable=1),)
    assert facts.incomplete == (DocumentProblem("b", problem="peer 1 from 0 is missing"),)
    kept = facts.materialised
    assert kept is not None
    assert (kept.documents, kept.live, kept.chars, kept.snapshot_bytes, kept.incomplete) == (2, 1, 31, 490, 1)
    assert (kept.as_of, kept.updates_since, kept.documents_missing) == (hours(4, 0), 2, 1)


@pytest.mark.usefixtures("elsewhere")
def test_days_are_those_of_the_given_time_zone(tables: dict[str, DataFrame]) -> None:
    """Half past eleven in UTC is the next day in Berlin; the session's own time zone has no effect."""
    facts = gather({"updates": tables["updates"]}, now=NOW, tz="Europe/Berlin")
    assert [day.updates for day in facts.periods] == [2, 1, 1, 0, 0, 2]
    assert facts.week[1][0] == 1
    assert facts.first == hours(0, 9)
    assert [day.updates for day in gather({"updates": tables["updates"]}, now=NOW).periods] == [
        3,
        0,
        1,
        0,
        0,
        2,
    ]


def test_updates_alone_are_enough(tables: dict[str, DataFrame]) -> None:
    """Without the other tables, peers are ranked by the updates, and other facts are unknown."""
    facts = gather({"updates": tables["updates"]}, now=hours(1, 0))
    assert facts.peers == (Peer("1", 31), Peer(MAX, 6), Peer("2", 4))
    assert (facts.peers_ops, facts.peers_from_changes) == (41, False)
    assert facts.materialised is None
    assert not facts.has_answers
    assert facts.in_future == 3
    assert "not materialised, so" in report({"updates": tables["updates"]}, now=NOW)


def test_answers_alone_are_enough(tables: dict[str, DataFrame]) -> None:
    """A server that refused everything has a report, too."""
    page = report({"answers": tables["answers"]}, now=NOW)
    assert "How servers answered" in page
    assert "</svg></bdi>" not in page


def test_an_empty_lake_has_a_friendly_page(spark: SparkSession) -> None:
    """Tables without rows, or no tables at all, give the page that names the next command."""
    empty = {name: table(spark, name, []) for name in schemas.TABLES}
    for tables in (empty, {}):
        assert gather(tables, now=NOW).empty
        assert "lorogo pipeline ingest" in report(tables, now=NOW)


@pytest.mark.parametrize(
    ("length", "step", "periods"),
    [
        (timedelta(minutes=-1), PeriodLength.HOUR, 1),
        (timedelta(days=400), PeriodLength.WEEK, 59),
        (timedelta(days=20_000), PeriodLength.YEAR, 55),
    ],
)
def test_any_length_of_time(spark: SparkSession, length: timedelta, step: PeriodLength, periods: int) -> None:
    """A minute is an hour, 400 days are weeks, a clock that was once at 1972 makes years: none is lost."""
    updates = table(spark, "updates", [update("a", hours(0, 9)), update("b", hours(0, 9) - length)])
    facts = gather({"updates": updates}, now=NOW)
    assert facts.step is step
    assert len(facts.periods) == periods
    assert sum(period.updates for period in facts.periods) == 2
    assert sum(sum(row) for row in facts.week) == 2
    by_calendar = gather(
        {"updates": updates}, now=NOW, tz="Etc/UTC"
    )  # UTC itself is reckoned in whole numbers
    assert (by_calendar.periods, by_calendar.week) == (facts.periods, facts.week)


def test_what_comes_back_is_bounded(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of documents, peers and reasons: only as many rows as the page has lines and periods."""
    returned: list[int] = []
    answers_of = queries._answers

    def counting(rows: DataFrame) -> queries.Answers:
        found = answers_of(rows)
        returned.append(sum(map(len, found.values())))
        return found

    monkeypatch.setattr(queries, "_answers", counting)
    many = [update(f"d{n}", hours(n % 2, n % 24), (str(n), 0, n + 1)) for n in range(400)]
    why = [{"reason": f"r{n}", "count": n + 1} for n in range(300)]
    answers = [{"since": hours(0, 1), "acked": 1, "refused": 45_150, "latency_us": [1], "reasons": why}]
    tables = {"updates": table(spark, "updates", many), "answers": table(spark, "answers", answers)}
    facts = gather(tables, now=NOW)
    assert len(returned) == 2
    assert sum(returned) < 300
    assert (facts.totals.documents, facts.totals.peers) == (400, 400)
    assert [peer.id for peer in facts.peers] == [str(n) for n in range(399, 385, -1)]
    assert [one.name for one in facts.reasons] == [f"r{n}" for n in range(299, 292, -1)]
    assert "other reasons" in report(tables, now=NOW)


def test_a_wrong_time_zone_is_a_sentence() -> None:
    """An invalid time zone is refused before any query."""
    for tz in ("Mars/Olympus", "../../etc/passwd", ""):
        with pytest.raises(UnknownTimeZone, match="is not a time zone; use a name like UTC"):
            gather({}, now=NOW, tz=tz)
