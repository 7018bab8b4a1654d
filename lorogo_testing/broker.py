"""What the in-memory broker and a connection to it know of each other."""

import itertools
import random
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import Protocol

from lorogo_protocol.grants import Subjects
from lorogo_testing.fault_model import BrokerObserver, FaultModel
from lorogo_transport.ports import Message
from lorogo_transport.rpc.reply_rule import ReplyRule

Handler = Callable[[Message], None]


@dataclass(frozen=True, slots=True)
class ConnectionIdentity:
    """Who a connection is to the broker, as the options of `nats.connection.connect` say it."""

    inbox_prefix: str = "_INBOX"
    taken_prefix: str = ""
    answering: ReplyRule = field(default_factory=ReplyRule)
    permissions: Subjects | None = None  # None: everything


class BrokerConnection(Protocol):
    """What the broker needs of `bus.MemoryBus`."""

    @property
    def connected(self) -> bool: ...

    def deliver(self, listener: "BrokerSubscription", message: Message) -> None:
        """Bring a message to its handler."""

    def drop(self) -> None:
        """Lose the connection, and connect again by oneself when the broker is there."""

    def forget(self, listener: "BrokerSubscription") -> None:
        """End a subscription."""


class BrokerSubscription:
    """One subscription of one connection."""

    __slots__ = ("bus", "handler", "queue", "sid", "subject")

    def __init__(self, bus: BrokerConnection, sid: int, subject: str, queue: str, handler: Handler) -> None:
        self.bus = bus
        self.sid = sid
        self.subject = subject
        self.queue = queue
        self.handler = handler

    async def close(self) -> None:
        self.bus.forget(self)


class Broker(Protocol):
    """What a connection needs of `memory_nats.MemoryNats`."""

    max_payload: int
    broker_id: str
    ids: "itertools.count[int]"
    rng: random.Random
    weather: FaultModel | None
    tap: BrokerObserver | None
    context: Context

    @property
    def down(self) -> bool:
        """Whether the broker is not there right now."""

    def publish(self, message: Message, line: str = "") -> list[tuple[str, int]]:
        """Route to listeners and streams; returns (stream, sequence) where it was stored."""

    def add(self, listener: BrokerSubscription) -> None: ...

    def discard(self, listener: BrokerSubscription) -> None: ...

    def left(self, connection: BrokerConnection) -> None:
        """It never comes back."""
