"""Figures: percentiles, medians and ranges of rounds, and ratios within a round."""

import pytest

from lorogo_bench import figures
from lorogo_bench.figures import interleaved, percentile


@pytest.mark.parametrize(
    ("values", "share", "found"),
    [
        ([3.0], 0.0, 3.0),
        ([3.0], 0.5, 3.0),
        ([3.0], 1.0, 3.0),
        ([2.0, 1.0], 0.5, 1.0),
        ([4.0, 1.0, 3.0, 2.0], 0.5, 2.0),
        ([4.0, 1.0, 3.0, 2.0], 0.51, 3.0),
        ([float(n) for n in range(1, 101)], 0.99, 99.0),
        ([float(n) for n in range(1, 101)], 1.0, 100.0),
        ([float(n) for n in range(1, 101)], 0.0, 1.0),
    ],
)
def test_percentile(values: list[float], share: float, found: float) -> None:
    """The smallest value that this share of all are not above."""
    assert percentile(values, share) == found


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1.0], 1.1), ([1.0], -0.1)])
def test_a_percentile_of_nothing_is_refused(values: list[float], share: float) -> None:
    """There is no honest number for it."""
    with pytest.raises(ValueError, match="percentile"):
        percentile(values, share)


def test_rounds_have_a_median_a_range_and_a_best() -> None:
    """The best is the highest of rates and the lowest of times."""
    figure = figures.rounds([3.0, 1.0, 2.0])
    assert (figure.median, figure.lowest, figure.highest) == (2.0, 1.0, 3.0)
    assert figure.best(more_is_better=True) == 3.0
    assert figure.best(more_is_better=False) == 1.0
    with pytest.raises(ValueError, match="round"):
        figures.rounds([])


def test_what_is_compared_is_compared_within_a_round() -> None:
    """A slow round is slow for both: its ratio does not affect other rounds."""
    ours, theirs = figures.rounds([10.0, 1.0]), figures.rounds([20.0, 2.0])
    assert figures.ratios(ours, theirs).values == (0.5, 0.5)
    assert figures.differences(ours, theirs).values == (-10.0, -1.0)
    assert figures.scaled(ours, 2.5).values == (25.0, 2.5)
    with pytest.raises(ValueError, match="zip"):
        figures.ratios(ours, figures.rounds([1.0]))


@pytest.mark.parametrize(
    ("values", "found"), [([1.0, 2.0], (1.0, 2.0)), ([1.0, None], None), ([None], None), ([], None)]
)
def test_what_was_not_measured_in_every_round_is_not_known(
    values: list[float | None], found: tuple[float, ...] | None
) -> None:
    """Nothing is made up for a round without a figure."""
    figure = figures.known(values)
    assert (None if figure is None else figure.values) == found


def test_rounds_take_turns() -> None:
    """Every kind is in every round, and none is always the first."""
    assert list(interleaved("ab", 3)) == [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b")]
