"""What goes wrong, in which order: a seed in, a schedule out. Pure.

Faults come as from a shuffled deck: each kind once, in any order, before any comes again. lorogo promises to
survive the damage of JetStream's files or of its own; a plan damages one side or the other, never both.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lorogo_chaos.errors import ChaosError
from lorogo_chaos.faults.faults import Harm

_WHOLE_CHANCE = 0.6  # that a fault lasts as long as it should; else it ends early, at any moment
_SHARE_MIN = 0.05


class UnknownFault(ChaosError):
    """A name of a fault that there is not."""


@dataclass(frozen=True, slots=True)
class FaultChoice:
    """A fault that may be chosen."""

    name: str
    harms: Harm = ""  # what it takes away for good


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault of the schedule."""

    number: int  # from 1
    name: str
    share: float  # of the time that such a fault lasts
    seed: int  # of the fault's own chance: whom, where, which bit


def chosen(
    choices: Sequence[FaultChoice], only: Sequence[str] = (), without: Sequence[str] = ()
) -> list[FaultChoice]:
    """The choices that are wanted, in their order. Raises UnknownFault, also if none is left."""
    names = {choice.name for choice in choices}
    for name in (*only, *without):
        if name not in names:
            raise UnknownFault(f"there is no fault {name!r}; `lorogo chaos --list` shows all")
    left = [one for one in choices if (not only or one.name in only) and one.name not in without]
    if not left:
        raise UnknownFault("no fault is left to strike with")
    return left


def one_side(choices: Sequence[FaultChoice], seed: int) -> tuple[list[FaultChoice], list[FaultChoice]]:
    """The choices of a drill that damages one side at most, and those that are left out for that."""
    sides = sorted({choice.harms for choice in choices if choice.harms})
    spared = "" if len(sides) < 2 else random.Random(f"side {seed}").choice(sides)
    kept = [choice for choice in choices if not spared or choice.harms != spared]
    return kept, [choice for choice in choices if choice not in kept]


def steps(choices: Sequence[FaultChoice], seed: int) -> Iterator[PlannedFault]:
    """The schedule, without end."""
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
