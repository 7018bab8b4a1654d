"""Comparison of one document: its journals, NATS, and the memory of its owner here.

its terms            incarnation_plan.py: bury, revive or amend
an owner here        its memory and its counts decide, without a load
no owner here        a fresh load decides
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.journal.incarnation import includes
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Up
from lorogo_server.context import ServerContext
from lorogo_server.document.host import Host
from lorogo_server.recovery.incarnation_plan import Bury, Revive, plan
from lorogo_server.recovery.incarnation_store import IncarnationStore
from lorogo_server.recovery.journal_table import JournalledDocument
from lorogo_server.recovery.reconcile_repair import ReconcileFindings, Repair
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.errors import StorageFull, TransportError
from lorogo_transport.stores.snapshots import SnapshotHead
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_NO_FACTS = SnapshotMetadata()


class Pending(Enum):
    """Reason to compare a document again in the next pass."""

    UNREADABLE = auto()  # NATS or a disk cannot show it
    UNSETTLED = auto()  # its owner was busy, or it was changed just now


class Completeness(Enum):
    """Result of a comparison."""

    COMPLETE = auto()
    LOST = auto()  # NATS lacks operations that the journals have
    NONE = auto()  # deleted, unreadable, or its owner is busy or stores it from memory


@dataclass(frozen=True, slots=True)
class StoredDocumentState:
    """State of one document in NATS, without its bytes."""

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

    @classmethod
    def of(cls, head: SnapshotHead | None, messages: int) -> "StoredDocumentState":
        """Return the state that a snapshot's head describes; a load reports malformed metadata."""
        if head is None:
            return cls(messages=messages)
        try:
            facts = SnapshotMetadata.parse(head.facts)
        except MalformedMessage:
            return cls(head.revision, messages, head.size)
        return cls(head.revision, messages, head.size, facts)


async def _no_owner() -> bool:
    return False


