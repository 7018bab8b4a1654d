"""Durable appends against a bare write + fdatasync, sqlite3, lmdb and persist-queue on the same disk.

    python bench/log_append.py [--dir DIR] [--seconds 0.3] [--rounds 7]

Each figure is the median of short turns, taken in turn with what it is compared to; each ratio the median of
the rounds' ratios. Every log is read back and counted.
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
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import uvloop
from turns import Turns, peer, verdict

from lorogo_log import BlockingLog, Log, Reader

RECORD = 256
VALUE = os.urandom(RECORD)


def raw(folder: Path, size: int, seconds: float) -> float:
    """Return writes with fdatasync per second, one after another, into a new file."""
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
    """Read the log back, and check that it has every record once."""
    seen = sum(len(batch) for batch in Reader.open(folder).read())
    assert seen == expected, f"{seen} of {expected} records came back"


async def singles(folder: Path, tasks: int, seconds: float) -> tuple[float, list[float]]:
    """Return durable appends per second with several tasks, and each append's latency."""
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
    """Return records per second with append_many (append for one record) of the async API."""
    items = [(b"doc-%d" % (number % 64), VALUE) for number in range(size)]
    count = 0
    async with Log.open(folder) as log:
        start = time.perf_counter()
        end = start + seconds

        async def one() -> None:
            nonlocal count
            while time.perf_counter() < end:
                if size == 1:
                    await log.append(VALUE, key=b"doc")
                else:
                    await log.append_many(items)
                count += size

        await asyncio.gather(*(one() for _ in range(in_flight)))
        rate = count / (time.perf_counter() - start)
    checked(folder, count)
    return rate


def blocking(folder: Path, batch: int, seconds: float) -> float:
    """Return records per second from one thread that waits for each append, like the peers below."""
    items = [(b"doc", VALUE)] * batch
    count = 0
    with BlockingLog(folder) as log:
        start = time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds:
            if batch == 1:
                log.append(VALUE, key=b"doc")
            else:
                log.append_many(items)
            count += batch
    checked(folder, count)
    return count / spent


def sqlite(folder: Path, batch: int, seconds: float) -> float:
    """Return rows per second in WAL mode with synchronous=FULL, with `batch` rows per commit."""
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
    return count / spent


def lmdb_rate(lmdb: Any, folder: Path, batch: int, seconds: float) -> float:
    """Return puts per second, with `batch` puts per synced transaction."""
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
    return count / spent


def persist_rate(persistqueue: Any, folder: Path, batch: int, seconds: float) -> float:
    """Return puts per second into persist-queue's file queue.

    It has no batch, and it promises less: a rename for each put, but a sync only for each hundredth.
    """
    queue = persistqueue.Queue(str(folder), autosave=False)
    count = 0
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        for _ in range(batch):
            queue.put(VALUE)
            count += 1
    assert queue.qsize() == count
    return count / spent


def report(name: str, turns: Turns, against: str, goal: float, what: str) -> bool:
    """Print a line with the ratio and the goal; return whether it was met."""
    ratio = turns.ratio(name, against)
    print(
        f"{name:<44}{turns.median(name):>12,.0f}/s{ratio:>9.2f}x {what}"
        f" (goal {goal:g}x, rounds {turns.range(name, against)}) {verdict(ratio >= goal)}"
    )
    return ratio >= goal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default=None, help="a folder on the disk to measure")
    parser.add_argument("--seconds", type=float, default=0.3, help="length of one turn")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="log-append-", dir=options.dir or Path.cwd()))
    seconds, rounds = options.seconds, options.rounds
    numbers = iter(range(1 << 30))

    def folder() -> Path:
        return base / str(next(numbers))

    def emptied() -> None:
        for path in base.iterdir():
            shutil.rmtree(path)

    def measured(measure: Callable[[Path, int, float], float], batch: int) -> float:
        return measure(folder(), batch, seconds)

    def append_async(batch: int, in_flight: int) -> float:
        return uvloop.run(batches(folder(), batch, in_flight, seconds))

    latencies: list[float] = []

    def group() -> float:
        rate, seen = uvloop.run(singles(folder(), 64, seconds))
        latencies.extend(seen)
        return rate

    try:
        one, many = "write + fdatasync, 256 B, one by one", "append, 64 in flight, group commit"
        turns = Turns({one: lambda: raw(base, RECORD, seconds), many: group}, rounds)
        print(f"{one:<44}{turns.median(one):>12,.0f}/s")
        held = report(many, turns, one, 10, "of one by one")
        ranked = sorted(latencies)
        p50, p99 = statistics.median(ranked), ranked[len(ranked) * 99 // 100]
        print(f"    latency p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms")
        emptied()

        size = 1000 * RECORD
        whole = f"write + fdatasync, {size:,} B"
        alone, piped = "append_many of 1,000, one in flight", "append_many of 1,000, four in flight"
        direct = "append_many of 1,000, one thread"
        turns = Turns(
            {
                whole: lambda: raw(base, size, seconds) * 1000,
                alone: partial(append_async, 1000, 1),
                piped: partial(append_async, 1000, 4),
                direct: partial(measured, blocking, 1000),
            },
            rounds,
        )
        print(f"{whole:<44}{turns.median(whole):>12,.0f}/s  ({turns.median(whole) * RECORD / 1e6:,.0f} MB/s)")
        for name in (alone, piped, direct):
            held &= report(name, turns, whole, 0.5, "of raw")
        emptied()

        peers: dict[str, Callable[[Path, int, float], float]] = {"sqlite3 WAL/FULL": sqlite}
        if (lmdb := peer("lmdb")) is not None:
            peers["lmdb"] = partial(lmdb_rate, lmdb)
        if (persistqueue := peer("persistqueue")) is not None:
            peers["persist-queue (syncs 1 in 100)"] = partial(persist_rate, persistqueue)
        apis = ("BlockingLog, one thread", "Log, one in flight")
        for batch in (1, 64, 1000):
            turns = Turns(
                {
                    apis[0]: partial(measured, blocking, batch),
                    apis[1]: partial(append_async, batch, 1),
                    **{name: partial(measured, rate, batch) for name, rate in peers.items()},
                },
                rounds,
            )
            print(
                f"{batch} per commit: " + ", ".join(f"{name} {turns.median(name):,.0f}/s" for name in peers)
            )
            for name in apis:
                ours = {other: turns.ratio(name, other) for other in peers}
                print(f"    {name:<26}{turns.median(name):>12,.0f}/s ", end="")
                parts = (
                    f"{ratio:.2f}x {other} {'ok' if ratio > 1 else 'BEHIND'}" for other, ratio in ours.items()
                )
                print("   ".join(parts), "(goal: above 1x)")
                held &= all(ratio > 1 for ratio in ours.values())
            emptied()
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
