"""The moment at which every reader has an item."""

import random

import pytest

from lorogo_bench.results.last_reader import SlowestReader


def test_a_thing_is_had_by_all_when_the_last_one_has_it() -> None:
    """A fast reader changes nothing; a slow one may complete several items at once."""
    everyone = SlowestReader(3)
    assert everyone.has(0, 2) == 0
    assert everyone.has(1, 3) == 0
    assert everyone.has(2, 1) == 1
    assert everyone.has(2, 3) == 1
    assert everyone.has(0, 3) == 1
    assert everyone.has(0, 1) == 0, "an item that a reader had stays counted"


@pytest.mark.parametrize("seed", range(5))
def test_all_have_what_the_slowest_has(seed: int) -> None:
    """In whatever order they come."""
    rng = random.Random(seed)
    have, everyone, counted = [0] * 4, SlowestReader(4), 0
    for _ in range(200):
        reader = rng.randrange(4)
        have[reader] += rng.randrange(3)
        counted += everyone.has(reader, have[reader])
        assert counted == min(have)


def test_no_readers_are_refused() -> None:
    """Else a thing would be had at once."""
    with pytest.raises(ValueError, match="at least one reader"):
        SlowestReader(0)
