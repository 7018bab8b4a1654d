"""What every host of one server shares, passed and not global."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from lorogo_server.epoch import Epochs
from lorogo_server.journal import Journal
from lorogo_server.quarantine import Quarantine
from lorogo_server.settings import ServerSettings
from lorogo_server.tally import Tally
from lorogo_transport.calls import Budget
from lorogo_transport.clock import Clock
from lorogo_transport.ports import Stream, Transport
from lorogo_transport.snapshots import SnapshotStore
from lorogo_transport.statuses import Statuses


@dataclass(slots=True)
class Counters:
    """What this server has done since it started."""

    accepted: int = 0
    refused: int = 0
    loads: int = 0
    load_failures: int = 0
    compactions: int = 0
    step_downs: int = 0


@dataclass(frozen=True, slots=True)
class Context:
    """The server as its hosts see it."""

    server_id: str
    transport: Transport
    settings: ServerSettings
    clock: Clock
    rng: random.Random
    new_id: Callable[[], str]
    wal: Stream
    statuses: Statuses
    snapshots: SnapshotStore
    epochs: Epochs
    quarantine: Quarantine
    journal: Journal
    tally: Tally
    load_slots: asyncio.Semaphore
    reply_budget: Budget
    check_epoch: Callable[[], Awaitable[bool]]  # True: it changed, and every host was told
    erased: Callable[[str], None]  # a document was erased: its records go
    counters: Counters = field(default_factory=Counters)
