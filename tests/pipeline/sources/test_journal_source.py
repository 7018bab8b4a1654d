"""`spark.read.format("lorogo.journal")`: every record, filters that reach the index, damage reported."""

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringContains,
)
from pyspark.testing import assertDataFrameEqual

from lorogo_pipeline.decode.segments import JournalFilter
from lorogo_pipeline.errors import BadOption
from lorogo_pipeline.sources.journal_source import JournalReader, narrowed, parse_options
from lorogo_pipeline.sources.registration import register
from lorogo_pipeline.tables.schemas import RECORDS, spark_schema
from lorogo_protocol.journal.records import AnswersRecord, ErasedRecord
from tests.pipeline.decode.test_segments import flip, frame_starts, segments
from tests.pipeline.journals import SECOND, START, Journal, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UPDATES = session(5, 90)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three segments of thirty updates, and one of other things."""
    path = tmp_path_factory.mktemp("source") / "journal" / "00"
    with Journal(path) as made:
        for start in (0, 30, 60):
            for at in range(start, start + 30, 5):
                made.add(*UPDATES[at : at + 5])
            made.seal()
        made.record("doc-0000", ErasedRecord("erasure", (), 1, 0, START), START + 200 * SECOND)
        made.record("-answers", AnswersRecord("s", START, START, 0, (), {}), START + 201 * SECOND)
        made.raw(b"doc-0001", b"\xc1", START + 202 * SECOND)
    return path


@pytest.fixture
def damaged(place: Path, tmp_path: Path) -> Path:
    """The same with a flipped bit in the second segment."""
    path = tmp_path / "00"
    shutil.copytree(place, path)
    segment = segments(path)[1]
    flip(segment, frame_starts(segment)[2] + 200)
    return path


def load(spark: "SparkSession", place: object, **options: object) -> "DataFrame":
    register(spark)
    reader = spark.read.format("lorogo.journal")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(place))


# --- through Spark --------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_record(spark: "SparkSession", place: Path) -> None:
    """Every record is a row, with its kind, in the schema that is written out."""
    rows = load(spark, place)
    assert rows.schema == spark_schema(RECORDS)
    kinds = {row.kind: row["count"] for row in rows.groupBy("kind").count().collect()}
    assert kinds == {"update": 90, "erased": 1, "answers": 1, "malformed": 1}
    per_document = rows.where("kind = 'update'").groupBy("document_id").agg(F.sum("bytes").alias("bytes"))
    expected: dict[str, int] = {}
    for one in UPDATES:
        expected[one.document_id] = expected.get(one.document_id, 0) + len(one.record.payload)
    assertDataFrameEqual(
        per_document, spark.createDataFrame(list(expected.items()), "document_id string, bytes long")
    )


def test_without_payload(spark: "SparkSession", place: Path) -> None:
    """Without payloads everything else is the same; records that are facts keep their bytes."""
    full, bare = load(spark, place), load(spark, place, payload="false")
    kept = {row.kind for row in bare.where("payload is not null").select("kind").distinct().collect()}
    assert kept == {"answers", "erased"}
    assertDataFrameEqual(full.drop("payload"), bare.drop("payload"))


def test_places_and_urls(spark: "SparkSession", place: Path, tmp_path: Path) -> None:
    """A data folder, a URL, and several of them: a segment that is in all of them is read once."""
    shutil.copytree(place, tmp_path / "archive" / "00")
    everything = load(spark, place)
    assertDataFrameEqual(load(spark, place.parents[1]), everything)
    assertDataFrameEqual(load(spark, f"file://{tmp_path / 'archive'}"), everything)
    assert load(spark, f"{place},file://{tmp_path / 'archive'}").count() == 93


def test_options_narrow(spark: "SparkSession", place: Path) -> None:
    """Documents and times as options give exactly what matches."""
    since, until = START + 10 * SECOND, START + 50 * SECOND
    found = load(spark, place, documents="doc-0001, doc-0003", since=since, until="2026-11-06T21:20:50Z")
    expected = [
        one.record.sequence
        for one in UPDATES
        if one.document_id in {"doc-0001", "doc-0003"} and since <= one.at_ns <= until
    ]
    assert sorted(row.sequence for row in found.collect()) == expected and expected


def moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(START // SECOND, UTC) + timedelta(seconds=seconds)


@pytest.fixture
def zone(request: pytest.FixtureRequest, spark: "SparkSession") -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", str(before))


@pytest.fixture(scope="module")
def written(spark: "SparkSession", place: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Every record in a file that knows nothing of journals."""
    path = str(tmp_path_factory.mktemp("written") / "records")
    load(spark, place, payload="false").coalesce(1).write.parquet(path)
    return path


