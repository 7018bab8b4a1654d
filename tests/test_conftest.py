"""What `conftest.py` does for every test process."""

import signal
import subprocess
import sys

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
