"""Workloads and their outcomes. Pure.

    async def run(bench: Bench) -> Outcome:
        findings = Findings()
        async with Stack(StackSettings(folder=bench.folder)) as stack:
            ...
            findings.measured("ACK p50", figures.rounds(...), "ms")
            findings.compared("ACK p50 against publish-ack p50", ratio, limit="JetStream publish-ack")
            findings.goal("ACK p50 of publish-ack p50", ratio.median, at_most=2.5, unit="x")
            findings.check("the reader has every character", text == expected)
        return findings.outcome()

    WORKLOAD = Workload("round-trip", "one writer, one reader: commit to ACK, commit to seen", run)

A missed goal is only reported: it depends on the machine. A failed check means that a result is wrong: then
no figure of the workload counts, and the exit code is 1.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from lorogo_bench.content.traces import EditTrace
from lorogo_bench.errors import BenchError
from lorogo_bench.figures import RoundValues

Durability = Literal["stream", "journal"]
DURABILITIES: Final[tuple[Durability, ...]] = ("stream", "journal")


@dataclass(frozen=True, slots=True)
class Measurement:
    """A figure: the median of the rounds, and their range."""

    name: str
    value: float | None  # None: this machine cannot measure it
    unit: str
    lowest: float | None = None
    highest: float | None = None


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure divided by a limit (or a peer) that was measured in the same run."""

    name: str
    value: float
    limit: str  # the divisor
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a line: the median of its rounds, and their range."""

    at: float
    value: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Figures as a quantity grows; each line by its name."""

    name: str
    along: str  # the growing quantity
    unit: str
    lines: Mapping[str, tuple[Point, ...]]


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound that a figure should meet."""

    words: str
    value: float | None  # None: it was not measured
    bound: float
    unit: str
    at_least: bool  # else at most
    unjudged: str = ""  # the reason why the goal does not apply on this machine

    @property
    def met(self) -> bool | None:
        """Return whether the goal is met; None: it does not apply."""
        if self.value is None or self.unjudged:
            return None
        return self.value >= self.bound if self.at_least else self.value <= self.bound


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that must hold for the figures to count."""

    words: str
    good: bool
    found: str = ""  # the actual value


@dataclass(frozen=True, slots=True)
class WorkloadOutcome:
    """The result of a workload."""

    measurements: tuple[Measurement, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    goals: tuple[Goal, ...] = ()
    checks: tuple[Check, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    curves: tuple[Curve, ...] = ()

    @property
    def good(self) -> bool:
        """Return whether there are checks and all of them hold."""
        return bool(self.checks) and all(check.good for check in self.checks)


class OutcomeBuilder:
    """Collects the parts of an outcome."""

    def __init__(self) -> None:
        self._measurements: list[Measurement] = []
        self._ratios: list[Ratio] = []
        self._goals: list[Goal] = []
        self._checks: list[Check] = []
        self._conditions: dict[str, str] = {}
        self._curves: list[Curve] = []

    def measured(self, name: str, figure: RoundValues | None, unit: str) -> None:
        """Add a figure; None: this machine cannot measure it."""
        if figure is None:
            self._measurements.append(Measurement(name, None, unit))
        else:
            found = Measurement(name, figure.median, unit, figure.lowest, figure.highest)
            self._measurements.append(found)

    def compared(self, name: str, ratio: RoundValues | None, *, limit: str) -> None:
        """Add a figure divided by its limit, round by round; None: one of them is unknown."""
        if ratio is not None:
            self._ratios.append(Ratio(name, ratio.median, limit, ratio.lowest, ratio.highest))

    def curve(
        self, name: str, lines: Mapping[str, Mapping[int, RoundValues | None]], *, along: str, unit: str
    ) -> None:
        """Add figures along a growing quantity; unknown points are left out."""
        drawn = {
            line: tuple(
                Point(at, here.median, here.lowest, here.highest)
                for at, here in sorted(figures.items())
                if here is not None
            )
            for line, figures in lines.items()
        }
        self._curves.append(Curve(name, along, unit, {line: some for line, some in drawn.items() if some}))

    def goal(
        self,
        words: str,
        value: float | None,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        unit: str,
        unjudged: str = "",
    ) -> None:
        """Add a goal: the value should be at least or at most a bound."""
        bound = at_least if at_least is not None else at_most
        if bound is None or (at_least is not None and at_most is not None):
            raise ValueError("a goal has one bound")
        self._goals.append(Goal(words, value, bound, unit, at_least is not None, unjudged))

    def check(self, words: str, good: bool, found: str = "") -> None:
        """Add a condition that must hold."""
        self._checks.append(Check(words, good, "" if good else found))

    def equal(self, words: str, found: object, expected: object) -> None:
        """Add the check that two values are equal."""
        self.check(words, found == expected, f"{_brief(found)} instead of {_brief(expected)}")

    def condition(self, name: str, words: object) -> None:
        """Add a condition of the measurement, such as the number of rounds."""
        self._conditions[name] = str(words)

    def outcome(self) -> WorkloadOutcome:
        return WorkloadOutcome(
            tuple(self._measurements),
            tuple(self._ratios),
            tuple(self._goals),
            tuple(self._checks),
            dict(self._conditions),
            tuple(self._curves),
        )


def _no_trace(edits_max: int | None) -> EditTrace:
    raise BenchError("no trace to replay: pass Bench(trace=...)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Settings of a run."""

    quick: bool = False  # small sizes, to check that it works; the figures mean little
    durability: Durability | None = None  # None: the workload's own
    seed: int = 1
    folder: Path | None = None  # a folder on the measured disk; None: the folder of temporary files
    progress: Callable[[str], None] = lambda words: None  # progress, for people
    trace: Callable[[int | None], EditTrace] = (
        _no_trace  # returns the trace to replay, up to a number of edits
    )

    def durabilities(self, *usual: Durability) -> tuple[Durability, ...]:
        """Return the durabilities to measure: the one from the settings, or else the workload's own."""
        return usual if self.durability is None else (self.durability,)


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload of `lorogo bench`."""

    name: str
    words: str  # its description in one line
    run: Callable[[Bench], Awaitable[WorkloadOutcome]]
    draws: bool = False  # its outcome has curves
    replays: bool = False  # it needs `Bench.trace`


def _brief(value: object, chars_max: int = 80) -> str:
    words = repr(value)
    return words if len(words) <= chars_max else f"{words[:chars_max]}... ({len(words)} characters)"
