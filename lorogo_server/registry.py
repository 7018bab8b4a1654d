"""The documents of one server: taken when somebody asks for them, served by a host each, and let go again."""

import asyncio
from collections.abc import Callable

from lorogo_protocol import headers as h
from lorogo_protocol import ids, subjects
from lorogo_protocol.errors import InvalidDocumentId, LorogoError
from lorogo_protocol.lease import Failures
from lorogo_protocol.reasons import Reason
from lorogo_server.context import ServerContext
from lorogo_server.document.host import Host
from lorogo_server.journal.disk_journal import JournalStopped
from lorogo_server.ownership.acquisition import AcquiredDocument, Acquisition, AcquisitionDeclined
from lorogo_server.ownership.lease import Lease, LeaseLost
from lorogo_server.ownership.renewals import Renewals
from lorogo_server.rpc import methods
from lorogo_server.sandbox.keepalive import KeepaliveProcess
from lorogo_transport.errors import TooLarge, TransportError
from lorogo_transport.ports import Message
from lorogo_transport.stores.snapshots import SnapshotDamaged
from lorogo_transport.tasks import Work
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_INITS_MAX = 4096  # being answered at once
_CONFIRMS_AT_ONCE = 64
_REVISION_DIGITS = 20


class NotAcquired(LorogoError):
    """The document is not ours to serve now; says why.

    `again_seconds`: ask again then, nobody may be there. `failed`: it was ours, and could not be loaded.
    """

    code = "conflict"

    def __init__(self, why: str, *, again_seconds: float = 0.0, failed: bool = False) -> None:
        super().__init__(why)
        self.again_seconds = again_seconds
        self.failed = failed


