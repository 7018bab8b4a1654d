"""Which old segments may go."""

import pytest

from lorogo_log import SegmentInfo
from lorogo_server.journal.retention import expire_before

DAY = 86_400 * 1_000_000_000
NOW = 100 * DAY


def segment(number: int, last_day: int, *, sealed: bool = True, size: int = 10) -> SegmentInfo:
    last = last_day * DAY if sealed else None
    return SegmentInfo(f"s{number}", number, number, last_day * DAY, last, size, 1, sealed, False, b"")


SEGMENTS = [segment(1, 70), segment(2, 80), segment(3, 90), segment(4, 99), segment(5, 100, sealed=False)]


@pytest.mark.parametrize(
    ("keep_days", "keep_bytes", "shipped", "gone"),
    [
        (0, 0, 5, 0),
        (15, 0, 5, 2),
        (5, 0, 5, 3),
        (0.5, 0, 5, 4),  # the open one stays
        (50, 0, 5, 0),
        (0, 30, 5, 2),
        (0, 1, 5, 4),
        (5, 0, 1, 1),  # the second is not shipped
        (5, 0, 0, 0),
        (0, 1, 2, 2),
        (15, 20, 5, 3),  # whichever takes more
    ],
)
def test_old_segments_go_by_age_or_size_but_none_before_it_is_shipped(
    keep_days: float, keep_bytes: int, shipped: int, gone: int
) -> None:
    """Oldest first, never the newest or an open one, never one that the archive does not have."""
    before = expire_before(
        SEGMENTS,
        now_ns=NOW,
        keep_seconds=keep_days * 86_400,
        keep_bytes=keep_bytes,
        shipped=lambda info: info.first_sequence <= shipped,
    )
    removed = 0
    for info in SEGMENTS[:-1]:  # as the log does it
        if before is None or info.last_time is None or info.last_time >= before:
            break
        removed += 1
    assert removed == gone
    assert (before is None) == (gone == 0)


def test_times_that_go_backwards_cost_no_segment_that_must_stay() -> None:
    """A segment that is not shipped stays, also where its records are older than those before it."""
    segments = [segment(1, 80), segment(2, 70), segment(3, 100)]
    before = expire_before(
        segments, now_ns=NOW, keep_seconds=86_400, keep_bytes=0, shipped=lambda info: info.first_sequence == 1
    )
    assert before is None


def test_an_empty_journal_has_nothing_to_expire() -> None:
    """No segment, no time."""
    assert expire_before([], now_ns=NOW, keep_seconds=1, keep_bytes=1) is None
