"""What `conftest.py` does for every test process."""

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests import conftest
from tests.durations import SECONDS

ROOT = Path(__file__).parents[1]
_CHILD = "import signal; print(signal.getsignal(signal.SIGINT).__name__)"
_TESTS = (
    f"import subprocess, sys, tests.conftest; subprocess.run([sys.executable, '-c', {_CHILD!r}], check=True)"
)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def test_children_of_a_run_that_ignores_sigint_can_be_interrupted() -> None:
    """Under `nohup`, `&` and cron, tests and the processes that they start react to SIGINT."""
    done = subprocess.run(
        [sys.executable, "-c", _TESTS],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        preexec_fn=_ignore_interrupts,
    )
    assert done.stdout == "default_int_handler\n"


def test_files_of_the_table_exist() -> None:
    """A file that was moved or removed takes its row of `durations.py` with it."""
    assert [name for name in SECONDS if not (ROOT / name).is_file()] == []


def test_the_longest_files_are_started_first() -> None:
    """A file with few long tests is not left to the end: xdist keeps our order, and we sort by the table."""
    longest, shortest = max(SECONDS, key=SECONDS.__getitem__), min(SECONDS, key=SECONDS.__getitem__)
    names = ["tests/not_in_the_table.py::test_it", f"{shortest}::test_it", f"{longest}::test_it[tests::x]"]
    items: list[Any] = [SimpleNamespace(nodeid=name) for name in names]
    conftest.pytest_collection_modifyitems(items)
    assert [item.nodeid for item in items] == names[::-1]
    assert "--dist=loadfile --no-loadscope-reorder" in (ROOT / "Makefile").read_text(encoding="utf-8")
