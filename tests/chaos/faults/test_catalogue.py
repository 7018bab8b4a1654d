"""The menu of faults: all of them, in words, and whether they can be had."""

import pytest

from lorogo_chaos.faults.catalogue import WORDS, list_faults
from lorogo_chaos.faults.faults import registry
from lorogo_chaos.faults.writer_faults import WRITER_FAULTS


def test_every_fault_has_a_description() -> None:
    """The catalogue has no description of a removed fault."""
    assert set(WORDS) == {*registry(), *WRITER_FAULTS}


@pytest.mark.parametrize("nodes", [1, 3])
async def test_what_needs_a_cluster_is_possible_with_one(nodes: int) -> None:
    """With one nats-server, the list has the reason why these faults are impossible."""
    entries = {entry.name: entry for entry in await list_faults(nodes)}
    assert set(entries) == set(WORDS)
    assert bool(entries["partition"].unmet_need) == (nodes == 1)
    assert bool(entries["leader-change"].unmet_need) == (nodes == 1)
    assert entries["server-kill"].unmet_need == ""
    assert entries["client-link-cut"].unmet_need == ""
