"""Append latency with rotations and without: p99 with them at most twice the other.

python bench/log_rotation.py [--dir DIR] [--seconds 3]
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
    parser.add_argument("--seconds", type=float, default=1.5, help="length of one turn; there are six")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="log-rotation-", dir=options.dir or Path.cwd()))
    calm: list[float] = []
    busy: list[float] = []
    rotated = 0
    try:
        for _ in range(3):
            calm += uvloop.run(load(base / "calm", 1 << 30, 64, options.seconds))[0]
            seen, rotations = uvloop.run(load(base / "busy", 2 << 20, 64, options.seconds))
            busy += seen
            rotated += rotations
    finally:
        shutil.rmtree(base, ignore_errors=True)
    calm.sort()
    busy.sort()
    for name, seen in (("without rotations", calm), (f"with {rotated} rotations", busy)):
        p50, p99, p999 = (seen[int(len(seen) * part)] * 1e3 for part in (0.5, 0.99, 0.999))
        times = f"p50 {p50:.2f} ms  p99 {p99:.2f} ms  p99.9 {p999:.2f} ms  max {seen[-1] * 1e3:.1f} ms"
        print(f"{name:<24} {times}  ({len(seen):,} appends)")
    ratio = busy[len(busy) * 99 // 100] / calm[len(calm) * 99 // 100]
    print(f"p99 with rotations: {ratio:.2f}x (goal at most 2x) {'ok' if ratio <= 2 else 'MISSED'}")
    return 0 if ratio <= 2 and rotated else 1


if __name__ == "__main__":
    sys.exit(main())
