"""The two Spark queries of a report; each reads the tables once, in few stages.

Every table becomes rows of one shape (`kind`, `key`, `at`, six numbers), so that all are shuffled and summed
together: planning and starting a stage costs more than the rows of a small lake. The number of result rows
depends on the periods and the lines of the page's tables, not on the size of the lake. Columns with bytes of
documents are never read.

    rows        document d, period p ─┐                    ┌─ period p: sums, number of documents
                peer x, period p ─────┤ added up by        ├─ document d: sums, first period, history
                reason r, period p ───┤ kind, key, period, ├─ peer x: sums, first period
                power i, period p ────┤ then by            ├─ reason r: sum, history
                hour of the week ─────┘                    └─ ...; of long lists only the largest

Hours and days are computed from microseconds, independent of the session's time zone.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from lorogo_pipeline.report.periods import PeriodLength

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, DataFrame

#: result rows of a kind: the lines of a table
TOP = {"document": 10, "biggest": 10, "peer": 14, "author": 14, "reason": 7}
TROUBLE_TOP = 8
_LATENCIES_MAX = 64
_WORDS_MAX = 200  # of a reason or a problem

NUMBERS = {  # names of the numbers of a kind
    "updates": ("bytes", "ops", "wrong", "undecodable", "in_future"),
    "answers": ("acked", "refused"),
    "documents": ("live", "chars", "snapshot_bytes", "incomplete"),
    "changes": ("ops",),
    "events": (),
    "period": ("updates", "bytes", "ops", "wrong", "undecodable", "late"),
    "document": ("updates", "bytes", "ops", "wrong", "undecodable", "late"),
    "damaged": ("updates", "bytes", "ops", "wrong", "undecodable", "late"),
    "document born": ("updates", "bytes", "ops", "wrong", "undecodable", "late"),
    "hour": ("updates",),
    "peers": ("ops",),
    "peer": ("ops",),
    "peer born": ("ops",),
    "author": ("ops", "inserted", "deleted"),  # a peer, from the table `changes`
    "biggest": ("snapshot_bytes", "chars", "updates", "live"),
    "incomplete": (),
    "server": (),
    "answered": ("acked", "refused"),
    "power": ("count",),
    "reason": ("count",),
}
_MONDAY = 3 * 24  # hours from a Monday to 1970
_COLUMNS = ("a", "b", "c", "d", "e", "f")


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One result row: the sum of `rows` rows with times from `first` to `last`."""

    key: str
    at: int
    rows: int
    first: int
    last: int
    numbers: dict[str, int]
    history: dict[int, int]
    text: str


Answers = dict[str, list[ReportRow]]


@dataclass(frozen=True, slots=True)
class PeriodClock:
    """Convert times to periods: local hours since 1970, at the start of the period."""

    tz: str
    step: PeriodLength

    def hours(self, time: str) -> Column:
        """Return hours since 1970 of a wall clock in the zone."""
        micros = F.unix_micros(time)
        if self.tz == "UTC":  # most reports: integers are much faster than calendar functions
            return F.floor(micros / F.lit(3_600_000_000)).cast("bigint")
        seconds = (micros.cast("decimal(20,0)") / F.lit(1_000_000)).cast("decimal(18,6)")
        utc = F.expr("timestamp_ntz'1970-01-01 00:00:00'") + F.make_dt_interval(secs=seconds)
        local = F.convert_timezone(F.lit("UTC"), F.lit(self.tz), utc)
        return (F.unix_date(local.cast("date")) * 24 + F.hour(local)).cast("bigint")

    def period(self, time: str) -> Column:
        hours = self.hours(time)
        match self.step:
            case PeriodLength.HOUR:
                return hours
            case PeriodLength.DAY:
                return hours - F.pmod(hours, F.lit(24))
            case PeriodLength.WEEK:
                return hours - F.pmod(hours + _MONDAY, F.lit(168))
        date = F.date_from_unix_date(F.floor(hours / F.lit(24)).cast("int"))
        return F.unix_date(F.trunc(date, self.step.value)) * 24

    def hour_of_week(self, time: str) -> Column:
        return F.pmod(self.hours(time) + _MONDAY, F.lit(168))


