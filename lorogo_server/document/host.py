"""Host of one open document: its parts, and what calls, compaction, recovery and the server need of them.

    acquired ─▶ startup.py: recover, load, claim ─▶ UP: host_loop.py follows the WAL ─▶ closed
                                                     wal_reader.py: copies, gaps, re-reads
                                                     effects.py: journal, publish, ACK or NACK

`DocumentState` decides what the document may do; only the host and these modules change it.
"""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from lorogo_protocol.errors import LorogoError
from lorogo_server.context import ServerContext
from lorogo_server.document import wal_bounds
from lorogo_server.document.ack_queue import AckQueue
from lorogo_server.document.compaction_request import CompactionRequest
from lorogo_server.document.document_journal import DocumentJournal
from lorogo_server.document.document_state import DocumentState, Phase
from lorogo_server.document.loading import Loaded, LoadRequest
from lorogo_server.document.quarantine import DocumentQuarantine
from lorogo_server.intake.backlog import Backlog
from lorogo_server.journal.disk_journal import JournalStopped, safe
from lorogo_server.ownership.lease import Lease, LeaseLost
from lorogo_server.rpc.endpoint import DocumentEndpoint
from lorogo_server.sandbox.call_costs import Call, CallCosts, Size
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.errors import TransportError
from lorogo_transport.light import Event, Timer
from lorogo_transport.ports import Message, Subscription
from lorogo_transport.stores.snapshots import SnapshotHead
from lorogo_transport.tasks import Tasks, Work
from lorogo_transport.telemetry.logs import get_logger

Methods = Callable[["Host", str, dict[str, object]], Awaitable[Mapping[str, object]]]


