"""Search for a mutation: seed after seed, in a process with the mistake."""

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from tests.simulation import run
from tests.simulation.mutating import Mutation
from tests.simulation.run import Verdict

SEEDS_MAX = 60
NO_CHECKERS = ("world", "deadlock", "outofturns", "crash")  # words for what is no invariant
_SECONDS_MAX = 600.0


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one mutation."""

    mutation: Mutation
    seeds: int  # that were tried
    verdict: Verdict | None  # of the seed that found it

    @property
    def by_an_invariant(self) -> bool:
        """True if a checker found it: a world that breaks by itself finds nothing."""
        return self.verdict is not None and self.verdict.checker not in NO_CHECKERS

    @property
    def words(self) -> str:
        if self.verdict is None:
            return f"{self.mutation.name}: not found in {self.seeds} seeds"
        return (
            f"{self.mutation.name}: seed {self.verdict.seed}, {self.verdict.checker}: {self.verdict.words}\n"
            f"see it again: {run.command(self.verdict.seed, self.mutation.name)}"
        )


def find(mutation: Mutation, *, from_zero: bool = False) -> Finding:
    """Try seeds until one fails: from near one that shows it, or all from 0 on."""
    seeds = range(0 if from_zero else mutation.begin, mutation.begin + SEEDS_MAX)
    faults = [(seed, mutation.name) for seed in seeds]
    verdicts = _child(run.child(faults, mutation.name, until_caught=True))
    last = verdicts[-1]
    return Finding(mutation, len(verdicts), None if last.passed else last)


def controls(findings: Iterable[Finding]) -> dict[str, Verdict]:
    """By mutation: the seed that found it with the same faults, and without the mistake."""
    found = [(one.mutation.name, one.verdict.seed) for one in findings if one.verdict is not None]
    verdicts = _child(run.child((seed, name) for name, seed in found))
    return {name: verdict for (name, _), verdict in zip(found, verdicts, strict=True)}


def _child(command: list[str]) -> list[Verdict]:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=run.environment(), timeout=_SECONDS_MAX
    )
    if done.returncode:
        raise RuntimeError(f"a process of the simulation ended with {done.returncode}: {done.stderr[-2000:]}")
    return [Verdict(**json.loads(line)) for line in done.stdout.splitlines()]
