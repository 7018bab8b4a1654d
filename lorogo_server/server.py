"""One server process: takes documents that clients ask for, and looks after those that it owns.

async with Server(transport, ServerSettings(), data=Path("data")) as server:
    ...                       # serving
# every owned document is DOWN, the next edit is served elsewhere at once
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import nanoid

from lorogo_log import Storage
from lorogo_protocol import headers as h
from lorogo_protocol import ids, subjects
from lorogo_protocol.chunks import Room
from lorogo_protocol.errors import InvalidDocumentId, LorogoError
from lorogo_protocol.status import Starting
from lorogo_protocol.wire import WIRE
from lorogo_server import compaction, streams, verbs, whereabouts
from lorogo_server.archive import Archive, ArchiveError, NoSuchArchive
from lorogo_server.context import Context
from lorogo_server.epoch import Epochs
from lorogo_server.feeding import Feeding
from lorogo_server.foretaste import Foretaste
from lorogo_server.host import Host
from lorogo_server.journal import DiskJournal, JournalStopped, NoJournal
from lorogo_server.keeping import Keeping
from lorogo_server.lease import Lease
from lorogo_server.pacemaker import Pulse
from lorogo_server.quarantine import Quarantine
from lorogo_server.reconcile import Reconciler
from lorogo_server.renewals import Renewals
from lorogo_server.replicating import Copies, ReplicatedJournal
from lorogo_server.resetting import Resetting
from lorogo_server.rights import Rights, Verifier
from lorogo_server.settings import InvalidSettings, ServerSettings
from lorogo_server.taking import Declined, Taken, Taking
from lorogo_server.tally import Tally
from lorogo_server.tasting import Taster, untasted
from lorogo_server.tracing import tracing_of
from lorogo_transport.calls import Budget
from lorogo_transport.clock import Clock, SystemClock
from lorogo_transport.errors import TransportError
from lorogo_transport.logs import get_logger
from lorogo_transport.ports import Message, ServiceInfo, Subscription, Transport
from lorogo_transport.release import release
from lorogo_transport.snapshots import SnapshotStore
from lorogo_transport.statuses import Statuses
from lorogo_transport.tasks import Tasks

log = get_logger(__name__)

_MAINTENANCE_SECONDS = 1.0
_EPOCH_SECONDS = 60.0
_SWEEP_SECONDS = 3600.0
_LEDGER_SECONDS = 60.0
_LEVEL_SECONDS = 10.0
_TURN_DOCUMENTS = 500  # looked after in one second,
_TURNS_MAX = 10  # or a tenth of all: with ten thousand, that alone was a tenth of a core
_COMPACTIONS_MAX = 2
_STOPS_AT_ONCE = 64
_SHORTEN_SECONDS = 3.0  # of a stop, for snapshots that save the next owner time
_INITS_MAX = 4096  # being answered at once
_REVISION_DIGITS = 20
_REPLY_BYTES_MAX = 256 * 1024 * 1024  # of calls' replies under way at once


class NotTaken(LorogoError):
    """The document is not ours to serve now; says why.

    `again_seconds`: ask again then, nobody may be there. `failed`: it was ours, and could not be loaded.
    """

    code = "conflict"

    def __init__(self, why: str, *, again_seconds: float = 0.0, failed: bool = False) -> None:
        super().__init__(why)
        self.again_seconds = again_seconds
        self.failed = failed


def new_nanoid() -> str:
    """An id that nobody else has."""
    return str(nanoid.generate())


def _check_archive(url: str) -> None:
    """Refuse what can never work; a store that is only away is told and tried again."""
    try:
        Archive(url)
    except NoSuchArchive as error:
        raise InvalidSettings(str(error)) from error
    except ArchiveError as error:
        log.warning("the archive does not answer", problem=str(error))


class Server:
    """Owns documents; lives in `async with`."""

    def __init__(
        self,
        transport: Transport,
        settings: ServerSettings | None = None,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        new_id: Callable[[], str] = new_nanoid,
        pulse: Pulse | None = None,
        taster: Taster | None = None,
        data: Path | None = None,
        storage: Storage | None = None,
        takes_inits: bool = True,
        authority: Verifier | None = None,
        tracer_provider: object | None = None,
    ) -> None:
        """`data` is this worker's folder; `storage` is what its journal lies on, if not the disk.

        `taster` reads the updates of others first, in a process of its own (`lorogo serve` has one).
        `authority` verifies the tokens that every call then needs; without one the server is open to all.
        `takes_inits`: False for one that serves only what it takes itself (docs/decisions/0014).
        `tracer_provider` is OpenTelemetry's: updates become spans (docs/OBSERVABILITY.md).
        """
        self.settings = settings or ServerSettings()
        self.server_id = self.settings.server_id or new_id()
        self.hosts: dict[str, Host] = {}
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self.journal = self._make_journal(data, storage)
        self._data = data if storage is None else None
        self._replicated: ReplicatedJournal | None = None
        self._copies: Copies | None = None
        if self.journal is not None and data is not None and self.settings.durability == "replicated":
            self._replicated = ReplicatedJournal(self.journal, self.settings)
            self._copies = Copies(
                self.server_id, transport.bus, data / "replicas", self.settings, storage=storage
            )
        statuses = Statuses(transport)
        self.context = Context(
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
            epochs=Epochs(transport),
            quarantine=Quarantine(transport),
            journal=self._replicated or self.journal or NoJournal(),
            tally=Tally(self.server_id, self._clock.wall_ns()),
            load_slots=asyncio.Semaphore(self.settings.loads_max),
            check_epoch=self._check_epoch,
            erased=self._erased,
            reply_budget=Budget(_REPLY_BYTES_MAX),
            unfinished=Room(self.settings.unfinished_total_bytes_max),
            rights=Rights(authority),
            taste=untasted if taster is None else taster.taste,
            foretaste=None if taster is None else Foretaste(taster),
            tracing=tracing_of(self.server_id, tracer_provider, self._clock),
        )
        self.reconciler = self._make_reconciler(data)
        self._feeding = None if self.journal is None else Feeding(self.context, self.journal)
        self._keeping = self._make_keeping(data, storage)
        self._pulse = pulse
        self._taster = taster
        self._takes_inits = takes_inits
        self._taking = Taking(self.context)
        self._tasks = Tasks(self._background_failed)
        self._renewals = Renewals(self._clock, self._rng, self.settings.renew_seconds, self._tasks.spawn)
        self._subscriptions: list[Subscription] = []
        self._unwatch: Callable[[], None] = lambda: None
        self._stopping = False
        self._inits = 0
        self._init_subscription: Subscription | None = None
        self._compactions = asyncio.Semaphore(_COMPACTIONS_MAX)
        self._compacting: set[str] = set()
        self._round: list[Host] = []  # documents that are to be looked after before all are again
        self._round_part = _TURN_DOCUMENTS
        self._log = log.bind(server=self.server_id)

    def _make_journal(self, data: Path | None, storage: Storage | None) -> DiskJournal | None:
        settings = self.settings
        if settings.durability == "stream":
            return None
        if data is None:
            raise InvalidSettings(
                f"durability {settings.durability!r} needs a folder for the journal: give `data`,"
                " or choose durability 'stream', with which the stream is the only copy"
            )
        return DiskJournal(
            data / "journal",
            partitions=settings.journal_partitions,
            segment_bytes=settings.segment_bytes,
            storage=storage,
            on_stop=self._journal_stopped,
            on_damage=self._journal_damaged,
        )

    def _make_reconciler(self, data: Path | None) -> Reconciler | None:
        if self.journal is None or data is None:
            return None
        return Reconciler(self.context, self.journal, data, self.hosts)

    def _make_keeping(self, data: Path | None, storage: Storage | None) -> Keeping | None:
        if self.journal is None:
            return None
        return Keeping(
            self.journal,
            self.context.snapshots,
            self.settings,
            self._clock,
            server_id=self.server_id,
            data=data if storage is None else None,
            on_expired=self._journal_expired,
        )

    async def __aenter__(self) -> Self:
        if self.settings.archive:
            await asyncio.to_thread(_check_archive, self.settings.archive)
        started = False
        try:
            await self._start()
            started = True
        finally:
            if not started:  # cancelled, too: the journal must not stay open and locked
                await self.stop()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- start and stop ---------------------------------------------------------------------------

    async def _start(self) -> None:
        transport = self.context.transport
        if self.journal is not None:
            await self.journal.open()
        if self.reconciler is not None:
            await self.reconciler.open()
        if self._replicated is not None:
            await self._find_place()
            await self._replicated.open()
        self._unwatch = transport.bus.watch_connection(
            self._on_connection
        )  # what is ensured may be lost again
        await self._ensure_streams()
        await self.context.epochs.check()
        if self._taster is not None:
            await asyncio.to_thread(self._taster.start)
        if self._pulse is not None:
            await self._pulse.start(self.server_id, self.settings.renew_seconds)
            self._tasks.spawn(self._pulse.run())
        self._tasks.spawn(self._renewals.run())
        self._tasks.spawn(self._maintain())
        if self._copies is not None:
            self._tasks.spawn(self._copies.run())
        if self._keeping is not None:
            self._tasks.spawn(self._keeping.run())
        if self._takes_inits:
            self._init_subscription = await transport.bus.subscribe(
                subjects.INIT_ALL, self._on_init, queue=subjects.INIT_QUEUE
            )
            self._subscriptions.append(self._init_subscription)
            self._subscriptions.append(await Resetting(self.context).start(self._tasks.spawn))
        self._subscriptions.append(await transport.bus.subscribe(subjects.ERASED_ALL, self._on_erased))
        if self._feeding is not None:
            await self._feeding.start()
        self._subscriptions.append(await transport.announce(self._info(), self.stats))
        await transport.bus.barrier()
        if self.journal is not None and self.journal.stopped:
            raise JournalStopped(self.journal.stopped)
        await self._say_started()
        if self.reconciler is not None:
            self._tasks.spawn(self.reconciler.run())
        self._log.info("serving", durability=self.settings.durability)

    async def stop(self) -> None:
        """Take no more documents, set every owned one DOWN, and end."""
        if self._stopping:
            return
        self._stopping = True
        self._unwatch()
        for subscription in self._subscriptions:
            try:
                await subscription.close()
            except TransportError as error:
                self._log.debug("could not unsubscribe", problem=str(error))
        hosts = list(self.hosts.values())
        try:
            async with asyncio.timeout(self.settings.stop_seconds):
                await asyncio.gather(*(self._compact(host) for host in hosts if host.must_store))
        except (TimeoutError, LorogoError) as error:
            self._log.error("what the stream lost could not be stored", problem=str(error))
        await self._shorten(hosts)
        for host in hosts:
            host.stop("the server stops")
        try:
            async with asyncio.timeout(self.settings.stop_seconds):
                for host in hosts:
                    await host.closed.wait()
        except TimeoutError:
            self._log.warning("documents did not close in time", documents=len(self.hosts))
        if self._feeding is not None:
            await self._feeding.stop()  # behind the hosts: their last records are read as well
        await self._tasks.close()
        if self.context.foretaste is not None:
            self.context.foretaste.close()
        if self._taster is not None:
            await asyncio.to_thread(self._taster.stop)
        if self._pulse is not None:
            await self._pulse.stop()
        self._tell_answers()
        if self._replicated is not None:
            await self._replicated.close()
        if self.journal is not None:
            await self._save_ledger(self.journal)
            await self.journal.close()
        self._log.info("stopped", documents=len(hosts))

    async def _shorten(self, hosts: list[Host]) -> None:
        """Compact what the next owner would load for long, as far as the time goes: longest WAL first."""
        long = [host for host in hosts if host.is_up and host.is_long]
        long.sort(key=lambda host: host.loaded.intake.wal_bytes, reverse=True)
        try:
            async with asyncio.timeout(min(_SHORTEN_SECONDS, self.settings.stop_seconds)):
                ends = await asyncio.gather(*(self._compact(host) for host in long), return_exceptions=True)
        except TimeoutError:
            self._log.info("not all were compacted that are long to load", documents=len(long))
        else:
            for problem in ends:
                if isinstance(problem, Exception):
                    self._background_failed(problem)

    @property
    def ready(self) -> bool:
        """Whether it takes documents and can ACK."""
        return not (self._stopping or self.broken) and self.context.transport.bus.connected

    @property
    def broken(self) -> bool:
        """Whether its journal has stopped, for good: only a new start helps."""
        return self.journal is not None and bool(self.journal.stopped) and not self._stopping

    @property
    def hindrances(self) -> tuple[str, ...]:
        """Why it is not ready, in codes; nothing: it is."""
        found = {
            "stopping": self._stopping,
            "journal-stopped": self.broken,
            "nats-disconnected": not self.context.transport.bus.connected,
        }
        return tuple(code for code, true in found.items() if true)

    def _journal_stopped(self, why: str) -> None:
        """Nothing can be ACKed any more: let others have the documents, and take no more."""
        for host in self.hosts.values():
            host.stop(why, finish=False)
        if self._init_subscription is not None and not self._stopping:
            self._tasks.spawn(self._init_subscription.close())

    def _journal_expired(self, before_ns: int) -> None:
        """Old segments are gone: whoever is open must not believe that they are covered by them."""
        for host in self.hosts.values():
            host.journal_expired(before_ns)

    def _journal_damaged(self) -> None:
        """Any record may be the lost one: every open document begins its journal anew, with content."""
        self._journal_expired(self._clock.wall_ns() + 1)

    def _on_erased(self, message: Message) -> None:
        document_id = subjects.document_of(message.subject)
        if self._keeping is not None and not self._stopping and ids.is_document_id(document_id):
            self._tasks.spawn(self._keeping.heard(document_id))

    def _erased(self, document_id: str) -> None:
        if self._keeping is not None:
            self._keeping.erase(document_id)

    async def _find_place(self) -> None:
        """Where our disk is, which others must not share to count as replicas. Raises JournalStopped."""
        if self._copies is None or self._data is None or self._copies.place:
            return
        try:
            found = await asyncio.to_thread(whereabouts.place, self._data, self.context.new_id)
        except (OSError, ValueError) as error:
            raise JournalStopped(f"the place of {self._data} cannot be told: {error}") from error
        self._copies.place = found

    async def _ensure_streams(self) -> None:
        transport = self.context.transport
        guarded = transport.bus.users_only
        above = self.context.statuses.highest
        for name, change in await streams.ensure(
            transport, self.settings, self._clock, guarded=guarded, above=above
        ):
            self._log.info("stream changed", stream=name, change=change)

    async def _say_started(self) -> None:
        """Let feeds ask at once; if nobody hears it, they find us a little later."""
        await self.context.transport.bus.publish(subjects.SERVER_STARTED, self.server_id.encode())

    def _info(self) -> ServiceInfo:
        facts = {
            "server_id": self.server_id,
            "durability": self.context.journal.durability,
            "journals": "" if self.journal is None else " ".join(self.journal.ids()),
            "journal_address": "" if self._replicated is None else self._replicated.address,
            "journal_replicas": str(self.settings.journal_replicas if self._replicated else 0),
            "journal_place": "" if self._copies is None else self._copies.place,
            "wire": str(WIRE),
        }
        return ServiceInfo(subjects.SERVICE, release(), "lorogo document server", facts)

    def stats(self) -> Mapping[str, object]:
        """What this server has done, for the services protocol and for people."""
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
            **self.context.tally.stats(),
            "loads": counters.loads,
            "load_failures": counters.load_failures,
            "compactions": counters.compactions,
            "step_downs": counters.step_downs,
            "takeovers": counters.takeovers,
            "last_takeovers": [list(one) for one in counters.last_takeovers],
            **self._depths(),
            "epoch": self.context.epochs.current,
            "ready": self.ready,
            "wal_full": round(self.context.level.full, 3),
            "durability": self.context.journal.durability,
            **self.context.journal.stats(),
            **({} if self.reconciler is None else self.reconciler.stats()),
            **({} if self._copies is None else self._copies.stats()),
            **({} if self._feeding is None else self._feeding.stats()),
            **({} if self._keeping is None else self._keeping.stats()),
        }

    def _depths(self) -> Mapping[str, object]:
        """How much waits now, and for what; and what the open documents' snapshots have."""
        depths = [host.waiting() for host in self.hosts.values()]
        return {
            "documents_up": sum(host.is_up for host in self.hosts.values()),
            "intake_waiting": sum(messages for messages, _, _ in depths),
            "intake_waiting_bytes": sum(queued for _, queued, _ in depths),
            "acks_waiting": sum(acks for _, _, acks in depths),
            "loads_waiting": self.context.counters.loads_waiting,
            "unfinished_bytes": sum(host.unfinished_bytes for host in self.hosts.values()),
            "snapshot_bytes": sum(host.snapshot_bytes_stored for host in self.hosts.values()),
        }

    # --- taking documents -------------------------------------------------------------------------

    def _on_init(self, message: Message) -> None:
        if not self.ready or self._inits >= _INITS_MAX:
            return  # whoever asks, asks again
        self._inits += 1
        self._tasks.spawn(self._take(message))

    async def _take(self, message: Message) -> None:
        try:
            taken = await self._answer_init(message)
        finally:
            self._inits -= 1
        if not isinstance(taken, Declined):
            await self._own(*taken)

    async def take(self, document_id: str) -> Host:
        """Own a document that nobody serves, without being asked; returns when it is UP. Raises NotTaken."""
        if not self.ready:
            raise NotTaken("this server is not ready")
        taken = await self._answer_init(Message(subjects.init(document_id), b""))
        if isinstance(taken, Declined):
            raise NotTaken(taken.why, again_seconds=taken.again_seconds)
        host, lease = taken
        self._tasks.spawn(self._own(host, lease))
        await host.started.wait()  # its load has a deadline of its own
        if not host.is_up:
            raise NotTaken(f"it was not loaded: {host.why_closed}", failed=True)
        return host

    async def _answer_init(self, message: Message) -> tuple[Host, Lease] | Declined:
        try:
            document_id = ids.check_document_id(subjects.document_of(message.subject))
        except InvalidDocumentId as error:
            return await self._no(message, str(error))
        if (old := self.hosts.get(document_id)) is not None:
            seen = message.headers.get(h.EXPECTED, "")
            if seen.isascii() and seen.isdecimal() and old.is_newer_than(int(seen[:_REVISION_DIGITS])):
                return await self._no(message, "this server has taken it since")
            if old.is_up and old.lease.valid():
                # Its status says otherwise, or the asker would not ask: read it and see.
                try:
                    await old.lease.confirm()
                except LorogoError as error:
                    self._log.info("asked for a document we lost", document=document_id, problem=str(error))
                else:
                    return await self._no(message, "this server serves it")
            try:
                async with asyncio.timeout(self.settings.stale_seconds):
                    await old.closed.wait()
            except TimeoutError:
                return await self._no(message, "this server is still closing it")
        if len(self.hosts) >= self.settings.documents_max:
            return await self._no(message, f"{len(self.hosts)} documents are open here already")
        host = Host(document_id, self.context, verbs.answer, trace=self.context.new_id())
        match await self._taking.take(document_id, message, host):
            case Declined(why) as declined:
                self._log.debug("init declined", document=document_id, why=why)
                return declined
            case Taken(lease):
                if self._stopping or document_id in self.hosts:
                    await lease.give_up(write_down=True)
                    return Declined("this server stops, or has it already")
                self.hosts[document_id] = host
                self._renewals.add(lease)
                if self._pulse is not None:
                    self._pulse.hold(document_id, lease.token)
                return host, lease

    async def _no(self, message: Message, why: str) -> Declined:
        await self._taking.decline(message.reply, why)
        return Declined(why)

    async def _own(self, host: Host, lease: Lease) -> None:
        self.context.counters.loads += 1
        try:
            await host.run(lease)
        except Exception as error:  # noqa: BLE001  # one document must not stop the others
            self.context.counters.load_failures += 1
            await self._failed(host, lease, error)
        finally:
            if self.hosts.get(host.document_id) is host:
                del self.hosts[host.document_id]
                if self._pulse is not None:
                    self._pulse.drop(host.document_id)

    async def _failed(self, host: Host, lease: Lease, error: Exception) -> None:
        """Leave the trace id where the next server finds it; a broken connection is nobody's failure."""
        host.log.error("document failed", problem=str(error), exc_info=error)
        status = Starting(lease.operation_id, lease.retry_count, self._clock.wall_ns())
        try:
            if isinstance(error, JournalStopped) or (isinstance(error, TransportError) and error.retriable):
                await self._say_down(lease)
            elif not lease.up:
                await self.context.statuses.write(
                    host.document_id,
                    status,
                    expected_revision=lease.revision,
                    server=self.server_id,
                    lease=lease.token,
                    trace=host.trace,
                )
            else:
                await lease.write_down()
        except LorogoError as problem:
            host.log.info("could not leave a trace", problem=str(problem))

    async def _say_down(self, lease: Lease) -> None:
        """Say DOWN as soon as NATS can hear it; when the lease is stale, others count a failure anyway."""
        deadline = self._clock.now() + self.settings.stale_seconds
        while True:
            try:
                return await lease.write_down()
            except TransportError as error:
                if not error.retriable or self._clock.now() >= deadline:
                    raise
                await asyncio.sleep(self.settings.renew_seconds)

    # --- looking after them -----------------------------------------------------------------------

    def _on_connection(self, connected: bool) -> None:
        for host in self.hosts.values():
            host.lease.suspended = True
            host.doubts_snapshot = True
        self._taking.sightings.forget()
        self.context.epochs.doubt()
        if connected and not self._stopping:
            self._tasks.spawn(self._revalidate())

    async def _revalidate(self) -> None:
        """After a reconnect: our streams, the epoch, our keys from the leader, what we missed."""
        while True:
            try:
                await self._ensure_streams()
                await self._check_epoch()
                break
            except TransportError as error:
                self._log.warning("not settled after the reconnect", problem=str(error))
                if not self.context.transport.bus.connected:
                    return  # the next reconnect begins again
                await asyncio.sleep(_MAINTENANCE_SECONDS)
        slots = asyncio.Semaphore(_STOPS_AT_ONCE)

        async def settle(host: Host) -> None:
            async with slots:
                try:
                    await host.lease.confirm()
                except LorogoError as error:
                    self._log.info("lease in doubt", document=host.document_id, problem=str(error))
                host.reconnected()

        async with asyncio.TaskGroup() as group:
            for host in list(self.hosts.values()):
                group.create_task(settle(host))
        if self.reconciler is not None:
            self.reconciler.want("reconnect")
        await self._say_started()

    async def _check_epoch(self) -> bool:
        changed = await self.context.epochs.check()
        if changed:
            for host in self.hosts.values():
                host.epoch_changed()
            if self.reconciler is not None:
                self.reconciler.want("another epoch")
        return changed

    async def _maintain(self) -> None:
        """Unload what nobody uses, compact what is due, sweep what nobody needs."""
        next_epoch = self._clock.now() + _EPOCH_SECONDS
        next_sweep = self._clock.now() + _SWEEP_SECONDS * self._rng.random()
        next_ledger = self._clock.now() + _LEDGER_SECONDS
        next_answers = self._clock.now() + self.settings.answers_every_seconds
        next_level = 0.0
        while True:
            await asyncio.sleep(_MAINTENANCE_SECONDS)
            now = self._clock.now()
            for host in self._whose_turn():
                if host.is_up:
                    self._look_after(host, now)
            if now >= next_answers:
                next_answers = now + self.settings.answers_every_seconds
                self._tell_answers()
            if self.journal is not None and now >= next_ledger:
                next_ledger = now + _LEDGER_SECONDS
                await self._save_ledger(self.journal)
            try:
                if now >= next_epoch:
                    next_epoch = now + _EPOCH_SECONDS
                    await self._check_epoch()
                if now >= next_level:
                    next_level = now + _LEVEL_SECONDS
                    if self.journal is not None:
                        await self.journal.measure()
                    self.context.level.see(await self.context.wal.state())
                if now >= next_sweep:
                    next_sweep = now + _SWEEP_SECONDS
                    await self.context.snapshots.sweep(now)
            except LorogoError as error:
                self._log.info("maintenance postponed", problem=str(error))

    def _whose_turn(self) -> list[Host]:
        """All documents if they are few; of many a part, so that each has its turn within ten."""
        if not self._round:
            self._round = list(self.hosts.values())
            self._round_part = max(_TURN_DOCUMENTS, -(-len(self._round) // _TURNS_MAX))
            self.context.unfinished.measured(sum(host.unfinished_bytes for host in self._round))
        turn, self._round = self._round[: self._round_part], self._round[self._round_part :]
        return turn

    def _tell_answers(self) -> None:
        """Leave in the journal how senders were answered; what finds no room is told the next time."""
        if self.journal is None:
            return
        tally = self.context.tally
        if (record := tally.take(self._clock.wall_ns())) is not None and not self.journal.note(record):
            tally.give_back(record)

    async def _save_ledger(self, journal: DiskJournal) -> None:
        if self.reconciler is not None:
            await self.reconciler.remember()
        await journal.save_ledger()

    def _look_after(self, host: Host, now: float) -> None:
        settings, intake = self.settings, host.loaded.intake
        wal_bytes = 0 if intake.deleted else intake.wal_bytes  # a tombstone is not compacted
        if intake.deleted:
            host.wants_compaction = ""
            self._retry_quarantine(host)  # else a compaction does
        elif host.must_store:
            host.wants_compaction = "the stream lost messages"
        if self._pulse is not None:
            self._pulse.hold(host.document_id, host.lease.token)
        idle = host.idle_seconds()
        if idle >= settings.idle_seconds and not host.compacting.locked():
            tried = host.compacted_at > now - idle  # what cannot be compacted is unloaded as it is
            if host.is_long and not tried and not host.wants_compaction:
                host.wants_compaction = "unloading"
            elif not host.wants_compaction:
                host.stop("idle")
                return
        due = host.compacted_at + settings.compact_every_seconds * host.compaction_spread
        if now >= due and wal_bytes:
            host.wants_compaction = host.wants_compaction or "daily"
        if host.wants_compaction and host.document_id not in self._compacting:
            self._compacting.add(host.document_id)
            host.spawn(self._compact(host))

    def _retry_quarantine(self, host: Host) -> None:
        """Move what could not be moved out of the WAL: until then nobody can say what it should hold."""
        if host.answers.to_quarantine and host.document_id not in self._compacting:
            self._compacting.add(host.document_id)
            host.spawn(self._quarantine(host))

    async def _quarantine(self, host: Host) -> None:
        try:
            await host.answers.retry_quarantine(host.epoch)
        finally:
            self._compacting.discard(host.document_id)

    async def _compact(self, host: Host) -> None:
        try:
            async with self._compactions:
                await compaction.compact(host)
        except compaction.CompactionFailed as error:
            host.log.warning("not compacted", problem=str(error))
        finally:
            host.wants_compaction = ""
            host.compacted_at = self._clock.now()
            self._compacting.discard(host.document_id)

    def _background_failed(self, error: Exception) -> None:
        if isinstance(error, LorogoError):
            self._log.warning("background work failed", problem=str(error))
        else:
            self._log.error("background work failed", exc_info=error)
