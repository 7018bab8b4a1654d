"""Place of a copy of a stored message: next, known, behind a gap, or not to be trusted."""

import pytest

from lorogo_protocol.position import Position
from lorogo_server.intake.follower import (
    AlreadyRead,
    MessageGap,
    NextMessage,
    Step,
    UnclearPosition,
    WalFollower,
)
from lorogo_transport.ports import StoredMessage

HERE, TIME = 7, 1_000  # the message that was taken last


def stored(sequence: int, time_ns: int) -> StoredMessage:
    return StoredMessage("loro.wal.doc", sequence, time_ns, b"", {})


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
        ),  # older than what it follows: received before the stream lost its end
    ],
)
def test_a_copy(sequence: int, previous: int, time_ns: int, step: Step) -> None:
    follower = WalFollower(1)
    follower.took(Position(1, HERE, TIME))
    assert follower.classify(stored(sequence, time_ns), previous) == step


def test_after_a_rewind_everything_is_new() -> None:
    follower = WalFollower(1)
    follower.took(Position(1, HERE, TIME))
    follower.rewind(2)
    assert (follower.position, follower.taken) == (Position(2), 0)
    assert follower.classify(stored(3, TIME - 5), 0) == NextMessage()
    assert follower.classify(stored(HERE, TIME), 5) == MessageGap(1)
