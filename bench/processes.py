"""CPU time of this process and its descendants, and the peak memory of one of them."""

import os
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def family() -> Iterator[Path]:
    """Yield /proc of this process and its descendants: Spark's JVM, its Python daemon, its workers."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        if fields := _fields(folder):
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        yield Path(f"/proc/{process}")
        waiting += parents.get(process, [])


def cpu_seconds() -> float:
    """Return the CPU time of these processes so far, including children that have ended."""
    found = (_fields(folder) for folder in family())
    return sum(sum(map(int, fields[11:15])) for fields in found if fields) / _TICKS


def workers_peak_bytes() -> int:
    """Return the peak memory of one of Spark's Python workers since `forget_peaks`."""
    return max((_peak(folder) for folder in _workers()), default=0)


def forget_peaks() -> None:
    """Reset the memory peaks."""
    for folder in _workers():
        folder.joinpath("clear_refs").write_text("5", encoding="ascii")


def _workers() -> Iterator[Path]:
    for folder in family():
        try:
            if b"pyspark.daemon" in folder.joinpath("cmdline").read_bytes():
                yield folder
        except OSError:
            continue


def _peak(folder: Path) -> int:
    try:
        lines = folder.joinpath("status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


def _fields(folder: Path) -> list[str]:
    """Return the fields of `stat` after the name, which may have spaces; none if the process has ended."""
    try:
        return (
            folder.joinpath("stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return []
