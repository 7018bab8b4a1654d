"""`ingest` of a journal against reading it with lorogo_log and writing it with pyarrow, one process per core.

    python bench/pipeline_ingest.py [--dir DIR] [--bytes 1073741824] [--payload 250] [--rounds 3] [--cores 2]

Two plain ways are measured in the same rounds; neither sorts, buckets, finds repeated facts or commits:

    raw       Reader.arrow() and Parquet of what the log itself knows: sequence, time, key, value
    decoded   the same, with each record decoded into the columns of the table `updates`, by our own code

All three write zstd of one level, in row groups of one size, with dictionaries where values repeat. The
processes of the plain ways stay alive between rounds, as Spark's workers do; a round before is not counted.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import histories
import processes
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from turns import Turns, verdict

from lorogo_log import Reader
from lorogo_pipeline.decode.records import record_rows
from lorogo_pipeline.decode.segments import JournalFilter, SegmentReading, find_segments
from lorogo_pipeline.jobs.ingest import ingest
from lorogo_pipeline.spark.session import open_session
from lorogo_pipeline.tables.lake import Lake
from lorogo_pipeline.tables.table_rows import rows_of

_GROUP_BYTES = 8 << 20
_LEVEL = 1
_GOAL = 0.6
_UPDATES_OF_ONE = 200  # of a document
_DICTIONARY = [
    "key",
    "document_id",
    "epoch",
    "lease",
    "generation",
    "bytes",
    "changes",
    "ops",
    "source",
    "bucket",
]
_WAIT_SECONDS = 1800


def raw(folder: Path, out: Path) -> tuple[int, int]:
    """Records, and nothing to add up: identities are not known."""
    return _write(out, Reader.open(folder).arrow()), 0


def decoded(folder: Path, out: Path) -> tuple[int, int]:
    """Records, and the sum of their identities."""
    total = [0]
    return _write(out, _updates(folder, total)), total[0]


def _updates(folder: Path, total: list[int]) -> Iterator[pa.RecordBatch]:
    for facts in find_segments([str(folder)]):
        for records in record_rows(SegmentReading(facts).batches(), facts.log, JournalFilter()):
            rows = rows_of(records, 16)["updates"]
            total[0] = _wrapped(total[0] + _summed(rows["identity"]))
            yield rows


def _summed(identities: pa.Int64Array) -> int:
    return int(pc.sum(identities.view(pa.uint64())).as_py())


def _wrapped(number: int) -> int:
    return number & ((1 << 64) - 1)


def _write(out: Path, batches: Iterable[pa.RecordBatch]) -> int:
    """One Parquet file, a row group at a time."""
    out.unlink(missing_ok=True)
    writer: pq.ParquetWriter | None = None
    group: list[pa.RecordBatch] = []
    size = count = 0
    for batch in batches:
        if writer is None:
            writer = pq.ParquetWriter(
                out,
                batch.schema,
                compression="zstd",
                compression_level=_LEVEL,
                use_dictionary=_DICTIONARY,
                write_statistics=["time", "document_id", "accepted_at"],
            )
        group.append(batch)
        size += batch.nbytes
        count += batch.num_rows
        if size >= _GROUP_BYTES:
            writer.write_table(pa.Table.from_batches(group))
            group, size = [], 0
    if writer is not None:
        if group:
            writer.write_table(pa.Table.from_batches(group))
        writer.close()
    return count


def alone() -> None:
    """In a process of the plain ways: one core each, as a worker of Spark has."""
    pa.set_cpu_count(1)


class Ways:
    """The ways to read one journal, each measured and checked."""

    def __init__(self, journal: Path, work: Path, records: int, pool: Executor) -> None:
        self.partitions = sorted(path for path in journal.iterdir() if path.is_dir())
        self.journal = journal
        self.work = work
        self.records = records
        self.pool = pool
        self.size = sum(path.stat().st_size for path in journal.rglob("*.seg"))
        self.identities: set[int] = set()
        self.cpu: dict[str, list[float]] = {}

    def plainly(self, name: str, way: Callable[[Path, Path], tuple[int, int]]) -> float:
        """Bytes per second of a plain way, a partition for each process."""
        outs = [self.work / f"{name}-{part.name}.parquet" for part in self.partitions]
        cpu, start = processes.cpu_seconds(), time.perf_counter()
        found = list(self.pool.map(way, self.partitions, outs, timeout=_WAIT_SECONDS))
        spent = self._spent(name, cpu, start)
        assert sum(count for count, _ in found) == self.records
        if any(total for _, total in found):
            self.identities.add(_wrapped(sum(total for _, total in found)))
        return self.size / spent

    def by_spark(self, spark: object) -> float:
        """Bytes per second of `ingest` into a new lake."""
        shutil.rmtree(self.work / "lake", ignore_errors=True)
        lake = Lake.open(str(self.work / "lake"), create=True)
        cpu, start = processes.cpu_seconds(), time.perf_counter()
        done = ingest(spark, lake, [str(self.journal)])  # type: ignore[arg-type] # its module is heavy
        spent = self._spent("ingest", cpu, start)
        assert (done.records, done.updates, done.repeated, done.damage) == (self.records, self.records, 0, [])
        files = [lake.files.at(f"updates/{file.path}") for file in lake.table("updates").list()]
        columns = [pq.read_table(file, columns=["identity"])["identity"] for file in files]
        assert sum(len(column) for column in columns) == self.records
        total = sum(
            pc.sum(column.cast(pa.int64()).combine_chunks().view(pa.uint64())).as_py() for column in columns
        )
        self.identities.add(_wrapped(total))
        return self.size / spent

    def _spent(self, name: str, cpu: float, start: float) -> float:
        spent = time.perf_counter() - start
        self.cpu.setdefault(name, []).append(processes.cpu_seconds() - cpu)
        return spent


def show(ways: Ways, turns: Turns) -> bool:
    """Print what was measured; whether the goal was met against the harder of the two."""
    print(f"    {'':10}{'MB/s':>8}{'records/s':>13}{'CPU us/record':>15}")
    for name in ("raw", "decoded", "ingest"):
        rate, each = turns.median(name), statistics.median(ways.cpu[name]) / ways.records * 1e6
        print(f"    {name:10}{rate / 1e6:8.0f}{rate / ways.size * ways.records:13,.0f}{each:15.2f}")
    for against in ("raw", "decoded"):
        ratio = turns.ratio("ingest", against)
        cpu = statistics.median(a / b for a, b in zip(ways.cpu[against], ways.cpu["ingest"], strict=True))
        print(
            f"    ingest / {against:8} {ratio:5.2f}x in wall time ({turns.range('ingest', against)}),"
            f" {cpu:.2f}x in CPU time (goal {_GOAL}x) {verdict(ratio >= _GOAL)}"
        )
    assert len(ways.identities) == 1, "the tables do not hold the same facts"
    met = turns.ratio("ingest", "raw") >= _GOAL
    print(f"    {ways.records:,} rows and the sum of their identities are the same by every way")
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dir", default=None)
    parser.add_argument("--bytes", type=int, default=1 << 30, help="of the journal")
    parser.add_argument("--payload", type=int, default=250, help="bytes of an update, about")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="pipeline-ingest-", dir=options.dir or Path.cwd()))
    try:
        made = histories.many(min(400, max(20, options.bytes >> 19)), _UPDATES_OF_ONE, options.payload)
        sizes = sorted(len(update[0]) for one in made for update in one.updates)
        records = histories.write_journal(
            base / "journal",
            histories.records_of(made, 1 << 40),
            partitions=options.cores,
            bytes_max=options.bytes,
        )
        del made
        tenths = [sizes[len(sizes) * part // 100] for part in (10, 50, 90, 99)]
        print(f"updates of {tenths} bytes (10, 50, 90, 99 of 100), {sum(sizes) / len(sizes):.0f} on average")
        start = time.perf_counter()
        with (
            open_session(master=f"local[{options.cores}]") as spark,
            ProcessPoolExecutor(options.cores, get_context("forkserver"), alone) as pool,
        ):
            started = time.perf_counter() - start
            ways = Ways(base / "journal", base, records, pool)
            print(
                f"{ways.size / 2**20:,.0f} MiB of journal, {records:,} records, {options.cores} cores,"
                f" load {os.getloadavg()[0]:.1f}; the session took {started:.1f} s to start, not counted"
            )
            measures = {
                "raw": partial(ways.plainly, "raw", raw),
                "decoded": partial(ways.plainly, "decoded", decoded),
                "ingest": partial(ways.by_spark, spark),
            }
            Turns(measures, 1)
            ways.cpu.clear()
            held = show(ways, Turns(measures, options.rounds))
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
