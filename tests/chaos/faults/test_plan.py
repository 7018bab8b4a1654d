"""The plan of a drill: what goes wrong, and in which order."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_chaos.faults.plan import FaultChoice, UnknownFault, one_side, schedule, select

FAULTS = [
    FaultChoice("kill"),
    FaultChoice("pause"),
    FaultChoice("cut"),
    FaultChoice("flip-stream", "stream"),
    FaultChoice("cut-stream", "stream"),
    FaultChoice("flip-journal", "journal"),
]
seeds = st.integers(0, 2**32)


@given(seeds)
def test_a_seed_always_gives_the_same_plan(seed: int) -> None:
    """The seed decides which faults come, in which order, for how long, and their own chance."""
    kept, _ = one_side(FAULTS, seed)
    assert list(islice(schedule(kept, seed), 20)) == list(islice(schedule(kept, seed), 20))


def test_another_seed_gives_another_plan() -> None:
    """Chance decides, not the order in which faults are written down."""
    kept, _ = one_side(FAULTS, 1)
    assert len({tuple(step.name for step in islice(schedule(kept, seed), 5)) for seed in range(20)}) > 10


@given(seeds)
def test_a_plan_never_damages_both_sides(seed: int) -> None:
    """JetStream's files or ours: what is lost on one side must be there on the other."""
    kept, spared = one_side(FAULTS, seed)
    injected = {step.name for step in islice(schedule(kept, seed), 50)}
    sides = {choice.harms for choice in FAULTS if choice.name in injected} - {""}
    assert len(sides) == 1
    assert {choice.harms for choice in spared}.isdisjoint(sides)
    assert len(kept) + len(spared) == len(FAULTS)


def test_either_side_comes_to_be_damaged() -> None:
    """Which one is left to the seed."""
    assert {one_side(FAULTS, seed)[1][0].harms for seed in range(20)} == {"stream", "journal"}


def test_a_plan_of_both_sides_is_impossible() -> None:
    """A plan without a chosen side fails an assertion at once."""
    with pytest.raises(AssertionError, match="one side"):
        next(schedule(FAULTS, 1))


def test_faults_of_one_side_lose_nothing_to_the_rule() -> None:
    """With `--only` a user decides whose files are damaged."""
    some = select(FAULTS, only=["kill", "flip-journal"])
    assert one_side(some, 3) == (some, [])


@given(seeds, st.integers(1, 6))
def test_every_kind_comes_before_any_comes_again(seed: int, rounds: int) -> None:
    """As many faults as there are kinds strike with every kind."""
    kept, _ = one_side(FAULTS, seed)
    names = [step.name for step in islice(schedule(kept, seed), rounds * len(kept))]
    for at in range(0, len(names), len(kept)):
        assert set(names[at : at + len(kept)]) == {choice.name for choice in kept}


@given(seeds)
def test_faults_are_numbered_and_end(seed: int) -> None:
    """Numbers count from 1; most faults last as long as they should, and some end early."""
    kept, _ = one_side(FAULTS, seed)
    some = list(islice(schedule(kept, seed), 60))
    assert [step.number for step in some] == list(range(1, 61))
    assert all(0 < step.share <= 1 for step in some)
    assert any(step.share == 1 for step in some)
    assert any(step.share < 0.9 for step in some)


def test_only_and_without_choose() -> None:
    """`--only` names what may come, `--without` what may not."""
    assert _names(select(FAULTS, only=["cut", "kill"])) == ["kill", "cut"]
    assert _names(select(FAULTS, without=["cut", "kill"]))[:1] == ["pause"]
    assert _names(select(FAULTS, only=["cut", "kill"], without=["cut"])) == ["kill"]


def _names(some: list[FaultChoice]) -> list[str]:
    return [choice.name for choice in some]


@pytest.mark.parametrize(("only", "without"), [(["kil"], []), ([], ["kil"]), (["cut"], ["cut"])])
def test_a_name_that_there_is_not_is_refused(only: list[str], without: list[str]) -> None:
    """A mistyped fault must not make a drill that strikes with nothing."""
    with pytest.raises(UnknownFault):
        select(FAULTS, only=only, without=without)
