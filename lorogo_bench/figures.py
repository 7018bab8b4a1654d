"""Figures of rounds: percentiles, medians, the best and the range. Pure.

A benchmark measures in rounds, and in each round both what is measured and its limit, so that noise hits
both. What is compared is compared within a round (`ratios`), and the median of the rounds is what is told,
with their range.
"""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RoundValues:
    """One figure of every round."""

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
        """The round in which the least went wrong."""
        return self.highest if more_is_better else self.lowest


def rounds(values: Iterable[float]) -> RoundValues:
    """The figure of these rounds."""
    return RoundValues(tuple(values))


def known(values: Iterable[float | None]) -> RoundValues | None:
    """The figure of these rounds; None if one of them could not be measured here."""
    found = tuple(values)
    some = tuple(value for value in found if value is not None)
    return RoundValues(some) if some and len(some) == len(found) else None


def ratios(ours: RoundValues, theirs: RoundValues) -> RoundValues:
    """Ours divided by theirs, round by round."""
    return RoundValues(tuple(one / other for one, other in zip(ours.values, theirs.values, strict=True)))


def differences(ours: RoundValues, theirs: RoundValues) -> RoundValues:
    """Ours less theirs, round by round."""
    return RoundValues(tuple(one - other for one, other in zip(ours.values, theirs.values, strict=True)))


def scaled(figure: RoundValues, factor: float) -> RoundValues:
    """Each round, so many times."""
    return RoundValues(tuple(value * factor for value in figure.values))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all are not above. `values` must not be empty."""
    if not values or not 0 <= share <= 1:
        raise ValueError("a percentile needs values, and a share from 0 to 1")
    ordered = sorted(values)
    place = -(-share * len(ordered) // 1)  # rounded up
    return ordered[max(0, min(len(ordered), int(place)) - 1)]


def interleaved(kinds: Sequence[T], count: int) -> Iterator[tuple[int, T]]:
    """Each kind once in every round: forwards, backwards, forwards, so that none is always the first."""
    for number in range(count):
        for kind in kinds if number % 2 == 0 else reversed(kinds):
            yield number, kind