class Host:
    """The owner of one document."""

    __slots__ = (  # a server has as many as open documents
        "__weakref__",
        "_endpoint",
        "_last_activity",
        "_loaded",
        "_methods",
        "_subscriptions",
        "acks",
        "backlog",
        "busy",
        "closed",
        "compacting",
        "context",
        "copies",
        "costs",
        "document_id",
        "due",
        "editing",
        "gap_read_for",
        "in_turn",
        "incomplete",
        "journal",
        "lease",
        "load_scope",
        "log",
        "received_at",
        "recovering",
        "refused",
        "shared_calls",
        "since_ns",
        "started",
        "state",
        "tasks",
        "timer",
        "trace",
        "wake",
    )

    def __init__(
        self, document_id: str, context: ServerContext, lease: Lease, methods: Methods, *, trace: str
    ) -> None:
        self.document_id = document_id
        self.context = context
        self.lease = lease
        self.trace = trace
        self.log = get_logger(__name__).bind(document=document_id, trace=trace)
        self.since_ns = context.clock.wall_ns()
        self.state = DocumentState()
        self.acks = AckQueue(document_id, context, lease, self.state, self.log)
        self.refused = DocumentQuarantine(
            context.quarantine, lease, self.state, context.epochs, context.clock
        )
        self.journal = DocumentJournal(document_id, context, lease)
        self.due = CompactionRequest(context.clock.now(), context.rng)
        self.costs = CallCosts()
        self.shared_calls: dict[tuple[object, ...], asyncio.Future[Any]] = {}  # by their arguments
        self.recovering = False  # waits for journals; nothing is loaded yet
        self.incomplete: tuple[str, ...] = ()  # absent journals that may hold more of the document

        self.busy = asyncio.Lock()  # held while messages are processed, or the document changes as a whole
        self.compacting = asyncio.Lock()  # held while the stored snapshot is being replaced
        self.editing = asyncio.Lock()  # held by one change of the server at a time
        self.in_turn = False  # effects may be decided that the journal does not have yet

        self._loaded: Loaded | None = None
        self.backlog = Backlog()
        self.copies: Subscription | None = None  # of the WAL; None: not subscribed yet, or too many came
        self.gap_read_for = 0  # sequence of the copy whose gap was read last
        self.received_at = 0.0  # arrival of the message that is being processed

        self._methods = methods
        self._endpoint: DocumentEndpoint | None = None
        self._subscriptions: list[Subscription] = []
        self._last_activity = context.clock.now()
        self.tasks = Tasks(self._background_failed)
        self.wake = Event()
        self.timer = Timer(context.clock, self.wake.set)
        self.load_scope: asyncio.Timeout | None = None  # cancels the first load
        self.started = Event()  # the document is UP, or closed before that
        self.closed = Event()  # subscriptions and lease are released

    @property
    def loaded(self) -> Loaded:
        """The document in memory; the first load must be complete."""
        assert self._loaded is not None
        return self._loaded

    @property
    def is_loaded(self) -> bool:
        """True once the first load is complete."""
        return self._loaded is not None

    @property
    def epoch(self) -> int:
        """Epoch of the WAL in which everything up to the follower's position was read."""
        return self.loaded.follower.position.epoch

    @property
    def endpoint(self) -> DocumentEndpoint:
        """The document endpoint; the first load must be complete."""
        assert self._endpoint is not None
        return self._endpoint

    def spawn(self, work: Work) -> None:
        """Run a task beside the loop; it ends with the host."""
        self.tasks.spawn(work)

    # --- facts ------------------------------------------------------------------------------------

    def is_newer_than(self, revision: int) -> bool:
        """Return True if this lease wrote the status after that revision, so that an init for it is outdated.

        An init that saw no status (0) is checked if the document is up: the bucket may have lost the status.
        """
        if self.state.is_ending or (self.state.is_up and not revision):
            return False
        return self.lease.valid() and self.lease.revision > revision

    @property
    def is_long(self) -> bool:
        """True if a snapshot would save a noticeable part of the next load."""
        intake = self.loaded.intake  # a tombstone is not compacted
        return not intake.deleted and intake.wal_bytes >= self.context.settings.compact_idle_bytes

    @property
    def size(self) -> Size:
        """Size of the document, which bounds the time of Loro's calls on it."""
        intake = self.loaded.intake
        return Size(intake.replica.operations, intake.document_bytes)

    def needs_child(self, call: Call | None = None) -> bool:
        """Return True if a call on the whole document may block the loop; None: on an old version."""
        return not self.costs.is_short(call, self.size)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of incomplete updates and calls."""
        updates = 0 if self._loaded is None else self._loaded.intake.unfinished_bytes
        return updates if self._endpoint is None else updates + self._endpoint.unfinished_bytes

    @property
    def snapshot_bytes_stored(self) -> int:
        """Bytes of the stored snapshot; 0 if there is none, or none is known yet."""
        head = None if self._loaded is None else self._loaded.snapshot
        return 0 if head is None else head.size

    @property
    def snapshot_revision(self) -> int:
        """Revision of the stored snapshot that this host knows; 0: none."""
        return 0 if self.loaded.snapshot is None else self.loaded.snapshot.revision

    @property
    def wal_messages(self) -> int | None:
        """Number of processed messages that the WAL must hold; None while it changes, or is read again."""
        if not (self.state.is_up and self.state.is_settled) or self.compacting.locked():
            return None
        return None if self.refused.to_move else self.loaded.follower.taken - self.refused.moved

    def idle_seconds(self) -> float:
        """Return the time since the last use of the document."""
        return self.context.clock.now() - self._last_activity

    def touch(self) -> None:
        """Note a use of the document."""
        self._last_activity = self.context.clock.now()

    # --- requests ---------------------------------------------------------------------------------

    def stop(self, why: str, *, finish: bool = True) -> None:
        """Process the queue, write DOWN and close; without `finish`, now or earlier, drop the queue."""
        self.state.stop(why, finish=finish, newest=self.backlog.newest)
        self._ending()

    def step_down(self, why: str) -> None:
        """Close without a further message or write, since another server owns the document."""
        self.state.close(why)
        self._ending()

    def _ending(self) -> None:
        if self.load_scope is not None and self.state.phase is Phase.CLOSED:
            self.load_scope.reschedule(0.0)  # cancel the first load
            self.load_scope = None
        self.wake.set()

    def catch_up(self) -> None:
        """Read messages from the stream whose copies were missed, e.g. after a reconnect."""
        self.state.catch_up = True
        self.wake.set()

    def rewind(self) -> None:
        """Read the WAL from its beginning: it lost messages, or its sequences have another meaning."""
        self.state.rewind = True
        self.wake.set()

    def request_reload(self) -> None:
        """Load the document before anything else: what is stored may differ from memory."""
        self.state.request_reload()
        self.wake.set()

    def loro_panicked(self, why: str) -> None:
        """Load the document and try every update, since Loro panicked on the one in memory."""
        self.log.error("Loro panicked, loading the document again", problem=why)
        self.state.request_reload(checked=True)
        self.wake.set()

    def connection_lost(self) -> None:
        """Trust neither lease nor snapshot until they are read, and note the position of the WAL."""
        self.lease.connection_lost()
        self.state.snapshot_unverified = True
        if self._loaded is not None:
            follower, epochs = self._loaded.follower, self.context.epochs
            epochs.saw(follower.position)
            if (newest := self.backlog.last) is not None:
                epochs.saw(follower.at(newest.copy.stored))

    # --- memory and storage -----------------------------------------------------------------------

    def load_request(self) -> LoadRequest:
        """Return the request to read this document in the current epoch."""
        context = self.context
        return LoadRequest(
            context.transport,
            context.snapshots,
            self.document_id,
            context.settings,
            context.clock,
            context.epochs.current,
            validate=context.validate,
            batch_validation=context.batch_validation,
            merge=functools.partial(context.children.merge, self.document_id),
        )

    def adopt_loaded(self, loaded: Loaded) -> None:
        """Replace the document in memory."""
        first, self._loaded = self._loaded is None, loaded
        self.refused.trim_unstored = False
        self.state.memory_is_only_copy &= not loaded.intake.deleted  # a tombstone is stored as it is
        if first and self.is_long:  # a reload may follow a failed compaction
            self.due.want("it took long to load")
        self.lease.head = loaded.intake.head.sequence

    def adopt_snapshot(
        self,
        head: SnapshotHead,
        facts: SnapshotMetadata,
        wal_bytes: int,
        new_bytes: int,
        *,
        holds_all: bool = True,
    ) -> None:
        """Note the stored snapshot, and the bytes of the WAL and of accepted updates that it covers.

        `holds_all`: it has all content of memory, also what the stream lost.
        """
        self.loaded.snapshot, self.loaded.facts = head, facts
        intake = self.loaded.intake
        intake.wal_bytes = max(0, intake.wal_bytes - wal_bytes)
        intake.stored_bytes, intake.new_bytes = head.size, max(0, intake.new_bytes - new_bytes)
        intake.merge_seconds = 0.0
        self.due.tried(self.context.clock.now())
        if holds_all:
            self.state.memory_is_only_copy = False

    def adopt_no_snapshot(self) -> None:
        """Note that no snapshot is stored; if there was one, memory may hold the only copy."""
        self.state.memory_is_only_copy |= self.loaded.snapshot is not None and not self.loaded.intake.deleted
        self.loaded.snapshot = None

    def adopt_unreadable_snapshot(self, head: SnapshotHead) -> None:
        """Note that the stored snapshot cannot be read: memory holds the only copy, and overwrites it."""
        self.loaded.snapshot = head
        self.state.memory_is_only_copy = True

    def snapshot_not_readable(self) -> None:
        """Note that a snapshot replaced the previous one, and could not be read back."""
        self.state.memory_is_only_copy = self.state.snapshot_unverified = True

    async def verify_snapshot(self, *, always: bool = False) -> bool:
        """Return True if the known snapshot is stored; read its head after a lost connection, or `always`.

        A bucket that was made again repeats revisions: the known one may be that of another snapshot, or of a
        tombstone. Raises TransportError.
        """
        if not (always or self.state.snapshot_unverified):
            return True
        head, known = await self.context.snapshots.head(self.document_id), self.loaded.snapshot
        if head is None or known is None:
            same = head is known
        else:
            same = (head.revision, head.nuid) == (known.revision, known.nuid)
        self.state.snapshot_unverified = not same
        return same

    def snapshot_verified(self) -> None:
        """Note that the stored snapshot was read, and memory has its content."""
        self.state.snapshot_unverified = False

    def purged(self, before: int, messages: int) -> None:
        """Note that the WAL has lost that many messages of the document: all below `before`."""
        self.loaded.intake.purged(before)
        self.loaded.follower.taken -= messages

    async def journalled(self) -> None:
        """Wait until the journal has all accepted updates, and note its coverage. Raises JournalStopped."""
        covered = wal_bounds.covered_through(self.loaded, self.refused)
        complete = self.state.is_settled and not self.in_turn  # else an update may be decided, not journalled
        if self.acks.last is not None:
            await safe(self.context.journal.on_disk(self.acks.last))
        if complete:
            self.journal.cover(covered)

    async def request_sync(self) -> None:
        """Have all clients sync: memory may have content that was not published."""
        try:
            await self.acks.publish_sync(self.loaded.intake.head.sequence)
        except TransportError as error:
            self.log.info("request to sync not sent", problem=str(error))  # a reconnect makes clients sync

    # --- subscriptions, and the end ---------------------------------------------------------------

    async def listen(self, subject: str, handler: Callable[[Message], None]) -> None:
        """Subscribe until the host closes."""
        self._subscriptions.append(await self.context.transport.bus.subscribe(subject, handler))

    async def open_endpoint(self) -> None:
        """Receive calls, pings and presence."""
        self._endpoint = DocumentEndpoint(
            self.document_id,
            self.context,
            self.lease,
            self.state,
            log=self.log,
            call=functools.partial(self._methods, self),
            spawn=self.spawn,
            touch=self.touch,
            wake=self.wake.set,
        )
        await self._endpoint.listen(self.listen)

    async def close(self) -> None:
        """Unsubscribe, then give up the lease."""
        self.state.close("failed")  # unless there is another reason
        self.timer.stop()
        await self.tasks.close()
        self.context.counters.step_downs += self.lease.lost
        self.acks.close()
        for call in self.shared_calls.values():
            call.cancel()
        if self.copies is not None:
            self._subscriptions.append(self.copies)
            self.copies = None
        for subscription in self._subscriptions:
            with contextlib.suppress(TransportError):
                await subscription.close()
        self._subscriptions.clear()
        try:
            await self.lease.give_up(write_down=self.state.writes_down, owed=self.state.memory_is_only_copy)
        except TransportError as error:
            self.log.warning("cannot write DOWN", problem=str(error))
        self.log.info("closed", why=self.state.closed_because, token=self.lease.token)
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None  # breaks a reference cycle, so that a closed document is freed at once
        self.started.set()
        self.closed.set()

    def _background_failed(self, error: Exception) -> None:
        match error:
            case LeaseLost():
                self.step_down(str(error))
            case JournalStopped():
                self.stop(str(error), finish=False)
            case LorogoError():
                self.log.warning("background work failed", problem=str(error))
            case _:
                self.log.error("background work failed", exc_info=error)
