"""CPU and memory of a process with its children, as the system tells it; None where it does not."""

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
    """What a process and all that it started have used."""

    cpu_seconds: float | None
    memory_bytes: int | None  # resident, added up: what they share counts for each
    memory_peak_bytes: int | None  # the highest of each, added up


NOT_KNOWN = ProcessUsage(None, None, None)


def family(pid: int) -> list[int]:
    """The process, and all that it started, and they: parents first. Empty: gone, or no /proc."""
    if not (_PROC / str(pid)).exists():
        return []
    found = [pid]
    for path in (_PROC / str(pid) / "task").glob("*/children"):
        with suppress(OSError):
            for child in path.read_text().split():
                found += family(int(child))
    return found


def usage(pid: int | None) -> ProcessUsage:
    """What a process with its children has used up to now."""
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
    """The highest memory of a process and its children counts from now; False: still since their start."""
    try:
        for member in [] if pid is None else family(pid):
            (_PROC / str(member) / "clear_refs").write_text(_FORGET_PEAK)
    except OSError:
        return False
    return pid is not None


def machine_busy_seconds() -> float | None:
    """CPU that all processes of this machine have used since it started."""
    try:
        fields = [int(word) for word in (_PROC / "stat").read_text().splitlines()[0].split()[1:8]]
    except (OSError, ValueError, IndexError):
        return None
    user, nice, system, _idle, _waiting, interrupts, soft = fields
    return (user + nice + system + interrupts + soft) / _ticks()


def own_busy_seconds() -> float:
    """CPU that we have used, and our children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _cpu_seconds(pid: int) -> float:
    """Of one process, and of its children that have ended.

    `stat` counts in hundredths of a second; `schedstat` in nanoseconds, of those threads that still live.
    Neither tells too much, so the greater one is nearer.
    """
    own = ended = fine = 0.0
    with suppress(OSError, ValueError, IndexError):
        # the name of the program, in parentheses, may hold anything
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        own = (int(fields[11]) + int(fields[12])) / _ticks()
        ended = (int(fields[13]) + int(fields[14])) / _ticks()
    for path in (_PROC / str(pid) / "task").glob("*/schedstat"):
        with suppress(OSError, ValueError, IndexError):
            fine += int(path.read_text().split()[0]) / 1e9
    return max(own, fine) + ended


def _memory(pid: int) -> tuple[int, int]:
    """Resident now, and at most, in bytes."""
    found = {"VmRSS": 0, "VmHWM": 0}
    with suppress(OSError, ValueError, IndexError):
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            name, _, words = line.partition(":")
            if name in found:
                found[name] = int(words.split()[0]) * _KIB
    return found["VmRSS"], found["VmHWM"]


def _ticks() -> int:
    return os.sysconf("SC_CLK_TCK")
