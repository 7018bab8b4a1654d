"""`materialise` against the plain fold: the same `replay.replay` in one loop in one process, without Spark.

    python bench/pipeline_fold.py [--dir DIR] [--documents 8000] [--updates 200] [--rounds 3] [--small]

Both read the same Parquet files with the same code and write the same table `documents`. Ratios are of
updates per second: in wall time, and per second of CPU, of all processes together (driver, JVM, workers). On
a machine with other load, wall time means little: compare how many cores each got. The memory of a worker is
measured with a quarter of the documents, and with all of them.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

import histories
import processes
import pyarrow as pa
from histories import History
from turns import Turns, verdict

from lorogo_pipeline.decode.bucket_rows import bucket_rows
from lorogo_pipeline.decode.replay import ReplayOptions, replay
from lorogo_pipeline.jobs.ingest import ingest
from lorogo_pipeline.jobs.materialise import materialise
from lorogo_pipeline.spark.session import open_session
from lorogo_pipeline.tables import parquet
from lorogo_pipeline.tables.files import LakeFiles
from lorogo_pipeline.tables.lake import DataFile, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CPU_GOAL, _WALL_GOAL = 0.8, 1.5
_HISTORIES = 400
_WAIT_SECONDS = 1800
_FLAT = 1.25  # four times the documents may take so much more memory


def plain(place: str, out: str) -> list[list[object]]:
    """Fold all buckets of a lake, one after another; the files that were written."""
    pa.set_cpu_count(1)
    lake = Lake.open(place)
    updates, events = lake.table("updates").list(), lake.table("events").list()
    writer = parquet.DataFileWriter(LakeFiles(out), "plain")
    for bucket in range(lake.buckets):
        mine = [[file for file in files if file.bucket == bucket] for files in (updates, events)]
        rows = list(replay(bucket_rows(lake.files, *mine), ReplayOptions(None, lake.buckets)))
        if rows:
            writer.put("documents", bucket, pa.Table.from_batches(rows), label="latest")
    return [file.to_json() for file in writer.written["documents"]]


def states(files: LakeFiles, found: Sequence[DataFile]) -> dict[str, tuple[object, ...]]:
    """Of each document what must be the same by both ways."""
    columns = [
        "document_id",
        "text",
        "content_hash",
        "version",
        "updates",
        "update_bytes",
        "complete",
        "last_at",
    ]
    tables = [parquet.read(files, "documents", file, columns) for file in found]
    rows = [row for table in tables for row in table.to_pylist()]
    assert len({row["document_id"] for row in rows}) == len(rows)
    return {row["document_id"]: tuple(map(str, row.values())) for row in rows}


class Folding:
    """One lake, replayed in both ways."""

    def __init__(self, lake: Lake, work: Path, made: list[History], documents: int) -> None:
        self.lake = lake
        self.work = work
        self.documents = documents
        self.texts = {f"document-{number:06d}": made[number % len(made)].text for number in range(documents)}
        self.updates = sum(len(made[number % len(made)].updates) for number in range(documents))
        self.states: dict[str, tuple[object, ...]] = {}
        self.cpu: dict[str, list[float]] = {"plain": [], "spark": [], "both": []}

    def plainly(self, pool: Executor) -> float:
        """Updates per second of the plain loop."""
        out = self.work / "plain"
        shutil.rmtree(out, ignore_errors=True)
        cpu, start = processes.cpu_seconds(), time.perf_counter()
        found = pool.submit(plain, self.lake.files.root, str(out)).result(_WAIT_SECONDS)
        spent = time.perf_counter() - start
        self.cpu["plain"].append(processes.cpu_seconds() - cpu)
        self._check(states(LakeFiles(str(out)), [DataFile.from_json(one) for one in found]))
        return self.updates / spent

    def by_spark(self, spark: "SparkSession", tables: Sequence[str] = ("documents",)) -> float:
        """Updates per second of `materialise`, from nothing."""
        for name in ("documents", "changes"):
            shutil.rmtree(self.lake.files.at(name), ignore_errors=True)
        cpu, start = processes.cpu_seconds(), time.perf_counter()
        done = materialise(spark, self.lake, tables=tables)
        spent = time.perf_counter() - start
        self.cpu["spark" if len(tables) == 1 else "both"].append(processes.cpu_seconds() - cpu)
        assert (done.documents, done.updates, done.incomplete) == (self.documents, self.updates, 0), done
        self._check(states(self.lake.files, self.lake.table("documents").list()))
        return self.updates / spent

    def _check(self, found: dict[str, tuple[object, ...]]) -> None:
        """The text is the one that was typed, and both ways found the same."""
        assert {document_id: state[1] for document_id, state in found.items()} == self.texts
        self.states = self.states or found
        assert found == self.states


def build(spark: "SparkSession", work: Path, made: list[History], documents: int, cores: int) -> Folding:
    """A lake of so many documents."""
    work.mkdir()
    journal = work / "journal"
    written = histories.write_journal(journal, histories.records_of(made, documents), partitions=cores)
    lake = Lake.open(str(work / "lake"), create=True)
    done = ingest(spark, lake, [str(journal)])
    assert done.updates == written
    shutil.rmtree(journal)
    return Folding(lake, work, made, documents)


def compare(spark: "SparkSession", folding: Folding, rounds: int) -> bool:
    """Measure both ways in turn, and print the comparison."""
    with ProcessPoolExecutor(1, get_context("forkserver")) as pool:
        measures = {"plain": partial(folding.plainly, pool), "spark": partial(folding.by_spark, spark)}
        turns = Turns(measures, rounds)
    wall = turns.ratio("spark", "plain")
    cpu = statistics.median(a / b for a, b in zip(folding.cpu["plain"], folding.cpu["spark"], strict=True))
    for name in measures:
        each = statistics.median(folding.cpu[name]) / folding.updates * 1e6
        got = turns.median(name) * each / 1e6
        print(
            f"    {name:8}{turns.median(name):12,.0f} updates/s {each:8.2f} us of CPU each, {got:.2f} cores"
        )
    print(
        f"    CPU   {cpu:.2f}x of the plain fold (goal {_CPU_GOAL}x) {verdict(cpu >= _CPU_GOAL)}\n"
        f"    wall  {wall:.2f}x of the plain fold ({turns.range('spark', 'plain')}) (goal {_WALL_GOAL}x)"
        f" {verdict(wall >= _WALL_GOAL)}"
    )
    print(
        f"    text, content hash, version and counts of {folding.documents:,} documents are the same by both"
    )
    return cpu >= _CPU_GOAL and wall >= _WALL_GOAL


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dir", default=None)
    parser.add_argument("--documents", type=int, default=8000)
    parser.add_argument("--updates", type=int, default=200, help="of a document")
    parser.add_argument("--payload", type=int, default=120, help="bytes of an update, about")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="a quick look: 1,600 documents")
    options = parser.parse_args()
    documents = 1600 if options.small else options.documents
    base = Path(tempfile.mkdtemp(prefix="pipeline-fold-", dir=options.dir or Path.cwd()))
    master = f"local[{options.cores}]"
    try:
        made = histories.many(min(_HISTORIES, documents), options.updates, options.payload)
        with open_session(master=master) as spark:  # another session folds: its workers are fresh
            few = build(spark, base / "few", made, documents // 4, options.cores)
            all_ = build(spark, base / "all", made, documents, options.cores)
        start = time.perf_counter()
        with open_session(master=master) as spark:
            spark.range(1).count()
            started = time.perf_counter() - start
            few.by_spark(spark)
            peak_few = processes.workers_peak_bytes()
            all_.by_spark(spark)
            peak_all = processes.workers_peak_bytes()
            print(
                f"{all_.updates:,} updates in {documents:,} documents, {master},"
                f" load {os.getloadavg()[0]:.1f}; the session took {started:.1f} s to start, not counted"
            )
            all_.cpu = {name: [] for name in all_.cpu}
            held = compare(spark, all_, options.rounds)
            rate = all_.by_spark(spark, ("documents", "changes"))
            print(f"    with the table `changes` as well: {rate:,.0f} updates/s, once")
        flat = peak_all <= _FLAT * peak_few
        print(
            f"    a worker held at most {peak_few >> 20} MiB with {documents // 4:,} documents,"
            f" {peak_all >> 20} MiB with {documents:,} (goal: flat, {_FLAT}x) {verdict(flat)}"
        )
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0 if held and flat else 1


if __name__ == "__main__":
    sys.exit(main())
