"""What one host has heard of its document's WAL and not taken yet.

Bounded, and nothing is lost by that: all of it is in the stream, where it can be read instead.
"""

from collections import deque
from typing import NamedTuple

from lorogo_server.sandbox.batch_validation import BatchedUpdate
from lorogo_transport.stores.republish import Republished

_BYTES_MAX = 8 * 1024 * 1024
_RATE_BYTES_MAX = 4 * 1024 * 1024  # of one document in
_RATE_SECONDS = 1.0


class QueuedMessage(NamedTuple):
    """A copy that waits for its turn, and since when, by our own clock."""

    copy: Republished
    at: float
    foretaste: BatchedUpdate | None  # None: it is tasted when its turn comes

    @property
    def sequence(self) -> int:
        return self.copy.stored.sequence

    @property
    def is_tasted(self) -> bool:
        """Whether its turn may come: nobody tastes it just now."""
        return self.foretaste is None or self.foretaste.known

    @property
    def is_fine(self) -> bool:
        """Whether the taster has decoded it, and nothing happened."""
        return self.foretaste is not None and self.foretaste.fine


class Backlog:
    """Copies in the order in which they were heard, and their bytes."""

    __slots__ = ("_copies", "_rate_bytes", "_rate_from", "bytes")

    def __init__(self) -> None:
        self._rate_bytes = 0
        self._rate_from = 0.0
        self._copies: deque[QueuedMessage] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._copies)

    def has_room(self, size: int, now: float) -> bool:
        """Whether a copy may be added; if not, the host must read it from the stream later.

        There is none for more than is read in passing, either: it would wait in nats-server, where we cannot
        count it, and the copies of other documents would wait behind it.
        """
        if now - self._rate_from >= _RATE_SECONDS:
            self._rate_from, self._rate_bytes = now, 0
        self._rate_bytes += size
        return self.bytes <= _BYTES_MAX and self._rate_bytes <= _RATE_BYTES_MAX

    @property
    def first(self) -> QueuedMessage:
        """The one whose turn is next. Only where there is one."""
        return self._copies[0]

    @property
    def newest(self) -> int:
        """The sequence of the one that was heard last; 0: there is none."""
        return self._copies[-1].sequence if self._copies else 0

    @property
    def newest_ns(self) -> int:
        """When that was stored."""
        return self._copies[-1].copy.stored.time_ns if self._copies else 0

    def add(self, heard: QueuedMessage) -> None:
        self.bytes += len(heard.copy.stored.data)
        self._copies.append(heard)

    def drop_first(self) -> None:
        """It was taken."""
        self.bytes -= len(self._copies.popleft().copy.stored.data)

    def drop_through(self, sequence: int) -> None:
        """Those up to there were read meanwhile."""
        while self._copies and self._copies[0].sequence <= sequence:
            self.drop_first()

    def clear(self) -> None:
        self._copies.clear()
        self.bytes = 0
