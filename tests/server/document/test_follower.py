"""Where a copy of a stored message stands: next, known, behind a gap, or not to be trusted."""

import pytest

from lorogo_server.document.follower import (
    AlreadyRead,
    MessageGap,
    NextMessage,
    Step,
    UnclearPosition,
    WalFollower,
)

HERE, TIME = 7, 1_000  # the message that was taken last


@pytest.mark.parametrize(
    ("sequence", "previous", "time_ns", "step"),
    [
        (8, HERE, TIME + 1, NextMessage()),
        (12, HERE, TIME, NextMessage()),  # others' messages are between; two may be stored at once
        (HERE, 5, TIME, AlreadyRead()),
        (HERE, 5, TIME + 1, UnclearPosition()),  # another message with our sequence
        (6, 5, TIME - 1, UnclearPosition()),
        (9, 8, TIME + 1, MessageGap(HERE + 1)),
        (9, 5, TIME + 1, UnclearPosition()),  # what we had last is gone
        (
            8,
            HERE,
            TIME - 1,
            UnclearPosition(),
        ),  # older than what it follows: heard before the stream lost its end
    ],
)
def test_a_copy(sequence: int, previous: int, time_ns: int, step: Step) -> None:
    follower = WalFollower()
    follower.took(HERE, TIME)
    assert follower.classify(sequence, previous, time_ns) == step


def test_after_a_rewind_everything_is_new() -> None:
    follower = WalFollower()
    follower.took(HERE, TIME)
    follower.rewind()
    assert (follower.position, follower.taken, follower.time_ns) == (0, 0, 0)
    assert follower.classify(3, 0, TIME - 5) == NextMessage()
    assert follower.classify(HERE, 5, TIME) == MessageGap(1)
