"""What the in-memory twin of NATS asks about every message (Weather), and whom it tells what happened (Tap).

Without a weather every message takes one turn of the loop each way and arrives in order. Subscriptions,
their ends and barriers belong to a connection: a weather may slow them, but they are never lost or overtaken
on it. It is asked about them with an empty subject, and only the slowest copy counts.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from lorogo_transport.ports import Message, StoredMessage

Kind = Literal[
    "publish",  # to the broker: core messages, and appends that nobody confirms
    "deliver",  # from the broker to a subscriber
    "ask",  # to the broker: appends, gets, purges, and whatever else JetStream answers
    "answer",  # from the broker: its answers to those
]


class FaultModel(Protocol):
    """How messages travel."""

    @property
    def waiting_max(self) -> int:
        """A connection with more deliveries waiting than this is ended: a slow consumer. 0: no bound."""

    def travel(self, line: str, kind: Kind, subject: str, size: int) -> tuple[float, ...]:
        """Seconds until each copy arrives, () if it is lost. `line` is the name given to `connect()`."""

    def lag(self, stream: str) -> int:
        """How many of the newest changes the replica that answers this direct get has not seen."""


class BrokerObserver(Protocol):
    """Told by the broker what happens, in order, at once."""

    def published(self, line: str, message: Message) -> None:
        """It reached the broker."""

    def stored(self, stream: str, stored: StoredMessage, previous: int, line: str) -> None:
        """A stream took it; `previous` was its subject's last sequence."""

    def removed(self, stream: str, gone: Sequence[StoredMessage], how: str, line: str) -> None:
        """A stream holds these no more. How: purge, delete, rollup, limit, age or loss."""

    def refused(self, stream: str, message: Message, error: Exception, line: str) -> None:
        """A stream did not take it: a lost compare-and-swap, no room."""

    def delivered(self, line: str, message: Message) -> None:
        """It is handed to a handler of that connection."""