class DocumentRegistry:
    """Who has which document here, from the init to the end."""

    def __init__(
        self,
        context: ServerContext,
        renewals: Renewals,
        *,
        pulse: KeepaliveProcess | None,
        spawn: Callable[[Work], None],
        is_ready: Callable[[], bool],
        declines: Callable[[], str],
    ) -> None:
        """`is_ready` is asked before anything is taken; `declines` says why a full disk takes nothing."""
        self.hosts: dict[str, Host] = {}
        self._context = context
        self._renewals = renewals
        self._pulse = pulse
        self._spawn = spawn
        self._is_ready = is_ready
        self._declines = declines
        self._taking = Acquisition(context)
        self._inits = 0
        self._stopping = False
        self._log = log.bind(server=context.server_id)

    def take_no_more(self) -> None:
        """The server stops: what is being taken just now is given up."""
        self._stopping = True

    # --- taking them ------------------------------------------------------------------------------

    def on_init(self, message: Message) -> None:
        """Somebody asks for a document."""
        if self._inits >= _INITS_MAX:
            return  # whoever asks, asks again
        if why := self._declines():
            self._spawn(self._taking.decline(message.reply, why, reason=Reason.STORAGE_FULL))
            return
        if not self._is_ready():
            return
        self._inits += 1
        self._spawn(self._take(message))

    async def take(self, document_id: str) -> Host:
        """Own a document that nobody serves, without being asked; returns when it is UP. Raises NotTaken."""
        if not self._is_ready():
            raise NotAcquired("this server is not ready")
        taken = await self._answer_init(Message(subjects.init(document_id), b""))
        if isinstance(taken, AcquisitionDeclined):
            raise NotAcquired(taken.why, again_seconds=taken.again_seconds)
        host, lease = taken
        self._spawn(self._own(host, lease))
        await host.started.wait()  # its load has a deadline of its own
        if not host.is_up:
            raise NotAcquired(f"it was not loaded: {host.why_closed}", failed=True)
        return host

    async def _take(self, message: Message) -> None:
        try:
            taken = await self._answer_init(message)
        finally:
            self._inits -= 1
        if not isinstance(taken, AcquisitionDeclined):
            await self._own(*taken)

    async def _answer_init(self, message: Message) -> tuple[Host, Lease] | AcquisitionDeclined:
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
                async with asyncio.timeout(self._context.settings.stale_seconds):
                    await old.closed.wait()
            except TimeoutError:
                return await self._no(message, "this server is still closing it")
        if len(self.hosts) >= self._context.settings.documents_max:
            return await self._no(message, f"{len(self.hosts)} documents are open here already")
        host = Host(document_id, self._context, methods.answer, trace=self._context.new_id())
        match await self._taking.take(document_id, message, host):
            case AcquisitionDeclined(why) as declined:
                self._log.debug("init declined", document=document_id, why=why)
                return declined
            case AcquiredDocument(lease):
                if self._stopping or document_id in self.hosts:
                    await lease.give_up(write_down=True)
                    return AcquisitionDeclined("this server stops, or has it already")
                self.hosts[document_id] = host
                self._renewals.add(lease)
                if self._pulse is not None:
                    self._pulse.hold(document_id, lease.token)
                return host, lease

    async def _no(self, message: Message, why: str) -> AcquisitionDeclined:
        await self._taking.decline(message.reply, why)
        return AcquisitionDeclined(why)

    # --- serving them -----------------------------------------------------------------------------

    async def _own(self, host: Host, lease: Lease) -> None:
        self._context.counters.loads += 1
        try:
            await host.run(lease)
        except Exception as error:  # noqa: BLE001  # one document must not stop the others
            self._context.counters.load_failures += 1
            await self._failed(host, lease, error)
        finally:
            if self.hosts.get(host.document_id) is host:
                del self.hosts[host.document_id]
                if self._pulse is not None:
                    self._pulse.drop(host.document_id)

    async def _failed(self, host: Host, lease: Lease, error: Exception) -> None:
        """Record a failure of the document; say DOWN if NATS, the connection or our journal failed."""
        host.log.error("document failed", problem=str(error), exc_info=error)
        try:
            if not _is_of_document(error) or (lease.interrupted and not lease.up):
                await self._say_down(lease)
            elif lease.up:
                await lease.write_down()
            elif not lease.lost:
                failures = Failures(lease.failures.count + 1, host.trace)
                self._context.load_notes.failed(host.document_id, failures)
                await lease.leave_failure(failures)
        except LorogoError as problem:
            host.log.info("could not leave a trace", problem=str(problem))

    async def _say_down(self, lease: Lease) -> None:
        """Say DOWN as soon as NATS can hear it; when the lease is stale, others start the document anyway."""
        deadline = self._context.clock.now() + self._context.settings.stale_seconds
        while True:
            try:
                return await lease.write_down()
            except TransportError as error:
                if not error.retriable or self._context.clock.now() >= deadline:
                    raise
                await asyncio.sleep(self._context.settings.renew_seconds)

    # --- when the connection was lost -------------------------------------------------------------

    def doubt(self) -> None:
        """Whatever we knew may be the past: no lease counts, and no snapshot, before it is confirmed."""
        for host in self.hosts.values():
            host.lost_connection()
        self._taking.sightings.forget()

    async def confirm(self) -> None:
        """Ask the leader for every lease, and let every host read what it missed."""
        slots = asyncio.Semaphore(_CONFIRMS_AT_ONCE)
        problems: list[str] = []

        async def settle(host: Host) -> None:
            async with slots:
                try:
                    await host.lease.confirm()
                except LeaseLost:
                    pass  # the lease has logged it
                except LorogoError as error:
                    problems.append(str(error))
                host.reconnected()

        async with asyncio.TaskGroup() as group:
            for host in list(self.hosts.values()):
                group.create_task(settle(host))
        if problems:
            self._log.info("leases in doubt", documents=len(problems), problem=problems[-1])


def _is_of_document(error: Exception) -> bool:
    """Whether the document is the cause: a failure of NATS or of our journal counts against no document."""
    if isinstance(error, TransportError):
        return isinstance(error, SnapshotDamaged | TooLarge)
    return not isinstance(error, JournalStopped)
