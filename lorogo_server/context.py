"""What every host of one server shares, passed and not global."""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from lorogo_protocol import subjects
from lorogo_protocol.chunks import MemoryBudget
from lorogo_protocol.reasons import Reason
from lorogo_server.compaction.wal_usage import WalUsage
from lorogo_server.document.quarantine import Quarantine
from lorogo_server.journal.ack_metrics import AckMetrics
from lorogo_server.journal.disk_journal import Journal
from lorogo_server.ownership.epoch import EpochTracker
from lorogo_server.ownership.load_notes import LoadNotes
from lorogo_server.recovery.vouchers import Vouchers
from lorogo_server.rpc.rights import CallRights
from lorogo_server.sandbox.batch_validation import BatchValidation
from lorogo_server.sandbox.call_executor import CallExecutor
from lorogo_server.sandbox.child_process import ChildProcesses
from lorogo_server.sandbox.decode_sandbox import ValidateUpdate, untasted
from lorogo_server.settings import ServerSettings
from lorogo_server.tracing import ServerTracing
from lorogo_transport.clock import Clock
from lorogo_transport.errors import StreamMissing
from lorogo_transport.ports import Stream, Transport
from lorogo_transport.rpc.calls import ReplyBudget
from lorogo_transport.stores.snapshots import SnapshotStore
from lorogo_transport.stores.statuses import Statuses

_TAKEOVERS_TOLD = 16


@dataclass(slots=True)
class ServerCounters:
    """What this server has done since it started."""

    accepted: int = 0
    accepted_bytes: int = 0
    refused: int = 0
    loads: int = 0  # documents taken, whether they came up or not
    loads_waiting: int = 0  # now: for a slot
    load_failures: int = 0
    recovering: int = 0  # now: documents that wait for journals before they are loaded
    compactions: int = 0
    step_downs: int = 0  # documents given up because the lease was lost
    takeovers: int = 0  # of those taken: another server had it, and was gone without a word
    last_takeovers: deque[tuple[str, str, int]] = field(  # (document, from whom, when)
        default_factory=lambda: deque(maxlen=_TAKEOVERS_TOLD)
    )

    calls_refused: dict[str, int] = field(default_factory=dict)  # by reason
    unanswerable: int = 0  # updates whose sender named an inbox that we must not answer to
    presence_dropped: int = 0  # messages above the limits
    pings_dropped: int = 0  # too many at once

    def refused_call(self, reason: Reason) -> None:
        """Somebody was told no."""
        self.calls_refused[reason.value] = self.calls_refused.get(reason.value, 0) + 1

    def took_over(self, document_id: str, server_id: str, time_ns: int) -> None:
        """The document was that server's, and is ours now."""
        self.takeovers += 1
        self.last_takeovers.append((document_id, server_id, time_ns))


async def _no_doubts() -> int:
    return 0


async def _nothing_absent(_document_id: str, _taken_from: str) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class ServerContext:
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
    epochs: EpochTracker
    quarantine: Quarantine
    journal: Journal
    tally: AckMetrics
    load_slots: asyncio.Semaphore
    reply_budget: ReplyBudget
    vouchers: Vouchers
    unfinished: MemoryBudget  # for chunks of updates and calls that are not whole, of all documents
    check_epoch: Callable[[], Awaitable[bool]]  # True: it changed, and every host was told
    erased: Callable[[str], None]  # a document was erased: its records go
    doubts: Callable[[], Awaitable[int]] = _no_doubts  # how often NATS may have lost data, as far as is known
    # Brings a document back before it is loaded, if NATS may have lost data; names the absent journals.
    recover: Callable[[str, str], Awaitable[tuple[str, ...]]] = _nothing_absent
    level: WalUsage = field(default_factory=WalUsage)
    executor: CallExecutor = field(default_factory=CallExecutor)
    children: ChildProcesses = field(default_factory=ChildProcesses)
    rights: CallRights = field(default_factory=CallRights)
    load_notes: LoadNotes = field(default_factory=LoadNotes)
    taste: ValidateUpdate = untasted
    foretaste: BatchValidation | None = None  # None: every update is tasted when its turn comes
    tracing: ServerTracing | None = None  # None: nobody looks at single updates
    counters: ServerCounters = field(default_factory=ServerCounters)

    async def keeps_presence(self, document_id: str) -> bool:
        """Whether presence is kept for the document, which needs no edit."""
        try:
            presence = self.transport.stream(subjects.PRESENCE_STREAM)
            return await presence.last(subjects.presence_key(document_id)) is not None
        except StreamMissing:
            return False
