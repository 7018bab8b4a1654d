"""Journal records of one document, and their order with other effects (docs/JOURNAL.md).

Load: base and replayed updates are durable before UP. Update: applied, journalled, ACKed. Tombstone, fork:
journalled before the reply.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from lorogo_protocol.journal.incarnation import lineage
from lorogo_protocol.journal.records import (
    BaseRecord,
    DeletedRecord,
    DocumentRecord,
    ErasedRecord,
    TermKind,
    TermRecord,
    UpdateRecord,
)
from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import Version
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.position import Position
from lorogo_server.context import ServerContext
from lorogo_server.document.loading import Base, Loaded
from lorogo_server.intake.decisions import (
    Accepted,
)
from lorogo_server.journal.coverage import CoverageEntry
from lorogo_server.journal.disk_journal import safe
from lorogo_server.ownership.lease import Lease
from lorogo_server.snapshot_metadata import SnapshotMetadata

_TERM_CHARS = 12  # of the alphabet of nanoid: 72 bits


def new_term(new_id: Callable[[], str]) -> str:
    """Return a new id of a term."""
    return new_id()[:_TERM_CHARS]


class DocumentJournal:
    """The journal of one host."""

    def __init__(self, document_id: str, context: ServerContext, lease: Lease) -> None:
        self._document_id = document_id
        self._journal = context.journal
        self._clock = context.clock
        self._lease = lease
        self.term = new_term(context.new_id)  # of this owner: what it journals is named by it
        self._facts = SnapshotMetadata()  # of the last load
        self._named = False  # the term has a record
        self._base = ""  # digest of a snapshot whose content the journal has
        self._since_ns = 0  # records since then have the whole document
        self._whole = True  # False: records expired, so the journal covers nothing
        self._retention = context.settings.retention

    @property
    def covered(self) -> CoverageEntry:
        """Coverage of the document by earlier records."""
        return self._journal.covered(self._document_id)

    async def loaded(self, loaded: Loaded) -> Awaitable[object] | None:
        """Write base and replayed updates to the local disk. Raises JournalStopped.

        Return an awaitable that is done when all records of the document are durable, on the disks of other
        servers as well; None: they are.
        """
        base, last, facts = loaded.base, None, loaded.facts
        epoch = loaded.follower.position.epoch
        self._facts, self._named = facts, False  # a reload may have other ancestors
        if (facts.undone or facts.tombstone or facts.founded) and not facts.deleted:
            last = await self._name()  # NATS may lose these facts, and no other journal may have them
        if facts.tombstone and not facts.deleted:
            last = await self._put(self._tombstone(facts))
        if base is not None and self.covered.base != base.digest:
            await self._name()
            record = self._base_record(base, epoch, facts.position.sequence, facts.generation)
            last = await self._put(record)
            self._since_ns = self._clock.wall_ns()
        buried = _buried(loaded.facts)
        if buried and self.covered.base != buried:  # the owner that stored it may have stopped then
            last = await self._put(self._tombstone(loaded.facts))
        for accepted in loaded.replayed:
            last = await self.accepted(accepted, facts.generation)
        if last is not None:
            await safe(self._journal.on_disk(last))
        else:
            last = self._journal.all_safe(self._document_id)
        self._base = buried if base is None else base.digest
        loaded.base, loaded.replayed = None, []
        return last

    async def accepted(self, accepted: Accepted, generation: int) -> Awaitable[object]:
        """Queue an accepted update; return an awaitable of its durability. Raises JournalStopped."""
        if not self._named:
            await self._name()
        update, position = accepted.update, accepted.position
        record = UpdateRecord(
            position.epoch,
            position.sequence,
            update.log_id,
            update.digest,
            self._lease.token,
            generation,
            accepted.spans,
            update.payload,
            self.term,
        )
        return await self._journal.put(self._document_id, record, position.time_ns)

    async def merged(self, content: bytes, version: Version, facts: SnapshotMetadata, loaded: Loaded) -> None:
        """Write the snapshot of another server, which the document has imported, and its terms."""
        base = Base(content, digest(content), version)
        epoch = loaded.follower.position.epoch
        if facts.term and facts.term != self.term:
            ancestors = lineage(facts.term, *facts.ancestors)
            await self._put(self._term_record(replace(facts, ancestors=ancestors)))
        generation = max(facts.generation, loaded.facts.generation)
        await safe(await self._put(self._base_record(base, epoch, facts.position.sequence, generation)))

    async def forked(
        self, target: str, content: bytes, frontiers: bytes, epoch: int, facts: SnapshotMetadata
    ) -> None:
        """Write the first records of a fork of this document; `facts` has its term."""
        vector = crdt.Replica.from_snapshot(content, lazy=True).version().vector
        token = self._lease.token
        term = TermRecord(facts.term, (), TermKind.CREATED, (), token, 0)
        base = BaseRecord(epoch, 0, token, 0, digest(content), vector, frontiers, content, facts.term)
        await self._journal.put(target, term, self._clock.wall_ns())
        await safe(await self._journal.put(target, base, self._clock.wall_ns()))

    async def created(self) -> str:
        """Write that an import began the document under this owner's term; return the term."""
        term, record = self.term, self._term_record(self._facts, TermKind.CREATED)
        await safe(await self._put(record))
        return term

    async def deleted(self, facts: SnapshotMetadata) -> None:
        """Write the stored tombstone, also of an erasure; idempotent."""
        await safe(await self._put(self._tombstone(facts)))
        self._base = _buried(facts)

    async def restored(self, facts: SnapshotMetadata, time_ns: int) -> None:
        """Write the end of a deletion and continue under its new term; `time_ns` by the clock of NATS."""
        self.term, self._facts, self._named = facts.term, facts, True
        record = self._term_record(facts, TermKind.RESTORED)
        await safe(await self._journal.put(self._document_id, record, time_ns))

    async def compacted(self, content: bytes, facts: SnapshotMetadata) -> None:
        """Note a stored snapshot; where records expire, write it as the new base."""
        if self._retention or not self._whole:
            now_ns = self._clock.wall_ns()
            vector = crdt.Replica.from_snapshot(content, lazy=True).version().vector
            base = Base(content, digest(content), Version(facts.frontiers, vector))
            position = facts.position
            await self._name()  # its record may expire before the base
            record = self._base_record(base, position.epoch, position.sequence, facts.generation)
            await safe(await self._put(record))
            self._since_ns, self._whole = now_ns, True
        self._base = digest(content)

    def expired(self, before_ns: int) -> bool:
        """Return True if expired records, before that time, may include some of the document."""
        if self._since_ns >= before_ns:
            return False
        self._base, self._whole, self._named = "", False, False
        return True

    def cover(self, position: Position) -> None:
        """Note for the next load that all updates up to this position are durable."""
        if not self._whole:
            return
        self._journal.cover(self._document_id, CoverageEntry(self._base, position))

    async def _name(self) -> Awaitable[object]:
        """Write the record of this owner's term, and of the terms that founded the document."""
        self._named = True
        for term in self._facts.founded:
            await self._put(TermRecord(term, (), TermKind.CREATED, (), self._lease.token, 0))
        return await self._put(self._term_record(self._facts))

    def _term_record(self, facts: SnapshotMetadata, kind: TermKind = TermKind.ACQUIRED) -> TermRecord:
        return TermRecord(self.term, facts.ancestors, kind, facts.undone, self._lease.token, facts.generation)

    def _tombstone(self, facts: SnapshotMetadata) -> DocumentRecord:
        named = (facts.tombstone, facts.ended, facts.lease, facts.generation)
        if facts.erased_ns:
            return ErasedRecord(*named, facts.erased_ns, facts.vector)
        return DeletedRecord(*named, facts.ended_ns, facts.vector)

    async def _put(self, record: DocumentRecord) -> Awaitable[object]:
        return await self._journal.put(self._document_id, record, self._clock.wall_ns())

    def _base_record(self, base: Base, epoch: int, sequence: int, generation: int) -> BaseRecord:
        return BaseRecord(
            epoch,
            sequence,
            self._lease.token,
            generation,
            base.digest,
            base.version.vector,
            base.version.frontiers,
            base.content,
            self.term,
        )


def _buried(facts: SnapshotMetadata) -> str:
    """Return the coverage entry's base for a tombstone that the journal has; "": the document has none."""
    if facts.erased_ns:
        return f"erased-{facts.tombstone}"
    return f"deleted-{facts.tombstone}" if facts.deleted else ""
