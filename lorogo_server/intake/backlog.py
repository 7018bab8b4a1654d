"""Queue of received WAL messages that a host has not processed yet.

The queue is bounded without loss: the host can read any dropped message from the stream.
"""

from collections import deque
from typing import NamedTuple

from lorogo_server.sandbox.decode_sandbox import Validation
from lorogo_transport.stores.republish import Republished

_BYTES_MAX = 8 * 1024 * 1024
_RATE_BYTES_MAX = 4 * 1024 * 1024  # of one document within `_RATE_SECONDS`
_RATE_SECONDS = 1.0


class QueuedMessage(NamedTuple):
    """A republished message in the queue, and the time of its arrival by the local clock."""

    copy: Republished
    at: float
    validation: Validation | None  # None: validated alone when the host processes it

    @property
    def sequence(self) -> int:
        return self.copy.stored.sequence

    @property
    def is_validation_done(self) -> bool:
        """True unless the sandbox is validating the message now."""
        return self.validation is None or self.validation.is_done

    @property
    def is_valid(self) -> bool:
        """True if the sandbox decoded the message without a crash."""
        return self.validation is not None and self.validation.is_valid


class Backlog:
    """Messages in order of arrival, and their bytes."""

    __slots__ = ("_copies", "_rate_bytes", "_rate_from", "bytes")

    def __init__(self) -> None:
        self._rate_bytes = 0
        self._rate_from = 0.0
        self._copies: deque[QueuedMessage] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._copies)

    def has_room(self, size: int, now: float) -> bool:
        """Return True if a message may be added; otherwise the host reads it from the stream later.

        The byte rate of one document is bounded as well: a faster document would fill the buffer of
        nats-server, which the server cannot measure, and delay the messages of other documents.
        """
        if now - self._rate_from >= _RATE_SECONDS:
            self._rate_from, self._rate_bytes = now, 0
        self._rate_bytes += size
        return self.bytes <= _BYTES_MAX and self._rate_bytes <= _RATE_BYTES_MAX

    @property
    def first(self) -> QueuedMessage:
        """The next message; the queue must not be empty."""
        return self._copies[0]

    @property
    def newest(self) -> int:
        """Sequence of the last message; 0 if the queue is empty."""
        return self._copies[-1].sequence if self._copies else 0

    @property
    def last(self) -> QueuedMessage | None:
        """The last message; None if the queue is empty."""
        return self._copies[-1] if self._copies else None

    def add(self, message: QueuedMessage) -> None:
        self.bytes += len(message.copy.stored.data)
        self._copies.append(message)

    def drop_first(self) -> None:
        """Remove the first message."""
        self.bytes -= len(self._copies.popleft().copy.stored.data)

    def drop_through(self, sequence: int) -> None:
        """Remove messages up to `sequence`, which the host has read from the stream."""
        while self._copies and self._copies[0].sequence <= sequence:
            self.drop_first()

    def clear(self) -> None:
        self._copies.clear()
        self.bytes = 0
