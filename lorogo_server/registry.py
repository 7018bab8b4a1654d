"""Document registry of one server: acquire a document on request, run its host, release it at the end."""

import asyncio
from collections.abc import Callable, Mapping

from lorogo_protocol import ids
from lorogo_protocol.errors import InvalidDocumentId, LorogoError
from lorogo_protocol.lease import Failures
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.context import ServerContext
from lorogo_server.document import host_loop
from lorogo_server.document.host import Host
from lorogo_server.journal.disk_journal import JournalStopped
from lorogo_server.ownership.acquisition import Acquisition, NotAcquired
from lorogo_server.ownership.lease import Lease
from lorogo_server.ownership.renewals import Renewals
from lorogo_server.readiness import Readiness
from lorogo_server.rpc import methods
from lorogo_server.sandbox.keepalive import KeepaliveProcess
from lorogo_transport.errors import TooLarge, TransportError
from lorogo_transport.ports import Message
from lorogo_transport.stores.snapshots import SnapshotDamaged
from lorogo_transport.tasks import Work
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_INITS_MAX = 4096  # inits handled at once
_HEAVIEST = 8  # documents loaded at a time because the WAL is nearly full
_REVISION_DIGITS = 20


class DocumentRegistry:
    """The documents of one server, from the init to the release."""

    def __init__(
        self,
        context: ServerContext,
        renewals: Renewals,
        *,
        keepalive: KeepaliveProcess | None,
        spawn: Callable[[Work], None],
        readiness: Readiness,
    ) -> None:
        self.hosts: dict[str, Host] = {}
        self._context = context
        self._renewals = renewals
        self._keepalive = keepalive
        self._spawn = spawn
        self._readiness = readiness
        self._acquisition = Acquisition(context)
        self._inits = 0
        self._connection_losses = 0
        self._relieving = False  # loading documents because the WAL is nearly full
        self._log = log.bind(server=context.server_id)

    # --- acquire ----------------------------------------------------------------------------------

    def on_init(self, message: Message) -> None:
        """Handle the request of a client to start a document."""
        if self._inits >= _INITS_MAX:
            return  # clients repeat the init
        if self._readiness.full and not self._readiness.stopping:
            why = f"the disk of server {self._context.server_id} is full"
            why += "; it serves documents again once there is space"
            self._spawn(self._reply(message, NotAcquired(why, reason=Reason.STORAGE_FULL).headers()))
            return
        if not self._readiness.ready:
            return
        self._inits += 1
        self._spawn(self._take(message))

    async def take(self, document_id: str) -> Host:
        """Acquire a document without a client request; return its host when it is UP. Raises NotAcquired."""
        if not self._readiness.ready:
            raise NotAcquired("this server is not ready")
        host = await self._answer_init(Message(subjects.init(document_id), b""))
        self._spawn(self._own(host))
        await host.started.wait()  # the load has its own deadline
        if not host.state.is_up:
            raise NotAcquired(f"the document was not loaded: {host.state.closed_because}", failed=True)
        return host

    async def _take(self, message: Message) -> None:
        try:
            host = await self._answer_init(message)
        except NotAcquired as no:
            self._log.debug("init declined", subject=message.subject, why=str(no))
            await self._reply(message, no.headers())
            return
        finally:
            self._inits -= 1
        await self._reply(message, {h.SERVER: self._context.server_id, h.LEASE: str(host.lease.token)})
        await self._own(host)

    async def _answer_init(self, message: Message) -> Host:
        """Acquire the document of an init. Raises NotAcquired, TransportError."""
        try:
            document_id = ids.check_document_id(subjects.document_of(message.subject))
        except InvalidDocumentId as error:
            raise NotAcquired(str(error)) from error
        if (old := self.hosts.get(document_id)) is not None:
            seen = message.headers.get(h.EXPECTED, "")
            if seen.isascii() and seen.isdecimal() and old.is_newer_than(int(seen[:_REVISION_DIGITS])):
                raise NotAcquired("this server has acquired the document since")
            if old.state.is_up and old.lease.valid():
                # The client saw another status, so read the status before declining.
                try:
                    await old.lease.confirm()
                except LorogoError as error:
                    self._log.info("init for a lost document", document=document_id, problem=str(error))
                else:
                    raise NotAcquired("this server serves the document")
            try:
                async with asyncio.timeout(self._context.settings.stale_seconds):
                    await old.closed.wait()
            except TimeoutError:
                raise NotAcquired("this server is still closing the document") from None
        if len(self.hosts) >= self._context.settings.documents_max:
            raise NotAcquired(f"this server has {len(self.hosts)} documents open already")
        trace = self._context.new_id()
        lease = await self._acquisition.take(document_id, message)
        if self._readiness.stopping or document_id in self.hosts:
            await lease.give_up(write_down=True)
            raise NotAcquired("this server stops, or has the document already")
        host = Host(document_id, self._context, lease, methods.answer, trace=trace)
        lease.observe(host)
        self.hosts[document_id] = host
        self._renewals.add(lease)
        if self._keepalive is not None:
            self._keepalive.hold(document_id, lease.token)
        return host

    async def _reply(self, message: Message, headers: Mapping[str, str]) -> None:
        if message.reply:
            try:
                await self._context.transport.bus.publish(message.reply, headers=headers)
            except TransportError as error:
                self._log.debug("cannot reply to an init", problem=str(error))

    def relieve_wal(self) -> None:
        """Load, and so compact, the closed documents with most messages in a WAL that is nearly full."""
        if not (self._readiness.stopping or self._relieving):
            self._relieving = True
            self._spawn(self._load_heaviest())

    async def _load_heaviest(self) -> None:
        """Only an owner purges, and a chunk in the WAL does not make a server load the document."""
        try:
            counts = await self._context.wal.subjects(subjects.wal("*"))
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

    # --- serve ------------------------------------------------------------------------------------

    async def _own(self, host: Host) -> None:
        self._context.counters.loads += 1
        losses = self._connection_losses
        try:
            await host_loop.run(host)
        except Exception as error:  # noqa: BLE001  # a failed document must not stop other documents
            self._context.counters.load_failures += 1
            await self._failed(host, error, interrupted=self._connection_losses != losses)
        finally:
            if self.hosts.get(host.document_id) is host:
                del self.hosts[host.document_id]
                if self._keepalive is not None:
                    self._keepalive.drop(host.document_id)

    async def _failed(self, host: Host, error: Exception, *, interrupted: bool) -> None:
        """Record a failure of the document; write DOWN if NATS, the connection or the journal failed.

        `interrupted`: the connection was lost since the acquisition.
        """
        lease = host.lease
        host.log.error("document failed", problem=str(error), exc_info=error)
        try:
            if not _is_of_document(error) or (interrupted and not lease.served):
                await self._write_down(lease, owed=host.state.memory_is_only_copy)
            elif lease.served:
                await lease.write_down(owed=True)
            elif not lease.lost:
                failures = Failures(lease.failures.count + 1, host.trace)
                self._context.load_notes.failed(host.document_id, failures)
                await lease.leave_failure(failures)
        except LorogoError as problem:
            host.log.info("cannot record the failure", problem=str(problem))

    async def _write_down(self, lease: Lease, *, owed: bool) -> None:
        """Write DOWN, and retry until the lease is stale; then other servers may acquire the document."""
        deadline = self._context.clock.now() + self._context.settings.stale_seconds
        while True:
            try:
                return await lease.write_down(owed=owed)
            except TransportError as error:
                if not error.retriable or self._context.clock.now() >= deadline:
                    raise
                await asyncio.sleep(self._context.settings.renew_seconds)

    def stats(self) -> Mapping[str, object]:
        """Return the depths of the queues, and the sizes of the open documents' snapshots."""
        hosts = list(self.hosts.values())
        return {
            "documents": len(hosts),
            "documents_up": sum(host.state.is_up for host in hosts),
            "intake_waiting": sum(len(host.backlog) for host in hosts),
            "intake_waiting_bytes": sum(host.backlog.bytes for host in hosts),
            "acks_waiting": sum(host.acks.waiting for host in hosts),
            "unfinished_bytes": sum(host.unfinished_bytes for host in hosts),
            "snapshot_bytes": sum(host.snapshot_bytes_stored for host in hosts),
        }

    # --- reconnect --------------------------------------------------------------------------------

    def doubt(self) -> None:
        """Treat all leases and snapshots as unconfirmed, since the connection was lost."""
        self._connection_losses += 1
        for host in self.hosts.values():
            host.connection_lost()
        self._acquisition.staleness.reset()

    def reconnected(self) -> None:
        """Confirm every lease with the stream leader, and have every host read missed messages."""
        self._renewals.hurry()
        for host in self.hosts.values():
            host.catch_up()


def _is_of_document(error: Exception) -> bool:
    """Return True if the document caused the error; failures of NATS or the journal do not count."""
    if isinstance(error, TransportError):
        return isinstance(error, SnapshotDamaged | TooLarge)
    return not isinstance(error, JournalStopped)
