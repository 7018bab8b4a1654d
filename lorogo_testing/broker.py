"""A connection's identity and its subscriptions, as the in-memory broker keeps them."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lorogo_protocol.access.grants import Subjects
from lorogo_transport.ports import Handler
from lorogo_transport.rpc.reply_rule import ReplyRule

if TYPE_CHECKING:
    from lorogo_testing.bus import MemoryBus  # which has subscriptions


@dataclass(frozen=True, slots=True)
class ConnectionIdentity:
    """The identity of a connection, as given by the options of `nats.connection.connect`."""

    inbox_prefix: str = "_INBOX"
    taken_prefix: str = ""
    answering: ReplyRule = field(default_factory=ReplyRule)
    permissions: Subjects | None = None  # None: all subjects


class BrokerSubscription:
    """One subscription of one connection."""

    __slots__ = ("bus", "handler", "queue", "sid", "subject")

    def __init__(self, bus: "MemoryBus", sid: int, subject: str, queue: str, handler: Handler) -> None:
        self.bus = bus
        self.sid = sid
        self.subject = subject
        self.queue = queue
        self.handler = handler

    async def close(self) -> None:
        self.bus.forget(self)
