"""Append latency with rotations and without: p99 with them at most twice the other.

    python bench/log_rotation.py [--dir DIR] [--seconds 1] [--rounds 7]

The two are measured in turn; the ratio is the median of the rounds' ratios.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import uvloop
from turns import Turns, verdict

from lorogo_log import Log, Reader

VALUE = b"x" * 256


async def load(folder: Path, segment_bytes: int, tasks: int, seconds: float) -> tuple[list[float], int]:
    """Latencies of appends from so many tasks, and how many rotations there were."""
    latencies: list[float] = []
    async with Log.open(folder, segment_bytes=segment_bytes) as log:
        end = time.perf_counter() + seconds

        async def one(number: int) -> None:
            key = b"doc-%d" % number
            while (before := time.perf_counter()) < end:
                await log.append(VALUE, key=key)
                latencies.append(time.perf_counter() - before)

        await asyncio.gather(*(one(number) for number in range(tasks)))
        rotations = log.stats().rotations
    assert sum(len(batch) for batch in Reader.open(folder).read()) == len(latencies)
    shutil.rmtree(folder)
    return sorted(latencies), rotations


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default=None)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one turn")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="log-rotation-", dir=options.dir or Path.cwd()))
    calm: list[float] = []
    busy: list[float] = []
    rotated = 0

    def turn(name: str, segment_bytes: int, all_seen: list[float]) -> float:
        nonlocal rotated
        seen, rotations = uvloop.run(load(base / name, segment_bytes, 64, options.seconds))
        all_seen += seen
        rotated += rotations
        return seen[len(seen) * 99 // 100]

    try:
        turns = Turns(
            {
                "calm": lambda: turn("calm", 1 << 30, calm),
                "busy": lambda: turn("busy", 2 << 20, busy),
            },
            options.rounds,
        )
    finally:
        shutil.rmtree(base, ignore_errors=True)
    calm.sort()
    busy.sort()
    for name, seen in (("without rotations", calm), (f"with {rotated} rotations", busy)):
        p50, p99, p999 = (seen[int(len(seen) * part)] * 1e3 for part in (0.5, 0.99, 0.999))
        times = f"p50 {p50:.2f} ms  p99 {p99:.2f} ms  p99.9 {p999:.2f} ms  max {seen[-1] * 1e3:.1f} ms"
        print(f"{name:<24} {times}  ({len(seen):,} appends)")
    ratio = turns.ratio("busy", "calm")
    spread = turns.range("busy", "calm")
    print(f"p99 with rotations: {ratio:.2f}x (goal at most 2x, rounds {spread}) {verdict(ratio <= 2)}")
    return 0 if ratio <= 2 and rotated else 1


if __name__ == "__main__":
    sys.exit(main())
