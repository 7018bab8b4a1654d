"""What a workload is, and what it has found out. Pure.

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

A goal that is missed is told, and no more than that: it depends on the machine. A check that fails means that
a result is wrong: then no figure of it counts, and the exit code is 1.
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
    """One figure: the median of the rounds, and their range."""

    name: str
    value: float | None  # None: it cannot be measured on this machine
    unit: str
    lowest: float | None = None
    highest: float | None = None


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure divided by a limit (or a peer) that was measured in the same run."""

    name: str
    value: float
    limit: str  # what it was divided by
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class Point:
    """One place of a line: the median of the rounds there, and their range."""

    at: float
    value: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class Curve:
    """What becomes of figures as something grows; each line by its name."""

    name: str
    along: str  # what grows
    unit: str
    lines: Mapping[str, tuple[Point, ...]]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure should be."""

    words: str
    value: float | None  # None: it was not measured
    bound: float
    unit: str
    at_least: bool  # else at most
    unjudged: str = ""  # why it says nothing here

    @property
    def met(self) -> bool | None:
        """None: not judged."""
        if self.value is None or self.unjudged:
            return None
        return self.value >= self.bound if self.at_least else self.value <= self.bound


@dataclass(frozen=True, slots=True)
class Check:
    """Something that must be so, or the figures are of something that did not work."""

    words: str
    good: bool
    found: str = ""  # what was there instead


@dataclass(frozen=True, slots=True)
class WorkloadOutcome:
    """What a workload has found out."""

    measurements: tuple[Measurement, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    goals: tuple[Goal, ...] = ()
    checks: tuple[Check, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    curves: tuple[Curve, ...] = ()

    @property
    def good(self) -> bool:
        """Whether the results are right, and that was looked at."""
        return bool(self.checks) and all(check.good for check in self.checks)


class OutcomeBuilder:
    """Collects an outcome."""

    def __init__(self) -> None:
        self._measurements: list[Measurement] = []
        self._ratios: list[Ratio] = []
        self._goals: list[Goal] = []
        self._checks: list[Check] = []
        self._conditions: dict[str, str] = {}
        self._curves: list[Curve] = []

    def measured(self, name: str, figure: RoundValues | None, unit: str) -> None:
        """A figure; None: this machine does not tell."""
        if figure is None:
            self._measurements.append(Measurement(name, None, unit))
        else:
            found = Measurement(name, figure.median, unit, figure.lowest, figure.highest)
            self._measurements.append(found)

    def compared(self, name: str, ratio: RoundValues | None, *, limit: str) -> None:
        """A figure divided by its limit, round by round; None: one of both is not known."""
        if ratio is not None:
            self._ratios.append(Ratio(name, ratio.median, limit, ratio.lowest, ratio.highest))

    def curve(
        self, name: str, lines: Mapping[str, Mapping[int, RoundValues | None]], *, along: str, unit: str
    ) -> None:
        """Figures at each place along something that grows; what is not known is left out."""
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
        """What the value should be: either at least or at most so much."""
        bound = at_least if at_least is not None else at_most
        if bound is None or (at_least is not None and at_most is not None):
            raise ValueError("a goal has one bound")
        self._goals.append(Goal(words, value, bound, unit, at_least is not None, unjudged))

    def check(self, words: str, good: bool, found: str = "") -> None:
        """Something that must be so."""
        self._checks.append(Check(words, good, "" if good else found))

    def equal(self, words: str, found: object, expected: object) -> None:
        """Two things that must be the same."""
        self.check(words, found == expected, f"{_brief(found)} instead of {_brief(expected)}")

    def condition(self, name: str, words: object) -> None:
        """How it was measured."""
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
    raise BenchError("nobody gave a trace to replay")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """How a workload is to be run."""

    quick: bool = False  # small sizes: to see that it works, figures mean little
    durability: Durability | None = None  # None: as the workload has it
    seed: int = 1
    folder: Path | None = None  # the disk to be measured; None: where temporary files are
    tell: Callable[[str], None] = lambda words: None  # progress, for people
    trace: Callable[[int | None], EditTrace] = (
        _no_trace  # what somebody has typed; of it so many edits at most
    )

    def durabilities(self, *usual: Durability) -> tuple[Durability, ...]:
        """Those to be measured: the one that was asked for, or else the workload's own."""
        return usual if self.durability is None else (self.durability,)


@dataclass(frozen=True, slots=True)
class Workload:
    """Something that can be measured, by the name that is typed."""

    name: str
    words: str  # what it measures, in one line
    run: Callable[[Bench], Awaitable[WorkloadOutcome]]
    draws: bool = False  # it finds curves
    replays: bool = False  # it asks for `Bench.trace`


def _brief(value: object, chars_max: int = 80) -> str:
    words = repr(value)
    return words if len(words) <= chars_max else f"{words[:chars_max]}... ({len(words)} characters)"
