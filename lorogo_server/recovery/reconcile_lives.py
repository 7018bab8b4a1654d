"""Which life of a document counts, where journals and NATS tell of different ones (docs/JOURNAL.md).

A deletion ends a life, a restore goes on with it in a new generation. If NATS loses a tombstone and somebody
opens the document, it has a new life: nothing of the one before comes back, all that was ACKed since does.
"""

from collections.abc import Mapping
from dataclasses import replace

from lorogo_log import LogError
from lorogo_protocol.messages import subjects
from lorogo_protocol.position import Position
from lorogo_server.context import ServerContext
from lorogo_server.journal import journal_scan
from lorogo_server.journal.journal_scan import JournalFolder
from lorogo_server.recovery.reconcile_table import JournalledDocument, JournalTable
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.errors import OutcomeUnknown, WrongLastSequence
from lorogo_transport.stores.snapshots import SnapshotHead
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_READINGS = 5  # of the journals for one document: the second shows as a rule that the first had it all


def outlives(row: JournalledDocument, facts: SnapshotMetadata) -> bool:
    """Whether the journals tell of a life after that tombstone: a restore, or edits of a later owner.

    Later by the lease and by NATS's clock: tokens go back if NATS loses all and a server whose clock is
    behind makes the bucket anew, and no deletion may be undone for that.
    """
    if not facts.deleted or facts.erased_ns or row.deleted_ns or row.erased_ns:
        return False
    if not facts.deleted_by:  # of an older version: only the generation tells
        return row.generation > facts.generation
    return facts.deleted_by < row.edited and facts.deleted_ns < row.edited_ns


def lies_below(row: JournalledDocument, facts: SnapshotMetadata) -> bool:
    """Whether the journals hold edits that are later than that tombstone by NATS's clock, not by lease.

    A late owner's, or those before somebody asked for the deletion again. Or tokens went back, because NATS
    lost the end of the status bucket, and somebody edited what nobody knew to be deleted: nothing tells.
    """
    known = facts.deleted and not facts.erased_ns and facts.deleted_by
    return bool(known and row.ends and row.edited <= facts.deleted_by and row.edited_ns > facts.deleted_ns)


def behind(row: JournalledDocument, facts: SnapshotMetadata) -> bool:
    """Whether what lives there forgot that it was restored: the snapshot which said so is lost."""
    return not facts.deleted and not row.deleted_ns and row.generation > facts.generation


class Lives:
    """Settles it for the documents of one pass."""

    def __init__(
        self, context: ServerContext, table: JournalTable, places: Mapping[str, JournalFolder]
    ) -> None:
        self._context = context
        self._table = table
        self._places = places
        self._log = log.bind(server=context.server_id)

    async def read_again(self, name: str, past: int, past_ns: int) -> JournalledDocument:
        """The row of what came after that lease and time, or after an outlived deletion."""
        before = self._table.rows[name]
        floor, floor_ns = max(past, before.floor), max(past_ns, before.floor_ns)
        late = frozenset(lease for lease in before.late if lease > floor)
        row, whole, known = before, False, None
        for _ in range(_READINGS):
            if late == known:
                break
            row = JournalledDocument(floor=floor, floor_ns=floor_ns, erased_ns=before.erased_ns, late=late)
            whole = await self._read(name, row)
            late, known = row.late, late  # another owner of this life: what it had loaded was passed over
        row.generation = max(row.generation, before.generation)  # it may be told of only in what is stored
        row.outlived = not whole
        self._table.rows[name] = row
        return row

    async def _read(self, name: str, row: JournalledDocument) -> bool:
        """Fold all that the journals hold of it into that row; whether all of them could be read."""
        anew, whole = JournalTable(), True
        anew.rows[name] = row
        for place in self._places.values():
            found = journal_scan.entries(place, key=name)
            try:
                async for window in journal_scan.portions(found, journal_scan.GLANCE_RECORDS):
                    for entry in window:
                        anew.fold(name, entry.record, entry.time_ns, place.name, entry.sequence)
            except LogError as error:
                whole = False
                self._log.error(
                    "a journal cannot be read", document=name, journal=place.name, problem=str(error)
                )
        return whole

    async def revive(self, name: str, row: JournalledDocument) -> SnapshotHead | None:
        """Store life over a tombstone that it has outlived; None: there is none any more, or no life."""
        head = await self._context.snapshots.head(name)
        facts = SnapshotMetadata() if head is None else SnapshotMetadata.parse(head.facts)
        if head is None or not outlives(row, facts):
            return None
        cutoff = await self._refused(name, facts)
        told = "a lost life is stored again"
        if row.generation > facts.generation:  # restored: with what the tombstone kept
            alive = replace(facts, deleted_ns=0, deleted_by=0, generation=row.generation, cutoff=cutoff)
            return await self._stored(name, head, alive, told)
        if not row.ends:
            return None
        anew = SnapshotMetadata(
            lease=max(row.edited, facts.lease),
            generation=facts.generation + 1,  # whoever knows it as deleted must hear that it is not
            cutoff=cutoff,
            past=facts.deleted_by,
            past_ns=facts.deleted_ns,
        )
        after = await self._stored(name, head, anew, told, content=b"")
        if after is not None:
            row.generation = anew.generation
        return after

    async def part(self, name: str, row: JournalledDocument, head: SnapshotHead) -> None:
        """Say in what lives there where the past ends: a journal that was away must not bring it back."""
        facts = SnapshotMetadata.parse(head.facts)
        if not facts.deleted and row.deleted_lease > facts.past and facts.lease > row.deleted_lease:
            facts = replace(facts, past=row.deleted_lease, past_ns=row.deleted_ns)
            await self._stored(name, head, facts, "a new life is told where the past ends")

    async def raise_generation(self, name: str, row: JournalledDocument) -> SnapshotHead | None:
        """Say again that it was restored; None: another was first, the next pass looks."""
        head = await self._context.snapshots.head(name)
        if head is None:
            return None
        facts = SnapshotMetadata.parse(head.facts)
        if not behind(row, facts):
            return None
        facts = replace(facts, generation=row.generation)
        return await self._stored(name, head, facts, "a lost restore is stored again")

    async def _refused(self, name: str, facts: SnapshotMetadata) -> Position:
        """What the WAL holds was refused as deleted, or is in a journal: it must not come back by itself."""
        newest = await self._context.wal.last(subjects.wal(name))
        if newest is None:
            return facts.cutoff
        return Position(self._context.epochs.current, newest.sequence, newest.time_ns)

    async def _stored(
        self,
        name: str,
        head: SnapshotHead,
        facts: SnapshotMetadata,
        told: str,
        *,
        content: bytes | None = None,
    ) -> SnapshotHead | None:
        """In the place of that head, with its content or another; None: another was first."""
        snapshots = self._context.snapshots
        try:
            if content is None:
                after = await snapshots.put_facts(head, name, facts.render())
            else:
                after = await snapshots.put(name, content, facts.render(), expected_revision=head.revision)
        except (WrongLastSequence, OutcomeUnknown) as error:
            self._log.info("another was first", document=name, problem=str(error))
            return None
        self._log.warning(told, document=name, generation=facts.generation)
        return after
