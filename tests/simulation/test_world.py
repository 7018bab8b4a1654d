"""The world waits for figures from after the faults, and for none from before."""

from types import SimpleNamespace
from typing import cast

import pytest

from tests.simulation.machine import Machine
from tests.simulation.world import passes_before


@pytest.mark.parametrize(("running", "before"), [("idle", 3), ("running (timer, 1 of 2 documents)", 4)])
def test_a_pass_that_began_before_the_faults_stopped_does_not_count(running: str, before: int) -> None:
    """It may have seen what an owner removed since: only the one after it finds that."""
    server = SimpleNamespace(stats=lambda: {"reconcile_passes": 3, "reconcile": running})
    assert passes_before(cast(Machine, SimpleNamespace(server=server))) == before


def test_a_server_that_is_not_there_has_made_no_pass() -> None:
    """Its first one counts."""
    assert passes_before(cast(Machine, SimpleNamespace(server=None))) == 0
