"""Numbers read well: short, exact where it matters, and never more certain than they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_pipeline.report import quantities as q


def plain(words: str) -> str:
    return words.replace("\N{NARROW NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (q.count(0), "0"),
        (q.count(9999), "9,999"),
        (q.count(10_000), "10 k"),
        (q.count(999_999), "1 M"),
        (q.count(1_234_567_890), "1.23 G"),
        (q.count(10**24), "1,000,000,000 P"),
        (q.short(1000), "1 k"),
        (q.short(250), "250"),
        (q.size(0), "0 B"),
        (q.size(1023), "1023 B"),
        (q.size(1024), "1 KiB"),
        (q.size(1024**2 - 1), "1 MiB"),
        (q.size(1536), "1.5 KiB"),
        (q.duration(0.7), "0.7 µs"),
        (q.duration(999.6), "1 ms"),
        (q.duration(1500), "1.5 ms"),
        (q.duration(2_000_000), "2 s"),
        (q.duration(18 * 60_000_000), "18 min"),
        (q.share(0, 0), "0 %"),
        (q.share(1, 1_000_000), "< 0.01 %"),
        (q.share(1, 3), "33 %"),
        (q.share(999_999, 1_000_000), "> 99 %"),
        (q.share(5, 5), "100 %"),
        (q.plural(1, "document"), "1 document"),
        (q.plural(1200, "document"), "1,200 documents"),
    ],
)
def test_words_for_numbers(said: str, expected: str) -> None:
    """Three digits and a unit, thousands for counts, 1024 for bytes."""
    assert plain(said) == expected


@given(st.integers(1, 10**18), st.booleans())
def test_ticks_are_few_and_whole(top: int, binary: bool) -> None:
    """An axis starts at 0, ends at or just above the largest number, and has two to six marks."""
    marks = q.ticks(top, binary=binary)
    assert marks[0] == 0
    assert marks[-1] >= top * (1 - 1e-9)
    assert marks[-2] < top
    assert 2 <= len(marks) <= 6
    assert binary or all(mark.is_integer() for mark in marks)


@pytest.mark.parametrize("top", [0, -1, float("nan"), float("inf")])
def test_ticks_of_nothing(top: float) -> None:
    """Without a number there is still an axis."""
    assert q.ticks(top) == [0.0, 1.0]


def test_quantiles_lie_in_the_power_that_holds_them() -> None:
    """90 ACKs below 1,024 µs and 10 below 65,536: the middle is in the first power, p99 in the second."""
    counts = [0] * 10 + [90] + [0] * 5 + [10]
    middle, most = q.quantile(counts, 0.5), q.quantile(counts, 0.99)
    assert middle is not None
    assert most is not None
    assert 512 < middle < 1024
    assert 32_768 < most < 65_536
    assert q.quantile([], 0.5) is None
    assert q.quantile([0, 0], 0.5) is None


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=32).filter(any))
def test_quantiles_are_in_order(counts: list[int]) -> None:
    """A larger fraction never has a smaller time, and none is above the last power that has any."""
    found = [q.quantile(counts, fraction) or 0.0 for fraction in (0.01, 0.5, 0.9, 0.99, 1.0)]
    assert found == sorted(found)
    last = max(power for power, number in enumerate(counts) if number)
    assert 2.0 ** (last - 1) <= found[-1] <= 2.0**last
