"""Reading: verify-only, records, Arrow, one key, lookups, and opening a large log.

    python bench/log_read.py [--dir DIR] [--mib 1024] [--rounds 7]

Each is compared with a plain read of the same files, in the same run, from the page cache: medians of turns.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from turns import Turns, verdict

from lorogo_log import BlockingLog, LogOptions, Reader, Sync
from lorogo_log.recovery import sealed_segments
from lorogo_log.storage import disk
from lorogo_log.storage.disk import DiskFile

RECORD = 256


def build(folder: Path, mib: int, batch: int) -> int:
    """A log of so many MiB; how many records it has."""
    items = [(b"doc-%d" % (number % 97), os.urandom(RECORD)) for number in range(batch)]
    count = 0
    with BlockingLog(folder, LogOptions(sync=Sync.os())) as log:
        while log.stats().end_offset < mib << 20:
            log.append_many(items)
            count += batch
    return count


def plain(folder: Path) -> float:
    """Bytes per second of reading the files with a buffer that stays."""
    size = 0
    start = time.perf_counter()
    buffer = bytearray(1 << 20)
    for path in sorted(folder.glob("*.seg")):
        with path.open("rb", buffering=0) as file:
            while got := file.readinto(buffer):
                size += got
    return size / (time.perf_counter() - start)


def verify(folder: Path, expected: int) -> float:
    """Bytes per second of reading and checking every frame."""
    size = count = 0
    start = time.perf_counter()
    for batch in Reader.open(folder).read():
        size += batch.header.frame_bytes
        count += batch.header.count
    spent = time.perf_counter() - start
    assert count == expected
    return size / spent


def scrub(folder: Path, expected: int) -> float:
    """Bytes per second of `scrub`: every frame, its columns, the trailer and the whole file's hash."""
    start = time.perf_counter()
    reports = list(sealed_segments.scrub(Reader.open(folder).directory))
    spent = time.perf_counter() - start
    assert sum(report.records for report in reports) == expected and not any(r.damage for r in reports)
    return sum(report.bytes for report in reports) / spent


def joined(folder: Path, expected: int) -> float:
    """Records per second into Arrow, small frames joined."""
    start = time.perf_counter()
    count = 0
    for batch in Reader.open(folder).arrow():
        count += batch.num_rows
    spent = time.perf_counter() - start
    assert count == expected
    return count / spent


def arrow(folder: Path, expected: int) -> float:
    """Records per second into Arrow, frame by frame."""
    count = 0
    start = time.perf_counter()
    for batch in Reader.open(folder).read():
        count += batch.to_arrow().num_rows
    spent = time.perf_counter() - start
    assert count == expected
    return count / spent


def records(folder: Path) -> float:
    """Records per second as Python objects (the first 200,000)."""
    count = 0
    start = time.perf_counter()
    for batch in Reader.open(folder).read():
        count += sum(1 for _ in batch.records())
        if count >= 200_000:
            break
    return count / (time.perf_counter() - start)


class Counting(DiskFile):
    """Counts the bytes read."""

    total = 0

    def pread(self, size: int, offset: int) -> bytes:
        data = super().pread(size, offset)
        Counting.total += len(data)
        return data


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default=None)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="log-read-", dir=options.dir or Path.cwd()))
    held = True
    try:
        for batch in (1000, 64):
            folder = base / f"log-{batch}"
            count = build(folder, options.mib if batch == 1000 else options.mib // 4, batch)
            plain(folder)
            turns = Turns(
                {
                    "plain": partial(plain, folder),
                    "verify": partial(verify, folder, count),
                    "scrub": partial(scrub, folder, count),
                    "arrow": partial(joined, folder, count),
                    "to_arrow": partial(arrow, folder, count),
                },
                options.rounds,
            )
            checked, share = turns.median("verify"), turns.ratio("verify", "plain")
            ok = checked >= 3e9 or share >= 0.6
            rate = turns.median("arrow")
            held &= ok and rate >= 5e6
            print(f"frames of {batch} records, {count:,} in all")
            print(f"    plain read             {turns.median('plain') / 1e9:8.2f} GB/s")
            print(
                f"    verify only            {checked / 1e9:8.2f} GB/s   {share:.2f}x of plain"
                f" (goal 3 GB/s or 0.60x) {verdict(ok)}"
            )
            print(f"    scrub                  {turns.median('scrub') / 1e9:8.2f} GB/s  (also hashes files)")
            print(f"    arrow()                {rate / 1e6:8.2f} M records/s (goal 5) {verdict(rate >= 5e6)}")
            print(f"    to_arrow(), per frame  {turns.median('to_arrow') / 1e6:8.2f} M records/s")
            print(f"    records()              {records(folder) / 1e6:8.2f} M records/s")
        folder = base / "log-1000"
        reader = Reader.open(folder)
        start = time.perf_counter()
        found = sum(len(part) for part in reader.read(key=b"doc-7"))
        print(f"one key of 97: {found:,} records in {(time.perf_counter() - start) * 1e3:.0f} ms")
        start = time.perf_counter()
        for number in range(500):
            reader.lookup(1 + number * 7919 % reader.segments()[-1].first_sequence)
        print(f"lookup: {(time.perf_counter() - start) / 500 * 1e6:.0f} us each")
        original = disk.DiskFile
        disk.DiskFile = Counting  # type: ignore[misc]
        start = time.perf_counter()
        log = BlockingLog(folder)
        spent = time.perf_counter() - start
        disk.DiskFile = original  # type: ignore[misc]
        total = sum(info.bytes for info in log.segments())
        tail_only = Counting.total < 1 << 20
        held &= tail_only
        print(
            f"open {total / 2**30:.2f} GiB: {spent * 1e3:.1f} ms, {Counting.total:,} bytes read"
            f" (goal: below 1 MiB) {verdict(tail_only)}"
        )
        log.close()
        newest = max(folder.glob("*.seg"))
        os.truncate(newest, newest.stat().st_size - 1)  # as after a crash: no footer, so it is scanned
        size = newest.stat().st_size
        start = time.perf_counter()
        log = BlockingLog(folder)
        spent = time.perf_counter() - start
        print(f"open after a crash: {spent * 1e3:.0f} ms (scans the newest segment, {size / 2**20:.0f} MiB)")
        log.close()
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
