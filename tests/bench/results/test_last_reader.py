"""When all have a thing."""

import random

import pytest

from lorogo_bench.results.last_reader import SlowestReader


def test_a_thing_is_had_by_all_when_the_last_one_has_it() -> None:
    """Who is ahead changes nothing; who comes from behind may complete several at once."""
    everyone = SlowestReader(3)
    assert everyone.has(0, 2) == 0
    assert everyone.has(1, 3) == 0
    assert everyone.has(2, 1) == 1
    assert everyone.has(2, 3) == 1
    assert everyone.has(0, 3) == 1
    assert everyone.has(0, 1) == 0, "nobody loses what was had"


@pytest.mark.parametrize("seed", range(5))
def test_all_have_what_the_slowest_has(seed: int) -> None:
    """In whatever order they come."""
    rng = random.Random(seed)
    have, everyone, told = [0] * 4, SlowestReader(4), 0
    for _ in range(200):
        reader = rng.randrange(4)
        have[reader] += rng.randrange(3)
        told += everyone.has(reader, have[reader])
        assert told == min(have)


def test_nobody_is_not_everyone() -> None:
    """Else a thing would be had at once."""
    with pytest.raises(ValueError, match="at least one reader"):
        SlowestReader(0)
