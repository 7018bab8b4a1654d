"""Latency histograms with a bucket for each power of two of microseconds (docs/JOURNAL.md).

    counts[0]    less than 1 us
    counts[i]    less than 2^i us, and at least 2^(i-1)
    counts[31]   all longer ones

Histograms of several periods or servers are added bucket by bucket.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, zip_longest

COUNTS_MAX = 32


def bucket_of(latency_us: int) -> int:
    """Return the index of the bucket of a latency."""
    return min(max(latency_us, 0).bit_length(), COUNTS_MAX - 1)


def trimmed(counts: Sequence[int]) -> list[int]:
    """Return the counts without trailing zeros, as they are stored."""
    behind = len(counts)
    while behind and not counts[behind - 1]:
        behind -= 1
    return list(counts[:behind])


def added(several: Iterable[Sequence[int]]) -> list[int]:
    """Return the sum of several histograms."""
    return [sum(places) for places in zip_longest(*several, fillvalue=0)]


def quantile_us(counts: Sequence[int], share: float) -> int | None:
    """Return an estimate of a quantile (0.5: the median); None if the histogram is empty.

    Interpolates linearly within a bucket, so the error is at most a factor of two. For the last bucket it
    returns the lower bound.
    """
    ends = list(accumulate(counts))
    if not ends or not ends[-1]:
        return None
    rank = max(1, math.ceil(min(share, 1.0) * ends[-1]))
    at = bisect_left(ends, rank)
    least, most = _bounds(at)
    return least + (most - least) * (rank - ends[at] + counts[at]) // counts[at]


def _bounds(at: int) -> tuple[int, int]:
    least = 1 << (at - 1) if at else 0
    return least, least if at >= COUNTS_MAX - 1 else 1 << at
