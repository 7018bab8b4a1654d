"""Position of a message in the WAL: what includes what, and its string form."""

import pytest

from lorogo_protocol.position import NOWHERE, Position


@pytest.mark.parametrize(
    ("other", "included"),
    [
        (Position(1, 5, 9), True),
        (Position(1, 1, 1), True),
        (Position(1, 6, 9), False),
        (Position(2, 5, 9), False),
        (Position(0, 1, 1), False),
        (Position(1, 1, 10), False),
    ],
)
def test_a_position_includes_those_up_to_its_sequence_and_time_in_its_epoch(
    other: Position, included: bool
) -> None:
    """Sequences of another epoch mean other messages, and so do those of a WAL that was created again."""
    assert Position(1, 5, 9).includes(other) is included


def test_nowhere_includes_no_message() -> None:
    """Epochs and sequences of messages start at 1."""
    assert not NOWHERE.includes(Position(1, 1, 1))


def test_a_position_survives_its_string_form() -> None:
    """Metadata of snapshots has positions as strings."""
    assert Position.parse(str(Position(3, 2, 1))) == Position(3, 2, 1)
    with pytest.raises(ValueError, match="not enough values"):
        Position.parse("3:2")
