"""The simulation finds every mutation, and nothing in the same runs without it."""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.simulation import mutations
from tests.simulation.finding import Finding, control, find
from tests.simulation.mutating import Mutation
from tests.simulation.run import Verdict

Found = tuple[Finding, Verdict | None]


def _look(mutation: Mutation) -> Found:
    finding = find(mutation)
    return finding, None if finding.verdict is None else control(finding)


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, "Future[Found]"]]:
    """Every mutation is looked for, as many at once as there are processors."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        yield {mutation.name: pool.submit(_look, mutation) for mutation in mutations.ALL}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", [mutation.name for mutation in mutations.ALL])
@pytest.mark.slow
def test_found(name: str, found: dict[str, "Future[Found]"]) -> None:
    """A mistake in the code is found; the same seed passes without it."""
    finding, without = found[name].result()
    assert finding.verdict is not None, finding.words
    assert finding.by_an_invariant, finding.words
    assert without is not None
    assert without.passed, f"without {name}: {without.checker}: {without.words}"
