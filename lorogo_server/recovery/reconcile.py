"""Reconciliation: what the journals hold and the stream has lost is brought back (docs/JOURNAL.md).

At the start, after each reconnect, when the epoch changed, and on a timer; a document that a load waits for
is brought back at once, and a pass under way stands still meanwhile (`bring_back`, recovery.py). One pass:

    read the journals on from where the last pass ended, into a table of documents
    list what NATS holds: the revision of every snapshot, the number of messages of every document
    tombstones first
    compare each document whose revision or number is not what it was when it was last complete
    publish again, in the order of the journals, what a fresh load of a document does not include
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lorogo_log import Directory, Lock, LockedError, LogError, read_file, replace_file
from lorogo_protocol import ids
from lorogo_protocol.errors import InvalidDocumentId, LorogoError, MalformedMessage
from lorogo_protocol.journal.incarnation import Ends, includes
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Up
from lorogo_server.context import ServerContext
from lorogo_server.document.host import Host
from lorogo_server.journal import journal_scan
from lorogo_server.journal.disk_journal import DiskJournal
from lorogo_server.journal.journal_scan import JournalFolder, ScannedRecord
from lorogo_server.ownership import epoch
from lorogo_server.ownership.epoch import EpochWitness
from lorogo_server.recovery import journal_table
from lorogo_server.recovery.incarnation_plan import Bury, plan
from lorogo_server.recovery.incarnation_store import IncarnationStore
from lorogo_server.recovery.journal_table import JournalledDocument, JournalTable
from lorogo_server.recovery.reconcile_repair import ReconcileFindings, Repair
from lorogo_server.recovery.reconcile_rounds import ReconcileRounds
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.errors import StorageFull, TransportError
from lorogo_transport.stores.snapshots import SnapshotHead
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_YOUNG_NS = 600 * 1_000_000_000
_BELIEVED_NS = 24 * 3600 * 1_000_000_000  # a document is compared once a day, whatever the numbers say
_AGAIN_SECONDS = 5.0  # after a pass that failed
_WAKES_MAX = 1000  # documents of one pass; what is above it waits for the next load
_ROWS_AT_ONCE = 1000  # looked at before others get a turn
_TURN_SECONDS = 300.0
_TURN_POLL_SECONDS = 0.2
_TURN_FILE = "reconciling"
_CHECKPOINT = "reconciled"
_JOURNAL = "journal"  # the folder of a worker's own partitions
_DOUBTS_MAX = 64  # of other servers, for which the journals were read
_NO_FACTS = SnapshotMetadata()


async def _at_once() -> None:
    pass


async def _no_owner() -> bool:
    return False


def _nothing_more(_document_id: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class StoredDocumentState:
    """What NATS says of one document without moving its bytes."""

    revision: int = 0  # of its snapshot object; 0: there is none
    messages: int = 0
    size: int = 0
    facts: SnapshotMetadata = _NO_FACTS

    @property
    def deleted(self) -> bool:
        return self.facts.deleted

    @property
    def generation(self) -> int:
        return self.facts.generation


@dataclass(frozen=True, slots=True)
class ReconcileOutcome:
    """What bringing back one document came to."""

    whole: bool  # the stream includes all that the journals here hold, or what is left can never come back
    changed: bool = False  # something was published or stored
    compared: bool = True  # else NATS or a disk failed meanwhile: ask again


class Reconciler:
    """One server's reconciliation; `run()` and `run_asked()` are its tasks."""

    def __init__(
        self, context: ServerContext, journal: DiskJournal, data: Path, hosts: Mapping[str, Host]
    ) -> None:
        self.found = ReconcileFindings()
        self.table = JournalTable()
        self._context = context
        self._journal = journal
        self._data = data
        self._hosts = hosts
        self._wanted = asyncio.Event()
        self._passing = asyncio.Lock()
        self._why = "start"
        self._running = ""
        self._progress = ""
        self._finished_ns = 0
        self._passes = 0
        self._waiting: set[str] = set()
        self._damaged: set[str] = set()  # journals in which damage was found
        self._reported: set[str] = set()  # documents that live again after a deletion
        self._counted: set[str] = set()  # have lost something, and were not found whole since
        self._unread: set[str] = set()  # documents that could not be read when it was last tried
        self._unread_now: set[str] = set()  # in this pass
        self._mending: set[str] = set()  # documents that had lost something, and were not seen whole since
        self._mending_now: set[str] = set()  # in this pass
        self._revived: set[str] = set()  # not opened by us: a server that is away may know of an erasure
        self._doubt = ""  # why numbers are not believed in this pass
        self._doubts = 0  # how often that began
        self.changes = 0  # of them, those for streams that are not what this server knew
        self._on_doubt: Callable[[str, bool], None] = _no_doubt
        self._on_settled: Callable[[], None] = _nothing
        self._looking = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._read_for: deque[str] = deque(maxlen=_DOUBTS_MAX)
        self._asked: dict[str, asyncio.Future[ReconcileOutcome]] = {}  # documents that loads wait for
        self._asked_some = asyncio.Event()
        self._quiet = asyncio.Event()  # no load waits for a document: a pass may go on
        self._quiet.set()
        self._written = b""
        self._remembered: EpochWitness | None = None
        self._opened = self._read_before = False
        self._log = log.bind(server=context.server_id)
        self._repair = Repair(context, self.found, self._note_rejected)
        self._incarnations = IncarnationStore(context, self._repair)

    def watch(self, on_doubt: Callable[[str, bool], None], on_settled: Callable[[], None]) -> None:
        """Call `on_doubt` when NATS may have lost data: why, and whether it surely did.

        `on_settled` is called when a pass that began since then has found every document whole.
        """
        self._on_doubt, self._on_settled = on_doubt, on_settled

    async def open(self) -> None:
        """Read what the last pass left, and where the WAL stood; before the epoch is checked."""
        self._opened = True
        self.table = await asyncio.to_thread(_read, self._journal.directory)
        self._note_tokens()
        known = await asyncio.to_thread(epoch.recalled, self._journal.directory)
        if known is not None:
            self._context.epochs.recall(known)

    async def read_journals(self) -> None:
        """For the highest token that they know, without NATS; the first pass reads them anyway.

        What cannot be read keeps nobody from starting: the pass tells of it, and tries again.
        """
        if self._read_before:
            return  # a pass may be under way, and wait for the very streams that are to be made
        async with self._passing:
            if not self._read_before:
                try:
                    async with self._reading:
                        await self._read()
                except OSError as error:
                    self._log.warning("not every journal could be read", problem=str(error))
                self._note_tokens()
                self._read_before = True

    def _note_tokens(self) -> None:
        statuses = self._context.statuses
        statuses.highest = max(statuses.highest, self.table.highest)

    async def remember(self) -> None:
        """Keep where the WAL stands: before the ledger, whose positions count only in this epoch."""
        known = self._context.epochs.known
        if not self._opened or known == self._remembered:
            return  # not opened: the start failed, and what is remembered there is better
        try:
            await asyncio.to_thread(epoch.remember, self._journal.directory, known)
        except OSError as error:
            self._log.warning("where the WAL stands could not be written", problem=str(error))
        else:
            self._remembered = known

    def want(self, why: str) -> None:
        """Make a pass as soon as possible."""
        self._why = why
        self._wanted.set()

    async def run(self) -> None:
        """Pass after pass, until cancelled."""
        self._read_before = True  # by the first of them
        self._wanted.set()
        pause = self._context.settings.reconcile_every_seconds
        again = _AGAIN_SECONDS
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
                # A document that is left to its owner's memory is not stored yet, and its owner may change.
                if compared and not self._unread and not self._mending:
                    self._on_settled()
                self._passes += 1
                self._finished_ns = self._context.clock.wall_ns()
                unsettled = self._unread or self._mending
                again = 2 * again if unsettled else _AGAIN_SECONDS
                if unsettled:
                    pause = again = min(pause, again)
            except StorageFull as error:
                self._log.error("the WAL is full: what it lost cannot be published again", problem=str(error))
            except (LorogoError, LogError, OSError) as error:
                if self._context.transport.bus.connected:  # else the reconnect makes a pass
                    self._log.warning("reconciliation is postponed", why=why, problem=str(error))
                    pause = min(pause, _AGAIN_SECONDS)
            except Exception as error:  # noqa: BLE001  # one bad document must not end it for good
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
            "reconcile_unread": len(self._unread),
            "reconcile_mending": len(self._mending),
            "journals_damaged": sorted(self._damaged),
        }

    # --- one pass ---------------------------------------------------------------------------------

    async def reconcile(self) -> bool:
        """Compare everything once, and bring back what is lost; False: there is a new reason to compare.

        Raises TransportError, OSError.
        """
        async with self._passing, self._turn():
            await self.look_for_doubt()
            doubts = self._doubts
            async with self._reading:
                places = await self._read()
            if self.table.rows or self._hosts:
                await self._compare({place.name: place for place in places})
            await self._save()
            return doubts == self._doubts

    async def _read(self) -> list[JournalFolder]:
        """Fold what is new in every journal into the table."""
        places = await asyncio.to_thread(self._places)
        self.table.forget_readings(place.name for place in places)
        for place in places:
            await self._read_on(place)
        return places

    def _places(self) -> list[JournalFolder]:
        journal = self._journal
        found = journal_scan.places(self._data, len(journal.logs), journal.storage)
        own, tell = journal.folder, journal.found_damage
        return [
            replace(place, damaged=self._damaged, on_damage=tell if place.path.parent == own else None)
            for place in found
        ]

    async def _read_on(self, place: JournalFolder) -> None:
        """Fold what is new in a journal into the table."""
        try:
            log_id = await asyncio.to_thread(place.log_id)
            first = self.table.begin(place.name, log_id)
            found = journal_scan.entries(place, from_sequence=first)
            async for window in journal_scan.portions(found, journal_scan.GLANCE_RECORDS):
                await asyncio.to_thread(self._fold, place.name, window)
                first = window[-1].sequence + 1
        except LogError as error:
            self._log.error("a journal cannot be read", journal=place.name, problem=str(error))
            return
        self.table.ended(place.name, first, self._context.clock.wall_ns(), _YOUNG_NS)

    def _fold(self, place: str, window: Iterable[ScannedRecord]) -> None:
        for entry in window:
            try:
                ids.check_document_id(entry.document_id)
            except InvalidDocumentId:
                continue
            self.table.fold(entry.document_id, entry.record, place, entry.sequence)

    async def _compare(self, places: Mapping[str, JournalFolder]) -> None:
        doubts = self._doubts
        self._unread_now, self._mending_now = set(), set()
        self._revived -= self._hosts.keys()  # somebody asked for them
        expected = {name: host.wal_messages for name, host in self._hosts.items()}
        revisions = {
            name: self._hosts[name].snapshot_revision for name, n in expected.items() if n is not None
        }
        stored = await self._listed()
        self._look_for_snapshots(revisions, stored)
        left: list[tuple[str, JournalledDocument, StoredDocumentState]] = []
        for number, name in enumerate(list(self.table.rows)):
            if not number % _ROWS_AT_ONCE:
                await asyncio.sleep(0)
            await self._quiet.wait()
            there = stored.get(name, StoredDocumentState())
            living = await self._living(name, there)
            if living is None:
                continue
            row, there = self.table.rows[name], living
            if not self._believed(row, there) and (row.ends or self._restored_here(name, row)):
                left.append((name, row, there))
        lost, unloaded = list[str](), list[str]()
        for number, (name, row, there) in enumerate(left):
            self._progress = f", {number} of {len(left)} documents"
            await self._quiet.wait()
            host = self._hosts.get(name)
            if host is not None and (wanted := expected.get(name)) is not None:
                complete = self._ask_host(host, row, there, wanted)
                if complete and (self._doubt or name in self._unread):
                    complete = await self._is_complete(name, row)
            else:
                complete = await self._is_complete(name, row)
                if complete and host is not None:
                    self._mending_now.add(name)  # by a replica that may lag: its owner was busy, ask it again
                    complete = None
            if complete:
                if host is None and name in self._mending:
                    unloaded.append(name)  # since then, perhaps without what was brought back
                self._counted.discard(name)
                row.complete = (there.revision, there.messages)
                row.complete_ns = self._context.clock.wall_ns()
            elif complete is False:
                lost.append(name)
        if doubts == self._doubts:
            self._doubt = ""
        self._waiting.intersection_update(lost)  # the others are whole now, or others' to see to
        await self._wake([name for name in unloaded if name not in self._revived][:_WAKES_MAX])
        if lost:
            await self._bring_back(lost, places)
        self._unread &= self._unread_now
        self._mending = self._mending_now

    async def _living(self, name: str, there: StoredDocumentState) -> StoredDocumentState | None:
        """Settle the document's incarnation; return what is stored of it.

        None: it is deleted, as the journals or as NATS have it, or it cannot be read.
        """
        row = self.table.rows[name]
        try:
            there.facts.add_to(row.terms)
            facts = there.facts if there.revision else None
            step = plan(row.terms, facts, there.size, there.facts.ends)
            if isinstance(step, Bury):
                await self._bury(name, row, there)
                return None
            if step is not None:
                self._revived.add(name)
                self._mending_now.add(name)
                head = await self._incarnations.execute(name, row, _no_owner)
                there = there if head is None else _stored(head, there.messages)
        except Exception as error:  # noqa: BLE001  # logged; the others must not wait for it
            await self._leave_out(name, error)
            return None
        if there.deleted:
            return None
        if row.incarnation.tombstone:
            self._report_living(name, row)
        return there

    def _restored_here(self, name: str, row: JournalledDocument) -> bool:
        """Whether it is ours and empty, and only its snapshot says that it lives: others wait for that."""
        host = self._hosts.get(name)
        return row.terms.generation > 0 and host is not None and host.wal_messages is not None

    def _look_for_snapshots(
        self, known: Mapping[str, int], stored: Mapping[str, StoredDocumentState]
    ) -> None:
        """Another may have stored a snapshot of a document of ours: its owner takes it when it compacts."""
        for name, revision in known.items():
            host, there = self._hosts.get(name), stored.get(name, StoredDocumentState())
            if host is None or host.wal_messages is None or there.revision <= revision:
                continue
            if host.loaded.intake.deleted:
                host.request_reload()
            elif host.snapshot_revision == revision:
                host.due.want("another snapshot is stored")

    def _believed(self, row: JournalledDocument, there: StoredDocumentState) -> bool:
        """Whether it is as it was when it was last found complete."""
        young = self._context.clock.wall_ns() - row.complete_ns < _BELIEVED_NS
        return young and row.complete == (there.revision, there.messages)

    async def look_for_doubt(self) -> None:
        """Believe no comparison of before if the stream is not what it was, or may not be."""
        async with self._looking:
            table, now = self.table, self._context.epochs.current
            state = await self._context.transport.stream(subjects.SNAPSHOT_STREAM).state()
            created, last = table.snapshots
            why, lost = "", True
            if table.epoch != now:
                why = "the WAL went back, or is another"
            elif created and (created != state.created_ns or state.last_sequence < last):
                why = "the snapshots went back, or are others"
            if not table.met(self._context.transport.bus.broker_id) and not why:
                why = "nats-server was restarted"  # it may count messages that it cannot read any more
                lost = False
            table.epoch, table.snapshots = now, (state.created_ns, state.last_sequence)
            if why:
                self.changes += 1
                self.doubt(why, lost=lost)

    def doubt(self, why: str, *, lost: bool) -> None:
        """Believe no comparison of before; lasts until a pass has come to its end."""
        self._doubt = why
        self._doubts += 1
        self._log.info("every document is compared", why=why, documents=len(self.table.rows))
        self.table.forget_complete()
        self._on_doubt(why, lost)

    async def _listed(self) -> dict[str, StoredDocumentState]:
        """What NATS holds, without the bytes."""
        counts = await self._context.wal.subjects(subjects.wal("*"))
        listed = {
            subjects.document_of(subject): StoredDocumentState(messages=n) for subject, n in counts.items()
        }
        async for head in self._context.snapshots.list():
            if head.document_id in self.table.rows or head.document_id in self._hosts:
                messages = listed.get(head.document_id, StoredDocumentState()).messages
                listed[head.document_id] = _stored(head, messages)
        return listed

    async def _has_owner(self, name: str, row: JournalledDocument) -> bool:
        """Return True if an owner acquired the document after the deletion: it may have new edits."""
        lease = row.terms.tombstones[row.incarnation.tombstone].lease
        host = self._hosts.get(name)
        if host is not None and host.recovering:
            return False  # it waits for this comparison, and has loaded nothing
        if host is not None and host.wal_messages is None:
            return True  # it is being read or changed
        if host is not None:
            return not host.loaded.intake.deleted and host.lease.token > lease
        entry = await self._context.statuses.read(name)
        return entry is not None and isinstance(entry.status, Up) and entry.token > lease

    async def _bury(self, name: str, row: JournalledDocument, there: StoredDocumentState) -> None:
        """Store a tombstone that only the journals have, unless an owner may have edits since."""

        async def has_owner() -> bool:
            owned = await self._has_owner(name, row)
            if owned and not there.revision:
                self._mending_now.add(name)  # its owner stores it; then its terms decide
            return owned

        await self._incarnations.execute(name, row, has_owner)
        if row.incarnation.deleted:
            self._reported.discard(name)
        else:
            self._report_living(name, row)

    def _report_living(self, name: str, row: JournalledDocument) -> None:
        if name not in self._reported:
            self._reported.add(name)
            self.found.contradictions += 1
            self._log.error(
                "a deleted document lives again: edits that its deletion did not know were accepted;"
                " delete it again if it must go",
                document=name,
                generation=row.terms.generation,
            )

    def _ask_host(
        self, host: Host, row: JournalledDocument, there: StoredDocumentState, wanted: int
    ) -> bool | None:
        """Whether a document of ours is complete, by what its owner took; None: it is being seen to."""
        now = host.wal_messages
        if now is None:
            self._mending_now.add(host.document_id)  # it is read or changed just now
            return None
        if host.loaded.intake.deleted:
            return None
        missing = [] if there.revision else ["the snapshot"]
        if there.messages < wanted <= now:
            missing.append(f"{wanted - there.messages} of {wanted} messages")
        if missing:
            if self._count(host.document_id):
                host.log.warning(
                    "the stream lost a part of an open document: it is stored from memory",
                    missing=" and ".join(missing),
                )
            if not host.state.memory_is_only_copy:
                host.rewind()
            self._mending_now.add(host.document_id)  # whether its memory is all there was is not asked yet
            return None
        return includes(crdt.counters(host.loaded.intake.replica.version().vector), row.ends)

    def _count(self, name: str) -> bool:
        """Count a document that has lost something: once, until it was found whole."""
        if name in self._counted:
            return False
        self._counted.add(name)
        self.found.documents += 1
        return True

    async def _is_complete(self, name: str, row: JournalledDocument) -> bool | None:
        self.found.compared += 1
        try:
            loaded = await self._repair.load(name)
            if loaded.facts.deleted:
                return None
            return includes(crdt.counters(loaded.intake.replica.version().vector), row.ends)
        except Exception as error:  # noqa: BLE001  # told; the others must not wait for it
            await self._leave_out(name, error)
            return None

    async def _leave_out(self, name: str, error: Exception) -> None:
        """Tell of a document that cannot be read, once; the pass goes on without it.

        Nothing is known of it then: it is not complete, nothing of it is published, stored or purged, and the
        next pass tries again. Raises the error if it is not the document's own.
        """
        if isinstance(error, StorageFull | OSError) or not self._context.transport.bus.connected:
            raise error
        if isinstance(error, TransportError):
            try:
                await self._probe()
            except TransportError:
                raise error from None
        self._unread_now.add(name)
        if name not in self._unread:
            self._unread.add(name)
            known = isinstance(error, LorogoError)
            self._log.error(
                "a document cannot be compared: it is left out until it can be read",
                document=name,
                problem=str(error) or type(error).__name__,
                exc_info=None if known else error,
            )

    async def _probe(self) -> None:
        """Ask NATS in each way that a load does. Raises TransportError."""
        transport = self._context.transport
        await transport.stream(subjects.SNAPSHOT_STREAM).state()
        first = (await self._context.wal.state()).last_sequence + 1
        async for _ in self._context.wal.read(subjects.wal("*"), first=first):
            break

    # --- what is lost -----------------------------------------------------------------------------

    async def _bring_back(self, lost: list[str], places: Mapping[str, JournalFolder]) -> None:
        """Everything that a journal holds of those documents and a fresh load does not include."""
        self._log.warning("the stream has lost updates that were accepted", documents=len(lost))
        republished = self.found.republished
        rounds = await self._rounds(lost, places, before_each=self._quiet.wait)
        changed, failed = rounds.changed, rounds.failed
        await self._wake(sorted(changed - self._hosts.keys() - self._revived)[:_WAKES_MAX])
        whole = "what the stream had lost is there again" if changed else "no journal holds what is not there"
        self._log.warning(
            "not all that was lost is there again yet" if self._waiting or failed else whole,
            documents=len(changed),
            updates=self.found.republished - republished,
            waiting=len(self._waiting),
            failed=len(failed),
        )

    async def _rounds(
        self,
        lost: Collection[str],
        places: Mapping[str, JournalFolder],
        *,
        before_each: Callable[[], Awaitable[object]] = _at_once,
        on_whole: Callable[[str], None] = _nothing_more,
    ) -> ReconcileRounds:
        """Rounds over the journals for those documents, and what is known of them then."""
        rounds = ReconcileRounds(
            self._context,
            self.table.rows,
            self._repair,
            self.found,
            self._leave_out,
            before_each=before_each,
            whole=on_whole,
        )
        await rounds.run(lost, places)
        changed, failed = rounds.changed, rounds.failed
        self._waiting = self._waiting.difference(lost) | rounds.waiting
        # Its owner may just have moved out of the WAL what we saw there: the next pass looks.
        self._mending_now |= changed
        for name in lost:
            if name not in failed:
                if includes(rounds.ends.get(name, {}), self.table.rows[name].ends):
                    self._mending_now.add(name)
                    if name not in changed:
                        self._have_loaded_afresh(name)
                self._settle(name, rounds.ends.get(name))
        for name in changed:
            self._count(name)
        return rounds

    # --- what a load waits for --------------------------------------------------------------------

    def own_journals(self) -> tuple[str, ...]:
        """The log ids of this server's partitions, hex."""
        return self._journal.ids()

    def sibling_journals(self) -> tuple[str, ...]:
        """Those of the workers beside it, which this server reads as well; blocks."""
        found: list[str] = []
        for place in self._places():
            beside = place.path.parent.name == _JOURNAL and place.path.parent != self._journal.folder
            with contextlib.suppress(LogError, OSError):
                if beside and (log_id := place.log_id()):
                    found.append(log_id.hex())
        return tuple(found)

    async def read_for(self, doubt: str) -> None:
        """Read the journals, unless that was done since this doubt began. Raises OSError."""
        async with self._reading:
            if doubt not in self._read_for:
                await self._read()
                self._read_for.append(doubt)

    async def bring_back(self, name: str) -> ReconcileOutcome:
        """Bring back what the journals here hold of one document; first of all. Raises LorogoError."""
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
                self._log.warning("not brought back yet", documents=len(asked), problem=str(error))
            except Exception as error:  # noqa: BLE001  # one bad document must not end it for good
                self._log.error("not brought back", documents=len(asked), exc_info=error)
            for future in asked.values():
                if not future.done():
                    future.set_result(ReconcileOutcome(whole=False, compared=False))
            if not self._asked:
                self._quiet.set()

    async def _bring_back_asked(self, asked: Mapping[str, asyncio.Future[ReconcileOutcome]]) -> None:
        """As a pass does, for these documents only. Raises TransportError, OSError."""
        places = {place.name: place for place in await asyncio.to_thread(self._places)}
        lost: list[str] = []
        for name, future in asked.items():
            self._unread_now.discard(name)  # whether it can be read now
            living = await self._living(name, await self._stored_of(name))
            complete, row = True, self.table.rows[name]
            if living is not None and row.ends:
                complete = await self._is_complete(name, row) is not False
            if not complete:
                lost.append(name)
            elif not future.done():
                read = name not in self._unread_now
                future.set_result(ReconcileOutcome(whole=read, changed=living is None, compared=read))

        def whole(name: str) -> None:
            if not asked[name].done():
                asked[name].set_result(ReconcileOutcome(whole=True, changed=True))

        if lost:
            rounds = await self._rounds(lost, places, on_whole=whole)
            for name in lost:
                if not asked[name].done():
                    left = name in rounds.waiting or name in rounds.failed
                    read = name not in self._unread_now
                    brought = ReconcileOutcome(whole=not left, changed=name in rounds.changed, compared=read)
                    asked[name].set_result(brought)

    async def _stored_of(self, name: str) -> StoredDocumentState:
        head = await self._context.snapshots.head(name)
        return StoredDocumentState() if head is None else _stored(head, 0)

    def _have_loaded_afresh(self, name: str) -> None:
        """A fresh load has it all: its owner, if ours, may have refused what came in pieces too slowly."""
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

    async def _wake(self, names: Iterable[str]) -> None:
        """Have them served: whoever has one of them open hears of what came back only from an owner."""
        for name in names:
            await self._context.transport.bus.publish(subjects.init(name))

    def _settle(self, name: str, have: Ends | None) -> None:
        """What cannot come back, or is in no journal any more, is not missed again.

        Only for a document of which everything in every journal was tried: what failed is tried again.
        """
        row = self.table.rows[name]
        if name in self._waiting or have is None or includes(have, row.ends):
            return
        row.terms.limit(have)

    # --- beside it --------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One worker of a folder at a time, so that the next finds what the first has published."""
        home = self._data.parent if journal_scan.has_siblings(self._data) else self._data
        directory = await asyncio.to_thread(self._journal.disk.directory, home, create=True)
        lock: Lock | None = None
        try:
            with contextlib.suppress(TimeoutError):  # then beside another: it costs some updates twice
                async with asyncio.timeout(_TURN_SECONDS):
                    while (lock := await _taken(directory)) is None:  # noqa: ASYNC110  # another process has it
                        await asyncio.sleep(_TURN_POLL_SECONDS)
            yield
        finally:
            if lock is not None:
                lock.release()

    def _note_rejected(self, document_id: str, log_id: str, digest: str) -> bool:
        return self.table.reject(document_id, log_id, digest)

    async def _save(self) -> None:
        data = await asyncio.to_thread(self.table.encode)
        if data == self._written:
            return
        await asyncio.to_thread(replace_file, self._journal.directory, _CHECKPOINT, data)
        self._written = data


def _no_doubt(_why: str, _lost: bool) -> None:
    pass


def _nothing() -> None:
    pass


def _stored(head: SnapshotHead, messages: int) -> StoredDocumentState:
    try:
        facts = SnapshotMetadata.parse(head.facts)
    except MalformedMessage:
        return StoredDocumentState(head.revision, messages, head.size)  # the load says what is wrong with it
    return StoredDocumentState(head.revision, messages, head.size, facts)


def _read(directory: Directory) -> JournalTable:
    try:
        return journal_table.decode(read_file(directory, _CHECKPOINT))
    except (OSError, LogError):
        return JournalTable()


async def _taken(directory: Directory) -> Lock | None:
    """The lock of the turn; None while another has it."""
    if await asyncio.to_thread(directory.locked, _TURN_FILE):
        return None
    try:
        # not in a thread: cancelled meanwhile, nobody would give it back
        return directory.lock(_TURN_FILE, exclusive=True, wait_seconds=0.0)
    except LockedError:
        return None
