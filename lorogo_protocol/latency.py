"""Latencies as counts: how many were shorter than each power of two of microseconds (docs/JOURNAL.md).

    counts[0]    less than 1 us
    counts[i]    less than 2^i us, and at least 2^(i-1)
    counts[31]   all that are longer

Counts of several minutes or servers are added place by place.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, zip_longest

COUNTS_MAX = 32


def place(latency_us: int) -> int:
    """Which of the counts it belongs to."""
    return min(max(latency_us, 0).bit_length(), COUNTS_MAX - 1)


def trimmed(counts: Sequence[int]) -> list[int]:
    """As they travel: without the zeros at the end."""
    behind = len(counts)
    while behind and not counts[behind - 1]:
        behind -= 1
    return list(counts[:behind])


def added(several: Iterable[Sequence[int]]) -> list[int]:
    """Place by place, all of them together."""
    return [sum(places) for places in zip_longest(*several, fillvalue=0)]


def bound_us(at: int) -> int | None:
    """Every latency in that count is shorter; None for the last, which has no upper end."""
    return None if at >= COUNTS_MAX - 1 else 1 << at


def quantile_us(counts: Sequence[int], share: float) -> int | None:
    """About how long that share of them took at most (0.5: the median); None if there are none.

    Within one count they are taken to be spread evenly, so it is never wrong by more than a factor of two;
    of the longest, which have no upper end, it is the lower one.
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
