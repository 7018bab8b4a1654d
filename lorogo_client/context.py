"""What every part of a client shares: the transport, the clock, chance, ids and settings."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lorogo_client.auth.token_provider import TokenProvider
from lorogo_client.delivery.replies import Replies
from lorogo_client.delivery.starter import DocumentStarter
from lorogo_client.settings import ClientSettings
from lorogo_client.tracing import ClientTracing
from lorogo_protocol.calls import Body
from lorogo_transport.clock import Clock
from lorogo_transport.ports import Bus, Transport
from lorogo_transport.rpc.calls import Caller

if TYPE_CHECKING:
    from lorogo_client.store.local_store import LocalStore  # loads the log


@dataclass(slots=True)
class ConnectionToken:
    """The token that one connection was made with: its calls carry the same."""

    text: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ClientContext:
    """Made once per connection (lorogo_client.auth.connection_pool), and passed down."""

    transport: Transport
    clock: Clock
    rng: random.Random
    new_id: Callable[[], str]
    settings: ClientSettings
    caller: Caller
    replies: Replies
    starter: DocumentStarter
    holder: TokenProvider
    badge: ConnectionToken
    store: "LocalStore | None" = None
    tracing: ClientTracing | None = None  # None: nobody looks at single updates

    @property
    def bus(self) -> Bus:
        return self.transport.bus

    async def call(
        self, verb: str, document_id: str, body: Body, *, timeout: float, token: str = ""
    ) -> dict[str, object]:
        """What the owner answers; the token is ours unless it is said. Raises as `Caller.call`."""
        return await self.caller.call(
            verb, document_id, body, timeout=timeout, token=token or self.badge.text
        )
