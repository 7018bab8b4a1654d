"""The objects that every part of a client shares: transport, clock, randomness, ids, settings."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lorogo_client.auth.token_provider import TokenProvider
from lorogo_client.delivery.replies import Replies
from lorogo_client.delivery.starter import DocumentStarter
from lorogo_client.settings import ClientSettings
from lorogo_client.tracing import ClientTracing
from lorogo_protocol.messages.calls import Body
from lorogo_transport.clock import Clock
from lorogo_transport.ports import Bus, Transport
from lorogo_transport.rpc.calls import Caller

if TYPE_CHECKING:
    from lorogo_client.store.local_store import LocalStore  # loads the log


@dataclass(slots=True)
class ConnectionToken:
    """The token that one connection was opened with; its calls carry the same token."""

    text: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ClientContext:
    """Created once per connection (lorogo_client.auth.connection_pool), and passed down."""

    transport: Transport
    clock: Clock
    rng: random.Random
    new_id: Callable[[], str]
    settings: ClientSettings
    caller: Caller
    replies: Replies
    starter: DocumentStarter
    token_provider: TokenProvider
    connection_token: ConnectionToken
    store: "LocalStore | None" = None
    tracing: ClientTracing | None = None  # None: single updates are not traced

    @property
    def bus(self) -> Bus:
        return self.transport.bus

    async def call(
        self, verb: str, document_id: str, body: Body, *, timeout: float, token: str = ""
    ) -> dict[str, object]:
        """Return the owner's answer; the token is the connection's unless given. Raises as `Caller.call`."""
        return await self.caller.call(
            verb, document_id, body, timeout=timeout, token=token or self.connection_token.text
        )
