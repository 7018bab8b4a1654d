"""Journals into tables: each fact once, however often, in whatever order, and whatever dies meanwhile."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lorogo_pipeline.decode.segments import FAIL, SKIP
from lorogo_pipeline.errors import BadOption, DamagedJournal, LakeBusy, PipelineError
from lorogo_pipeline.jobs.ingest import IngestReport
from lorogo_pipeline.pipeline import Pipeline, Settings, build
from lorogo_pipeline.tables import parquet
from lorogo_pipeline.tables.lake import Lake
from lorogo_protocol.journal.records import (
    AnswersRecord,
    BaseRecord,
    DeletedRecord,
    ErasedRecord,
)
from lorogo_server.recovery.restore_sources import NoSource
from tests.journals import restored_record
from tests.pipeline.decode.test_segments import flip, segments
from tests.pipeline.journals import SECOND, START, TERM, Journal, Made, journal, made, session, with_payload
from tests.pipeline.lakes import files_of, on_workers, rows_of, tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INGESTED = ("updates", "events", "answers")


@pytest.fixture
def ingest(spark: "SparkSession", tmp_path: Path) -> "Ingest":
    return Ingest(spark, tmp_path)


class Ingest:
    """`ingest(journals)` into a lake of four buckets."""

    def __init__(self, spark: "SparkSession", tmp_path: Path) -> None:
        self.spark = spark
        self.lake = tmp_path / "lake"

    def pipeline(self, *journals: Path | str, lake: Path | None = None, damaged: str = SKIP) -> Pipeline:
        settings = Settings(str(lake or self.lake), tuple(map(str, journals)), buckets=4, damaged=damaged)
        return build(self.spark, settings)

    def __call__(self, *journals: Path | str, lake: Path | None = None, damaged: str = SKIP) -> IngestReport:
        return self.pipeline(*journals, lake=lake, damaged=damaged).ingest()


def with_events(path: Path, updates: list[Made]) -> Path:
    """A journal with one of everything, in two segments."""
    with Journal(path) as made_:
        made_.add(*updates[: len(updates) // 2])
        made_.record("doc-0000", BaseRecord(1, 0, 1, 0, "77", b"v", b"f", b""), START)
        made_.record("doc-0001", DeletedRecord("tombstone", (TERM,), 1, 0, START + SECOND), START + SECOND)
        made_.seal()
        made_.record(
            "doc-0001",
            restored_record(1, 1),
            START + 2 * SECOND,
        )
        answers = AnswersRecord("server", START, START + 60 * SECOND, 2, (0, 2), {"busy": 1})
        made_.record("-answers", answers, START)
        made_.raw(b"doc-0002", b"\xc1", START)
        made_.raw(b"doc-0002", b"\x93\xa1z\x02\x00", START)
        made_.add(*updates[len(updates) // 2 :])
    return path


# --- once -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [False, True])
def test_everything_once(
    ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: bool
) -> None:
    """Every update, event and minute of answers is in its table; what is none is counted."""
    if workers:
        on_workers(monkeypatch)
    updates = session(3, 60)
    path = with_events(tmp_path / "journal", updates)
    done = ingest(path)
    assert (done.segments, done.known, done.records) == (2, 0, 66)
    assert (done.updates, done.events, done.answers) == (60, 3, 1)
    assert (done.malformed, done.unknown, done.repeated, done.damage) == (1, 1, 0, [])
    found = rows_of(ingest.lake, "updates")
    assert {(row["document_id"], row["log_id"], row["digest"]) for row in found} == {
        (one.document_id, one.record.log_id, one.record.digest) for one in updates
    }
    assert all(row["digest_ok"] and row["source"] == "journal" for row in found)


def test_twice(ingest: Ingest, tmp_path: Path) -> None:
    """A second run reads nothing of what is sealed, and changes nothing."""
    path = with_events(tmp_path / "journal", session(3, 60))
    ingest(path)
    before, files = tables_of(ingest.lake, *INGESTED), files_of(ingest.lake, "updates")
    again = ingest(path)
    assert (again.segments, again.known, again.updates, again.changed) == (0, 2, 0, False)
    assert tables_of(ingest.lake, *INGESTED) == before and files_of(ingest.lake, "updates") == files


@pytest.mark.parametrize("workers", [False, True])
def test_whatever_the_order(
    ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: bool
) -> None:
    """Two journals that overlap: one after the other, the other way round, or both at once, all the same."""
    if workers:
        on_workers(monkeypatch)
    updates = session(4, 80)
    one = with_events(tmp_path / "a", updates[:60])
    other = [replace(two, record=replace(two.record, lease=9)) for two in updates[20:40]]
    late = [replace(two, at_ns=two.at_ns + SECOND) for two in updates[10:20]]
    two = with_events(tmp_path / "b", late + other + updates[60:] + [with_payload(updates[5], b"broken")])
    lakes = [tmp_path / name for name in ("ab", "ba", "both", "twice")]
    assert ingest(one, lake=lakes[0]).updates == 60
    second = ingest(two, lake=lakes[0])
    assert second.updates == 20 and second.repeated == 31 + 4
    for place in (two, one):
        ingest(place, lake=lakes[1])
    ingest(one, two, lake=lakes[2])
    for _ in range(2):
        ingest(two, one, two, lake=lakes[3])
    first = tables_of(lakes[0], *INGESTED)
    assert len(first["updates"]) == 80 and all(row["digest_ok"] for row in first["updates"])
    for lake in lakes[1:]:
        assert tables_of(lake, *INGESTED) == first


def test_nothing_yet(ingest: Ingest, tmp_path: Path) -> None:
    """A journal that is still empty makes an empty lake."""
    (tmp_path / "journal").mkdir()
    assert ingest(tmp_path / "journal") == IngestReport()
    assert tables_of(ingest.lake, *INGESTED) == {name: [] for name in INGESTED}


def test_no_journal(ingest: Ingest, tmp_path: Path) -> None:
    """A path that is not there, and none at all, are sentences."""
    with pytest.raises(NoSource, match="is not a folder"):
        ingest(tmp_path / "nowhere")
    with pytest.raises(BadOption, match="name a journal"):
        ingest()
    with pytest.raises(BadOption, match="damaged is 'perhaps'; it must be fail or skip"):
        ingest(tmp_path, damaged="perhaps")


# --- growth and repair ---------------------------------------------------------------------------


def test_an_open_segment(ingest: Ingest, tmp_path: Path) -> None:
    """The open end is read again each time, and only what came is new; sealed, it is read once more."""
    updates = session(2, 40)
    with Journal(tmp_path / "journal") as path:
        path.add(*updates[:10])
        assert ingest(tmp_path / "journal").updates == 10
        files = files_of(ingest.lake, "updates")
        again = ingest(tmp_path / "journal")
        assert (again.segments, again.updates, again.repeated) == (1, 0, 10)
        assert files_of(ingest.lake, "updates") == files, "nothing was written again"
        path.add(*updates[10:30])
        assert ingest(tmp_path / "journal").updates == 20
        path.add(*updates[30:])
        path.seal()
        assert ingest(tmp_path / "journal").updates == 10
        assert ingest(tmp_path / "journal").known == 1
    assert len(rows_of(ingest.lake, "updates")) == 40


def test_a_tail_that_was_torn(ingest: Ingest, tmp_path: Path) -> None:
    """Sequences of the log that are used again after a crash are other records, and both count."""
    updates = session(2, 12)
    with Journal(tmp_path / "alive") as path:
        path.add(*updates[:4])
        shutil.copytree(tmp_path / "alive", tmp_path / "journal")
        path.add(*updates[4:8])
        assert ingest(tmp_path / "alive").updates == 8
    shutil.rmtree(tmp_path / "alive")
    with Journal(tmp_path / "journal") as path:
        path.add(*updates[8:])
    assert ingest(tmp_path / "journal").updates == 4
    assert len(rows_of(ingest.lake, "updates")) == 12


@pytest.mark.parametrize("seed", [0, 1, 47, 64])
def test_a_journal_that_lives(ingest: Ingest, tmp_path: Path, seed: int) -> None:
    """A journal that grows, is sealed, opened again and torn by crashes while it is ingested: whatever stood
    there at an ingest is in the table once, and nothing else.
    """
    rng = random.Random(seed)
    updates = session(3, 120, seed=seed)
    path, backup = tmp_path / "journal", tmp_path / "backup"
    written = iter(updates)
    there: list[Made] = []  # in the journal
    saved: list[Made] = []  # in the backup
    seen: dict[str, Made] = {}  # by an ingest
    log = Journal(path)
    try:
        for _ in range(24):
            match rng.choice(["add", "add", "add", "ingest", "ingest", "seal", "reopen", "save", "crash"]):
                case "add":
                    some = list(islice(written, rng.randint(1, 4)))
                    log.add(*some)
                    there += some
                case "seal" if there:
                    log.seal()
                case "reopen":
                    log.__exit__(None, None, None)
                    log = Journal(path)
                case "save":
                    shutil.rmtree(backup, ignore_errors=True)
                    shutil.copytree(path, backup)
                    saved = list(there)
                case "crash" if backup.exists():
                    log.__exit__(None, None, None)
                    shutil.rmtree(path)
                    shutil.copytree(backup, path)
                    there = list(saved)
                    log = Journal(path)
                case "ingest":
                    assert ingest(path).damage == []
                    seen |= {one.record.log_id: one for one in there}
                case _:
                    pass
    finally:
        log.__exit__(None, None, None)
    ingest(path)
    seen |= {one.record.log_id: one for one in there}
    rows = rows_of(ingest.lake, "updates")
    assert sorted(row["log_id"] for row in rows) == sorted(seen)
    assert all(row["digest"] == seen[row["log_id"]].record.digest for row in rows)


def test_a_disk_of_before(ingest: Ingest, tmp_path: Path) -> None:
    """A journal that went on from an old copy of itself has other records under the same sequences."""
    updates = session(2, 12)
    journal(tmp_path / "journal", updates[:4], sealed=True)
    shutil.copytree(tmp_path / "journal", tmp_path / "old")
    journal(tmp_path / "journal", updates[4:8], sealed=True)
    assert ingest(tmp_path / "journal").updates == 8
    journal(tmp_path / "old", updates[8:], sealed=True)
    assert [path.name[:20] for path in segments(tmp_path / "old")] == [f"{n:020d}" for n in (1, 5)]
    done = ingest(tmp_path / "old")
    assert (done.updates, done.known) == (4, 1)
    both = ingest(tmp_path / "journal", tmp_path / "old", lake=tmp_path / "both")
    assert (both.updates, both.segments) == (12, 3)


def test_a_new_epoch(ingest: Ingest, tmp_path: Path) -> None:
    """A recreated stream counts from one again: its updates are others."""
    first, second = session(2, 20, seed=1), session(2, 20, seed=2)
    second = [
        replace(one, record=replace(one.record, epoch=2, log_id=f"new-{one.record.sequence}"))
        for one in second
    ]
    journal(tmp_path / "old", first)
    journal(tmp_path / "new", second)
    assert ingest(tmp_path / "old").updates == 20 and ingest(tmp_path / "new").updates == 20
    rows = rows_of(ingest.lake, "updates")
    assert sorted((row["epoch"], row["sequence"]) for row in rows) == [
        (e, s) for e in (1, 2) for s in range(1, 21)
    ]


def test_damage_that_is_repaired(ingest: Ingest, tmp_path: Path) -> None:
    """A damaged segment is reported each time, and read to the end once it is whole again."""
    updates = session(2, 200)
    path = journal(tmp_path / "journal", updates, sealed=True)
    whole = segments(path)[0].read_bytes()
    flip(segments(path)[0], len(whole) // 2)
    first = ingest(path)
    assert 0 < first.updates < 200 and len(first.damage) == 1
    assert len(ingest(path).damage) == 1
    segments(path)[0].write_bytes(whole)
    repaired = ingest(path)
    assert repaired.updates == 200 - first.updates and repaired.damage == []
    assert ingest(path).known == 1 and len(rows_of(ingest.lake, "updates")) == 200


@pytest.mark.parametrize("workers", [False, True])
def test_damage_that_must_not_be(
    ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: bool
) -> None:
    """With `fail`, a job with damage changes nothing."""
    if workers:
        on_workers(monkeypatch)
    path = journal(tmp_path / "journal", session(2, 200), sealed=True)
    flip(segments(path)[0], segments(path)[0].stat().st_size // 2)
    with pytest.raises(PipelineError, match=r"\.seg.*lorogo log repair"):
        ingest(path, damaged=FAIL)
    assert tables_of(ingest.lake, *INGESTED) == {name: [] for name in INGESTED}


def test_a_gap(ingest: Ingest, tmp_path: Path) -> None:
    """A missing segment is reported, or the end of it; once it is back it is read."""
    updates = session(2, 30)
    path = tmp_path / "journal"
    with Journal(path) as made_:
        for start in (0, 10, 20):
            made_.add(*updates[start : start + 10])
            made_.seal()
    hidden = segments(path)[1]
    kept = hidden.rename(tmp_path / hidden.name)
    with pytest.raises(DamagedJournal, match="records 11 to 20 are in no segment"):
        ingest(path, damaged=FAIL)
    done = ingest(path)
    assert done.updates == 20 and done.damage == [f"{path}: records 11 to 20 are in no segment"]
    kept.rename(hidden)
    done = ingest(path)
    assert (done.updates, done.segments, done.damage) == (10, 1, [])


# --- erased ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "together", "after"])
def test_erased_documents_never_come(ingest: Ingest, tmp_path: Path, when: str) -> None:
    """An erasure known before, together with, or after the records of its document: none of them stays."""
    updates = session(3, 60)
    journal(tmp_path / "journal", updates)
    with Journal(tmp_path / "other") as path:
        path.record("doc-0001", ErasedRecord("erasure", (), 1, 0, START), START)
        path.record("doc-0001", DeletedRecord("tombstone", (TERM,), 1, 0, START), START)
    mine = sum(one.document_id == "doc-0001" for one in updates)
    order = {
        "before": [[tmp_path / "other"], [tmp_path / "journal"]],
        "together": [[tmp_path / "journal", tmp_path / "other"]],
        "after": [[tmp_path / "journal"], [tmp_path / "other"]],
    }
    done = IngestReport()
    for places in order[when]:
        done += ingest(*places)
    assert done.erased == mine + 1
    assert done.updates == (60 if when == "after" else 60 - mine)
    assert done.events == 1
    assert [row["kind"] for row in rows_of(ingest.lake, "events")] == ["erased"]
    assert {row["document_id"] for row in rows_of(ingest.lake, "updates")} == {"doc-0000", "doc-0002"}


# --- files ----------------------------------------------------------------------------------------


def test_many_small_ingests(ingest: Ingest, tmp_path: Path) -> None:
    """A journal that is followed in small steps does not become hundreds of small files."""
    updates = session(8, 120)
    with Journal(tmp_path / "journal") as path:
        for start in range(0, 120, 10):
            path.add(*updates[start : start + 10])
            path.seal()
            ingest(tmp_path / "journal")
    files = Lake.open(str(ingest.lake)).table("updates").list()
    assert len(rows_of(ingest.lake, "updates")) == 120
    for bucket in range(4):
        assert sum(file.bucket == bucket for file in files) <= 9


def test_files_are_sorted(ingest: Ingest, tmp_path: Path) -> None:
    """Each file holds one bucket, sorted by document and time: folding needs no shuffle."""
    journal(tmp_path / "journal", random.Random(3).sample(session(9, 200), 200))
    ingest(tmp_path / "journal")
    lake = Lake.open(str(ingest.lake))
    for file in lake.table("updates").list():
        rows = parquet.read(lake.files, "updates", file, ["document_id", "accepted_ns"])
        keys = list(zip(rows["document_id"].to_pylist(), rows["accepted_ns"].to_pylist(), strict=True))
        assert keys == sorted(keys)


# --- two at once, and killed ----------------------------------------------------------------------


def test_two_jobs(ingest: Ingest, tmp_path: Path) -> None:
    """A second job on the same lake gets an error with the running job, and changes nothing."""
    path = journal(tmp_path / "journal", session(1, 5))
    ingest(path)
    with (
        Lake.open(str(ingest.lake)).writing("materialise"),
        pytest.raises(LakeBusy, match="is being written by materialise, process"),
    ):
        ingest(path)


def test_too_little_room(ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk without enough space is an error before anything is read."""
    path = journal(tmp_path / "journal", session(1, 5))
    Lake.open(str(ingest.lake), create=True, buckets=4)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage.__class__(usage.total, usage.used, 1 << 20))
    with pytest.raises(PipelineError, match="has 1 MiB of free space and this job needs about 64 MiB"):
        ingest(path)


