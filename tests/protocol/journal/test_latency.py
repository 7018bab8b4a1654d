"""Latencies as counts: each in its place, and quantiles that are not far off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_protocol.journal.latency import COUNTS_MAX, added, bucket_of, quantile_us, trimmed

SHORT = st.integers(0, 2**30 - 1)  # those that have an upper end


def counted(latencies: list[int]) -> list[int]:
    counts = [0] * COUNTS_MAX
    for one in latencies:
        counts[bucket_of(one)] += 1
    return counts


@pytest.mark.parametrize(
    ("latency_us", "at"),
    [(-5, 0), (0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1023, 10), (1024, 11), (2**30, 31), (2**60, 31)],
)
def test_a_latency_has_its_place(latency_us: int, at: int) -> None:
    """The count i is of those below 2^i microseconds, and not below half of that; the last is of the rest."""
    assert bucket_of(latency_us) == at


@given(SHORT)
def test_every_latency_is_between_two_powers_of_two(latency_us: int) -> None:
    """Below the power of two that its place names, and not below the one before."""
    at = bucket_of(latency_us)
    assert latency_us < 2**at
    assert at == 0 or latency_us >= 2 ** (at - 1)


@given(st.lists(SHORT, min_size=1, max_size=50), st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_right_within_a_factor_of_two(latencies: list[int], share: float) -> None:
    """The quantile lies between the same powers of two as the true one."""
    true = sorted(latencies)[max(0, -int(-len(latencies) * share // 1) - 1)]
    estimate = quantile_us(counted(latencies), share)
    assert estimate is not None
    at = bucket_of(true)
    assert (2 ** (at - 1) if at else 0) <= estimate <= 2**at


@given(st.lists(SHORT, min_size=1, max_size=50))
def test_quantiles_do_not_cross(latencies: list[int]) -> None:
    """More of them never took less time."""
    estimate = [quantile_us(counted(latencies), share / 10) for share in range(11)]
    assert estimate == sorted(estimate, key=lambda one: one or 0)


def test_odd_quantiles() -> None:
    """Of nothing there is none; of what has no upper end, the lower one; a share is at most all."""
    assert quantile_us([], 0.5) is None
    assert quantile_us([0, 0], 0.5) is None
    assert quantile_us(counted([2**40]), 0.5) == 2**30
    assert quantile_us(counted([5]), 7.0) == 8
    assert quantile_us((0, 0, 0, 4), 0.5) == 6


def test_counts_are_added_and_travel_without_the_zeros_at_the_end() -> None:
    """Counts of different lengths are added; trailing zeros are left out."""
    assert added([[1, 2], [0, 0, 3], []]) == [1, 2, 3]
    assert added([]) == []
    assert trimmed([0, 1, 0, 0]) == [0, 1]
    assert trimmed([0, 0]) == []


@given(st.integers(0, 2**40))
def test_a_latency_is_shorter_than_the_bound_of_its_count(latency_us: int) -> None:
    """Only the last count has none."""
    bucket = bucket_of(latency_us)
    assert latency_us >= 2**30 if bucket == COUNTS_MAX - 1 else latency_us < 1 << bucket
