"""The schedule of faults, from a seed. Pure.

Faults are shuffled: each kind occurs once, in random order, before any occurs again. lorogo promises to
survive damage of JetStream's files or of its own; a schedule damages one side or the other, never both.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lorogo_chaos.errors import ChaosError
from lorogo_chaos.faults.faults import Harm

_WHOLE_CHANCE = 0.6  # that a fault lasts its full time; else it ends early, at a random moment
_SHARE_MIN = 0.05


class UnknownFault(ChaosError):
    """There is no fault of that name."""


@dataclass(frozen=True, slots=True)
class FaultChoice:
    """A fault that can be scheduled."""

    name: str
    harms: Harm = ""  # the data that it destroys


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault of the schedule."""

    number: int  # from 1
    name: str
    share: float  # of the fault's full time
    seed: int  # of the fault's random choices: target, place, bit


def select(
    choices: Sequence[FaultChoice], only: Sequence[str] = (), without: Sequence[str] = ()
) -> list[FaultChoice]:
    """Return the selected choices, in their order. Raises UnknownFault, also if none is left."""
    names = {choice.name for choice in choices}
    for name in (*only, *without):
        if name not in names:
            raise UnknownFault(f"there is no fault {name!r}; `lorogo chaos --list` shows all")
    left = [one for one in choices if (not only or one.name in only) and one.name not in without]
    if not left:
        raise UnknownFault("no fault is selected")
    return left


def one_side(choices: Sequence[FaultChoice], seed: int) -> tuple[list[FaultChoice], list[FaultChoice]]:
    """Return the choices of a run that damages at most one side, and those left out for that."""
    sides = sorted({choice.harms for choice in choices if choice.harms})
    spared = "" if len(sides) < 2 else random.Random(f"side {seed}").choice(sides)
    kept = [choice for choice in choices if not spared or choice.harms != spared]
    return kept, [choice for choice in choices if choice not in kept]


def schedule(choices: Sequence[FaultChoice], seed: int) -> Iterator[PlannedFault]:
    """Yield the faults of the schedule, without end."""
    assert len({choice.harms for choice in choices} - {""}) < 2, "one side, never both"
    rng = random.Random(f"steps {seed}")
    number = 0
    while True:
        deck = [choice.name for choice in choices]
        rng.shuffle(deck)
        for name in deck:
            number += 1
            share = 1.0 if rng.random() < _WHOLE_CHANCE else rng.uniform(_SHARE_MIN, 1.0)
            yield PlannedFault(number, name, round(share, 2), rng.getrandbits(32))
