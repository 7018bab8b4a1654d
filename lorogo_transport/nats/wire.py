"""The interface between the bus and one NATS connection: options, connection, subscriptions."""

import asyncio
import random
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from lorogo_transport.nats.login import NatsCredentials
from lorogo_transport.ports import Message, PermissionViolation
from lorogo_transport.rpc.reply_rule import ReplyRule

Handler = Callable[[Message], None]

RECONNECT_SECONDS_MAX: Final = 2.0


@dataclass(frozen=True, slots=True)
class NatsOptions:
    """The options of a connection to NATS."""

    servers: tuple[str, ...] = field(repr=False)  # may contain passwords
    name: str
    timeout: float
    login: NatsCredentials = field(default_factory=NatsCredentials)
    tls: ssl.SSLContext | None = None
    inbox_prefix: str = "_INBOX"  # with a token, the user's prefix replaces it
    taken_prefix: str = ""  # of subjects for window confirmations; empty: inboxes
    answering: ReplyRule = field(default_factory=ReplyRule)
    rng: random.Random = field(default_factory=random.Random)  # spreads the reconnects
    reconnect_seconds_max: float = RECONNECT_SECONDS_MAX  # the maximum pause between two attempts


class NatsConnection(Protocol):
    """One connection, from handshake to loss."""

    last_problem: Exception | None

    @property
    def max_payload(self) -> int: ...

    @property
    def broker_id(self) -> str: ...

    @property
    def congested(self) -> bool:
        """True if the send buffer is full: publishers should `drain()` first."""

    @property
    def dead(self) -> bool: ...

    async def dial(self, server: str, options: NatsOptions, token: str | None) -> None:
        """Connect and authenticate, or raise Unreachable."""

    def discovered(self, server: str) -> list[str]:
        """Return the other servers of the cluster."""

    def send(self, *parts: bytes) -> None:
        """Queue bytes for the socket, in order."""

    async def drain(self) -> None:
        """Wait until the send buffer has space. Raises OSError when the connection is lost."""

    def ping(self) -> "asyncio.Future[bool]":
        """Return a future: True when NATS has processed everything sent before, False after a loss."""

    def abort(self) -> None:
        """End the connection at once. Idempotent."""

    async def ended(self) -> None:
        """Wait for the connection's tasks after `abort()`."""


class SubscriptionOwner(Protocol):
    """The bus, to which a closed subscription is reported."""

    def forget(self, sid: int) -> None: ...


class NatsSubscription:
    """One subscription; it survives reconnects."""

    __slots__ = ("_bus", "handler", "queue", "sid", "subject")

    def __init__(self, bus: SubscriptionOwner, sid: int, subject: str, queue: str, handler: Handler) -> None:
        self._bus = bus
        self.sid = sid
        self.subject = subject
        self.queue = queue
        self.handler = handler

    def command(self) -> bytes:
        return f"SUB {self.subject} {self.queue} {self.sid}\r\n".encode()

    async def close(self) -> None:
        self._bus.forget(self.sid)


class NatsConnector(Protocol):
    """Creates a connection that delivers to `listeners`, and reports its loss and permission violations."""

    def __call__(
        self,
        listeners: Mapping[int, NatsSubscription],
        on_lost: Callable[[NatsConnection, Exception], None],
        on_refused: Callable[[PermissionViolation], None],
    ) -> NatsConnection: ...
