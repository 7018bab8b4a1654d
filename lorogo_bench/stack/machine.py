"""Conditions of a measurement: versions, cores, memory, and the load of other processes."""

import importlib.metadata
import os
import platform
import subprocess
import time
from contextlib import suppress

from lorogo_bench.stack.usage import machine_busy_seconds, own_busy_seconds
from lorogo_transport.nats.embedded import EmbeddedError, find_nats_server
from lorogo_transport.release import release

_PACKAGES = ("loro", "nats-py", "uvloop")
_MIB = 1 << 20


def versions() -> dict[str, str]:
    """Return the versions of the measured software."""
    found = {"lorogo": release(), "Python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    found["nats-server"] = _nats_server()
    return found


def facts() -> dict[str, str]:
    """Return facts about the machine."""
    found = {"system": f"{platform.system()} {platform.release()}", "machine": platform.machine()}
    found["cores"] = str(os.cpu_count() or "unknown")
    if hasattr(os, "sched_getaffinity"):
        found["cores we may use"] = str(len(os.sched_getaffinity(0)))
    with suppress(OSError, ValueError):
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        found["memory"] = f"{size // _MIB} MiB"
    with suppress(OSError):
        found["load average at the start"] = f"{os.getloadavg()[0]:.2f}"
    return found


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class BackgroundCpu:
    """Measures the cores that other processes keep busy; our own must have ended before `cores()`."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._all, self._ours = machine_busy_seconds(), own_busy_seconds()

    def cores(self) -> float | None:
        """Return the busy cores since the start; None: the system does not report them."""
        busy = machine_busy_seconds()
        if busy is None or self._all is None:
            return None
        foreign = (busy - self._all) - (own_busy_seconds() - self._ours)
        return max(0.0, foreign / (time.perf_counter() - self._began))


def _nats_server() -> str:
    try:
        reply = subprocess.run(
            [find_nats_server(), "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, EmbeddedError, subprocess.TimeoutExpired):
        return "unknown"
    return reply.stdout.strip().rpartition(" ")[2] or "unknown"
