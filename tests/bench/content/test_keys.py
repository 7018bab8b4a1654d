"""Typed content, which is known before the benchmark types it."""

import pytest

from lorogo_bench.content.keys import key, shares, text_of


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 200])
def test_the_text_is_what_was_typed(count: int) -> None:
    """Each keystroke at the end of what was there."""
    assert text_of(count) == "".join(key(number) for number in range(count))


@pytest.mark.parametrize(
    ("count", "documents", "found"),
    [(0, 2, [0, 0]), (1, 2, [1, 0]), (5, 2, [3, 2]), (4, 1, [4]), (2, 3, [1, 1, 0])],
)
def test_who_types_in_turn_types_in_each(count: int, documents: int, found: list[int]) -> None:
    """The first documents get what is left over."""
    assert shares(count, documents) == found
