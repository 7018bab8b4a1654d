"""The fault model of the in-memory twin of NATS, and the observer of its events.

Without a fault model every message takes one turn of the loop each way and arrives in order. Subscriptions,
their ends and barriers belong to a connection: a fault model may delay them, but they are never lost or
reordered on it. `travel` gets an empty subject for them, and only the slowest copy counts.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from lorogo_transport.ports import Message, StoredMessage

Kind = Literal[
    "publish",  # to the broker: core messages, and unconfirmed appends
    "deliver",  # from the broker to a subscriber
    "ask",  # to the broker: appends, gets, purges, and other JetStream requests
    "answer",  # from the broker: the answers to those
]


class FaultModel(Protocol):
    """Delays, losses and duplicates of messages."""

    @property
    def waiting_max(self) -> int:
        """Maximum of pending deliveries; beyond it the connection ends as a slow consumer. 0: no bound."""

    def travel(self, line: str, kind: Kind, subject: str, size: int) -> tuple[float, ...]:
        """Return the delay of each copy in seconds, () for a loss.

        `line` is the name given to `connect()`.
        """

    def lag(self, stream: str) -> int:
        """Return how many of the newest changes the replica of a direct get lacks."""


class BrokerObserver(Protocol):
    """Receives the broker's events, in order and synchronously."""

    def published(self, line: str, message: Message) -> None:
        """A message reached the broker."""

    def stored(self, stream: str, stored: StoredMessage, previous: int, line: str) -> None:
        """A stream stored a message; `previous` was its subject's last sequence."""

    def removed(self, stream: str, gone: Sequence[StoredMessage], how: str, line: str) -> None:
        """A stream removed messages. `how`: purge, delete, rollup, limit, age or loss."""

    def refused(self, stream: str, message: Message, error: Exception, line: str) -> None:
        """A stream refused a message: a lost compare-and-swap, or full."""

    def delivered(self, line: str, message: Message) -> None:
        """A handler of that connection gets a message."""
