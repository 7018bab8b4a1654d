"""Where a copy of a stored message stands: next, known, behind a gap, or not to be trusted."""

import pytest

from lorogo_server.document.follower import Doubtful, Follower, Known, Missing, Next, Step

HERE, TIME = 7, 1_000  # the message that was taken last


@pytest.mark.parametrize(
    ("sequence", "previous", "time_ns", "step"),
    [
        (8, HERE, TIME + 1, Next()),
        (12, HERE, TIME, Next()),  # others' messages are between; two may be stored at once
        (HERE, 5, TIME, Known()),
        (HERE, 5, TIME + 1, Doubtful()),  # another message with our sequence
        (6, 5, TIME - 1, Doubtful()),
        (9, 8, TIME + 1, Missing(HERE + 1)),
        (9, 5, TIME + 1, Doubtful()),  # what we had last is gone
        (8, HERE, TIME - 1, Doubtful()),  # older than what it follows: heard before the stream lost its end
    ],
)
def test_a_copy(sequence: int, previous: int, time_ns: int, step: Step) -> None:
    follower = Follower()
    follower.took(HERE, TIME)
    assert follower.look(sequence, previous, time_ns) == step


def test_after_a_rewind_everything_is_new() -> None:
    follower = Follower()
    follower.took(HERE, TIME)
    follower.rewind()
    assert (follower.position, follower.taken, follower.time_ns) == (0, 0, 0)
    assert follower.look(3, 0, TIME - 5) == Next()
    assert follower.look(HERE, 5, TIME) == Missing(1)
