"""Queued messages: in order, and within the memory limit."""

import pytest

from lorogo_server.intake import backlog
from lorogo_server.intake.backlog import Backlog, QueuedMessage
from lorogo_transport.ports import StoredMessage
from lorogo_transport.stores.republish import Republished


def queued(sequence: int, data: bytes = b"1234") -> QueuedMessage:
    return QueuedMessage(
        Republished(StoredMessage("loro.wal.doc", sequence, 0, data), sequence - 1), 0.0, None
    )


def test_copies_are_taken_in_the_order_of_their_arrival() -> None:
    waiting = Backlog()
    assert (len(waiting), waiting.newest, waiting.bytes) == (0, 0, 0)
    for sequence in (3, 5, 9):
        waiting.add(queued(sequence))
    assert (len(waiting), waiting.first.sequence, waiting.newest, waiting.bytes) == (3, 3, 9, 12)
    waiting.drop_first()
    assert (len(waiting), waiting.first.sequence, waiting.newest, waiting.bytes) == (2, 5, 9, 8)


@pytest.mark.parametrize(("through", "left"), [(2, 3), (3, 2), (8, 1), (9, 0)])
def test_what_was_read_meanwhile_is_dropped(through: int, left: int) -> None:
    waiting = Backlog()
    for sequence in (3, 5, 9):
        waiting.add(queued(sequence))
    waiting.drop_through(through)
    assert (len(waiting), waiting.bytes) == (left, 4 * left)


def test_it_has_no_room_when_it_holds_more_bytes_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """And has room again when some of them were taken, or all are forgotten."""
    monkeypatch.setattr(backlog, "_BYTES_MAX", 8)
    waiting = Backlog()
    room = []
    for sequence, data in ((1, b"1234"), (2, b"1234"), (3, b"1")):
        waiting.add(queued(sequence, data))
        room.append(waiting.has_room(1, 0.0))
    waiting.drop_first()
    room.append(waiting.has_room(1, 0.0))
    assert room == [True, True, False, True]
    waiting.clear()
    assert (len(waiting), waiting.bytes) == (0, 0)


def test_it_has_no_room_for_what_comes_too_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """However quickly it is taken; a second later it has."""
    monkeypatch.setattr(backlog, "_RATE_BYTES_MAX", 8)
    waiting = Backlog()
    assert [waiting.has_room(4, now) for now in (5.0, 5.5, 5.9, 6.0)] == [True, True, False, True]
