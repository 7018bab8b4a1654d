"""Follows one document's WAL subject through republished messages, and detects gaps.

JetStream republishes every stored message with its sequence and the sequence of the previous message on
the same subject. Core NATS may lose messages, so the host compares sequences and reads missing messages.
"""

from dataclasses import dataclass

from lorogo_protocol.position import Position
from lorogo_transport.ports import StoredMessage


@dataclass(frozen=True, slots=True)
class NextMessage:
    """The message follows the current position: process it."""


@dataclass(frozen=True, slots=True)
class AlreadyRead:
    """The message was processed already."""


@dataclass(frozen=True, slots=True)
class MessageGap:
    """Earlier messages are missing: read the stream from `first` on."""

    first: int


@dataclass(frozen=True, slots=True)
class UnclearPosition:
    """The sequence does not fit the position: the stream may have lost messages, so ask its leader."""


Step = NextMessage | AlreadyRead | MessageGap | UnclearPosition
_NEXT = NextMessage()


class WalFollower:
    """Position of one host in its subject: that of the last processed message."""

    def __init__(self, epoch: int) -> None:
        self.position = Position(epoch)
        self.taken = 0  # processed messages that are still in the stream

    def at(self, stored: StoredMessage) -> Position:
        """Return the position of a message, in the epoch that is read."""
        return Position(self.position.epoch, stored.sequence, stored.time_ns)

    def classify(self, stored: StoredMessage, previous: int) -> Step:
        """Compare a republished message with the position."""
        here, reached = self.at(stored), self.position.sequence
        if here == self.position:
            return AlreadyRead()
        if previous == reached and here.includes(self.position):
            return _NEXT
        if previous > reached:
            return MessageGap(reached + 1)
        return UnclearPosition()  # also if it is older than the message before it: the stream lost messages

    def took(self, position: Position) -> None:
        """Advance to a message."""
        self.position = position
        self.taken += 1

    def rewind(self, epoch: int) -> None:
        """Start over, since the stream lost messages."""
        self.position = Position(epoch)
        self.taken = 0
