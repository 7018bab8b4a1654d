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
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.wire import WIRE
from lorogo_server import identity, streams
from lorogo_server.compaction.compaction_schedule import CompactionSchedule
from lorogo_server.context import ServerContext
from lorogo_server.document.host import Host
from lorogo_server.journal.archive import NoSuchArchive, check_driver
from lorogo_server.journal.disk_journal import DiskJournal, Journal, NoJournal
from lorogo_server.journal.replication import ReplicatedJournal
from lorogo_server.journal_services import JournalServices
from lorogo_server.ownership.renewals import Renewals
from lorogo_server.readiness import InitSubscription, Readiness
from lorogo_server.recovery.revocation_copy import RevocationCopy
from lorogo_server.registry import DocumentRegistry
from lorogo_server.rpc.error_reset import serve_resets
from lorogo_server.rpc.rights import CallRights, RequestVerifier
from lorogo_server.sandbox.decode_sandbox import DecodeSandbox, skip_validation
from lorogo_server.sandbox.keepalive import KeepaliveProcess
from lorogo_server.scheduler import ServerScheduler
from lorogo_server.settings import InvalidSettings, ServerSettings
from lorogo_server.tracing import tracing_of
from lorogo_transport.clock import Clock, SystemClock
from lorogo_transport.errors import TransportError
from lorogo_transport.ports import ServiceInfo, Subscription, Transport
from lorogo_transport.release import release
from lorogo_transport.tasks import Tasks
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_AGAIN_SECONDS = 1.0


