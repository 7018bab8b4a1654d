"""The findings of a workload: goals, checks, and the conditions of a right result."""

import pytest

from lorogo_bench import figures
from lorogo_bench.workload import Bench, Check, Durability, Goal, OutcomeBuilder, WorkloadOutcome


@pytest.mark.parametrize(
    ("value", "at_least", "unjudged", "met"),
    [
        (2.0, True, "", True),
        (1.9, True, "", False),
        (2.0, False, "", True),
        (2.1, False, "", False),
        (None, True, "", None),
        (2.0, True, "two cores are too few", None),
    ],
)
def test_a_goal_is_met_missed_or_not_judged(
    value: float | None, at_least: bool, unjudged: str, met: bool | None
) -> None:
    """The bound itself is good enough; what was not measured is not judged."""
    assert Goal("g", value, 2.0, "x", at_least, unjudged).met is met


@pytest.mark.parametrize(
    ("checks", "good"), [((), False), ((True,), True), ((True, False), False), ((False,), False)]
)
def test_an_outcome_is_good_if_all_that_was_checked_is_so(checks: tuple[bool, ...], good: bool) -> None:
    """And if anything was checked at all."""
    assert WorkloadOutcome(checks=tuple(Check("c", one) for one in checks)).good is good


def test_findings_become_an_outcome() -> None:
    """Measurements become medians with ranges; an unequal check has its difference."""
    findings = OutcomeBuilder()
    findings.measured("rate", figures.rounds([1.0, 3.0, 2.0]), "1/s")
    findings.measured("CPU", None, "µs")
    findings.compared("rate", figures.rounds([0.5]), limit="raw")
    findings.compared("not known", None, limit="raw")
    findings.goal("enough", 0.5, at_least=0.6, unit="x")
    findings.goal("not too much", 0.5, at_most=0.6, unit="x")
    findings.equal("all there", 2, 3)
    findings.equal("the same text", "a" * 1000, "a" * 1000)
    findings.condition("rounds", 3)
    outcome = findings.outcome()
    rate, cpu = outcome.measurements
    assert (rate.value, rate.lowest, rate.highest, cpu.value) == (2.0, 1.0, 3.0, None)
    assert [one.value for one in outcome.ratios] == [0.5]
    assert [one.met for one in outcome.goals] == [False, True]
    assert outcome.checks == (Check("all there", False, "2 instead of 3"), Check("the same text", True))
    assert outcome.conditions == {"rounds": "3"}


@pytest.mark.parametrize("bounds", [{}, {"at_least": 1.0, "at_most": 2.0}])
def test_a_goal_has_one_bound(bounds: dict[str, float]) -> None:
    """Neither none nor two."""
    with pytest.raises(ValueError, match="one bound"):
        OutcomeBuilder().goal("g", 1.0, unit="x", **bounds)  # type: ignore[arg-type]  # as a mistake would be


@pytest.mark.parametrize(
    ("asked", "found"), [(None, ("stream", "journal")), ("stream", ("stream",)), ("journal", ("journal",))]
)
def test_durabilities(asked: Durability | None, found: tuple[str, ...]) -> None:
    """The durabilities are the workload's own, unless the caller chose one."""
    assert Bench(durability=asked).durabilities("stream", "journal") == found