def times() -> list[Any]:
    return [
        F.col("accepted_at") > F.lit(moment(40)),
        (F.col("accepted_at") >= F.lit(moment(31))) & (F.col("accepted_at") < F.lit(moment(61))),
        F.col("accepted_at") == F.lit(moment(45)),
    ]


def all_kinds() -> list[Any]:
    return [
        *times(),
        F.expr(f"accepted_ns <= {START + 33 * SECOND}"),
        F.expr(f"accepted_ns between {START + 33 * SECOND} and {START + 34 * SECOND}"),
        F.expr("document_id = 'doc-0002'"),
        F.expr("document_id in ('doc-0002', 'doc-0004', null) and sequence % 2 = 0"),
        F.expr("document_id = 'doc-0002' or sequence = 1"),
        F.expr("document_id like 'doc-000%' and kind = 'erased'"),
        F.expr("not document_id = 'doc-0002'"),
    ]


@pytest.mark.parametrize(
    ("zone", "questions"),
    [("UTC", all_kinds), ("Pacific/Kiritimati", times), ("America/Los_Angeles", times)],
    indirect=["zone"],
)
def test_filters_in_any_zone(
    spark: "SparkSession", place: Path, written: str, zone: str, questions: Callable[[], list[Any]]
) -> None:
    """Filters give the same rows as without pushing them down, whatever the session's time zone."""
    assert spark.conf.get("spark.sql.session.timeZone") == zone
    for question in questions():
        expected = spark.read.parquet(written).where(question)
        assertDataFrameEqual(load(spark, place, payload="false").where(question), expected)
        assert 0 < expected.count() < 93, question


def test_filters_reach_the_segments(spark: "SparkSession", damaged: Path) -> None:
    """Segments outside the wanted times are not read: damage there does not matter."""
    strict = load(spark, damaged, damaged="fail")
    assert strict.where(f"accepted_ns <= {START + 30 * SECOND}").count() == 30
    assert strict.where(f"accepted_ns > {START + 60 * SECOND}").count() == 33
    with pytest.raises(PySparkException, match="lorogo log repair"):
        strict.where(f"accepted_ns > {START + 29 * SECOND}").count()


def test_damage_as_rows(spark: "SparkSession", damaged: Path) -> None:
    """With `skip`, damage is a row with its place."""
    rows = load(spark, damaged, damaged="skip")
    (bad,) = rows.where("kind = 'damaged'").collect()
    assert segments(damaged)[1].name in bad.problem and bad.log_sequence == 31 and bad.document_id == ""
    assert rows.where("kind = 'update'").count() == 85


def test_damage_as_an_error(spark: "SparkSession", damaged: Path) -> None:
    """By default damage is an error that names the repair command."""
    with pytest.raises(PySparkException, match="lorogo log repair"):
        load(spark, damaged).count()


def test_a_gap(spark: "SparkSession", place: Path, tmp_path: Path) -> None:
    """A missing segment is an error, too, unless it is to be skipped."""
    shutil.copytree(place, tmp_path / "00")
    segments(tmp_path / "00")[1].unlink()
    with pytest.raises(PySparkException, match="records 31 to 60 are in no segment"):
        load(spark, tmp_path).count()
    assert load(spark, tmp_path, damaged="skip").where("kind = 'update'").count() == 60


def test_no_journal(spark: "SparkSession", tmp_path: Path) -> None:
    """A place without a journal gives the same error as elsewhere."""
    with pytest.raises(PySparkException, match="is not a folder"):
        load(spark, tmp_path / "nowhere").count()


def test_an_unknown_option(spark: "SparkSession", place: Path) -> None:
    """A misspelt option must not read everything."""
    with pytest.raises(PySparkException, match="has no option 'document'"):
        load(spark, place, document="doc-0001").count()


