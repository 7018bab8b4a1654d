"""`lorogo pipeline report` on a small archive, from cold: a new process each time, with everything it starts.

    python bench/pipeline_report.py [--dir DIR] [--documents 50] [--updates 200] [--rounds 3]

What the session's start costs is what the command itself says (`start_up_seconds`); Python and its imports
come before that. The first run on a machine also makes the archive of Java's classes, if there is none.
"""

import argparse
import json
import os
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


def report(journal: Path, out: Path, updates: int) -> tuple[float, float, float]:
    """Seconds of the whole command, of its own work, and of Spark's start-up."""
    out.unlink(missing_ok=True)
    command = [sys.executable, "-m", "lorogo_cli", "pipeline", "report"]
    start = time.perf_counter()
    done = subprocess.run(
        [*command, "--journal", str(journal), "--out", str(out), "--json"],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        timeout=_WAIT_SECONDS,
    )
    spent = time.perf_counter() - start
    said = json.loads(done.stdout)
    page = out.read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>"), "no whole page"
    print(said)
    return spent, float(said["seconds"]), float(said["start_up_seconds"])


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
        print(f"{updates:,} updates in {options.documents:,} documents, load {os.getloadavg()[0]:.1f}")
        seen = []
        for number in range(1, options.rounds + 1):
            seen.append(report(base / "journal", base / "report.html", updates))
            spent, own, started = seen[-1]
            print(
                f"    run {number}: {spent:5.1f} s, of which {started:.1f} s start-up, {own - started:.1f} s work"
            )
        spent, _, started = (statistics.median(column) for column in zip(*seen, strict=True))
        met = spent < _GOAL_SECONDS
        print(
            f"    from cold {spent:.1f} s (goal: below {_GOAL_SECONDS:.0f} s) {verdict(met)};"
            f" Spark's start-up costs {started:.1f} s of it"
        )
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
