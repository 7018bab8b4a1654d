"""Services of one server's journal: replication, reconciliation, recovery, the feed, upkeep, ACK metrics."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from lorogo_log import Storage
from lorogo_protocol import ids
from lorogo_protocol.messages import subjects
from lorogo_server.context import ServerContext
from lorogo_server.document.host import Host
from lorogo_server.journal import failure_domain
from lorogo_server.journal.disk_journal import DiskJournal, JournalStopped
from lorogo_server.journal.feed import FeedResponder
from lorogo_server.journal.replication import JournalReplicas, ReplicatedJournal
from lorogo_server.journal.segment_upkeep import SegmentUpkeep
from lorogo_server.recovery.reconcile import Reconciler
from lorogo_server.recovery.recovery import DocumentRecovery
from lorogo_transport.ports import Message
from lorogo_transport.tasks import Work


class JournalServices:
    """Everything that reads, replicates, restores or maintains the journal of one server."""

    def __init__(
        self,
        context: ServerContext,
        journal: DiskJournal,
        data: Path,
        hosts: Mapping[str, Host],
        spawn: Callable[[Work], None],
        *,
        storage: Storage | None,
    ) -> None:
        """Make idle services: `open()` opens the journal, and `start()` starts them."""
        settings = context.settings
        self._context = context
        self.journal = journal
        self._data = data
        self._storage = storage
        self._hosts = hosts
        self._spawn = spawn
        self.reconciler = Reconciler(context, journal, data, hosts)
        self.recovery = DocumentRecovery(context, self.reconciler, lambda: journal.directory, hosts, spawn)
        self.upkeep = SegmentUpkeep(
            journal,
            context.snapshots,
            settings,
            context.clock,
            server_id=context.server_id,
            data=data if storage is None else None,
            on_expired=self.expired,
        )
        self.feed = FeedResponder(context, journal)
        self._replicated: ReplicatedJournal | None = None
        self.replicas: JournalReplicas | None = None
        if isinstance(context.journal, ReplicatedJournal):
            self._replicated = context.journal
            self.replicas = JournalReplicas(
                context.server_id, context.transport.bus, data / "replicas", settings, storage=storage
            )

    async def open(self) -> None:
        """Open the journal, and serve it to other servers. Raises JournalStopped."""
        await self.journal.open()
        await self._context.load_notes.open(self.journal.directory, self._spawn)
        await self.reconciler.open()
        await self.recovery.open()
        if self._replicated is not None:
            await self._find_failure_domain()
            await self._replicated.open()

    async def start(self) -> None:
        """Start the tasks; the streams must exist. Raises TransportError."""
        self._spawn(self.reconciler.run_asked())
        await self.recovery.start()
        if self.replicas is not None:
            self._spawn(self.replicas.run())
        self._spawn(self.upkeep.run())
        await self.feed.start()

    def serving(self) -> None:
        """Compare journals and stream, now that the server is announced. Raises JournalStopped."""
        if self.journal.stopped:
            raise JournalStopped(self.journal.stopped)
        self._spawn(self.reconciler.run())

    async def close(self) -> None:
        """Save what the next start needs, and close the journal."""
        await self.record_answers()
        if self._replicated is not None:
            await self._replicated.close()
        await self._context.load_notes.save()
        await self.save_coverage()
        await self.journal.close()

    async def record_answers(self) -> None:
        """Write the ACK metrics to the journal; keep them for the next time if the journal has no space."""
        self._context.ack_metrics.report(self._context.clock.wall_ns(), self.journal.note)

    async def save_coverage(self) -> None:
        """Save the journal coverage and the state of reconciliation for the next start."""
        await self.reconciler.remember()
        await self.journal.save_coverage()

    def expired(self, before_ns: int) -> None:
        """Note in open documents that segments before `before_ns` are gone and no longer cover them."""
        for host in self._hosts.values():
            if host.journal.expired(before_ns):
                host.due.want("the journal's old segments expired")

    def on_erased(self, message: Message) -> None:
        """Handle the message that a document was erased."""
        document_id = subjects.document_of(message.subject)
        if ids.is_document_id(document_id):
            self._spawn(self.upkeep.on_erased(document_id))

    async def _find_failure_domain(self) -> None:
        """Find the failure domain of the disk; a replica must be in another one. Raises JournalStopped."""
        if self.replicas is None or self._storage is not None or self.replicas.failure_domain:
            return
        try:
            found = await asyncio.to_thread(failure_domain.domain_id, self._data, self._context.new_id)
        except (OSError, ValueError) as error:
            raise JournalStopped(f"cannot find the failure domain of {self._data}: {error}") from error
        self.replicas.failure_domain = found

    def facts(self) -> Mapping[str, str]:
        """Facts about the journal for the announcement of the server."""
        replicated, replicas = self._replicated, self.replicas
        return {
            "journals": " ".join(self.journal.ids()),
            "journal_address": "" if replicated is None else replicated.address,
            "journal_replicas": str(0 if replicated is None else self._context.settings.journal_replicas),
            "journal_place": "" if replicas is None else replicas.failure_domain,
        }

    def stats(self) -> Mapping[str, object]:
        """Figures for operators."""
        return {
            **self.reconciler.stats(),
            **self.recovery.stats(),
            **({} if self.replicas is None else self.replicas.stats()),
            **self.feed.stats(),
            **self.upkeep.stats(),
        }
