"""CPU and memory of a process and its children, from /proc; None where the system does not report them."""

import os
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_KIB = 1024
_FORGET_PEAK = "5"  # proc_pid_clear_refs(5)


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """Usage of a process and its children."""

    cpu_seconds: float | None
    memory_bytes: int | None  # sum of resident sizes: shared memory counts for each process
    memory_peak_bytes: int | None  # sum of the peaks


NOT_KNOWN = ProcessUsage(None, None, None)


def family(pid: int) -> list[int]:
    """Return the process and its descendants, parents first. Empty: it has exited, or there is no /proc."""
    if not (_PROC / str(pid)).exists():
        return []
    found = [pid]
    for path in (_PROC / str(pid) / "task").glob("*/children"):
        with suppress(OSError):
            for child in path.read_text().split():
                found += family(int(child))
    return found


def usage(pid: int | None) -> ProcessUsage:
    """Return the usage of a process with its children up to now."""
    members = [] if pid is None else family(pid)
    if not members:
        return NOT_KNOWN
    memory = [_memory(member) for member in members]
    return ProcessUsage(
        sum(_cpu_seconds(member) for member in members),
        sum(now for now, _ in memory),
        sum(peak for _, peak in memory),
    )


def forget_peaks(pid: int | None) -> bool:
    """Reset the memory peaks of a process and its children; False: impossible, they count from the start."""
    try:
        for member in [] if pid is None else family(pid):
            (_PROC / str(member) / "clear_refs").write_text(_FORGET_PEAK)
    except OSError:
        return False
    return pid is not None


def machine_busy_seconds() -> float | None:
    """Return the CPU that all processes of this machine have used since boot."""
    try:
        fields = [int(word) for word in (_PROC / "stat").read_text().splitlines()[0].split()[1:8]]
    except (OSError, ValueError, IndexError):
        return None
    user, nice, system, _idle, _waiting, interrupts, soft = fields
    return (user + nice + system + interrupts + soft) / _ticks()


def own_busy_seconds() -> float:
    """Return the CPU of this process and its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _cpu_seconds(pid: int) -> float:
    """Return the CPU of one process and its ended children.

    `stat` counts in hundredths of a second; `schedstat` in nanoseconds, but only of running threads. Neither
    reports too much, so the greater value is more exact.
    """
    own = ended = fine = 0.0
    with suppress(OSError, ValueError, IndexError):
        # the program name, in parentheses, may contain any character
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        own = (int(fields[11]) + int(fields[12])) / _ticks()
        ended = (int(fields[13]) + int(fields[14])) / _ticks()
    for path in (_PROC / str(pid) / "task").glob("*/schedstat"):
        with suppress(OSError, ValueError, IndexError):
            fine += int(path.read_text().split()[0]) / 1e9
    return max(own, fine) + ended


def _memory(pid: int) -> tuple[int, int]:
    """Return resident memory and its peak, in bytes."""
    found = {"VmRSS": 0, "VmHWM": 0}
    with suppress(OSError, ValueError, IndexError):
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            name, _, words = line.partition(":")
            if name in found:
                found[name] = int(words.split()[0]) * _KIB
    return found["VmRSS"], found["VmHWM"]


def _ticks() -> int:
    return os.sysconf("SC_CLK_TCK")
