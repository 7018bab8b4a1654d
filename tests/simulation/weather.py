"""The weather of a run: how long messages take, and which are lost, doubled or overtaken. By the seed.

On one connection messages keep their order, as on a socket, but for those that overtake by chance.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from lorogo_testing.fault_model import Kind

KINDS: Final[tuple[Kind, ...]] = ("publish", "deliver", "ask", "answer")
_HAIR: Final = 1e-9  # seconds: enough to be behind
_WAITING_MAX: Final = (0, 12, 50)  # deliveries; 0: no bound
_LAG_USUAL: Final = (0, 0, 1, 4)  # changes
_OUTWARD: Final = {"publish": True, "ask": True, "deliver": False, "answer": False}


@dataclass(frozen=True, slots=True)
class Climate:
    """Delays and losses of messages of one kind."""

    seconds: float = 0.001  # what a message takes, more or less
    slow_chance: float = 0.0
    slow_seconds: float = 0.0  # at most, of a slow one
    loss: float = 0.0
    doubling: float = 0.0
    overtaking: float = 0.0  # the chance that a message does not wait for those before it


FAIR: Final = Climate()
CUT: Final = Climate(loss=1.0)
Climates = Mapping[Kind, Climate]


def everywhere(climate: Climate) -> dict[Kind, Climate]:
    """The same for every kind, but that nothing doubles a request or its answer: no socket could."""
    once = replace(climate, doubling=0.0)
    return {"publish": climate, "deliver": climate, "ask": once, "answer": once}


class StormyWeather:
    """A `Weather` by chance; `usual()` is what the run began with, `calm()` ends all of it for good."""

    def __init__(
        self,
        rng: random.Random,
        usual: Climates | None = None,
        *,
        waiting_max: int | None = None,
    ) -> None:
        self._rng = rng
        self._usual = _mild(rng) if usual is None else usual
        self._now: Climates = self._usual
        self._lines: dict[str, Climates] = {}
        self._lag_usual = rng.choice(_LAG_USUAL) if usual is None else 0
        self._lag_max = self._lag_usual
        self._is_calm = False
        self._held: dict[tuple[str, Kind], tuple[str, float]] = {}  # how its subject begins, and for how long
        self._last: dict[tuple[str, bool], float] = {}  # arrival of the newest, by line and direction
        self._waiting_max = rng.choice(_WAITING_MAX) if waiting_max is None else waiting_max

    @property
    def waiting_max(self) -> int:
        return self._waiting_max

    def travel(self, line: str, kind: Kind, subject: str, size: int) -> tuple[float, ...]:
        climate = self._lines.get(line, self._now)[kind]
        chance = self._rng.random
        if climate.loss and chance() < climate.loss:
            return ()
        seconds = self._seconds(climate) + self._holding(line, kind, subject)
        if not climate.overtaking or chance() >= climate.overtaking:
            key = (line, _OUTWARD[kind])
            now = asyncio.get_running_loop().time()
            last = self._last.get(key, 0.0)
            if now + seconds <= last:
                seconds = last - now + _HAIR
            self._last[key] = now + seconds
        if climate.doubling and chance() < climate.doubling:
            return (seconds, seconds + self._seconds(climate))
        return (seconds,)

    def lag(self, stream: str) -> int:
        return self._rng.randint(0, self._lag_max) if self._lag_max else 0

    def usual(self) -> None:
        """As the run began."""
        if not self._is_calm:
            self._now = self._usual
            self._lag_max = self._lag_usual

    def storm(self, strength: float) -> None:
        """Much goes wrong, of a few kinds; strength is 0 to 1."""
        if not self._is_calm:
            self._now = _wild(self._rng, strength)

    def stale(self, lag_max: int) -> None:
        """Direct gets are answered by replicas that are up to so many changes behind."""
        if not self._is_calm:
            self._lag_max = lag_max

    def calm(self) -> None:
        """From now on everything arrives, once and in order, and every replica knows all. For good."""
        self._is_calm = True
        self._now = everywhere(FAIR)
        self._lag_max = 0
        self._waiting_max = 0
        self._lines.clear()
        self._held.clear()

    def over(self, line: str, climates: Climates | None) -> None:
        """Another weather on one line; None: as everywhere."""
        if climates is None or self._is_calm:
            self._lines.pop(line, None)
        else:
            self._lines[line] = climates

    def cut(self, line: str) -> None:
        """Lose every message of one line, unnoticed; `over(line, None)` ends it."""
        self.over(line, everywhere(CUT))

    def hold(self, line: str, kind: Kind, subject: str, seconds: float) -> None:
        """Hold up the next such message of one line whose subject begins so.

        What is sent after it waits, too, as on a socket, but for what overtakes by chance.
        """
        if not self._is_calm:
            self._held[line, kind] = (subject, seconds)

    def _holding(self, line: str, kind: Kind, subject: str) -> float:
        begins, seconds = self._held.get((line, kind), ("", 0.0))
        if not seconds or not subject.startswith(begins):
            return 0.0
        del self._held[line, kind]
        return seconds

    def _seconds(self, climate: Climate) -> float:
        chance = self._rng.random
        if climate.slow_chance and chance() < climate.slow_chance:
            return climate.slow_seconds * chance()
        return climate.seconds * (0.5 + chance())


def _mild(rng: random.Random) -> dict[Kind, Climate]:
    """Faults of a whole run; a third of the runs has nothing but delay."""
    seconds = rng.choice((0.0005, 0.002, 0.02))
    if rng.random() < 0.33:
        return everywhere(Climate(seconds=seconds))
    return everywhere(
        Climate(
            seconds=seconds,
            slow_chance=rng.choice((0.0, 0.01, 0.03)),
            slow_seconds=rng.choice((0.2, 2.0, 7.0)),
            loss=rng.choice((0.0, 0.003, 0.03)),
            doubling=rng.choice((0.0, 0.01, 0.1)),
            overtaking=rng.choice((0.0, 0.05, 0.5)),
        )
    )


def _wild(rng: random.Random, strength: float) -> dict[Kind, Climate]:
    """A storm: each kind of message has troubles of its own, or none."""

    def drawn() -> Climate:
        if rng.random() < 0.25:
            return FAIR
        return Climate(
            seconds=rng.choice((0.001, 0.05, 0.5 * strength)),
            slow_chance=rng.choice((0.0, 0.05, 0.2)),
            slow_seconds=10.0 * strength,
            loss=rng.choice((0.0, 0.1, 0.5)) * (0.3 + 0.7 * strength),
            doubling=rng.choice((0.0, 0.1, 0.5)),
            overtaking=rng.choice((0.0, 0.2, 1.0)),
        )

    climates = {kind: drawn() for kind in KINDS}
    for kind in ("ask", "answer"):
        climates[kind] = replace(climates[kind], doubling=0.0)
    return climates
