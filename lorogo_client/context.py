"""What every part of a client shares: the transport, the clock, chance, ids and settings."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lorogo_client.sending import Replies
from lorogo_client.settings import ClientSettings
from lorogo_client.starting import Starter
from lorogo_transport.calls import Caller
from lorogo_transport.clock import Clock
from lorogo_transport.ports import Bus, Transport

if TYPE_CHECKING:
    from lorogo_client.storing.local import LocalStore  # loads the log


@dataclass(frozen=True, slots=True)
class Context:
    """Made once by the client, and passed down."""

    transport: Transport
    clock: Clock
    rng: random.Random
    new_id: Callable[[], str]
    settings: ClientSettings
    caller: Caller
    replies: Replies
    starter: Starter
    store: "LocalStore | None" = None

    @property
    def bus(self) -> Bus:
        return self.transport.bus