CHILD = """
import sys
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from lorogo_pipeline.pipeline import Settings, build

if sys.argv[1]:  # a session of its own
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .config("spark.local.dir", sys.argv[1]).config("spark.sql.warehouse.dir", sys.argv[1])
        .getOrCreate()
    )
else:  # another driver in the JVM of the tests, which takes seconds less to begin
    gateway = launch_gateway()
    java = gateway.jvm.org.apache.spark
    context = java.api.java.JavaSparkContext(java.SparkContext.getOrCreate())
    spark = SparkSession(SparkContext(gateway=gateway, jsc=context))
print("ready", flush=True)
lake, *journals = sys.stdin.readline().split()
build(spark, Settings(lake, tuple(journals), buckets=4)).ingest()
"""


class Child:
    """A process that ingests on command, and can be killed at any moment."""

    def __init__(self, spark: "SparkSession", own: Path | None = None) -> None:
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        facts = gateway.gateway_parameters
        attached = {"PYSPARK_GATEWAY_PORT": str(facts.port), "PYSPARK_GATEWAY_SECRET": facts.auth_token}
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(own or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **({} if own else attached)},
            text=True,
            cwd=Path(__file__).parents[3],
            start_new_session=True,
        )

    def start(self, lake: Path, *journals: Path) -> None:
        assert self._process.stdout is not None and self._process.stdin is not None
        assert self._process.stdout.readline() == "ready\n"
        self._process.stdin.write(f"{lake} {' '.join(map(str, journals))}\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """The driver, and the JVM that it started, if any."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate(timeout=60)


def reached(path: Path) -> None:
    """Wait for a file."""
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.001)


