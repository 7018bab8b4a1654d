"""The simulation finds every mutation, and nothing in the same runs without it."""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.simulation import mutations
from tests.simulation.finding import Finding, controls, find
from tests.simulation.run import Verdict

NAMES = [mutation.name for mutation in mutations.ALL]


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, "Future[Finding]"]]:
    """Every mutation is looked for, as many at once as there are processors."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        yield {mutation.name: pool.submit(find, mutation) for mutation in mutations.ALL}
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def without(found: dict[str, "Future[Finding]"]) -> dict[str, Verdict]:
    """The same seeds in code without mistakes, in one process."""
    return controls(future.result() for future in found.values())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_found(name: str, found: dict[str, "Future[Finding]"]) -> None:
    """A mistake in the code is found by an invariant."""
    finding = found[name].result()
    assert finding.verdict is not None, finding.words
    assert finding.by_an_invariant, finding.words


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_nothing_is_found_without_it(name: str, without: dict[str, Verdict]) -> None:
    """The seed that finds a mutation passes with the same faults in code without it."""
    verdict = without[name]
    assert verdict.passed, f"without {name}: {verdict.checker}: {verdict.words}"
