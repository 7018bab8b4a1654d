"""Durable appends against a bare write + fdatasync, sqlite3, lmdb and persist-queue on the same disk.

    python bench/log_append.py [--dir DIR] [--seconds 2]

Each figure is the best of three short turns, taken in turn with what it is compared to. Every log is read
back and counted.
"""

import argparse
import asyncio
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import lmdb
import uvloop
from persistqueue import Queue

from lorogo_log import BlockingLog, Log, Reader

RECORD = 256
VALUE = os.urandom(RECORD)


def raw(folder: Path, size: int, seconds: float) -> float:
    """Writes + fdatasyncs per second, one after another, into a new file."""
    path = folder / "raw"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    data = os.urandom(size)
    count = 0
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        os.pwrite(fd, data, count * size)
        os.fdatasync(fd)
        count += 1
    os.close(fd)
    path.unlink()
    return count / spent


def checked(folder: Path, expected: int) -> None:
    """Read the log back: every record is there once."""
    seen = sum(len(batch) for batch in Reader.open(folder).read())
    assert seen == expected, f"{seen} of {expected} records came back"
    shutil.rmtree(folder)


async def singles(folder: Path, tasks: int, seconds: float) -> tuple[float, list[float]]:
    """Durable appends per second with so many tasks, and each append's latency."""
    latencies: list[float] = []
    async with Log.open(folder) as log:
        end = time.perf_counter() + seconds

        async def one(number: int) -> None:
            key = b"doc-%d" % number
            while (before := time.perf_counter()) < end:
                await log.append(VALUE, key=key)
                latencies.append(time.perf_counter() - before)

        start = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(tasks)))
        rate = len(latencies) / (time.perf_counter() - start)
    checked(folder, len(latencies))
    return rate, latencies


async def batches(folder: Path, size: int, in_flight: int, seconds: float) -> float:
    """Records per second with append_many."""
    items = [(b"doc-%d" % (number % 64), VALUE) for number in range(size)]
    count = 0
    async with Log.open(folder) as log:
        start = time.perf_counter()
        end = start + seconds

        async def one() -> None:
            nonlocal count
            while time.perf_counter() < end:
                await log.append_many(items)
                count += size

        await asyncio.gather(*(one() for _ in range(in_flight)))
        rate = count / (time.perf_counter() - start)
    checked(folder, count)
    return rate


def blocking(folder: Path, batch: int, seconds: float) -> float:
    """Records per second from one thread that waits for each append, as the peers below do."""
    items = [(b"doc", VALUE)] * batch
    count = 0
    with BlockingLog(folder) as log:
        start = time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds:
            log.append_many(items)
            count += batch
    checked(folder, count)
    return count / spent


def sqlite(folder: Path, batch: int, seconds: float) -> float:
    """Rows per second in WAL mode with synchronous=FULL, so many rows per commit."""
    folder.mkdir()
    db = sqlite3.connect(folder / "db", isolation_level=None)
    db.execute("pragma journal_mode=wal")
    db.execute("pragma synchronous=full")
    db.execute("create table log (sequence integer primary key, time integer, key blob, value blob)")
    count = 0
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        db.execute("begin")
        rows = [(time.time_ns(), b"doc", VALUE) for _ in range(batch)]
        db.executemany("insert into log (time, key, value) values (?, ?, ?)", rows)
        db.execute("commit")
        count += batch
    assert db.execute("select count(*) from log").fetchone()[0] == count
    db.close()
    shutil.rmtree(folder)
    return count / spent


def lmdb_rate(folder: Path, batch: int, seconds: float) -> float:
    """Puts per second, so many per transaction, each transaction synced."""
    folder.mkdir()
    with lmdb.open(str(folder), map_size=4 << 30) as db:
        count = 0
        start = time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds:
            with db.begin(write=True) as change:
                for _ in range(batch):
                    change.put(count.to_bytes(8, "big"), VALUE, append=True)
                    count += 1
        assert db.stat()["entries"] == count
    shutil.rmtree(folder)
    return count / spent


def persist_rate(folder: Path, batch: int, seconds: float) -> float:
    """Puts per second into persist-queue's file queue (it has no batch; it syncs each put)."""
    queue = Queue(str(folder), autosave=False)
    count = 0
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        for _ in range(batch):
            queue.put(VALUE)
            count += 1
    assert queue.qsize() == count
    shutil.rmtree(folder)
    return count / spent


def best(turns: int, *measures: Callable[[], float]) -> list[float]:
    """The best of so many turns of each measure, taken in turn."""
    results: list[list[float]] = [[] for _ in measures]
    for _ in range(turns):
        for place, measure in enumerate(measures):
            results[place].append(measure())
    return [max(result) for result in results]


def say(name: str, value: float, against: float, goal: float, what: str) -> bool:
    ratio = value / against
    held = ratio >= goal
    print(f"{name:<44}{value:>12,.0f}/s{ratio:>9.2f}x {what} (goal {goal:g}x) {'ok' if held else 'MISSED'}")
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default=None, help="a folder on the disk to measure")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one turn")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="log-append-", dir=options.dir or Path.cwd()))
    seconds = options.seconds
    held = True
    numbers = iter(range(1 << 30))

    def folder() -> Path:
        return base / str(next(numbers))

    def measured(measure: Callable[[Path, int, float], float], batch: int) -> float:
        return measure(folder(), batch, seconds)

    try:
        latencies: list[float] = []

        def single_turn() -> float:
            rate, seen = uvloop.run(singles(folder(), 64, seconds))
            latencies.extend(seen)
            return rate

        one, group = best(3, lambda: raw(base, RECORD, seconds), single_turn)
        print(f"{'write + fdatasync, 256 B, one by one':<44}{one:>12,.0f}/s")
        held &= say("append, 64 in flight, group commit", group, one, 10, "of one by one")
        ranked = sorted(latencies)
        p50, p99 = statistics.median(ranked), ranked[len(ranked) * 99 // 100]
        print(f"    latency p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms")

        size = 1000 * RECORD
        whole, many, piped = best(
            3,
            lambda: raw(base, size, seconds) * 1000,
            lambda: uvloop.run(batches(folder(), 1000, 1, seconds)),
            lambda: uvloop.run(batches(folder(), 1000, 4, seconds)),
        )
        print(f"{'write + fdatasync, 256,000 B':<44}{whole:>12,.0f}/s  ({whole * RECORD / 1e6:,.0f} MB/s)")
        held &= say("append_many of 1,000, one in flight", many, whole, 0.5, "of raw")
        held &= say("append_many of 1,000, four in flight", piped, whole, 0.5, "of raw")

        for batch in (1, 64, 1000):
            ours, *others = best(
                3,
                partial(measured, blocking, batch),
                partial(measured, sqlite, batch),
                partial(measured, lmdb_rate, batch),
                partial(measured, persist_rate, batch),
            )
            print(f"{f'append_many of {batch}, one thread':<44}{ours:>12,.0f}/s")
            for name, other in zip(("sqlite3 WAL/FULL", "lmdb", "persist-queue"), others, strict=True):
                print(f"    {name:<40}{other:>12,.0f}/s", end="")
                ahead = ours > other
                held &= ahead
                print(f"{ours / other:>9.2f}x {'ok' if ahead else 'BEHIND'}")
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
