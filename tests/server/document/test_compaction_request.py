"""Requests of a compaction: the first one gives the reason, and one attempt answers all."""

import random

import pytest

from lorogo_server.document.compaction_request import CompactionRequest


def test_the_first_reason_stays_until_it_was_tried() -> None:
    due = CompactionRequest(100.0, random.Random(1))
    assert (due.why, due.tried_at) == ("", 100.0)
    due.want("the WAL is long")
    due.want("daily")
    assert due.why == "the WAL is long"
    due.tried(130.0)
    assert (due.why, due.tried_at) == ("", 130.0)


@pytest.mark.parametrize("seed", range(20))
def test_not_all_are_due_at_once(seed: int) -> None:
    """Each has its own part of the time, from a half to one and a half."""
    due = CompactionRequest(100.0, random.Random(seed))
    assert 105.0 <= due.again_at(10.0) <= 115.0
    assert due.again_at(10.0) != CompactionRequest(100.0, random.Random(seed + 1)).again_at(10.0)
