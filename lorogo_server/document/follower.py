"""Follows one document's WAL subject through republished messages, and detects gaps.

JetStream republishes every stored message with its sequence and the sequence of the previous message on
the same subject. Core NATS may lose messages, so the host compares sequences and reads missing messages.
"""

from dataclasses import dataclass


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
    """Position of one host in its subject. `position` is the last processed sequence."""

    def __init__(self, position: int = 0) -> None:
        self.position = position
        self.taken = 0  # processed messages that are still in the stream
        self._time_ns = 0  # of the message at `position`; 0: unknown

    def classify(self, sequence: int, previous: int, time_ns: int) -> Step:
        """Compare a republished message with the position."""
        if previous == self.position < sequence and time_ns >= self._time_ns:
            return _NEXT
        if sequence == self.position and self._time_ns in (0, time_ns):
            return AlreadyRead()
        if sequence <= self.position:
            return UnclearPosition()
        if previous > self.position:
            return MessageGap(self.position + 1)
        return (
            UnclearPosition()
        )  # also if it is older than the message before it: the stream has lost messages

    @property
    def time_ns(self) -> int:
        """Stream time of the message at `position`; 0 before the first."""
        return self._time_ns

    def took(self, sequence: int, time_ns: int) -> None:
        """Advance to a message; `time_ns` distinguishes it from a later one with the same sequence."""
        self.position = sequence
        self.taken += 1
        self._time_ns = time_ns

    def rewind(self) -> None:
        """Start over, since the stream lost messages."""
        self.position = 0
        self.taken = 0
        self._time_ns = 0