# --- without Spark --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "name a journal"),
        ({"path": " , "}, "name a journal"),
        ({"path": "x", "payload": "maybe"}, "option payload is 'maybe'; it must be true or false"),
        ({"path": "x", "damaged": "hide"}, "option damaged is 'hide'; it must be fail or skip"),
        ({"path": "x", "since": "yesterday"}, "'yesterday' is not a time: write 2026-"),
        ({"path": "x", "untill": "5"}, "has no option 'untill'; it has damaged, documents"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, str], words: str) -> None:
    """The error of an invalid option names the valid values."""
    with pytest.raises(BadOption, match=words):
        parse_options(options)


def test_options() -> None:
    """Names in any case, several places, times in both spellings."""
    found = parse_options(
        {"PATH": "a, memory://b", "Payload": "FALSE", "damaged": "skip", "since": "5", "documents": "x,y"}
    )
    assert found.paths == ("a", "memory://b") and not found.payload and found.damaged == "skip"
    assert found.wanted == JournalFilter(frozenset([b"x", b"y"]), 5, None)


NS = ("accepted_ns",)
AT = ("accepted_at",)
ID = ("document_id",)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], JournalFilter()),
        ([EqualTo(ID, "a")], JournalFilter(frozenset([b"a"]))),
        ([In(ID, ("a", None, "b")), EqualTo(ID, "b")], JournalFilter(frozenset([b"b"]))),
        ([EqualTo(ID, "a"), EqualTo(ID, "b")], JournalFilter(frozenset())),
        ([EqualTo(ID, "a\ufffdb")], JournalFilter()),
        ([In(ID, ("a", "\ufffd"))], JournalFilter()),
        ([GreaterThan(NS, 7), GreaterThanOrEqual(NS, 7), LessThan(NS, 20)], JournalFilter(None, 8, 19)),
        ([LessThanOrEqual(NS, 9), EqualTo(NS, 8)], JournalFilter(None, 8, 8)),
        (
            [GreaterThan(AT, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))],
            JournalFilter(None, SECOND + 1000, None),
        ),
        ([LessThan(AT, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))], JournalFilter(None, None, SECOND - 1)),
        (
            [EqualTo(AT, datetime(1970, 1, 1, 2, 0, 1, tzinfo=timezone(timedelta(hours=2))))],
            JournalFilter(None, SECOND, SECOND + 999),
        ),
        ([GreaterThan(NS, "odd"), StringContains(ID, "a"), EqualTo(("kind",), "update")], JournalFilter()),
    ],
)
def test_what_filters_ask_for(filters: list[Filter], expected: JournalFilter) -> None:
    """Filters become keys and times; those that cannot are left to Spark."""
    assert narrowed(JournalFilter(), filters) == expected


def test_a_time_without_a_zone() -> None:
    """A time without a zone may be in any zone: the filter is wide enough for all."""
    naive = datetime(2026, 11, 6, 21, 20)  # noqa: DTZ001 - that is the point
    wanted = narrowed(JournalFilter(), [GreaterThan(AT, naive), LessThan(AT, naive)])
    assert wanted.since_ns is not None and wanted.until_ns is not None
    assert wanted.since_ns <= START - 14 * 3600 * SECOND and wanted.until_ns >= START + 12 * 3600 * SECOND


def test_every_filter_is_applied_again(place: Path) -> None:
    """The reader returns the pushed filters to Spark, so they need not be exact."""
    reader = JournalReader(parse_options({"path": str(place)}))
    filters: list[Filter] = [EqualTo(ID, "doc-0001"), GreaterThan(NS, START + 60 * SECOND)]
    assert list(reader.pushFilters(filters)) == filters
    read = [facts.first_sequence for one in reader.partitions() for facts in one.segments]
    assert read == [61, 91]


def test_small_segments_share_a_partition(place: Path) -> None:
    """Segments far below a partition's size are read by one task."""
    reader = JournalReader(parse_options({"path": str(place)}))
    (partition,) = reader.partitions()
    assert len(partition.segments) == 4
    assert sum(batch.num_rows for batch in reader.read(partition)) == 93