def totals(tables: Mapping[str, DataFrame], now_us: int) -> Answers:
    """Return totals and time range (microseconds) of each table."""
    rows = []
    if (updates := tables.get("updates")) is not None:
        at = F.unix_micros("accepted_at")
        numbers = [F.col("bytes"), F.col("ops"), _wrong(), _undecodable(), at > now_us]
        rows.append(_rows(updates, "updates", at=at, numbers=numbers))
    if (answers := tables.get("answers")) is not None:
        numbers = [F.col("acked"), F.col("refused")]
        rows.append(_rows(answers, "answers", at=F.unix_micros("since"), numbers=numbers))
    if (documents := tables.get("documents")) is not None:
        numbers = [F.col("state") == "live", F.col("chars"), F.col("snapshot_bytes"), ~F.col("complete")]
        rows.append(_rows(documents.where("latest"), "documents", at=F.unix_micros("as_of"), numbers=numbers))
    if (changes := tables.get("changes")) is not None:
        rows.append(_rows(changes, "changes", numbers=[F.col("ops")]))
    if (events := tables.get("events")) is not None:
        kinds = events.where(F.col("kind").isin("deleted", "restored", "erased"))
        rows.append(_rows(kinds, "events", key=F.col("kind")))
    if not rows:
        return {}
    added = (
        _union(rows)
        .groupBy("kind", "key")
        .agg(
            F.count("*").alias("rows"),
            F.lit(None).alias("at"),
            F.min("at").alias("first"),
            F.max("at").alias("last"),
            *(F.sum(name).alias(name) for name in _COLUMNS),
        )
    )
    return _answers(added.select(*_shape()))


def details(
    tables: Mapping[str, DataFrame], clock: PeriodClock, *, as_of_us: int | None, authors: bool
) -> Answers:
    """Return sums by period, hour of the week, document, peer, author, reason; `late`: after `as_of_us`."""
    rows: list[DataFrame] = []
    if (updates := tables.get("updates")) is not None:
        rows += _of_updates(updates, clock, as_of_us)
    if authors:
        numbers = [F.col("ops"), F.col("inserted"), F.col("deleted")]
        rows.append(_rows(tables["changes"], "author", key=F.col("peer"), numbers=numbers))
    if (answers := tables.get("answers")) is not None:
        rows += _of_answers(answers, clock)
    documents = tables.get("documents")
    if documents is not None:
        numbers = [F.col("snapshot_bytes"), F.col("chars"), F.col("updates"), F.col("state") == "live"]
        latest = documents.where("latest")
        rows.append(_rows(latest, "biggest", key=F.col("document_id"), numbers=numbers))
    added = _added(_union(rows)).persist()  # used by several queries; as small as the list of documents
    try:
        asked = [*_small(added), *([] if documents is None else [_incomplete(documents)])]
        return _answers(_union(asked))
    finally:
        added.unpersist()


def _of_updates(updates: DataFrame, clock: PeriodClock, as_of_us: int | None) -> Iterable[DataFrame]:
    late = F.lit(0) if as_of_us is None else F.unix_micros("accepted_at") > as_of_us
    numbers = [F.lit(1), F.col("bytes"), F.col("ops"), _wrong(), _undecodable(), late]
    at = clock.period("accepted_at")
    yield _rows(updates, "document", key=F.col("document_id"), at=at, numbers=numbers)
    yield _rows(updates, "hour", at=clock.hour_of_week("accepted_at"), numbers=[F.lit(1)])
    spans = updates.select(at.alias("at"), F.explode("spans").alias("span"))
    ops = F.col("span.end") - F.col("span.first")
    yield _rows(spans, "peer", key=F.col("span.peer"), at=F.col("at"), numbers=[ops])


def _of_answers(answers: DataFrame, clock: PeriodClock) -> Iterable[DataFrame]:
    at = clock.period("since")
    yield _rows(answers, "answered", at=at, numbers=[F.col("acked"), F.col("refused")])
    yield _rows(answers, "server", key=F.col("server"))
    counts = F.posexplode(F.slice("latency_us", 1, _LATENCIES_MAX)).alias("power", "count")
    powers = answers.select(at.alias("at"), counts).where("count > 0")
    yield _rows(powers, "power", key=F.col("power"), at=F.col("at"), numbers=[F.col("count")])
    why = answers.select(at.alias("at"), F.explode("reasons").alias("why"))
    reason = F.substring("why.reason", 1, _WORDS_MAX)
    yield _rows(why, "reason", key=reason, at=F.col("at"), numbers=[F.col("why.count")])


