"""Objects that all hosts of one server share, passed as one argument."""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field

from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.chunks import MemoryBudget
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.compaction.wal_usage import WalUsage
from lorogo_server.document.quarantine import Quarantine
from lorogo_server.journal.ack_metrics import AckMetrics
from lorogo_server.journal.disk_journal import Journal, NoJournal
from lorogo_server.ownership.epoch import EpochTracker
from lorogo_server.ownership.load_notes import LoadNotes
from lorogo_server.recovery.vouchers import Vouchers
from lorogo_server.rpc.rights import CallRights
from lorogo_server.sandbox.child_process import ChildProcesses
from lorogo_server.sandbox.decode_sandbox import DecodeSandbox, ValidateUpdate
from lorogo_server.settings import ServerSettings
from lorogo_server.tracing import ServerTracing
from lorogo_transport.clock import Clock
from lorogo_transport.errors import StreamMissing
from lorogo_transport.ports import Stream, Transport
from lorogo_transport.rpc.calls import ReplyBudget
from lorogo_transport.stores.snapshots import SnapshotStore
from lorogo_transport.stores.statuses import Statuses

_TAKEOVERS_KEPT = 16
_REPLY_BYTES_MAX = 256 * 1024 * 1024  # replies to calls under way at once


@dataclass(slots=True)
class ServerCounters:
    """Counts of this server since its start."""

    accepted: int = 0
    accepted_bytes: int = 0
    refused: int = 0
    loads: int = 0  # documents acquired, including failed loads
    loads_waiting: int = 0  # gauge: loads that wait for a slot
    load_failures: int = 0
    recovering: int = 0  # gauge: documents that wait for journals before the load
    compactions: int = 0
    step_downs: int = 0  # documents released because the lease was lost
    takeovers: int = 0  # documents acquired from a server that did not write DOWN
    last_takeovers: deque[tuple[str, str, int]] = field(  # (document, previous owner, time in ns)
        default_factory=lambda: deque(maxlen=_TAKEOVERS_KEPT)
    )

    calls_refused: dict[str, int] = field(default_factory=dict)  # by reason
    unanswerable: int = 0  # updates with a reply inbox that the server must not publish to
    presence_dropped: int = 0  # messages above the limits
    pings_dropped: int = 0  # above the number handled at once

    def stats(self) -> dict[str, object]:
        """Figures for operators, by name."""
        return {**asdict(self), "last_takeovers": [list(one) for one in self.last_takeovers]}

    def refused_call(self, reason: Reason) -> None:
        """Count a refused call."""
        self.calls_refused[reason.value] = self.calls_refused.get(reason.value, 0) + 1

    def took_over(self, document_id: str, server_id: str, time_ns: int) -> None:
        """Count a document acquired from a server that did not write DOWN."""
        self.takeovers += 1
        self.last_takeovers.append((document_id, server_id, time_ns))


@dataclass(slots=True, kw_only=True)
class ServerContext:
    """The parts of a server that its hosts use."""

    server_id: str
    transport: Transport
    settings: ServerSettings
    clock: Clock
    rng: random.Random
    new_id: Callable[[], str]
    journal: Journal
    data_losses: Callable[[], Awaitable[int]]  # number of known possible data losses of NATS
    # Restores a document from journals before its load if NATS may have lost data; returns absent journals.
    recover: Callable[[str, str], Awaitable[tuple[str, ...]]]
    after_restore: Callable[[str], Awaitable[None]]  # brings back content that NATS lost with a tombstone
    living_terms: Callable[[str], tuple[str, ...]]  # of a document in this server's journals
    rights: CallRights
    validate: ValidateUpdate
    batch_validation: DecodeSandbox | None  # None: updates are validated one by one
    tracing: ServerTracing | None  # None: single updates are not traced
    wal_usage: WalUsage = field(default_factory=WalUsage)
    call_turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # of calls on the event loop
    children: ChildProcesses = field(default_factory=ChildProcesses)
    load_notes: LoadNotes = field(default_factory=LoadNotes)
    counters: ServerCounters = field(default_factory=ServerCounters)
    reply_budget: ReplyBudget = field(default_factory=lambda: ReplyBudget(_REPLY_BYTES_MAX))
    wal: Stream = field(init=False)
    statuses: Statuses = field(init=False)
    snapshots: SnapshotStore = field(init=False)
    epochs: EpochTracker = field(init=False)
    quarantine: Quarantine = field(init=False)
    vouchers: Vouchers = field(init=False)
    ack_metrics: AckMetrics = field(init=False)
    load_slots: asyncio.Semaphore = field(init=False)
    unfinished: MemoryBudget = field(init=False)  # for chunks of incomplete updates and calls

    def __post_init__(self) -> None:
        transport = self.transport
        self.wal = transport.stream(subjects.WAL_STREAM)
        self.statuses = Statuses(transport)
        self.snapshots = SnapshotStore(
            transport.stream(subjects.SNAPSHOT_STREAM),
            max_payload=transport.bus.max_payload,
            clock=self.clock,
            new_id=self.new_id,
        )
        self.epochs = EpochTracker(transport)
        self.quarantine = Quarantine(transport)
        self.vouchers = Vouchers(transport.bus, self.clock)
        self.ack_metrics = AckMetrics(self.server_id, self.clock.wall_ns())
        self.load_slots = asyncio.Semaphore(self.settings.loads_max)
        self.unfinished = MemoryBudget(self.settings.unfinished_total_bytes_max)

    @property
    def has_journal(self) -> bool:
        """True if accepted updates are also written to a journal."""
        return self.journal.durability != NoJournal.durability

    async def keeps_presence(self, document_id: str) -> bool:
        """Return True if presence is stored for the document; a document may have presence without edits."""
        try:
            presence = self.transport.stream(subjects.PRESENCE_STREAM)
            return await presence.last(subjects.presence_key(document_id)) is not None
        except StreamMissing:
            return False
