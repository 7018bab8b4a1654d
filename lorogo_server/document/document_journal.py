"""Journal records of one document, and their order with other effects (docs/JOURNAL.md).

Load: base and replayed updates are durable before UP. Update: applied, journalled, ACKed. Tombstone, fork:
journalled before the reply.
"""

from collections.abc import Awaitable

from lorogo_protocol.journal.records import (
    BaseRecord,
    DeletedRecord,
    DocumentRecord,
    ErasedRecord,
    RestoredRecord,
    UpdateRecord,
)
from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import Version
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.position import Position
from lorogo_server.context import ServerContext
from lorogo_server.document.loading import Base, Loaded
from lorogo_server.intake.intake import Accepted
from lorogo_server.journal.coverage import CoverageEntry
from lorogo_server.journal.disk_journal import safe
from lorogo_server.ownership.lease import Lease
from lorogo_server.snapshot_metadata import SnapshotMetadata


class DocumentJournal:
    """The journal of one host."""

    def __init__(self, document_id: str, context: ServerContext, lease: Lease) -> None:
        self._document_id = document_id
        self._journal = context.journal
        self._clock = context.clock
        self._lease = lease
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
        if facts.past and not facts.deleted:  # NATS may lose it, and no other journal may have it
            found = RestoredRecord(self._lease.token, facts.generation, facts.past, facts.past_ns)
            last = await self._put(found)
        if base is not None and self.covered.base != base.digest:
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
        )
        return await self._journal.put(self._document_id, record, position.time_ns)

    async def merged(self, content: bytes, version: Version, loaded: Loaded) -> None:
        """Write the snapshot of another server, which the document has imported."""
        base = Base(content, digest(content), version)
        facts, epoch = loaded.facts, loaded.follower.position.epoch
        await safe(await self._put(self._base_record(base, epoch, facts.position.sequence, facts.generation)))

    async def forked(self, target: str, content: bytes, frontiers: bytes, epoch: int) -> None:
        """Write the first record of a fork of this document."""
        vector = crdt.Replica.from_snapshot(content, lazy=True).version().vector
        record = BaseRecord(epoch, 0, self._lease.token, 0, digest(content), vector, frontiers, content)
        await safe(await self._journal.put(target, record, self._clock.wall_ns()))

    async def deleted(self, facts: SnapshotMetadata) -> None:
        """Write the stored tombstone; idempotent."""
        await safe(await self._put(self._tombstone(facts)))
        self._base = _buried(facts)

    async def restored(self, generation: int, time_ns: int) -> None:
        """Write the end of a deletion; `time_ns` is by the clock of NATS."""
        record = RestoredRecord(self._lease.token, generation)
        await safe(await self._journal.put(self._document_id, record, time_ns))

    async def erased(self, erased_ns: int, generation: int) -> None:
        """Write the erasure of all content."""
        await safe(await self._put(ErasedRecord(erased_ns, self._lease.token, generation)))
        self._base = f"erased-{erased_ns}"

    async def compacted(self, content: bytes, facts: SnapshotMetadata) -> None:
        """Note a stored snapshot; where records expire, write it as the new base."""
        if self._retention or not self._whole:
            now_ns = self._clock.wall_ns()
            vector = crdt.Replica.from_snapshot(content, lazy=True).version().vector
            base = Base(content, digest(content), Version(facts.frontiers, vector))
            position = facts.position
            record = self._base_record(base, position.epoch, position.sequence, facts.generation)
            await safe(await self._put(record))
            self._since_ns, self._whole = now_ns, True
        self._base = digest(content)

    def expired(self, before_ns: int) -> bool:
        """Return True if expired records, before that time, may include some of the document."""
        if self._since_ns >= before_ns:
            return False
        self._base, self._whole = "", False
        return True

    def cover(self, position: Position) -> None:
        """Note for the next load that all updates up to this position are durable."""
        if not self._whole:
            return
        self._journal.cover(self._document_id, CoverageEntry(self._base, position))

    def _tombstone(self, facts: SnapshotMetadata) -> DocumentRecord:
        if facts.erased_ns:
            return ErasedRecord(facts.erased_ns, facts.lease, facts.generation)
        return DeletedRecord(facts.deleted_by or self._lease.token, facts.generation, facts.deleted_ns)

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
        )


def _buried(facts: SnapshotMetadata) -> str:
    """Return the coverage entry's base for a tombstone that the journal has; "": the document has none."""
    if facts.erased_ns:
        return f"erased-{facts.erased_ns}"
    return f"deleted-{facts.generation}-{facts.deleted_ns}" if facts.deleted else ""
