"""One server process: acquires the documents that clients request, and serves the documents that it owns.

async with Server(transport, ServerSettings(), data=Path("data")) as server:
    ...                       # serving
# every owned document is DOWN: another server can acquire it at once
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import nanoid

from lorogo_log import FileStorage, Storage
from lorogo_protocol import ids
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.chunks import MemoryBudget
from lorogo_protocol.messages.wire import WIRE
from lorogo_server import identity, streams
from lorogo_server.compaction.compaction_schedule import CompactionSchedule
from lorogo_server.context import ServerContext
from lorogo_server.document.host import Host
from lorogo_server.document.quarantine import Quarantine
from lorogo_server.journal import failure_domain
from lorogo_server.journal.ack_metrics import AckMetrics
from lorogo_server.journal.archive import ArchiveError, ArchiveStorage, NoSuchArchive
from lorogo_server.journal.disk_journal import DiskJournal, JournalStopped, NoJournal
from lorogo_server.journal.feed import FeedResponder
from lorogo_server.journal.replication import JournalReplicas, ReplicatedJournal
from lorogo_server.journal.segment_upkeep import SegmentUpkeep
from lorogo_server.ownership.epoch import EpochTracker
from lorogo_server.ownership.renewals import Renewals
from lorogo_server.recovery.reconcile import Reconciler
from lorogo_server.recovery.recovery import DocumentRecovery
from lorogo_server.recovery.revocation_copy import RevocationCopy
from lorogo_server.recovery.vouchers import Vouchers
from lorogo_server.registry import DocumentRegistry, NotAcquired
from lorogo_server.rpc.error_reset import serve_resets
from lorogo_server.rpc.rights import CallRights, RequestVerifier
from lorogo_server.sandbox.decode_sandbox import DecodeSandbox, skip_validation
from lorogo_server.sandbox.keepalive import KeepaliveProcess
from lorogo_server.scheduler import ServerScheduler
from lorogo_server.settings import InvalidSettings, ServerSettings
from lorogo_server.tracing import tracing_of
from lorogo_transport.clock import Clock, SystemClock
from lorogo_transport.errors import TransportError
from lorogo_transport.ports import Message, ServiceInfo, Subscription, Transport
from lorogo_transport.release import release
from lorogo_transport.rpc.calls import ReplyBudget
from lorogo_transport.rpc.discovery import is_ready, server_stats
from lorogo_transport.stores.snapshots import SnapshotStore
from lorogo_transport.stores.statuses import Statuses
from lorogo_transport.tasks import Tasks
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_AGAIN_SECONDS = 1.0
_HEAVIEST = 8  # documents loaded at a time because the WAL is nearly full
_REPLY_BYTES_MAX = 256 * 1024 * 1024  # replies to calls under way at once


def new_nanoid() -> str:
    """Return a new unique id."""
    return str(nanoid.generate())


def _own_id(data: Path | None, new_id: Callable[[], str]) -> str:
    """Return the id stored in the folder, so that other servers recognise a document's previous owner."""
    return new_id() if data is None else identity.kept(data, new_id)


def _check_archive(url: str) -> None:
    """Refuse a URL that can never work; only log a warning if the store does not respond."""
    try:
        ArchiveStorage(url)
    except NoSuchArchive as error:
        raise InvalidSettings(str(error)) from error
    except ArchiveError as error:
        log.warning("archive unavailable", problem=str(error))