class DocumentComparison:
    """Compares documents, and keeps what the next pass must compare again."""

    def __init__(
        self, context: ServerContext, hosts: Mapping[str, Host], repair: Repair, found: ReconcileFindings
    ) -> None:
        self.pending: dict[str, Pending] = {}  # at the end of the last pass
        self.pending_now: dict[str, Pending] = {}  # of this pass
        self.revived: set[str] = set()  # not to be started: an absent server may know of an erasure
        self._context = context
        self._hosts = hosts
        self._repair = repair
        self._found = found
        self._incarnations = IncarnationStore(context, repair)
        self._counted: set[str] = set()  # lost something, and were not found complete since
        self._reported: set[str] = set()  # live again after a deletion
        self._log = log.bind(server=context.server_id)

    # --- the pass ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a pass."""
        self.pending_now = {}
        self.revived -= self._hosts.keys()  # clients have opened them

    def end(self) -> None:
        """End a pass that compared every document."""
        self.pending = self.pending_now

    def was(self, name: str, why: Pending) -> bool:
        """Return True if the last pass left the document pending for that reason."""
        return self.pending.get(name) is why

    def count_pending(self, why: Pending) -> int:
        """Return the number of documents that the last pass left pending for that reason."""
        return sum(one is why for one in self.pending.values())

    def postpone(self, name: str) -> None:
        """Compare the document again in the next pass."""
        self.pending_now.setdefault(name, Pending.UNSETTLED)

    async def leave_out(self, name: str, error: Exception) -> None:
        """Report a document that cannot be read, once; the pass continues without it.

        It does not count as complete, nothing of it is published, stored or purged, and the next pass tries
        again. Raises the error if it concerns NATS or the disk and not the document alone.
        """
        if isinstance(error, StorageFull | OSError) or not self._context.transport.bus.connected:
            raise error
        if isinstance(error, TransportError):
            try:
                await self._probe()
            except TransportError:
                raise error from None
        self.pending_now[name] = Pending.UNREADABLE
        if self.pending.get(name) is not Pending.UNREADABLE:
            self.pending[name] = Pending.UNREADABLE
            known = isinstance(error, LorogoError)
            self._log.error(
                "cannot compare a document: it is left out until it can be read",
                document=name,
                problem=str(error) or type(error).__name__,
                exc_info=None if known else error,
            )

    def count_lost(self, name: str) -> bool:
        """Count a document that lost something once, until it is complete again; False if it was counted."""
        if name in self._counted:
            return False
        self._counted.add(name)
        self._found.documents += 1
        return True

    # --- one document -----------------------------------------------------------------------------

    async def settle(
        self, name: str, row: JournalledDocument, there: StoredDocumentState
    ) -> StoredDocumentState | None:
        """Settle the document's incarnation; return what is stored of it.

        None: it is deleted, as the journals or as NATS have it, or it cannot be read.
        """
        try:
            there.facts.add_to(row.terms)
            facts = there.facts if there.revision else None
            step = plan(row.terms, facts, there.size, there.facts.ends)
            if isinstance(step, Bury):
                await self._bury(name, row, there)
                return None
            if step is not None:
                if isinstance(step, Revive):
                    self.revived.add(name)
                self.postpone(name)
                head = await self._incarnations.execute(name, row, _no_owner)
                there = there if head is None else StoredDocumentState.of(head, there.messages)
        except Exception as error:  # noqa: BLE001  # logged; the others must not wait for it
            await self.leave_out(name, error)
            return None
        if there.deleted:
            return None
        if row.incarnation.tombstone:
            self._report_living(name, row)
        return there

    async def compare(
        self,
        name: str,
        row: JournalledDocument,
        there: StoredDocumentState,
        messages: int | None,
        *,
        believed: bool,
    ) -> Completeness:
        """Compare a document that lives.

        `messages`: number that its owner here had read before NATS was asked; None: no owner here, or it is
        busy. `believed`: the owner's numbers need no confirmation by a load.
        """
        host = self._hosts.get(name)
        if host is not None and messages is not None:
            completeness = self._compare_host(host, row, there, messages)
            if completeness is Completeness.COMPLETE and not (
                believed and not self.was(name, Pending.UNREADABLE)
            ):
                completeness = await self.load_and_compare(name, row)
        else:
            completeness = await self.load_and_compare(name, row)
            if completeness is Completeness.COMPLETE and host is not None:
                self.postpone(name)  # compared with a replica that may lag: its owner was busy
                return Completeness.NONE
        if completeness is Completeness.COMPLETE:
            self._counted.discard(name)
            row.complete = (there.revision, there.messages)
            row.complete_ns = self._context.clock.wall_ns()
        return completeness

    async def load_and_compare(self, name: str, row: JournalledDocument) -> Completeness:
        """Compare a fresh load with the journals."""
        self._found.compared += 1
        try:
            loaded = await self._repair.load(name)
            if loaded.facts.deleted:
                return Completeness.NONE
            return _completeness(loaded.intake.replica, row)
        except Exception as error:  # noqa: BLE001  # logged; the others must not wait for it
            await self.leave_out(name, error)
            return Completeness.NONE

    def _compare_host(
        self, host: Host, row: JournalledDocument, there: StoredDocumentState, wanted: int
    ) -> Completeness:
        """Compare the counts and the memory of the owner here."""
        now = host.wal_messages
        if now is None:
            self.postpone(host.document_id)  # it is being read or changed
            return Completeness.NONE
        if host.loaded.intake.deleted:
            return Completeness.NONE
        missing = [] if there.revision else ["the snapshot"]
        if there.messages < wanted <= now:
            missing.append(f"{wanted - there.messages} of {wanted} messages")
        if missing:
            if self.count_lost(host.document_id):
                host.log.warning(
                    "the stream lost a part of an open document: it is stored from memory",
                    missing=" and ".join(missing),
                )
            if not host.state.memory_is_only_copy:
                host.rewind()
            self.postpone(host.document_id)  # its memory is not compared with the journals yet
            return Completeness.NONE
        return _completeness(host.loaded.intake.replica, row)

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
                self.postpone(name)  # its owner stores it; then its terms decide
            return owned

        await self._incarnations.execute(name, row, has_owner)
        if row.incarnation.deleted:
            self._reported.discard(name)
        else:
            self._report_living(name, row)

    def _report_living(self, name: str, row: JournalledDocument) -> None:
        if name not in self._reported:
            self._reported.add(name)
            self._found.contradictions += 1
            self._log.error(
                "a deleted document lives again: edits that its deletion did not know were accepted;"
                " delete it again if it must go",
                document=name,
                generation=row.terms.generation,
            )

    async def _probe(self) -> None:
        """Make every kind of request that a load makes. Raises TransportError."""
        transport = self._context.transport
        await transport.stream(subjects.SNAPSHOT_STREAM).state()
        first = (await self._context.wal.state()).last_sequence + 1
        async for _ in self._context.wal.read(subjects.wal("*"), first=first):
            break


def _completeness(replica: crdt.Replica, row: JournalledDocument) -> Completeness:
    whole = includes(crdt.counters(replica.version().vector), row.ends)
    return Completeness.COMPLETE if whole else Completeness.LOST