def new_nanoid() -> str:
    """Return a new unique id."""
    return str(nanoid.generate())


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
        home = data if storage is None else None  # keeps the id, by which others know a previous owner
        made = self.settings.server_id or (new_id() if home is None else identity.kept(home, new_id))
        self.server_id = made
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self.journal = self._make_journal(data, storage)
        self.readiness = Readiness(transport.bus, self.journal)
        self._sandbox = sandbox
        self.context = ServerContext(
            server_id=self.server_id,
            transport=transport,
            settings=self.settings,
            clock=self._clock,
            rng=self._rng,
            new_id=new_id,
            journal=self._safe_journal(),
            data_losses=self._count_data_losses,
            recover=self._recover,
            after_restore=self._after_restore,
            living_terms=self._living_terms,
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
            readiness=self.readiness,
        )
        self.hosts = self._registry.hosts
        self.journal_services: JournalServices | None = None
        if self.journal is not None and data is not None:
            self.journal_services = JournalServices(
                self.context, self.journal, data, self.hosts, self._tasks.spawn, storage=storage
            )
        services = self.journal_services
        self.reconciler = None if services is None else services.reconciler
        self.recovery = None if services is None else services.recovery
        self._inits: InitSubscription | None = None
        if takes_inits:
            self._inits = InitSubscription(
                self.server_id, transport.bus, self.readiness, self._registry.on_init
            )
        self._compaction_schedule = CompactionSchedule(self.context, self.hosts, keepalive=keepalive)
        self._scheduler = ServerScheduler(
            self.context,
            self._compaction_schedule,
            services,
            on_high=self._registry.relieve_wal if takes_inits else lambda: None,
        )
        self._revocations = self._make_revocations(data, storage) if authority is not None else None
        self._keepalive = keepalive
        self._subscriptions: list[Subscription] = []
        self._unwatch: Callable[[], None] = lambda: None
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
            on_damage=self._journal_damaged,
        )

    def _safe_journal(self) -> Journal:
        """Return the journal whose records are as safe as the durability requires."""
        if self.journal is None:
            return NoJournal()
        if self.settings.durability == "replicated":
            return ReplicatedJournal(self.journal, self.settings)
        return self.journal

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
            try:
                await asyncio.to_thread(check_driver, self.settings.archive)
            except NoSuchArchive as error:
                raise InvalidSettings(str(error)) from error
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
        if self.journal_services is not None:
            await self.journal_services.open()
        # Before `_ensure_streams`: a reconnect ensures the streams again.
        self._unwatch = transport.bus.watch_connection(self._on_connection)
        await self._ensure_streams()
        await self.context.epochs.check()
        self.context.epochs.watch(self._epoch_changed)
        if self._revocations is not None:
            await self._revocations.open()
            self._tasks.spawn(self._revocations.run())
        if self._sandbox is not None:
            await self._sandbox.start()
        if self._keepalive is not None:
            await self._keepalive.start(self.server_id, self.settings.renew_seconds)
            self._tasks.spawn(self._keepalive.run())
        self._tasks.spawn(self._renewals.run())
        self._tasks.spawn(self._scheduler.run())
        if self.journal_services is not None:
            await self.journal_services.start()
            erased = await transport.bus.subscribe(subjects.ERASED_ALL, self.journal_services.on_erased)
            self._subscriptions.append(erased)
        if self._inits is not None:
            await self._inits.update()
            self._subscriptions.append(await serve_resets(self.context, self._tasks.spawn))
        self._subscriptions.append(await self.context.vouchers.listen())
        self._subscriptions.append(await transport.announce(self._info(), self.stats))
        await transport.bus.barrier()
        if self.journal_services is not None:
            self.journal_services.serving()
        await self._log_started()
        self._log.info("serving", durability=self.settings.durability)

    async def stop(self) -> None:
        """Stop acquiring documents, set every owned document DOWN, and end."""
        if self.readiness.stopping:
            return
        self.readiness.stopping = True
        self._unwatch()
        for subscription in (*([] if self._inits is None else [self._inits]), *self._subscriptions):
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
        if self.journal_services is not None:
            await self.journal_services.feed.stop()  # after the hosts, so that feeds read their last records
        await self._tasks.close()
        if self._sandbox is not None:
            self._sandbox.stop()
        if self._keepalive is not None:
            await self._keepalive.stop()
        if self.journal_services is not None:
            await self.journal_services.close()
        self._log.info("stopped", documents=len(hosts))

    async def take(self, document_id: str) -> Host:
        """Acquire a document without a client request; return its host when it is UP. Raises NotAcquired."""
        return await self._registry.take(document_id)

    @property
    def ready(self) -> bool:
        """True if the server can acquire documents and ACK updates."""
        return self.readiness.ready

    def _journal_stopped(self, why: str) -> None:
        """Stop all hosts, since updates cannot be ACKed, so that other servers acquire the documents."""
        for host in self.hosts.values():
            host.stop(why, finish=False)
        if self._inits is not None and not self.readiness.stopping:
            self._tasks.spawn(self._inits.follow())

    def _journal_damaged(self) -> None:
        """Have every open document write a base record with content: any earlier record may be lost."""
        if self.journal_services is not None:
            self.journal_services.expired(self._clock.wall_ns() + 1)

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
            **({} if self.journal_services is None else self.journal_services.facts()),
            "wire": str(WIRE),
        }
        return ServiceInfo(subjects.SERVICE, release(), "lorogo document server", facts)

    def stats(self) -> Mapping[str, object]:
        """Return the counters and gauges of this server, for the services protocol and operators."""
        context = self.context
        return {
            **context.counters.stats(),
            "unanswerable": context.counters.unanswerable + context.transport.bus.unanswerable,
            "closed": context.rights.closed,
            **context.ack_metrics.stats(),
            **self._registry.stats(),
            "epoch": context.epochs.current,
            "ready": self.ready,
            "wal_full": round(context.wal_usage.full, 3),
            "durability": context.journal.durability,
            **context.journal.stats(),
            **({} if self.journal_services is None else self.journal_services.stats()),
        }

    # --- the connection ---------------------------------------------------------------------------

    def _on_connection(self, connected: bool) -> None:
        self._registry.doubt()
        self.context.epochs.doubt()
        if self.recovery is not None:
            self.recovery.lost_connection()
        if connected and not self.readiness.stopping:
            self._tasks.spawn(self._revalidate())

    async def _revalidate(self) -> None:
        """After a reconnect: ensure the streams, check the epoch, confirm leases, read missed messages."""
        while True:
            try:
                await self._ensure_streams()
                await self.context.epochs.check()
                if self.recovery is not None:
                    await self.recovery.check()
                break
            except TransportError as error:
                self._log.warning("cannot revalidate after the reconnect", problem=str(error))
                if not self.context.transport.bus.connected:
                    return  # the next reconnect starts over
                await asyncio.sleep(_AGAIN_SECONDS)
        self._registry.reconnected()
        if self.reconciler is not None:
            self.reconciler.want("reconnect")
        await self._log_started()

    async def _count_data_losses(self) -> int:
        return 0 if self.recovery is None else await self.recovery.count_doubts()

    async def _recover(self, document_id: str, journal_of: str) -> tuple[str, ...]:
        return () if self.recovery is None else await self.recovery.recover(document_id, journal_of)

    async def _after_restore(self, document_id: str) -> None:
        if self.recovery is not None:
            await self.recovery.after_restore(document_id)

    def _living_terms(self, document_id: str) -> tuple[str, ...]:
        return () if self.reconciler is None else self.reconciler.living_terms(document_id)

    def _epoch_changed(self) -> None:
        for host in self.hosts.values():
            host.rewind()
        if self.reconciler is not None:
            self.reconciler.want("another epoch")

    def _background_failed(self, error: Exception) -> None:
        if isinstance(error, LorogoError):
            self._log.warning("background work failed", problem=str(error))
        else:
            self._log.error("background work failed", exc_info=error)
