"""`lorogo pipeline report` on a small archive, from cold: a new process each time, with everything it starts.

    python bench/pipeline_report.py [--dir DIR] [--documents 50] [--updates 200] [--rounds 3]

Measured without and with an archive of Java's classes (`python -m lorogo_pipeline.spark.class_archive`), in a
separate cache. The cost of the session's start is the one that the command reports; Python and its imports
come before that. CPU seconds are of all its processes: on a machine with other load they mean more than wall
time.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import histories
from turns import verdict

_ROOT = Path(__file__).parents[1]
_GOAL_SECONDS = 15.0
_WAIT_SECONDS = 300


def report(journal: Path, out: Path, updates: int, cache: Path) -> tuple[float, float, float]:
    """Seconds of the whole command, of Spark's start-up in it, and of CPU."""
    out.unlink(missing_ok=True)
    before, start = _cpu_seconds(), time.perf_counter()
    said = json.loads(
        _run(
            cache, "lorogo_cli", "pipeline", "report", "--journal", str(journal), "--out", str(out), "--json"
        )
    )
    spent, cpu = time.perf_counter() - start, _cpu_seconds() - before
    assert out.read_text(encoding="utf-8").rstrip().endswith("</html>"), "no whole page"
    assert said["totals"]["updates"] == updates
    return spent, float(said["start_up_seconds"]), cpu


def _run(cache: Path, *command: str) -> bytes:
    return subprocess.run(
        [sys.executable, "-m", *command],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(_ROOT), "XDG_CACHE_HOME": str(cache)},
        timeout=_WAIT_SECONDS,
    ).stdout


def _cpu_seconds() -> float:
    """Of every process that has ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dir", default=None)
    parser.add_argument("--documents", type=int, default=50)
    parser.add_argument("--updates", type=int, default=200, help="of a document")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="pipeline-report-", dir=options.dir or Path.cwd()))
    try:
        made = histories.many(min(50, options.documents), options.updates, 120)
        found = histories.records_of(made, options.documents)
        updates = histories.write_journal(base / "journal", found, partitions=2)
        (base / "cache").mkdir(mode=0o700)
        print(f"{updates:,} updates in {options.documents:,} documents")
        held = True
        for how in ("as installed", "with an archive of Java's classes"):
            if how != "as installed":
                _run(base / "cache", "lorogo_pipeline.spark.class_archive")
            load = os.getloadavg()[0]
            seen = [
                report(base / "journal", base / "report.html", updates, base / "cache")
                for _ in range(options.rounds)
            ]
            spent, started, cpu = (statistics.median(column) for column in zip(*seen, strict=True))
            held &= spent < _GOAL_SECONDS
            print(
                f"    {how}: {spent:.1f} s from cold (goal: below {_GOAL_SECONDS:.0f} s)"
                f" {verdict(spent < _GOAL_SECONDS)}, of which Spark's start-up takes {started:.1f} s;"
                f" {cpu:.1f} s of CPU; the load was {load:.1f}"
            )
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
