"""Following a document's subject through its republished copies: what is next, what is missing.

JetStream republishes every stored message with its sequence and the sequence of the message before
it on the same subject. Core NATS may lose copies, so the host compares and reads what is missing.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NextMessage:
    """It follows what we have: take it."""


@dataclass(frozen=True, slots=True)
class AlreadyRead:
    """We have it already."""


@dataclass(frozen=True, slots=True)
class MessageGap:
    """Messages before it did not reach us: read from `first` on."""

    first: int


@dataclass(frozen=True, slots=True)
class UnclearPosition:
    """Its sequence is not above ours, or what we had is gone: ask the leader."""


Step = NextMessage | AlreadyRead | MessageGap | UnclearPosition
_NEXT = NextMessage()


class WalFollower:
    """Where one host stands in its subject. `position` is the last sequence it has taken."""

    def __init__(self, position: int = 0) -> None:
        self.position = position
        self.taken = 0  # messages of the subject that we took and that were not removed since
        self._time_ns = 0  # of the message at `position`; 0: not known

    def look(self, sequence: int, previous: int, time_ns: int) -> Step:
        """What a copy means for us."""
        if previous == self.position < sequence and time_ns >= self._time_ns:
            return _NEXT
        if sequence == self.position and self._time_ns in (0, time_ns):
            return AlreadyRead()
        if sequence <= self.position:
            return UnclearPosition()
        if previous > self.position:
            return MessageGap(self.position + 1)
        return UnclearPosition()  # or it is older than what it follows: of a past that the stream has lost

    @property
    def time_ns(self) -> int:
        """When the stream stored the message at `position`; 0 before the first."""
        return self._time_ns

    def took(self, sequence: int, time_ns: int) -> None:
        """The message is taken; `time_ns` tells it from another that is given the same sequence later."""
        self.position = sequence
        self.taken += 1
        self._time_ns = time_ns

    def rewind(self) -> None:
        """The stream lost messages: begin again."""
        self.position = 0
        self.taken = 0
        self._time_ns = 0
