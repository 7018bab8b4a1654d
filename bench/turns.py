"""Measure on a machine with other load: short alternating turns, and medians of the ratios per round."""

import os
import statistics
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType


class Turns:
    """Measurements of several candidates, turn by turn."""

    def __init__(self, measures: Mapping[str, Callable[[], float]], rounds: int) -> None:
        self.seen: dict[str, list[float]] = {name: [] for name in measures}
        for number in range(rounds):
            # every second round in reverse order, so that no candidate always follows the same one
            order = list(measures.items())
            for name, measure in order if number % 2 == 0 else reversed(order):
                os.sync()  # pending writes of one candidate must not be load for the next
                self.seen[name].append(measure())

    def median(self, name: str) -> float:
        return statistics.median(self.seen[name])

    def ratio(self, name: str, against: str) -> float:
        """Return the median of the rounds' ratios."""
        return statistics.median(
            mine / other for mine, other in zip(self.seen[name], self.seen[against], strict=True)
        )

    def range(self, name: str, against: str) -> str:
        """Return the lowest and the highest ratio, which show the noise of the machine."""
        ratios = [mine / other for mine, other in zip(self.seen[name], self.seen[against], strict=True)]
        return f"{min(ratios):.2f} to {max(ratios):.2f}"


def verdict(met: bool) -> str:
    return "ok" if met else "MISSED"


def peer(module: str) -> ModuleType | None:
    """Import a store to compare with; print a note if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        print(f"{module} is not installed: NOT COMPARED (pip install 'lorogo[bench]')")
        return None
