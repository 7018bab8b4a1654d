"""Measuring on a machine with other work: short turns, each in turn, medians of the ratios of a round."""

import os
import statistics
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType


class Turns:
    """What some things measured, turn by turn."""

    def __init__(self, measures: Mapping[str, Callable[[], float]], rounds: int) -> None:
        self.seen: dict[str, list[float]] = {name: [] for name in measures}
        for number in range(rounds):
            # every second round the other way around: nobody always follows the same one
            order = list(measures.items())
            for name, measure in order if number % 2 == 0 else reversed(order):
                os.sync()  # what one left to be written is not the next one's load
                self.seen[name].append(measure())

    def median(self, name: str) -> float:
        return statistics.median(self.seen[name])

    def ratio(self, name: str, against: str) -> float:
        """The median over the rounds of one divided by the other."""
        return statistics.median(
            mine / other for mine, other in zip(self.seen[name], self.seen[against], strict=True)
        )

    def range(self, name: str, against: str) -> str:
        """The least and the greatest of these ratios: how noisy the machine was."""
        ratios = [mine / other for mine, other in zip(self.seen[name], self.seen[against], strict=True)]
        return f"{min(ratios):.2f} to {max(ratios):.2f}"


def verdict(met: bool) -> str:
    return "ok" if met else "MISSED"


def peer(module: str) -> ModuleType | None:
    """Another store to compare with; if it is not installed, that is said."""
    try:
        return import_module(module)
    except ImportError:
        print(f"{module} is not installed: NOT COMPARED (pip install 'lorogo[bench]')")
        return None
