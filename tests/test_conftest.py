"""The settings that `conftest.py` makes for every test process."""

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest
from tests.durations import SECONDS, TOGETHER

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


def _ordered(names: list[str]) -> list[str]:
    items: list[Any] = [SimpleNamespace(nodeid=name) for name in names]
    conftest.pytest_collection_modifyitems(items)
    return [item.nodeid for item in items]


def test_the_longest_files_are_started_first() -> None:
    """A file with few long tests is not left to the end: xdist keeps our order, and we sort by the table."""
    alone = {name: took for name, took in SECONDS.items() if conftest.scope_of(name) == name}
    longest, shortest = max(alone, key=alone.__getitem__), min(alone, key=alone.__getitem__)
    names = ["tests/not_in_the_table.py::test_it", f"{shortest}::test_it", f"{longest}::test_it[tests::x]"]
    assert _ordered(names) == names[::-1]
    assert "--no-loadscope-reorder" in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("prefix", TOGETHER)
def test_files_that_share_something_costly_run_in_one_process(prefix: str) -> None:
    """They are one scope, keep their order, and count as long as all of them take."""
    files = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(f"{prefix}*.py"))
    tests = [f"{name}::test_it[a::b]" for name in files if "/test_" in name]
    assert len(tests) > 1
    assert {conftest.scope_of(name) for name in tests} == {prefix}
    assert _ordered(["tests/not_in_the_table.py::test_it", *tests])[:-1] == tests
