"""The interface between the in-memory broker and its connections."""

import itertools
import random
from contextvars import Context
from dataclasses import dataclass, field
from typing import Protocol

from lorogo_protocol.access.grants import Subjects
from lorogo_testing.fault_model import BrokerObserver, FaultModel
from lorogo_transport.ports import Handler, Message
from lorogo_transport.rpc.reply_rule import ReplyRule


@dataclass(frozen=True, slots=True)
class ConnectionIdentity:
    """The identity of a connection, as given by the options of `nats.connection.connect`."""

    inbox_prefix: str = "_INBOX"
    taken_prefix: str = ""
    answering: ReplyRule = field(default_factory=ReplyRule)
    permissions: Subjects | None = None  # None: all subjects


class BrokerConnection(Protocol):
    """The part of `bus.MemoryBus` that the broker uses."""

    @property
    def connected(self) -> bool: ...

    def deliver(self, listener: "BrokerSubscription", message: Message) -> None:
        """Deliver a message to its handler."""

    def drop(self) -> None:
        """Drop the connection, and reconnect when the broker is up."""

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
    """The part of `memory_nats.MemoryNats` that a connection uses."""

    max_payload: int
    broker_id: str
    ids: "itertools.count[int]"
    rng: random.Random
    fault_model: FaultModel | None
    observer: BrokerObserver | None
    context: Context

    @property
    def down(self) -> bool:
        """True while the broker is down."""

    def publish(self, message: Message, line: str = "") -> list[tuple[str, int]]:
        """Route to listeners and streams; return (stream, sequence) where the message was stored."""

    def add(self, listener: BrokerSubscription) -> None: ...

    def discard(self, listener: BrokerSubscription) -> None: ...

    def left(self, connection: BrokerConnection) -> None:
        """Remove a connection permanently."""
