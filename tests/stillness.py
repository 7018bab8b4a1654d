"""Stopped processes: SIGSTOP is asynchronous, so the helper waits until the process stands still."""

import os
import signal
import time
from pathlib import Path

_PATIENCE_SECONDS = 20.0


def stand_still(*pids: int | None) -> None:
    """Stop these processes, and return when no thread of them runs any more."""
    for pid in pids:
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + _PATIENCE_SECONDS
    while not all(_still(pid) for pid in pids):
        assert time.monotonic() < end, f"{pids} do not stand still"
        time.sleep(0.001)


def children(pid: int) -> list[int]:
    """The processes that it started and that are still there."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _still(pid: int | None) -> bool:
    """True if every thread of the process is stopped, where the system reports that."""
    tasks = Path(f"/proc/{pid}/task")
    states = {path.read_text().rpartition(")")[2].split()[0] for path in tasks.glob("*/stat")}
    return not tasks.exists() or states == {"T"}
