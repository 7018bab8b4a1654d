"""Reconciliation: brings back what the journals have and the stream has lost (docs/JOURNAL.md).

A pass begins at the start, after each reconnect, when the epoch changed, and on a timer. A document that a
load waits for is brought back at once, and a pass under way pauses meanwhile (`bring_back`, recovery.py):

    read the journals from the end of the last reading, into a table of documents
    list what NATS holds: the revision of every snapshot, the number of messages of every document
    settle the incarnation of each document: incarnation_plan.py
    compare each document whose revision or number has changed since it was last complete
    publish what a fresh load of a document does not include, in the order of the journals
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lorogo_log import LogError
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.journal.incarnation import Ends, includes
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages import subjects
from lorogo_server.context import ServerContext
from lorogo_server.document.host import Host
from lorogo_server.journal.disk_journal import DiskJournal
from lorogo_server.ownership import epoch
from lorogo_server.ownership.epoch import EpochWitness
from lorogo_server.recovery.document_comparison import (
    Completeness,
    DocumentComparison,
    Pending,
    StoredDocumentState,
)
from lorogo_server.recovery.journal_reader import JournalReader
from lorogo_server.recovery.journal_table import JournalledDocument, JournalTable
from lorogo_server.recovery.reconcile_repair import ReconcileFindings, Repair
from lorogo_server.recovery.reconcile_rounds import ReconcileRounds
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.errors import StorageFull
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_BELIEVED_NS = 24 * 3600 * 1_000_000_000  # a document is compared once a day, also with unchanged numbers
_RETRY_SECONDS = 5.0  # after a failed pass
_INITS_MAX = 1000  # documents that one pass starts; the others wait for the next load
_ROWS_AT_ONCE = 1000  # before the loop runs other tasks
_NO_FACTS = SnapshotMetadata()


async def _at_once() -> None:
    pass


def _nothing_more(_document_id: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ReconcileOutcome:
    """Result of bringing back one document."""

    whole: bool  # the stream has all that the journals here have, or the rest can never be accepted again
    changed: bool = False  # something was published or stored
    compared: bool = True  # False: NATS or a disk failed meanwhile; try again


class Reconciler:
    """One server's reconciliation; `run()` and `run_asked()` are its tasks."""

    def __init__(
        self, context: ServerContext, journal: DiskJournal, data: Path, hosts: Mapping[str, Host]
    ) -> None:
        self.found = ReconcileFindings()
        self.journals = JournalReader(context, journal, data)
        self.changes = 0  # doubts about streams that are not those that this server knew
        self._context = context
        self._directory = journal
        self._hosts = hosts
        self._repair = Repair(context, self.found, self._note_rejected)
        self._documents = DocumentComparison(context, hosts, self._repair, self.found)
        # Passes
        self._passing = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._why = "start"
        self._running = self._progress = ""
        self._passes = self._finished_ns = 0
        self._read_before = False
        # Documents
        self._waiting: set[str] = set()  # with updates that build on what is in no journal here
        # Doubts about the streams
        self._doubt = ""  # why numbers are not believed in this pass
        self._doubts = 0  # number of doubts so far
        self._on_doubt: Callable[[str, bool], None] = _no_doubt
        self._on_settled: Callable[[], None] = _nothing
        self._checking = asyncio.Lock()
        self._remembered: EpochWitness | None = None
        self._opened = False
        # Documents that loads wait for
        self._asked: dict[str, asyncio.Future[ReconcileOutcome]] = {}
        self._asked_some = asyncio.Event()
        self._quiet = asyncio.Event()  # no load waits for a document: a pass may continue
        self._quiet.set()
        self._log = log.bind(server=context.server_id)

    @property
    def table(self) -> JournalTable:
        """Every document in the journals."""
        return self.journals.table

    def watch(self, on_doubt: Callable[[str, bool], None], on_settled: Callable[[], None]) -> None:
        """Call `on_doubt` when NATS may have lost data: why, and whether it surely did.

        `on_settled` is called when a pass that began since then has found every document whole.
        """
        self._on_doubt, self._on_settled = on_doubt, on_settled

    async def open(self) -> None:
        """Read what the last run wrote, before the epoch is checked."""
        self._opened = True
        await self.journals.open()
        known = await asyncio.to_thread(epoch.recalled, self._directory.directory)
        if known is not None:
            self._context.epochs.recall(known)

    async def read_journals(self) -> None:
        """Read the journals for their highest token, without NATS; the first pass reads them anyway.

        A journal that cannot be read does not prevent the start: the pass reports it and tries again.
        """
        if self._read_before:
            return  # a pass may be under way, and wait for the streams that the caller creates
        async with self._passing:
            if not self._read_before:
                try:
                    await self.journals.read()
                except OSError as error:
                    self._log.warning("cannot read every journal", problem=str(error))
                self._read_before = True

    async def remember(self) -> None:
        """Write the position of the WAL, before the coverage, whose positions count only in this epoch."""
        known = self._context.epochs.known
        if not self._opened or known == self._remembered:
            return  # not opened: the start failed, and the stored position is better
        try:
            await asyncio.to_thread(epoch.remember, self._directory.directory, known)
        except OSError as error:
            self._log.warning("cannot write the position of the WAL", problem=str(error))
        else:
            self._remembered = known

    def want(self, why: str) -> None:
        """Make a pass as soon as possible."""
        self._why = why
        self._wanted.set()

    async def run(self) -> None:
        """Make passes until cancelled."""
        self._read_before = True  # by the first of them
        self._wanted.set()
        pause = self._context.settings.reconcile_every_seconds
        again = _RETRY_SECONDS
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wanted.wait()
            why, self._why = self._why, "timer"
            self._wanted.clear()
            pause = self._context.settings.reconcile_every_seconds
            try:
                self._running, self._progress = why, ""
                compared = await self.reconcile()
                # A document that is only in its owner's memory is not stored yet, and its owner may change.
                if compared and not self._documents.pending:
                    self._on_settled()
                self._passes += 1
                self._finished_ns = self._context.clock.wall_ns()
                again = 2 * again if self._documents.pending else _RETRY_SECONDS
                if self._documents.pending:
                    pause = again = min(pause, again)
            except StorageFull as error:
                self._log.error(
                    "cannot publish what the WAL lost: it is full",
                    problem=str(error),
                )
            except (LorogoError, LogError, OSError) as error:
                if self._context.transport.bus.connected:  # else the reconnect makes a pass
                    self._log.warning("reconciliation is postponed", why=why, problem=str(error))
                    pause = min(pause, _RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001  # one bad document must not stop reconciliation
                self._log.error("reconciliation failed", why=why, exc_info=error)
            finally:
                self._running = ""

    def stats(self) -> Mapping[str, object]:
        """Figures for operators."""
        found = self.found
        return {
            "reconcile": f"running ({self._running}{self._progress})" if self._running else "idle",
            "reconcile_passes": self._passes,
            "reconciled_ns": self._finished_ns,
            "reconcile_compared": found.compared,
            "reconciled_documents": found.documents,
            "republished": found.republished,
            "snapshots_restored": found.bases,
            "tombstones_restored": found.tombstones,
            "tombstones_contradicted": found.contradictions,
            "lost_for_good": found.rejected,
            "reconcile_skipped": found.skipped,
            "reconcile_waiting": len(self._waiting),
            "reconcile_unread": self._documents.count_pending(Pending.UNREADABLE),
            "reconcile_unsettled": self._documents.count_pending(Pending.UNSETTLED),
            "journals_damaged": sorted(self.journals.damaged),
        }

    # --- one pass ---------------------------------------------------------------------------------

    async def reconcile(self) -> bool:
        """Compare everything once, and bring back what is lost; False: a new doubt began meanwhile.

        Raises TransportError, OSError.
        """
        async with self._passing, self.journals.turn():
            await self.check_streams()
            doubts = self._doubts
            await self.journals.read()
            if self.table.rows or self._hosts:
                await self._compare()
            await self.journals.save()
            return doubts == self._doubts

    async def _compare(self) -> None:
        doubts = self._doubts
        self._documents.begin()
        expected = {name: host.wal_messages for name, host in self._hosts.items()}
        revisions = {
            name: self._hosts[name].snapshot_revision for name, n in expected.items() if n is not None
        }
        stored = await self._listed()
        self._check_snapshots(revisions, stored)
        left: list[tuple[str, JournalledDocument, StoredDocumentState]] = []
        for number, name in enumerate(list(self.table.rows)):
            if not number % _ROWS_AT_ONCE:
                await asyncio.sleep(0)
            await self._quiet.wait()
            there = stored.get(name, StoredDocumentState())
            living = await self._documents.settle(name, self.table.rows[name], there)
            if living is None:
                continue
            row, there = self.table.rows[name], living
            if not self._believed(row, there) and (row.ends or self._restored_here(name, row)):
                left.append((name, row, there))
        lost, unloaded = list[str](), list[str]()
        for number, (name, row, there) in enumerate(left):
            self._progress = f", {number} of {len(left)} documents"
            await self._quiet.wait()
            match await self._documents.compare(
                name, row, there, expected.get(name), believed=not self._doubt
            ):
                case Completeness.LOST:
                    lost.append(name)
                case Completeness.COMPLETE if name not in self._hosts and self._documents.was(
                    name, Pending.UNSETTLED
                ):
                    unloaded.append(name)  # since then, perhaps without what was brought back
                case _:
                    pass
        if doubts == self._doubts:
            self._doubt = ""
        self._waiting.intersection_update(lost)  # the others are complete now, or their owners store them
        await self._start([name for name in unloaded if name not in self._documents.revived][:_INITS_MAX])
        if lost:
            await self._bring_back(lost)
        self._documents.end()

    def _restored_here(self, name: str, row: JournalledDocument) -> bool:
        """Return True if a restored document is open here; an empty one lives by its snapshot alone."""
        host = self._hosts.get(name)
        return row.terms.generation > 0 and host is not None and host.wal_messages is not None

    def _check_snapshots(self, known: Mapping[str, int], stored: Mapping[str, StoredDocumentState]) -> None:
        """Have owners here merge snapshots that other servers stored."""
        for name, revision in known.items():
            host, there = self._hosts.get(name), stored.get(name, StoredDocumentState())
            if host is None or host.wal_messages is None or there.revision <= revision:
                continue
            if host.loaded.intake.deleted:
                host.request_reload()
            elif host.snapshot_revision == revision:
                host.due.want("another snapshot is stored")

    def _believed(self, row: JournalledDocument, there: StoredDocumentState) -> bool:
        """Return True if NATS has the numbers that it had when the document was last complete."""
        young = self._context.clock.wall_ns() - row.complete_ns < _BELIEVED_NS
        return young and row.complete == (there.revision, there.messages)

    async def check_streams(self) -> None:
        """Begin a doubt if the streams changed, or may have lost data, since the last comparison."""
        async with self._checking:
            table, now = self.table, self._context.epochs.current
            state = await self._context.transport.stream(subjects.SNAPSHOT_STREAM).state()
            created, last = table.snapshots
            why, lost = "", True
            if table.epoch != now:
                why = "the WAL went back, or is another"
            elif created and (created != state.created_ns or state.last_sequence < last):
                why = "the snapshots went back, or are others"
            if not table.met(self._context.transport.bus.broker_id) and not why:
                why = "nats-server was restarted"  # it may count messages that it can no longer read
                lost = False
            table.epoch, table.snapshots = now, (state.created_ns, state.last_sequence)
            if why:
                self.changes += 1
                self.doubt(why, lost=lost)

    def doubt(self, why: str, *, lost: bool) -> None:
        """Void all earlier comparisons, until a pass ends."""
        self._doubt = why
        self._doubts += 1
        self._log.info("comparing every document", why=why, documents=len(self.table.rows))
        self.table.forget_complete()
        self._on_doubt(why, lost)

    async def _listed(self) -> dict[str, StoredDocumentState]:
        """Return the state of every document in NATS, without its bytes."""
        counts = await self._context.wal.subjects(subjects.wal("*"))
        listed = {
            subjects.document_of(subject): StoredDocumentState(messages=n) for subject, n in counts.items()
        }
        async for head in self._context.snapshots.list():
            if head.document_id in self.table.rows or head.document_id in self._hosts:
                messages = listed.get(head.document_id, StoredDocumentState()).messages
                listed[head.document_id] = StoredDocumentState.of(head, messages)
        return listed

    # --- lost updates -----------------------------------------------------------------------------

    async def _bring_back(self, lost: list[str]) -> None:
        """Publish what the journals hold of these documents and a fresh load does not include."""
        self._log.warning("the stream has lost updates that were accepted", documents=len(lost))
        republished = self.found.republished
        rounds = await self._rounds(lost, before_each=self._quiet.wait)
        changed, failed = rounds.changed, rounds.failed
        await self._start(sorted(changed - self._hosts.keys() - self._documents.revived)[:_INITS_MAX])
        whole = (
            "published again what the stream had lost" if changed else "no journal has what the stream lacks"
        )
        self._log.warning(
            "not all that the stream lost is published yet" if self._waiting or failed else whole,
            documents=len(changed),
            updates=self.found.republished - republished,
            waiting=len(self._waiting),
            failed=len(failed),
        )

    async def _rounds(
        self,
        lost: Collection[str],
        *,
        before_each: Callable[[], Awaitable[object]] = _at_once,
        on_whole: Callable[[str], None] = _nothing_more,
    ) -> ReconcileRounds:
        """Read the journals for these documents in rounds, and note the results."""
        rounds = ReconcileRounds(
            self._context,
            self.table.rows,
            self._repair,
            self.found,
            self._documents.leave_out,
            before_each=before_each,
            whole=on_whole,
        )
        await rounds.run(lost, await self.journals.find())
        changed, failed = rounds.changed, rounds.failed
        self._waiting = self._waiting.difference(lost) | rounds.waiting
        for name in changed:  # its owner may have moved messages out of the WAL since
            self._documents.postpone(name)
        for name in lost:
            if name not in failed:
                if includes(rounds.ends.get(name, {}), self.table.rows[name].ends):
                    self._documents.postpone(name)
                    if name not in changed:
                        self._reload_if_behind(name)
                self._settle(name, rounds.ends.get(name))
        for name in changed:
            self._documents.count_lost(name)
        return rounds

    # --- documents of loads -----------------------------------------------------------------------

    async def bring_back(self, name: str) -> ReconcileOutcome:
        """Bring back one document before all others. Raises LorogoError."""
        if name not in self.table.rows:
            return ReconcileOutcome(whole=True)
        asked = self._asked.get(name)
        if asked is None:
            asked = self._asked[name] = asyncio.get_running_loop().create_future()
            self._quiet.clear()
            self._asked_some.set()
        return await asyncio.shield(asked)

    async def run_asked(self) -> None:
        """Bring back the documents that loads wait for, until cancelled."""
        while True:
            await self._asked_some.wait()
            self._asked_some.clear()
            asked, self._asked = self._asked, {}
            try:
                await self._bring_back_asked(asked)
            except (LorogoError, LogError, OSError) as error:
                self._log.warning("cannot bring documents back yet", documents=len(asked), problem=str(error))
            except Exception as error:  # noqa: BLE001  # one bad document must not stop reconciliation
                self._log.error("cannot bring documents back", documents=len(asked), exc_info=error)
            for future in asked.values():
                if not future.done():
                    future.set_result(ReconcileOutcome(whole=False, compared=False))
            if not self._asked:
                self._quiet.set()

    async def _bring_back_asked(self, asked: Mapping[str, asyncio.Future[ReconcileOutcome]]) -> None:
        """Compare and bring back these documents. Raises TransportError, OSError."""
        lost: list[str] = []
        for name, future in asked.items():
            if self._documents.pending_now.get(name) is Pending.UNREADABLE:
                del self._documents.pending_now[name]
            living = await self._documents.settle(name, self.table.rows[name], await self._stored_of(name))
            completeness, row = Completeness.COMPLETE, self.table.rows[name]
            if living is not None and row.ends:
                completeness = await self._documents.load_and_compare(name, row)
            if completeness is Completeness.LOST:
                lost.append(name)
            elif not future.done():
                read = self._documents.pending_now.get(name) is not Pending.UNREADABLE
                future.set_result(ReconcileOutcome(whole=read, changed=living is None, compared=read))

        def whole(name: str) -> None:
            if not asked[name].done():
                asked[name].set_result(ReconcileOutcome(whole=True, changed=True))

        if lost:
            rounds = await self._rounds(lost, on_whole=whole)
            for name in lost:
                if not asked[name].done():
                    left = name in rounds.waiting or name in rounds.failed
                    read = self._documents.pending_now.get(name) is not Pending.UNREADABLE
                    brought = ReconcileOutcome(whole=not left, changed=name in rounds.changed, compared=read)
                    asked[name].set_result(brought)

    async def _stored_of(self, name: str) -> StoredDocumentState:
        head = await self._context.snapshots.head(name)
        return StoredDocumentState.of(head, 0)

    def _reload_if_behind(self, name: str) -> None:
        """Reload a document whose owner here lacks what a fresh load has: chunks may have been too slow."""
        host, row = self._hosts.get(name), self.table.rows[name]
        if (
            host is None
            or host.wal_messages is None
            or host.loaded.intake.deleted
            or host.state.memory_is_only_copy
        ):
            return
        if not includes(crdt.counters(host.loaded.intake.replica.version().vector), row.ends):
            host.request_reload()

    async def _start(self, names: Iterable[str]) -> None:
        """Start documents: only an owner publishes what was brought back to its clients."""
        for name in names:
            await self._context.transport.bus.publish(subjects.init(name))

    def _settle(self, name: str, have: Ends | None) -> None:
        """Forget operations that can never be accepted, or that no journal has any more.

        Only after every record in every journal was tried.
        """
        row = self.table.rows[name]
        if name in self._waiting or have is None or includes(have, row.ends):
            return
        row.terms.limit(have)

    def _note_rejected(self, document_id: str, log_id: str, digest: str) -> bool:
        return self.table.reject(document_id, log_id, digest)


def _no_doubt(_why: str, _lost: bool) -> None:
    pass


def _nothing() -> None:
    pass
