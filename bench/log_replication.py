"""Replication between processes: replicas catch up while appends go on; a corrupt segment is repaired.

    python bench/log_replication.py [--mib 1024] [--dir DIR] [--seconds 300]

Prints how fast, and compares every segment's hash at the end. Exits with 1 if anything differs.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import uvloop

from lorogo_log import Log, LogOptions
from lorogo_log.replication.coordinator import Coordinator
from lorogo_log.replication.replica import LogReplica
from lorogo_log.replication.replica_repair import Repairer

MIB = 1 << 20
RECORD = 1024
BATCH = [(b"doc-%d" % (number % 64), os.urandom(RECORD)) for number in range(1000)]


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every segment's file."""
    result = {}
    for file in sorted(folder.glob("*.seg")):
        with file.open("rb") as opened:
            result[file.name] = hashlib.file_digest(opened, "sha256").hexdigest()
    return result


async def replica(folder: Path, port: int, segment_bytes: int) -> None:
    """Run a replica: print its stats for each input line, and exit when its input ends."""
    async with LogReplica(
        folder, ("127.0.0.1", port), name=folder.name, options=LogOptions(segment_bytes=segment_bytes)
    ) as copy:
        sys.stdout.write(json.dumps({"port": copy.address[1]}) + "\n")
        sys.stdout.flush()
        loop = asyncio.get_running_loop()
        while (line := await loop.run_in_executor(None, sys.stdin.readline)) != "":
            if line.strip() == "stats":
                stats = copy.stats()
                keys = (
                    "sequence",
                    "fetched_bytes",
                    "streamed_bytes",
                    "rounds",
                    "drops",
                    "sessions",
                    "caught_up",
                )
                sys.stdout.write(json.dumps({key: getattr(stats, key) for key in keys}) + "\n")
                sys.stdout.flush()


class Child:
    """A replica in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, folder: Path, port: int, segment_bytes: int) -> "Child":
        """Started, with its log open."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            "--replica",
            str(folder),
            "--port",
            str(port),
            "--segment",
            str(segment_bytes),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        child = cls(process)
        await child._line()
        return child

    async def _line(self) -> dict[str, int]:
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            line: dict[str, int] = json.loads(await self._process.stdout.readline())
        return line

    async def stats(self) -> dict[str, int]:
        """Its numbers."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"stats\n")
        return await self._line()

    async def stop(self) -> None:
        """Ended, its log closed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(60):
            await self._process.wait()


async def appends(log: Log, stop: asyncio.Event, rate_mib: float, latencies: list[float]) -> int:
    """Append batches at about this rate until stopped; return the last sequence."""
    last = 0
    pause = len(BATCH) * RECORD / MIB / rate_mib
    due = time.perf_counter()
    while not stop.is_set():
        before = time.perf_counter()
        last = (await log.append_many(BATCH))[-1]
        latencies.append(time.perf_counter() - before)
        due = max(due + pause, before)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
    return last


