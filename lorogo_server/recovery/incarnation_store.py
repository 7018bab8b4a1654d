"""Execution of the plan for a document's incarnation: each step is a compare-and-swap of its metadata."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from lorogo_protocol.errors import CrdtError
from lorogo_protocol.journal.incarnation import Ends
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages import subjects
from lorogo_protocol.position import Position
from lorogo_server.context import ServerContext
from lorogo_server.document.loading import DocumentLoadFailed
from lorogo_server.recovery.incarnation_plan import Amend, Bury, Revive, plan
from lorogo_server.recovery.journal_table import JournalledDocument
from lorogo_server.recovery.reconcile_repair import Repair
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.errors import OutcomeUnknown, WrongLastSequence
from lorogo_transport.stores.snapshots import SnapshotDamaged, SnapshotHead
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)


class IncarnationStore:
    """Stores tombstones, revived documents and amended facts."""

    def __init__(self, context: ServerContext, repair: Repair) -> None:
        self._context = context
        self._repair = repair

    async def execute(
        self, name: str, row: JournalledDocument, has_owner: Callable[[], Awaitable[bool]]
    ) -> SnapshotHead | None:
        """Plan with the current metadata, and execute the step; return the new head.

        None: nothing to do, or another writer was first; the next pass plans again. `has_owner` returns True
        if an owner may have edits since a deletion: its document is not buried. Raises TransportError.
        """
        head = await self._context.snapshots.head(name)
        if head is None:
            step = plan(row.terms, None, 0, {})
        else:
            facts = SnapshotMetadata.parse(head.facts)
            facts.add_to(row.terms)
            step = plan(row.terms, facts, head.size, facts.ends)
            if isinstance(step, Bury) and not facts.deleted:
                step = plan(row.terms, facts, head.size, await self._learn(name, row, facts))
        if isinstance(step, Bury) and (step.keeps_content or head is None) and await has_owner():
            return None
        try:
            match step:
                case None:
                    return None
                case Bury():
                    return await self._bury(name, head, step)
                case Revive():
                    return await self._revive(name, head, step)
                case Amend():
                    return await self._context.snapshots.put_facts(head, name, step.facts.render())
        except (WrongLastSequence, OutcomeUnknown) as error:
            log.info("another writer was first", document=name, problem=str(error))
            return None

    async def _learn(self, name: str, row: JournalledDocument, facts: SnapshotMetadata) -> Ends:
        """Return the ends of what NATS stores; add them to a term that lives: its journals may be absent."""
        incarnation = row.incarnation
        if facts.term in incarnation.ended and facts.term not in incarnation.erased:
            return {}
        loaded = await self._repair.load(name)
        ends = crdt.counters(loaded.intake.replica.version().vector)
        if incarnation.revives(facts.term, ends):
            row.terms.extend(facts.term, ends)
        elif not incarnation.has_gone(ends):
            log.error("edits depend on erased content, and are erased with it", document=name)
        return ends

    async def _bury(self, name: str, head: SnapshotHead | None, step: Bury) -> SnapshotHead:
        context, facts = self._context, step.facts
        revision = 0 if head is None else head.revision
        found = self._repair.found
        if not step.keeps_content:
            newest = await context.wal.last(subjects.wal(name))
            after = await context.snapshots.put(name, b"", facts.render(), expected_revision=revision)
            if head is not None:
                await context.snapshots.discard(head)
            if newest is not None:
                await context.wal.purge(subjects.wal(name), before=newest.sequence + 1)
        elif (content := await self._content(name, facts)) is None:
            after = await context.snapshots.put_facts(head, name, facts.render())
        else:
            data, facts = content
            after = await context.snapshots.put(name, data, facts.render(), expected_revision=revision)
        found.tombstones += 1
        log.warning("a lost tombstone is stored again", document=name, generation=facts.generation)
        return after

    async def _content(self, name: str, facts: SnapshotMetadata) -> tuple[bytes, SnapshotMetadata] | None:
        """Return what NATS has of the document from before its deletion; None: no more than the snapshot."""
        try:
            loaded = await self._repair.load(name, until_ns=facts.deleted_ns)
        except (DocumentLoadFailed, CrdtError, SnapshotDamaged) as error:  # the deletion holds all the same
            log.warning("a tombstone is stored without content", document=name, problem=str(error))
            return None
        replica, follower = loaded.intake.replica, loaded.follower
        if loaded.facts.deleted or not follower.taken:
            return None
        with_content = replace(
            facts,
            position=loaded.intake.head,
            frontiers=replica.frontiers(),
            trim=replica.trimmed(),
            cutoff=follower.position,
        )
        return replica.snapshot(), with_content

    async def _revive(self, name: str, head: SnapshotHead | None, step: Revive) -> SnapshotHead:
        """Store the living document; what the WAL holds was refused as deleted, or is in a journal."""
        assert head is not None, "a tombstone is stored"
        context, cutoff = self._context, step.facts.cutoff
        newest = await context.wal.last(subjects.wal(name))
        if newest is not None:
            cutoff = Position(context.epochs.current, newest.sequence, newest.time_ns)
        facts = replace(step.facts, cutoff=cutoff)
        if step.keeps_content:
            after = await context.snapshots.put_facts(head, name, facts.render())
        else:
            after = await context.snapshots.put(name, b"", facts.render(), expected_revision=head.revision)
        log.warning(
            "a living document is stored over its tombstone", document=name, generation=facts.generation
        )
        return after
