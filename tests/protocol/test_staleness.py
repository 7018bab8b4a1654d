"""Staleness: how long a status revision has not changed, by the local clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_protocol.staleness import StalenessTracker

HOUR = 3600.0


def test_a_revision_is_measured_from_when_it_was_first_seen() -> None:
    """The same revision counts on; another one starts from 0."""
    tracker = StalenessTracker()
    assert tracker.saw("doc", 7, 100.0) == 0.0
    assert tracker.saw("doc", 7, 104.0) == 4.0
    assert tracker.unchanged_seconds("doc", 105.0) == 5.0
    assert tracker.saw("doc", 8, 106.0) == 0.0
    assert tracker.unchanged_seconds("other", 106.0) == 0.0


def test_time_without_a_connection_does_not_count() -> None:
    """After an outage of an hour a revision is measured from 0: the owner could not renew it either."""
    tracker = StalenessTracker()
    tracker.saw("doc", 7, 100.0)
    tracker.reset()
    assert tracker.unchanged_seconds("doc", 104.0 + HOUR) == 0.0
    assert tracker.saw("doc", 7, 104.0 + HOUR) == 0.0
    assert tracker.saw("doc", 7, 105.0 + HOUR) == 1.0


def test_an_outdated_status_message_restarts_no_measurement() -> None:
    """A message with a lower revision is outdated; a revision that was read from the leader is current."""
    tracker = StalenessTracker()
    tracker.saw("doc", 7, 0.0)
    assert tracker.saw("doc", 6, 3.0, read=False) == 3.0
    assert tracker.saw("doc", 6, 3.0) == 0.0


def test_the_least_recently_changed_documents_are_dropped() -> None:
    """A bounded tracker drops the document whose revision changed the longest ago."""
    tracker = StalenessTracker(tracked_max=2)
    for name, revision in (("a", 1), ("b", 1), ("a", 2), ("c", 1)):
        tracker.saw(name, revision, 0.0)
    seconds = [tracker.unchanged_seconds(name, 5.0) for name in ("a", "b", "c")]
    assert seconds == [5.0, 0.0, 5.0]


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 10)), max_size=20))
def test_a_measurement_never_exceeds_the_time_since_the_last_reset(steps: list[tuple[bool, float]]) -> None:
    """The measured time is the time since the first sight after the last reset."""
    tracker = StalenessTracker()
    now = since = 0.0
    tracker.saw("doc", 1, now)
    for resets, seconds in steps:
        now += seconds
        if resets:
            tracker.reset()
            since = now
        assert tracker.saw("doc", 1, now) == pytest.approx(now - since)