class Server:
    """Owns documents; use it with `async with`."""

    def __init__(
        self,
        transport: Transport,
        settings: ServerSettings | None = None,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        new_id: Callable[[], str] = new_nanoid,
        keepalive: KeepaliveProcess | None = None,
        sandbox: DecodeSandbox | None = None,
        data: Path | None = None,
        storage: Storage | None = None,
        takes_inits: bool = True,
        authority: RequestVerifier | None = None,
        tracer_provider: object | None = None,
    ) -> None:
        """Make a server; `async with` starts it.

        Args:
            data: Folder of this worker.
            storage: Storage of the journal, if not the disk.
            sandbox: Decodes client updates in a process of its own first (`lorogo serve` has one).
            authority: Verifies tokens, which every call then needs; without it the server is open to all.
            takes_inits: False for a server that acquires documents only by `take` (docs/decisions/0014).
            tracer_provider: OpenTelemetry's; updates become spans (docs/OBSERVABILITY.md).
        """
        self.settings = settings or ServerSettings()
        self.server_id = self.settings.server_id or _own_id(data if storage is None else None, new_id)
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self.journal = self._make_journal(data, storage)
        self._data = data if storage is None else None
        self._replicated: ReplicatedJournal | None = None
        self._replicas: JournalReplicas | None = None
        if self.journal is not None and data is not None and self.settings.durability == "replicated":
            self._replicated = ReplicatedJournal(self.journal, self.settings)
            self._replicas = JournalReplicas(
                self.server_id, transport.bus, data / "replicas", self.settings, storage=storage
            )
        statuses = Statuses(transport)
        self.context = ServerContext(
            server_id=self.server_id,
            transport=transport,
            settings=self.settings,
            clock=self._clock,
            rng=self._rng,
            new_id=new_id,
            wal=transport.stream(subjects.WAL_STREAM),
            statuses=statuses,
            snapshots=SnapshotStore(
                transport.stream(subjects.SNAPSHOT_STREAM),
                max_payload=transport.bus.max_payload,
                clock=self._clock,
                new_id=new_id,
            ),
            epochs=EpochTracker(transport),
            quarantine=Quarantine(transport),
            journal=self._replicated or self.journal or NoJournal(),
            ack_metrics=AckMetrics(self.server_id, self._clock.wall_ns()),
            load_slots=asyncio.Semaphore(self.settings.loads_max),
            check_epoch=self._check_epoch,
            erased=self._erased,
            data_losses=self._count_data_losses,
            recover=self._recover,
            reply_budget=ReplyBudget(_REPLY_BYTES_MAX),
            vouchers=Vouchers(transport.bus, self._clock),
            unfinished=MemoryBudget(self.settings.unfinished_total_bytes_max),
            rights=CallRights(authority),
            validate=skip_validation if sandbox is None else sandbox.validate,
            batch_validation=sandbox,
            tracing=tracing_of(self.server_id, tracer_provider, self._clock),
        )
        self._tasks = Tasks(self._background_failed)
        self._renewals = Renewals(self._clock, self._rng, self.settings.renew_seconds, self._tasks.spawn)
        self._registry = DocumentRegistry(
            self.context,
            self._renewals,
            keepalive=keepalive,
            spawn=self._tasks.spawn,
            is_ready=lambda: self.ready,
            decline_reason=self._decline_reason,
        )
        self.hosts = self._registry.hosts
        self.reconciler = self._make_reconciler(data)
        self.recovery = self._make_recovery()
        self._compaction_schedule = CompactionSchedule(
            self.context, self.hosts, keepalive=keepalive, on_error=self._background_failed
        )
        self._scheduler = ServerScheduler(
            self.context, self._compaction_schedule, self.journal, self.reconciler, on_high=self._on_wal_high
        )
        self._feed_responder = None if self.journal is None else FeedResponder(self.context, self.journal)
        self._segment_upkeep = self._make_segment_upkeep(data, storage)
        self._revocations = self._make_revocations(data, storage) if authority is not None else None
        self._keepalive = keepalive
        self._sandbox = sandbox
        self._takes_inits = takes_inits
        self._subscriptions: list[Subscription] = []
        self._unwatch: Callable[[], None] = lambda: None
        self._stopping = False
        self._relieving = False  # loading documents because the WAL is nearly full
        self._init_subscription: Subscription | None = None
        self._init_lock = asyncio.Lock()
        self._log = log.bind(server=self.server_id)

    def _make_journal(self, data: Path | None, storage: Storage | None) -> DiskJournal | None:
        settings = self.settings
        if settings.durability == "stream":
            return None
        if data is None:
            raise InvalidSettings(
                f"durability {settings.durability!r} needs a folder for the journal: pass `data`,"
                " or choose durability 'stream', which keeps updates in the stream only"
            )
        return DiskJournal(
            data / "journal",
            partitions=settings.journal_partitions,
            segment_bytes=settings.segment_bytes,
            storage=storage,
            on_stop=self._journal_stopped,
            on_room=self._journal_has_room,
            on_damage=self._journal_damaged,
        )

    def _make_reconciler(self, data: Path | None) -> Reconciler | None:
        if self.journal is None or data is None:
            return None
        return Reconciler(self.context, self.journal, data, self.hosts)

    def _make_recovery(self) -> DocumentRecovery | None:
        journal, reconciler = self.journal, self.reconciler
        if journal is None or reconciler is None:
            return None
        return DocumentRecovery(
            self.context, reconciler, lambda: journal.directory, self.hosts, self._tasks.spawn
        )

    def _make_segment_upkeep(self, data: Path | None, storage: Storage | None) -> SegmentUpkeep | None:
        if self.journal is None:
            return None
        return SegmentUpkeep(
            self.journal,
            self.context.snapshots,
            self.settings,
            self._clock,
            server_id=self.server_id,
            data=data if storage is None else None,
            on_expired=self._journal_expired,
        )

    def _make_revocations(self, data: Path | None, storage: Storage | None) -> RevocationCopy:
        directory = None
        if data is not None:
            directory = (storage or FileStorage()).directory(data, create=True)
        return RevocationCopy(
            self.context.transport,
            directory,
            self._clock,
            self.server_id,
            self.settings.revocations_wait_seconds,
        )

    async def __aenter__(self) -> Self:
        if self.settings.archive:
            await asyncio.to_thread(_check_archive, self.settings.archive)
        started = False
        try:
            await self._start()
            started = True
        finally:
            if not started:  # also after a cancellation: the journal must not stay open and locked
                await self.stop()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- start and stop ---------------------------------------------------------------------------

    async def _start(self) -> None:
        transport = self.context.transport
        if self.journal is not None:
            await self.journal.open()
            await self.context.load_notes.open(self.journal.directory, self._tasks.spawn)
        if self.reconciler is not None:
            await self.reconciler.open()
        if self.recovery is not None:
            await self.recovery.open()
        if self._replicated is not None:
            await self._find_failure_domain()
            await self._replicated.open()
        # Before `_ensure_streams`: a reconnect ensures the streams again.
        self._unwatch = transport.bus.watch_connection(self._on_connection)
        await self._ensure_streams()
        await self.context.epochs.check()
        if self._revocations is not None:
            await self._revocations.open()
            self._tasks.spawn(self._revocations.run())
        if self.recovery is not None and self.reconciler is not None:
            self._tasks.spawn(self.reconciler.run_asked())
            await self.recovery.start()
        if self._sandbox is not None:
            await self._sandbox.start()
        if self._keepalive is not None:
            await self._keepalive.start(self.server_id, self.settings.renew_seconds)
            self._tasks.spawn(self._keepalive.run())
        self._tasks.spawn(self._renewals.run())
        self._tasks.spawn(self._scheduler.run())
        if self._replicas is not None:
            self._tasks.spawn(self._replicas.run())
        if self._segment_upkeep is not None:
            self._tasks.spawn(self._segment_upkeep.run())
        if self._takes_inits:
            await self._update_init_subscription()
            self._subscriptions.append(await serve_resets(self.context, self._tasks.spawn))
        self._subscriptions.append(await transport.bus.subscribe(subjects.ERASED_ALL, self._on_erased))
        self._subscriptions.append(await self.context.vouchers.listen())
        if self._feed_responder is not None:
            await self._feed_responder.start()
        self._subscriptions.append(await transport.announce(self._info(), self.stats))
        await transport.bus.barrier()
        if self.journal is not None and self.journal.stopped:
            raise JournalStopped(self.journal.stopped)
        await self._log_started()
        if self.reconciler is not None:
            self._tasks.spawn(self.reconciler.run())
        self._log.info("serving", durability=self.settings.durability)

    async def stop(self) -> None:
        """Stop acquiring documents, set every owned document DOWN, and end."""
        if self._stopping:
            return
        self._stopping = True
        self._registry.stop_taking()
        self._unwatch()
        inits = [] if self._init_subscription is None else [self._init_subscription]
        for subscription in (*inits, *self._subscriptions):
            try:
                await subscription.close()
            except TransportError as error:
                self._log.debug("cannot unsubscribe", problem=str(error))
        if self.recovery is not None:
            await self.recovery.stop()
        hosts = list(self.hosts.values())
        await self._compaction_schedule.last_snapshots(hosts)
        for host in hosts:
            host.stop("the server stops")
        try:
            async with asyncio.timeout(self.settings.stop_seconds):
                for host in hosts:
                    await host.closed.wait()
        except TimeoutError:
            self._log.warning("documents did not close in time", documents=len(self.hosts))
        if self._feed_responder is not None:
            await self._feed_responder.stop()  # after the hosts, so that feeds read their last records
        await self._tasks.close()
        if self._sandbox is not None:
            self._sandbox.stop()
        if self._keepalive is not None:
            await self._keepalive.stop()
        self._scheduler.record_answers()
        if self._replicated is not None:
            await self._replicated.close()
        if self.journal is not None:
            await self.context.load_notes.save()
            await self._scheduler.save_coverage()
            await self.journal.close()
        self._log.info("stopped", documents=len(hosts))

    async def take(self, document_id: str) -> Host:
        """Acquire a document without a client request; return its host when it is UP. Raises NotAcquired."""
        return await self._registry.take(document_id)

    @property
    def ready(self) -> bool:
        """True if the server can acquire documents and ACK updates."""
        return not self.hindrances

    @property
    def broken(self) -> bool:
        """True if the journal has stopped; only a restart of the server helps."""
        return self.journal is not None and bool(self.journal.stopped) and not self._stopping

    @property
    def full(self) -> bool:
        """True if the disk of the journal is full; the server resumes by itself once there is space."""
        return self.journal is not None and bool(self.journal.full)

    @property
    def hindrances(self) -> tuple[str, ...]:
        """Codes of the reasons for which the server is not ready; empty if it is ready."""
        found = {
            "stopping": self._stopping,
            "journal-stopped": self.broken,
            "journal-full": self.full and not self.broken,
            "nats-disconnected": not self.context.transport.bus.connected,
        }
        return tuple(code for code, true in found.items() if true)

    def _journal_stopped(self, why: str) -> None:
        """Stop all hosts, since updates cannot be ACKed, so that other servers acquire the documents."""
        for host in self.hosts.values():
            host.stop(why, finish=False)
        if not self._stopping:
            self._tasks.spawn(self._recheck_inits())

    def _journal_has_room(self) -> None:
        """Accept inits again. A load then journals the updates that the journal lacks."""
        if not self._stopping:
            self._tasks.spawn(self._update_init_subscription())

    async def _recheck_inits(self) -> None:
        """Update the init subscription until the disk has space: other servers start and stop meanwhile."""
        await self._update_init_subscription()
        while self.full and not self._stopping:
            await asyncio.sleep(_AGAIN_SECONDS)
            await self._update_init_subscription()

    async def _update_init_subscription(self) -> None:
        """Subscribe to inits while this server can acquire documents.

        With a full disk it subscribes only if no other server is ready, in order to decline the inits.
        NATS delivers each init to one server, so a server that cannot acquire documents must not subscribe.
        """
        async with self._init_lock:
            waits = self.full and not self.broken
            wanted = not (self._stopping or self.broken) and (not waits or await self._is_only_ready_server())
            before = self._init_subscription
            if wanted and before is None and self._takes_inits:
                self._init_subscription = await self.context.transport.bus.subscribe(
                    subjects.INIT_ALL, self._registry.on_init, queue=subjects.INIT_QUEUE
                )
            elif before is not None and not wanted:
                self._init_subscription = None
                await before.close()

    async def _is_only_ready_server(self) -> bool:
        """Return True if no other server reports ready."""
        try:
            found = await server_stats(self.context.transport.bus, first_seconds=_AGAIN_SECONDS)
        except TransportError:
            return False
        return not any(is_ready(one.stats) for one in found if one.server_id != self.server_id)

    def _decline_reason(self) -> str:
        """Return the reason for declining every init, or an empty string."""
        if not self.full or self._stopping:
            return ""
        return f"the disk of server {self.server_id} is full; it serves documents again once there is space"

    def _journal_expired(self, before_ns: int) -> None:
        """Note in open documents that segments before `before_ns` are gone and no longer cover them."""
        for host in self.hosts.values():
            if host.journal.expired(before_ns):
                host.due.want("the journal's old segments expired")

    def _journal_damaged(self) -> None:
        """Have every open document write a base record with content: any earlier record may be lost."""
        self._journal_expired(self._clock.wall_ns() + 1)

    def _on_erased(self, message: Message) -> None:
        document_id = subjects.document_of(message.subject)
        if self._segment_upkeep is not None and not self._stopping and ids.is_document_id(document_id):
            self._tasks.spawn(self._segment_upkeep.on_erased(document_id))

    def _erased(self, document_id: str) -> None:
        if self._segment_upkeep is not None:
            self._segment_upkeep.erase(document_id)

    async def _find_failure_domain(self) -> None:
        """Find the failure domain of the disk; a replica must be in another one. Raises JournalStopped."""
        if self._replicas is None or self._data is None or self._replicas.failure_domain:
            return
        try:
            found = await asyncio.to_thread(failure_domain.domain_id, self._data, self.context.new_id)
        except (OSError, ValueError) as error:
            raise JournalStopped(f"cannot find the failure domain of {self._data}: {error}") from error
        self._replicas.failure_domain = found

    async def _ensure_streams(self) -> None:
        statuses, transport = self.context.statuses, self.context.transport
        for name, change in await streams.ensure(
            transport,
            self.settings,
            self._clock,
            guarded=transport.bus.users_only,
            above=statuses.highest,
            known=self._highest_journal_token,
        ):
            self._log.info("stream changed", stream=name, change=change)

    async def _highest_journal_token(self) -> int:
        """Return the highest token in status keys and journals, in case NATS has lost all data."""
        if self.reconciler is not None:
            await self.reconciler.read_journals()
        return self.context.statuses.highest

    async def _log_started(self) -> None:
        """Announce this server to feeds; a feed that misses the message finds the server a little later."""
        await self.context.transport.bus.publish(subjects.SERVER_STARTED, self.server_id.encode())

    def _info(self) -> ServiceInfo:
        facts = {
            "server_id": self.server_id,
            "durability": self.context.journal.durability,
            "journals": "" if self.journal is None else " ".join(self.journal.ids()),
            "journal_address": "" if self._replicated is None else self._replicated.address,
            "journal_replicas": str(self.settings.journal_replicas if self._replicated else 0),
            "journal_place": "" if self._replicas is None else self._replicas.failure_domain,
            "wire": str(WIRE),
        }
        return ServiceInfo(subjects.SERVICE, release(), "lorogo document server", facts)

    def stats(self) -> Mapping[str, object]:
        """Return the counters and gauges of this server, for the services protocol and operators."""
        counters = self.context.counters
        return {
            "documents": len(self.hosts),
            "accepted": counters.accepted,
            "accepted_bytes": counters.accepted_bytes,
            "refused": counters.refused,
            "calls_refused": dict(counters.calls_refused),
            "unanswerable": counters.unanswerable + self.context.transport.bus.unanswerable,
            "presence_dropped": counters.presence_dropped,
            "pings_dropped": counters.pings_dropped,
            "closed": self.context.rights.closed,
            **self.context.ack_metrics.stats(),
            "loads": counters.loads,
            "load_failures": counters.load_failures,
            "compactions": counters.compactions,
            "step_downs": counters.step_downs,
            "takeovers": counters.takeovers,
            "last_takeovers": [list(one) for one in counters.last_takeovers],
            **self._depths(),
            "epoch": self.context.epochs.current,
            "ready": self.ready,
            "wal_full": round(self.context.wal_usage.full, 3),
            "durability": self.context.journal.durability,
            **self.context.journal.stats(),
            **({} if self.reconciler is None else self.reconciler.stats()),
            **({} if self.recovery is None else self.recovery.stats()),
            **({} if self._replicas is None else self._replicas.stats()),
            **({} if self._feed_responder is None else self._feed_responder.stats()),
            **({} if self._segment_upkeep is None else self._segment_upkeep.stats()),
        }

    def _depths(self) -> Mapping[str, object]:
        """Return the depths of the queues, and the sizes of the open documents' snapshots."""
        hosts = list(self.hosts.values())
        return {
            "documents_up": sum(host.state.is_up for host in hosts),
            "intake_waiting": sum(len(host.backlog) for host in hosts),
            "intake_waiting_bytes": sum(host.backlog.bytes for host in hosts),
            "acks_waiting": sum(host.acks.waiting for host in hosts),
            "loads_waiting": self.context.counters.loads_waiting,
            "unfinished_bytes": sum(host.unfinished_bytes for host in hosts),
            "snapshot_bytes": sum(host.snapshot_bytes_stored for host in hosts),
        }

    # --- the connection ---------------------------------------------------------------------------

    def _on_connection(self, connected: bool) -> None:
        self._registry.doubt()
        self.context.epochs.doubt()
        if self.recovery is not None:
            self.recovery.lost_connection()
        if connected and not self._stopping:
            self._tasks.spawn(self._revalidate())

    async def _revalidate(self) -> None:
        """After a reconnect: ensure the streams, check the epoch, confirm leases, read missed messages."""
        while True:
            try:
                await self._ensure_streams()
                await self._check_epoch()
                if self.recovery is not None:
                    await self.recovery.check()
                break
            except TransportError as error:
                self._log.warning("cannot revalidate after the reconnect", problem=str(error))
                if not self.context.transport.bus.connected:
                    return  # the next reconnect starts over
                await asyncio.sleep(_AGAIN_SECONDS)
        await self._registry.confirm()
        if self.reconciler is not None:
            self.reconciler.want("reconnect")
        await self._log_started()

    def _on_wal_high(self) -> None:
        if self._takes_inits and not (self._stopping or self._relieving):
            self._relieving = True
            self._tasks.spawn(self._relieve_wal())

    async def _relieve_wal(self) -> None:
        """Load, and so compact, the closed documents with most messages in the WAL.

        Only an owner purges, and a chunk in the WAL does not make a server load the document.
        """
        try:
            counts = await self.context.wal.subjects(subjects.wal("*"))
            for subject in sorted(counts, key=counts.__getitem__, reverse=True)[:_HEAVIEST]:
                document_id = subjects.document_of(subject)
                if document_id not in self.hosts:
                    try:
                        await self.take(document_id)
                    except NotAcquired as error:
                        self._log.info(
                            "cannot load a document to relieve the WAL",
                            document=document_id,
                            problem=str(error),
                        )
        finally:
            self._relieving = False

    async def _count_data_losses(self) -> int:
        return 0 if self.recovery is None else await self.recovery.count_doubts()

    async def _recover(self, document_id: str, journal_of: str) -> tuple[str, ...]:
        return () if self.recovery is None else await self.recovery.recover(document_id, journal_of)

    async def _check_epoch(self) -> bool:
        changed = await self.context.epochs.check()
        if changed:
            for host in self.hosts.values():
                host.rewind()
            if self.reconciler is not None:
                self.reconciler.want("another epoch")
        return changed

    def _background_failed(self, error: Exception) -> None:
        if isinstance(error, LorogoError):
            self._log.warning("background work failed", problem=str(error))
        else:
            self._log.error("background work failed", exc_info=error)
