"""Memory and open files of every process of a drill, over time, and whether they grow.

The rule, for each process (a restart begins a new line): the samples of its first 30 s are warm-up. Of the
rest, the median of the first fifth is compared with the median of the last fifth. Memory grows if the
difference is more than 10 % and more than 8 MiB, open files if it is more than 10 % and more than 8. A line
that is shorter than five minutes after its warm-up is too short to tell. What was restarted has one more
line: of all its lives, each without its warm-up. Helpers of the same kind that run side by side are numbered:
they are no lives of one.
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
_SAMPLES_MAX = 4_000  # of one process; then every other one goes


@dataclass(frozen=True, slots=True)
class UsageSample:
    """What a process holds at a time."""

    at: float
    memory_bytes: int
    files: int | None  # None: the system does not tell


@dataclass
class UsageTrail:
    """One process over time."""

    name: str
    pid: int
    samples: list[UsageSample] = field(default_factory=list)

    def add(self, sample: UsageSample) -> None:
        if len(self.samples) >= _SAMPLES_MAX:
            del self.samples[1::2]
        self.samples.append(sample)


@dataclass(frozen=True, slots=True)
class UsageGrowth:
    """How a process stood after its warm-up, and at its end."""

    name: str
    pid: int  # 0: of several
    seconds: float  # between its first and its last sample
    memory_start: int
    memory_end: int
    files_start: int | None
    files_end: int | None
    memory_per_hour: float | None  # bytes; None: too short to tell
    words: str  # the plain verdict

    @property
    def grows(self) -> bool:
        return self.words.startswith("grows")


def measure(pid: int, at: float) -> UsageSample | None:
    """What a process holds now; None if it is gone, or has ended and was not yet waited for."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        files = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - only the number is wanted
        return _of_living(UsageSample(at, int(fields[1]) * os.sysconf("SC_PAGE_SIZE"), files))
    except OSError:
        return None if Path("/proc/self").exists() else _by_ps(pid, at)


def _by_ps(pid: int, at: float) -> UsageSample | None:
    """Where there is no /proc."""
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        told = subprocess.run(
            ["/bin/ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, timeout=5, check=False
        )
        return _of_living(UsageSample(at, int(told.stdout) * 1024, None))
    return None


def _of_living(sample: UsageSample) -> UsageSample | None:
    """None of a zombie: it holds no memory at all."""
    return sample if sample.memory_bytes else None


def role_of(pid: int) -> str:
    """What a server's helper is for, by its command line: their order says nothing."""
    role = _named(pid)
    with suppress(OSError, ValueError, IndexError):
        # the name of the program, in parentheses, may hold anything; then the state, then the parent
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if role and _named(parent) == role:
            return f"{role} child"
    return role or "helper"


_ROLES = {"keepalive": "keepalive", "decode_sandbox": "sandbox"}  # by the module in the command line


def _named(pid: int) -> str:
    with suppress(OSError):
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        for module, role in _ROLES.items():
            if module.encode() in line:
                return role
    return ""


class UsageRecorder:
    """Collects samples; a process is told from the next one of its name by its number."""

    def __init__(
        self,
        look: Callable[[int, float], UsageSample | None] = measure,
        role: Callable[[int], str] = role_of,
    ) -> None:
        self._look = look
        self._role = role
        self._trails: dict[int, UsageTrail] = {}

    def sample(self, processes: Mapping[str, Iterable[int]], at: float) -> None:
        """Look at them all: process ids by the name of their party, the party's own process first."""
        for party, pids in processes.items():
            seen = {pid: (place, self._look(pid, at)) for place, pid in enumerate(pids)}
            living = {pid: (place, sample) for pid, (place, sample) in seen.items() if sample is not None}
            names = {self._trails[pid].name for pid in living if pid in self._trails}
            for pid, (place, sample) in living.items():
                if pid not in self._trails:
                    name = _free(party if place == 0 else f"{party} {self._role(pid)}", names)
                    names.add(name)
                    self._trails[pid] = UsageTrail(name, pid)
                self._trails[pid].add(sample)

    def growths(self) -> list[UsageGrowth]:
        """Every process, by name and then by its beginning; behind them all lives of what was restarted."""
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
    """The name, or with the first number that none has which runs at the same time."""
    number = 1
    found = name
    while found in taken:
        number += 1
        found = f"{name} {number}"
    return found


def growth(trail: UsageTrail) -> UsageGrowth:
    """Whether a process grew, by the rule above."""
    return _judged(trail.name, trail.pid, trail.samples, _warm(trail) or trail.samples[-1:])


def growth_of_all(name: str, trails: Sequence[UsageTrail]) -> UsageGrowth:
    """Whether those that came one after the other grew."""
    every = sorted((sample for trail in trails for sample in trail.samples), key=_at)
    warm = sorted((sample for trail in trails for sample in _warm(trail)), key=_at)
    return _judged(f"{name}, all {len(trails)} lives", 0, every, warm or every[-1:])


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
    words = "too short to tell"
    if warm[-1].at - warm[0].at >= SHORT_SECONDS:
        slope = _slope([(one.at, one.memory_bytes) for one in warm]) * 3600
        told: list[str] = []
        if _more(memory, _BYTES):
            told.append(f"{(memory[1] - memory[0]) / (1 << 20):.1f} MiB")
        if files[0] is not None and files[1] is not None and _more((files[0], files[1]), _FILES):
            told.append(f"{files[1] - files[0]} open files")
        words = f"grows by {' and '.join(told)}" if told else "no growth"
    seconds = samples[-1].at - samples[0].at
    return UsageGrowth(name, pid, seconds, memory[0], memory[1], files[0], files[1], slope, words)


def _more(pair: tuple[int, int], least: int) -> bool:
    difference = pair[1] - pair[0]
    return difference > least and difference > _SHARE * pair[0]


def _median(values: Sequence[int]) -> int:
    return int(statistics.median(values))


def _slope(points: Sequence[tuple[float, int]]) -> float:
    """Of the straight line that lies best, per second."""
    return statistics.linear_regression([at for at, _ in points], [value for _, value in points]).slope
