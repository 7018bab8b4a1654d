"""Figures of rounds: percentiles, medians, best values and ranges. Pure.

A benchmark measures in rounds. Each round measures both lorogo and its limit, so that noise affects both.
Ratios are computed within a round (`ratios`); results are the median of the rounds and their range.
"""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RoundValues:
    """The values of one figure, one per round."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("a figure needs a round")

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def lowest(self) -> float:
        return min(self.values)

    @property
    def highest(self) -> float:
        return max(self.values)

    def best(self, *, more_is_better: bool) -> float:
        """Return the best round."""
        return self.highest if more_is_better else self.lowest


def rounds(values: Iterable[float]) -> RoundValues:
    """Return the figure of these rounds."""
    return RoundValues(tuple(values))


def known(values: Iterable[float | None]) -> RoundValues | None:
    """Return the figure of these rounds; None if one round could not be measured on this machine."""
    found = tuple(values)
    some = tuple(value for value in found if value is not None)
    return RoundValues(some) if some and len(some) == len(found) else None


def ratios(ours: RoundValues, theirs: RoundValues) -> RoundValues:
    """Return ours divided by theirs, round by round."""
    return RoundValues(tuple(one / other for one, other in zip(ours.values, theirs.values, strict=True)))


def differences(ours: RoundValues, theirs: RoundValues) -> RoundValues:
    """Return ours minus theirs, round by round."""
    return RoundValues(tuple(one - other for one, other in zip(ours.values, theirs.values, strict=True)))


def scaled(figure: RoundValues, factor: float) -> RoundValues:
    """Return each round multiplied by a factor."""
    return RoundValues(tuple(value * factor for value in figure.values))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that is at least as high as this share of all. `values` must not be empty."""
    if not values or not 0 <= share <= 1:
        raise ValueError("a percentile needs values, and a share from 0 to 1")
    ordered = sorted(values)
    place = -(-share * len(ordered) // 1)  # rounded up
    return ordered[max(0, min(len(ordered), int(place)) - 1)]


def interleaved(kinds: Sequence[T], count: int) -> Iterator[tuple[int, T]]:
    """Yield each kind once per round: forwards, backwards, forwards, so that no kind is always first."""
    for number in range(count):
        for kind in kinds if number % 2 == 0 else reversed(kinds):
            yield number, kind