def quantile(values: list[float], share: float) -> float:
    """In milliseconds."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1000


async def drill(base: Path, mib: int, seconds: float, rate_mib: float) -> bool:
    """Run both scenarios in one directory."""
    segment_bytes = max(4 * MIB, min(128 * MIB, mib * MIB // 8))
    repairer = Repairer()
    log = Log.open(
        base / "log", segment_bytes=segment_bytes, on_damage=repairer.damaged, forward=repairer.forward
    )
    children: list[Child] = []
    async with log, Coordinator(log, repairer=repairer) as coordinator:
        print(f"writing {mib} MiB in segments of {segment_bytes // MIB} MiB ...")
        start = time.perf_counter()
        for _ in range(mib * MIB // (len(BATCH) * RECORD)):
            last = (await log.append_many(BATCH))[-1]
        print(f"  {mib / (time.perf_counter() - start):.0f} MiB/s alone")
        alone: list[float] = []
        stop = asyncio.Event()
        task = asyncio.create_task(appends(log, stop, rate_mib, alone))
        await asyncio.sleep(2)
        stop.set()
        await task

        behind = log.stats().end_offset
        stop = asyncio.Event()
        latencies: list[float] = []
        task = asyncio.create_task(appends(log, stop, rate_mib, latencies))
        start = time.perf_counter()
        children = [
            await Child.start(base / name, coordinator.address[1], segment_bytes) for name in ("one", "two")
        ]
        target = log.stats().durable_sequence
        await coordinator.replicated(target, count=2, timeout=seconds)
        while not all(info.caught_up for info in coordinator.replicas()) or len(coordinator.replicas()) < 2:
            if time.perf_counter() - start > seconds:
                raise TimeoutError("the replicas have not caught up")
            await asyncio.sleep(0.01)
        spent = time.perf_counter() - start
        meanwhile = log.stats().end_offset - behind
        await asyncio.sleep(2)  # and stay caught up
        waits: list[float] = []
        for _ in range(50):
            before = time.perf_counter()
            await coordinator.replicated(await log.append(b"x" * 256), count=2, timeout=30)
            waits.append(time.perf_counter() - before)
        stop.set()
        last = await task
        last = log.stats().durable_sequence
        await coordinator.replicated(last, count=2, timeout=60)
        print(
            f"two replicas caught up from {behind / MIB:.0f} MiB behind in {spent:.2f} s "
            f"({2 * behind / MIB / spent:.0f} MiB/s over both), {meanwhile / MIB:.0f} MiB appended meanwhile"
        )
        print(
            f"  append_many of {len(BATCH)}: p50 {quantile(latencies, 0.5):.1f} ms, "
            f"p99 {quantile(latencies, 0.99):.1f} ms during; "
            f"p50 {quantile(alone, 0.5):.1f} ms, p99 {quantile(alone, 0.99):.1f} ms without replicas"
        )
        print(
            f"  append + on both replicas' disks, under that load: p50 {quantile(waits, 0.5):.1f} ms, "
            f"p99 {quantile(waits, 0.99):.1f} ms"
        )
        for name, child in zip(("one", "two"), children, strict=True):
            print(f"  {name}: {await child.stats()}")

        repaired = await repair(base, log, repairer)
        await log.rotate()
        await log.append(0)
        last = log.stats().durable_sequence
        await coordinator.replicated(last, count=2, timeout=60)
        for child in children:
            await child.stop()
    found = [hashes(base / name) for name in ("log", "one", "two")]
    equal = found[0] == found[1] == found[2]
    print(f"hashes of {len(found[0])} segments equal on all three: {equal}")
    return equal and repaired


async def repair(base: Path, log: Log, repairer: Repairer) -> bool:
    """Flip one bit in a sealed segment, keep reading, and wait for the repair."""
    segment = [one for one in log.segments() if one.sealed][1]
    path = base / "log" / segment.name
    good = path.read_bytes()
    at = len(good) // 2
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([good[at] ^ 1]))
    assert segment.last_sequence is not None
    rng = random.Random(1)
    reads = failed = inside = 0
    slowest = 0.0

    def look(sequence: int) -> None:
        nonlocal reads, failed, slowest
        before = time.perf_counter()
        try:
            if log.lookup(sequence).sequence != sequence:
                failed += 1
        except Exception as error:  # noqa: BLE001 - counted, and the drill fails
            print(f"  read of {sequence}: {error}")
            failed += 1
        slowest = max(slowest, time.perf_counter() - before)
        reads += 1

    start = time.perf_counter()
    deadline = start + 60
    middle = (segment.first_sequence + segment.last_sequence) // 2
    while not repairer.repaired and time.perf_counter() < deadline:
        # the flipped bit is near the middle: all of that frame's records cannot be read here
        sequence = rng.choice(
            [rng.randrange(1, log.stats().durable_sequence), middle + rng.randrange(-1500, 1500)]
        )
        inside += segment.first_sequence <= sequence <= segment.last_sequence
        await asyncio.to_thread(look, sequence)
    spent = time.perf_counter() - start
    whole = path.read_bytes() == good
    kept = repairer.repaired[0].broken if repairer.repaired else None
    reports = [report for report in await log.scrub() if report.damage]
    print(
        f"a corrupt segment of {len(good) / MIB:.0f} MiB repaired from a replica "
        f"{spent:.2f} s after the first read "
        f"(the fetch {repairer.repaired[0].seconds if repairer.repaired else 0:.2f} s)"
    )
    print(
        f"  {reads} reads meanwhile ({inside} of that segment), {failed} failed, "
        f"{repairer.forwarded} forwarded, slowest {slowest * 1000:.1f} ms; byte for byte again: {whole}; "
        f"scrub finds {len(reports)}; kept: {kept}"
    )
    return whole and not failed and not reports and repairer.forwarded > 0


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--rate", type=float, default=20.0, help="MiB/s appended while they catch up")
    parser.add_argument("--replica", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--segment", type=int)
    options = parser.parse_args()
    if options.replica is not None:
        uvloop.run(replica(options.replica, options.port, options.segment))
        return 0
    base = Path(tempfile.mkdtemp(prefix="log-replication-", dir=options.dir))
    try:
        return 0 if uvloop.run(drill(base, options.mib, options.seconds, options.rate)) else 1
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    sys.exit(main())
