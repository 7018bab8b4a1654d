"""Memory and open files of every process of a fault run, over time, with a verdict on growth.

The rule, for each process (a restart begins a new trail): the samples of its first 30 s are warm-up. Of the
rest, the median of the first fifth is compared with the median of the last fifth. Memory grows if the
difference is more than 10 % and more than 8 MiB, open files if it is more than 10 % and more than 8. A trail
shorter than five minutes after its warm-up has no verdict. A restarted process has one more row for all its
trails, each without its warm-up. Concurrent helpers of one kind are numbered, and have separate rows.
"""

import os
import statistics
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

WARM_UP_SECONDS = 30.0
SHORT_SECONDS = 300.0
_SHARE = 0.10
_BYTES = 8 << 20
_FILES = 8
_SAMPLES_MAX = 4_000  # of one process; then every second one is dropped


@dataclass(frozen=True, slots=True)
class UsageSample:
    """Memory and open files of a process at one time."""

    at: float
    memory_bytes: int
    files: int | None  # None: unknown on this system


@dataclass
class UsageTrail:
    """The samples of one process."""

    name: str
    pid: int
    samples: list[UsageSample] = field(default_factory=list)

    def add(self, sample: UsageSample) -> None:
        if len(self.samples) >= _SAMPLES_MAX:
            del self.samples[1::2]
        self.samples.append(sample)


@dataclass(frozen=True, slots=True)
class UsageGrowth:
    """Memory and open files of a process after its warm-up, and at its end."""

    name: str
    pid: int  # 0: several processes
    seconds: float  # between its first and its last sample
    memory_start: int
    memory_end: int
    files_start: int | None
    files_end: int | None
    memory_per_hour: float | None  # bytes; None: too few samples
    words: str  # the verdict

    @property
    def grows(self) -> bool:
        return self.words.startswith("grows")


def measure(pid: int, at: float) -> UsageSample | None:
    """Return a sample of a process; None if it has ended, also if it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        files = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - only the number is wanted
        return _of_living(UsageSample(at, int(fields[1]) * os.sysconf("SC_PAGE_SIZE"), files))
    except OSError:
        return None if Path("/proc/self").exists() else _by_ps(pid, at)


def _by_ps(pid: int, at: float) -> UsageSample | None:
    """Return a sample without /proc."""
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        found = subprocess.run(
            ["/bin/ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, timeout=5, check=False
        )
        return _of_living(UsageSample(at, int(found.stdout) * 1024, None))
    return None


def _of_living(sample: UsageSample) -> UsageSample | None:
    """Return None for a zombie, which has no memory."""
    return sample if sample.memory_bytes else None


def role_of(pid: int) -> str:
    """Return the role of a server's helper, from its command line."""
    role = _named(pid)
    with suppress(OSError, ValueError, IndexError):
        # the program's name, in parentheses, may contain anything; then the state, then the parent
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if role and _named(parent) == role:
            return f"{role} child"
    return role or "helper"


_ROLES = {"keepalive": "keepalive", "sandbox_worker": "sandbox"}  # by the module in the command line


def _named(pid: int) -> str:
    with suppress(OSError):
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        for module, role in _ROLES.items():
            if module.encode() in line:
                return role
    return ""


class UsageRecorder:
    """Collects samples; ids distinguish processes of one name."""

    def __init__(
        self,
        measure_: Callable[[int, float], UsageSample | None] = measure,
        role: Callable[[int], str] = role_of,
    ) -> None:
        self._measure = measure_
        self._role = role
        self._trails: dict[int, UsageTrail] = {}

    def sample(self, processes: Mapping[str, Iterable[int]], at: float) -> None:
        """Sample all processes: ids by owner, the owner's own process first."""
        for owner, pids in processes.items():
            seen = {pid: (place, self._measure(pid, at)) for place, pid in enumerate(pids)}
            living = {pid: (place, sample) for pid, (place, sample) in seen.items() if sample is not None}
            names = {self._trails[pid].name for pid in living if pid in self._trails}
            for pid, (place, sample) in living.items():
                if pid not in self._trails:
                    name = _free(owner if place == 0 else f"{owner} {self._role(pid)}", names)
                    names.add(name)
                    self._trails[pid] = UsageTrail(name, pid)
                self._trails[pid].add(sample)

    def growths(self) -> list[UsageGrowth]:
        """Return every process by name and start; then one row per restarted process."""
        found: list[UsageGrowth] = []
        by_name: dict[str, list[UsageTrail]] = {}
        for trail in sorted(self._trails.values(), key=lambda one: (one.name, one.samples[0].at)):
            by_name.setdefault(trail.name, []).append(trail)
        for name, trails in by_name.items():
            found += map(growth, trails)
            if len(trails) > 1:
                found.append(growth_of_all(name, trails))
        return found


def _free(name: str, taken: AbstractSet[str]) -> str:
    """Return the name, with a number if a running process has it."""
    number = 1
    found = name
    while found in taken:
        number += 1
        found = f"{name} {number}"
    return found


def growth(trail: UsageTrail) -> UsageGrowth:
    """Return the growth of a process, by the rule above."""
    return _judged(trail.name, trail.pid, trail.samples, _warm(trail) or trail.samples[-1:])


def growth_of_all(name: str, trails: Sequence[UsageTrail]) -> UsageGrowth:
    """Return the growth of consecutive processes."""
    every = sorted((sample for trail in trails for sample in trail.samples), key=_at)
    warm = sorted((sample for trail in trails for sample in _warm(trail)), key=_at)
    return _judged(f"{name}, all {len(trails)} incarnations", 0, every, warm or every[-1:])


def _at(sample: UsageSample) -> float:
    return sample.at


def _warm(trail: UsageTrail) -> list[UsageSample]:
    began = trail.samples[0].at
    return [sample for sample in trail.samples if sample.at - began >= WARM_UP_SECONDS]


def _judged(name: str, pid: int, samples: Sequence[UsageSample], warm: Sequence[UsageSample]) -> UsageGrowth:
    fifth = max(1, len(warm) // 5)
    first, last = warm[:fifth], warm[-fifth:]
    memory = _median([one.memory_bytes for one in first]), _median([one.memory_bytes for one in last])
    files = [
        _median([one.files for one in some if one.files is not None]) if some[0].files is not None else None
        for some in (first, last)
    ]
    slope: float | None = None
    words = "too short"
    if warm[-1].at - warm[0].at >= SHORT_SECONDS:
        slope = _slope([(one.at, one.memory_bytes) for one in warm]) * 3600
        found: list[str] = []
        if _more(memory, _BYTES):
            found.append(f"{(memory[1] - memory[0]) / (1 << 20):.1f} MiB")
        if files[0] is not None and files[1] is not None and _more((files[0], files[1]), _FILES):
            found.append(f"{files[1] - files[0]} open files")
        words = f"grows by {' and '.join(found)}" if found else "no growth"
    seconds = samples[-1].at - samples[0].at
    return UsageGrowth(name, pid, seconds, memory[0], memory[1], files[0], files[1], slope, words)


def _more(pair: tuple[int, int], least: int) -> bool:
    difference = pair[1] - pair[0]
    return difference > least and difference > _SHARE * pair[0]


def _median(values: Sequence[int]) -> int:
    return int(statistics.median(values))


def _slope(points: Sequence[tuple[float, int]]) -> float:
    """Return the slope of the best straight line, per second."""
    return statistics.linear_regression([at for at, _ in points], [value for _, value in points]).slope
