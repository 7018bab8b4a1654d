"""The state that all connections of a gateway share."""

import asyncio
import random
from dataclasses import dataclass, field

from lorogo_client import Client
from lorogo_gateway.auth import TokenGuard
from lorogo_gateway.frames import FragmentBudget
from lorogo_gateway.limits.limiter import Limiter
from lorogo_gateway.relay.relays import Relays
from lorogo_gateway.settings import GatewaySettings
from lorogo_gateway.state.counters import GatewayCounters
from lorogo_gateway.state.cursors import Cursors
from lorogo_gateway.state.fan_out import Fanout
from lorogo_gateway.state.followers import PresenceSubscriptions
from lorogo_gateway.state.shared_payload import SharedPayloadBudget
from lorogo_transport.rpc.calls import ReplyBudget
from lorogo_transport.tasks import Tasks

_KEYS_MIN = 4  # one token gets at most this fraction of the budget for unfinished fragments
_JOINS_MAX = 8  # concurrent joins whose response is in memory before the backfill budget counts it


@dataclass(slots=True)
class GatewayState:
    """The shared state; one per gateway."""

    client: Client
    settings: GatewaySettings
    tasks: Tasks  # tasks that outlast their connection
    guard: TokenGuard = field(default_factory=TokenGuard)
    limiter: Limiter = field(default_factory=lambda: Limiter(GatewaySettings()))
    counters: GatewayCounters = field(default_factory=GatewayCounters)
    cursors: dict[str, Cursors] = field(default_factory=dict)  # by document with a presence room
    fanout: Fanout = field(init=False)
    relays: Relays = field(init=False)
    kept: PresenceSubscriptions = field(init=False)
    joining: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_JOINS_MAX))
    backfill: ReplyBudget = field(init=False)
    large: SharedPayloadBudget = field(init=False)  # accepted updates in outgoing queues
    unfinished: FragmentBudget = field(init=False)  # received fragments

    def __post_init__(self) -> None:
        self.fanout = Fanout(self.settings.fragment_bytes, random.Random())
        self.relays = Relays(self.client)
        self.kept = PresenceSubscriptions(self.client.kept_presence)
        self.backfill = ReplyBudget(self.settings.backfill_bytes_max)
        self.large = SharedPayloadBudget(self.settings.backfill_bytes_max)
        most, one = self.settings.unfinished_bytes_max, self.settings.update_bytes_max
        self.unfinished = FragmentBudget(most, max(most // _KEYS_MIN, one))
