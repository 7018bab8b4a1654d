"""The menu of faults: all of them, in words, and whether they can be had."""

import pytest

from lorogo_chaos.faults.catalogue import WORDS, menu
from lorogo_chaos.faults.faults import registry
from lorogo_chaos.faults.writer_faults import WRITER_FAULTS


def test_every_fault_is_told_in_words() -> None:
    """And no words are left of one that is gone."""
    assert set(WORDS) == {*registry(), *WRITER_FAULTS}


@pytest.mark.parametrize("nodes", [1, 3])
async def test_what_needs_a_cluster_is_possible_with_one(nodes: int) -> None:
    """With one nats-server the menu says why not."""
    dishes = {dish.name: dish for dish in await menu(nodes)}
    assert set(dishes) == set(WORDS)
    assert bool(dishes["partition"].why_not) == (nodes == 1)
    assert bool(dishes["leader-change"].why_not) == (nodes == 1)
    assert dishes["server-kill"].why_not == ""
    assert dishes["client-line-cut"].why_not == ""