def _added(rows: DataFrame) -> DataFrame:
    """Sum by kind, key and period; then documents and peers over all periods, and periods over all keys."""
    by_period = rows.groupBy("kind", "key", "at").agg(*(F.sum(name).alias(name) for name in _COLUMNS))
    kind = F.col("kind")
    history = F.when(kind.isin("document", "reason"), F.array("at", "a"))
    numbers = [F.col(name) for name in _COLUMNS]

    def row(of: str | Column, key: str | None, at: str | None, history: Column) -> Column:
        return F.struct(
            (F.lit(of) if isinstance(of, str) else of).alias("kind"),
            (F.col(key) if key else F.lit(None).cast("string")).alias("key"),
            (F.col(at) if at else F.lit(None).cast("bigint")).alias("at"),
            F.col("at").alias("time"),
            history.alias("entry"),
            *numbers,
        )

    none = F.lit(None).cast("array<bigint>")
    whole = row(kind, "key", None, history)
    expanded = (
        F.when(kind == "document", F.array(row("period", None, "at", none), whole))
        .when(kind == "peer", F.array(row("peers", None, "at", none), whole))
        .when(kind == "reason", F.array(whole))
        .when(kind == "server", F.array(row("server", None, None, none)))
        .otherwise(F.array(row(kind, "key", "at", none)))
    )
    return (
        by_period.select(F.inline(expanded))
        .groupBy("kind", "key", "at")
        .agg(
            F.count("*").alias("rows"),
            F.min("time").alias("first"),
            F.max("time").alias("last"),
            F.flatten(F.collect_list("entry")).alias("history"),
            *(F.sum(name).alias(name) for name in _COLUMNS),
        )
    )


def _small(added: DataFrame) -> Iterable[DataFrame]:
    """Select the rows of the page: everything by period, and of the rest only the largest."""
    kind = F.col("kind")
    yield added.where(~kind.isin(*TOP)).select(*_shape())
    place = F.row_number().over(Window.partitionBy("kind").orderBy(F.desc("a"), "key"))
    largest = reduce(
        lambda one, two: one | two, ((kind == of) & (F.col("n") <= top) for of, top in TOP.items())
    )
    ranked = added.where(kind.isin(*TOP)).withColumn("n", place).where(F.col("n") <= max(TOP.values()))
    yield ranked.where(largest).select(*_shape(history=True))
    born = (
        added.where(kind.isin("document", "peer"))
        .groupBy(F.concat(kind, F.lit(" born")).alias("kind"), F.col("first").alias("at"))
        .agg(F.count("*").alias("rows"), *(F.sum(name).alias(name) for name in _COLUMNS))
        .select("*", F.lit(None).alias("key"), F.lit(None).alias("first"), F.lit(None).alias("last"))
    )
    yield born.select(*_shape())
    damage = F.col("d") + F.col("e")
    damaged = (
        added.where((kind == "document") & (damage > 0)).orderBy(damage.desc(), "key").limit(TROUBLE_TOP)
    )
    yield damaged.withColumn("kind", F.lit("damaged")).select(*_shape())


def _incomplete(documents: DataFrame) -> DataFrame:
    some = documents.where("latest and not complete").orderBy("document_id").limit(TROUBLE_TOP)
    words = F.substring(F.coalesce("problem", F.lit("")), 1, _WORDS_MAX)
    none = [F.lit(0).alias(name) for name in ("at", "rows", "first", "last", *_COLUMNS)]
    rows = some.select(
        F.lit("incomplete").alias("kind"), F.col("document_id").alias("key"), *none, words.alias("text")
    )
    return rows.select(*_shape(text=True))


def _rows(
    table: DataFrame,
    kind: str,
    *,
    key: Column | None = None,
    at: Column | None = None,
    numbers: Iterable[Column] = (),
) -> DataFrame:
    columns = [*(number.cast("bigint") for number in numbers)]
    columns += [F.lit(0).cast("bigint")] * (len(_COLUMNS) - len(columns))
    return table.select(
        F.lit(kind).alias("kind"),
        (F.lit(None) if key is None else key).cast("string").alias("key"),
        (F.lit(None) if at is None else at).cast("bigint").alias("at"),
        *(column.alias(name) for name, column in zip(_COLUMNS, columns, strict=True)),
    )


def _shape(*, history: bool = False, text: bool = False) -> Iterable[Column]:
    yield F.col("kind")
    yield F.col("key").cast("string").alias("key")
    yield from (F.col(name).cast("bigint").alias(name) for name in ("at", "rows", "first", "last", *_COLUMNS))
    yield (F.col("history") if history else F.array().cast("array<bigint>")).alias("history")
    yield (F.col("text") if text else F.lit("")).alias("text")


def _answers(rows: DataFrame) -> Answers:
    answers: Answers = defaultdict(list)
    for kind, key, at, number, first, last, *sums, history, text in rows.collect():
        named = dict(zip(NUMBERS[kind], (value or 0 for value in sums), strict=False))
        by_period = dict(zip(history[::2], history[1::2], strict=True))
        answers[kind].append(
            ReportRow(key or "", at or 0, number, first or 0, last or 0, named, by_period, text)
        )
    return answers


def _union(rows: list[DataFrame]) -> DataFrame:
    return reduce(lambda one, two: one.union(two), rows)


def _wrong() -> Column:
    return ~F.col("digest_ok")


def _undecodable() -> Column:
    return F.col("digest_ok") & F.col("changes").isNull()
