"""What all connections of the gateway share."""

import asyncio
import random
from dataclasses import dataclass, field

from lorogo_client import Client
from lorogo_gateway.auth import Guard
from lorogo_gateway.frames import Unfinished
from lorogo_gateway.limits.limiter import Limiter
from lorogo_gateway.settings import GatewaySettings
from lorogo_gateway.state.counters import Counters
from lorogo_gateway.state.cursors import Cursors
from lorogo_gateway.state.fan_out import Fanout
from lorogo_gateway.state.followers import Kept
from lorogo_gateway.state.shared_payload import Shared
from lorogo_transport.rpc.calls import Budget
from lorogo_transport.tasks import Tasks

_KEYS_MIN = 4  # tokens that must be busy to use up all room for unfinished fragments
_JOINS_MAX = 8  # whose answer is in memory, and not yet in the budget


@dataclass(slots=True)
class House:
    """One per gateway."""

    client: Client
    settings: GatewaySettings
    tasks: Tasks  # what goes on after a connection is over
    guard: Guard = field(default_factory=Guard)
    limiter: Limiter = field(default_factory=lambda: Limiter(GatewaySettings()))
    counters: Counters = field(default_factory=Counters)
    cursors: dict[str, Cursors] = field(default_factory=dict)  # of documents whose presence is followed
    fanout: Fanout = field(init=False)
    kept: Kept = field(init=False)
    joining: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_JOINS_MAX))
    backfill: Budget = field(init=False)
    large: Shared = field(init=False)  # accepted updates that do not go out at once
    unfinished: Unfinished = field(init=False)  # fragments that came

    def __post_init__(self) -> None:
        self.fanout = Fanout(self.settings.fragment_bytes, random.Random())
        self.kept = Kept(self.client.kept_presence)
        self.backfill = Budget(self.settings.backfill_bytes_max)
        self.large = Shared(self.settings.backfill_bytes_max)
        most, one = self.settings.unfinished_bytes_max, self.settings.update_bytes_max
        self.unfinished = Unfinished(most, max(most // _KEYS_MIN, one))