#: the commit that is waited for, and how much later (of a second) the kill comes, at random
MOMENTS = [
    ("lake.json", 0.0),
    ("lake.json", 0.02),
    ("lake.json", 0.1),
    ("events/data", 0.0),  # tasks write
    ("updates/data", 0.0),
    ("events/_delta_log/00000000000000000000.json", 0.0),  # the first table is made, nothing is in it
    ("events/_delta_log/00000000000000000001.json", 0.0),  # events are committed, updates are not
    ("answers/_delta_log/00000000000000000001.json", 0.0),  # everything but updates is
    ("updates/_delta_log/00000000000000000000.json", 0.0),
    ("updates/_delta_log/00000000000000000001.json", 0.0),  # all of it is
]


@pytest.mark.deep
@pytest.mark.timeout(300)
def test_killed_and_run_again(ingest: Ingest, tmp_path: Path) -> None:
    """Killed at any moment, between any two commits, and run again: the tables of a job that was not."""
    updates = session(6, 400)
    one = with_events(tmp_path / "a", updates[:250])
    two = with_events(tmp_path / "b", updates[150:])
    ingest(one, two, lake=tmp_path / "undisturbed")
    expected = tables_of(tmp_path / "undisturbed", *INGESTED)
    assert len(expected["updates"]) == 400
    rng = random.Random(20)
    left = []
    child = Child(ingest.spark, tmp_path / "scratch")
    try:
        for number, (what, wait) in enumerate(MOMENTS):
            lake = tmp_path / f"lake-{number}"
            child.start(lake, one, two)
            reached(lake / what)
            time.sleep(rng.uniform(0, wait))
            child.kill()
            left.append(len(rows_of(lake, "updates")))
            child = Child(ingest.spark)
            done = ingest(one, two, lake=lake)
            assert tables_of(lake, *INGESTED) == expected, f"killed after {what}"
            assert left[-1] + done.updates == 400 and left[-1] in {0, 400}
            assert ingest(one, two, lake=lake).segments == 0
    finally:
        child.kill()
    assert left.count(0) >= 5, f"most of them were killed in the middle: {left}"


def test_what_an_ingest_says() -> None:
    """Two runs together, and as JSON."""
    both = IngestReport(segments=1, updates=2, damage=["a"]) + IngestReport(
        segments=2, updates=3, damage=["b"]
    )
    assert (both.segments, both.updates, both.damage, both.changed) == (3, 5, ["a", "b"], True)
    assert both.to_json()["updates"] == 5 and not IngestReport(repeated=4).changed


def test_a_record_of_a_key_that_is_no_id(ingest: Ingest, tmp_path: Path) -> None:
    """Keys that no server would write do not stop the rest."""
    good = session(1, 3)
    odd = [made("../../etc/passwd", one.record.payload, one.at_ns, sequence=9) for one in good[:1]]
    with Journal(tmp_path / "journal") as path:
        path.add(*good, *odd)
        path.raw(b"\xff\xfe", b"nothing", START)
    assert ingest(tmp_path / "journal").updates == 4
