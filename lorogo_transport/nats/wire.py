"""One connection to NATS as the bus sees it: how it is made, what it does, who listens on it."""

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
    """How to reach NATS."""

    servers: tuple[str, ...] = field(repr=False)  # they may hold passwords
    name: str
    timeout: float
    login: NatsCredentials = field(default_factory=NatsCredentials)
    tls: ssl.SSLContext | None = None
    inbox_prefix: str = "_INBOX"  # with a token, its user's instead
    taken_prefix: str = ""  # where "go on" is heard; empty: in an inbox
    answering: ReplyRule = field(default_factory=ReplyRule)
    rng: random.Random = field(default_factory=random.Random)  # spreads the reconnects
    reconnect_seconds_max: float = RECONNECT_SECONDS_MAX  # the longest pause between two attempts


class NatsConnection(Protocol):
    """One connection, from handshake to loss."""

    last_problem: Exception | None

    @property
    def max_payload(self) -> int: ...

    @property
    def broker_id(self) -> str: ...

    @property
    def congested(self) -> bool:
        """Whether the socket is behind: publishers should `drain()` first."""

    @property
    def dead(self) -> bool: ...

    async def dial(self, server: str, options: NatsOptions, token: str | None) -> None:
        """Connect and authenticate, or raise Unreachable."""

    def discovered(self, server: str) -> list[str]:
        """Other servers of the cluster."""

    def send(self, *parts: bytes) -> None:
        """Queue for the socket, in order."""

    async def drain(self) -> None:
        """Wait until the socket takes more. Raises OSError when the wire is lost."""

    def ping(self) -> "asyncio.Future[bool]":
        """A future: True when everything sent before was processed, False when the wire is lost first."""

    def abort(self) -> None:
        """End at once. Safe twice."""

    async def ended(self) -> None:
        """Wait for the wire's tasks after `abort()`."""


class SubscriptionOwner(Protocol):
    """Where a subscription ends."""

    def forget(self, sid: int) -> None: ...


class NatsSubscription:
    """One subscription: survives wires."""

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
    """Makes a wire that hands messages to `listeners`, and reports its loss and what NATS does not allow."""

    def __call__(
        self,
        listeners: Mapping[int, NatsSubscription],
        on_lost: Callable[[NatsConnection, Exception], None],
        on_refused: Callable[[PermissionViolation], None],
    ) -> NatsConnection: ...
