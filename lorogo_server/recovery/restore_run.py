"""`lorogo restore`: stores the documents of journals and archives on an empty NATS, and proves it.

    read the journals once, sort by document ─▶ rebuild one document ─▶ store its snapshot (expecting none)
                                                      └─ next document ◀──────┘
    then every document is loaded as a server loads it, and compared

No document is overwritten: the compare-and-swap of a snapshot expects that none is stored.
"""

import asyncio
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import xxhash

from lorogo_protocol import ids
from lorogo_protocol.errors import CrdtError, InvalidDocumentId, LorogoError
from lorogo_protocol.journal.incarnation import lineage
from lorogo_protocol.journal.records import ANSWERS_KEY
from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import Replica
from lorogo_protocol.messages import subjects
from lorogo_protocol.position import Position
from lorogo_server import streams
from lorogo_server.document.document_journal import new_term
from lorogo_server.document.loading import LoadRequest, load
from lorogo_server.journal.record_sorter import DocumentRecords, SortFiles
from lorogo_server.ownership.epoch import EpochTracker, EpochWitness
from lorogo_server.recovery.restore import Gathered, Rebuilt, gather, rebuild
from lorogo_server.recovery.restore_sources import RestoreSource, unrepaired
from lorogo_server.settings import ServerSettings
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_server.values import document_value, query
from lorogo_server.values.document_value import TooDeep
from lorogo_transport.clock import Clock
from lorogo_transport.errors import StreamMissing, TransportError, WrongLastSequence
from lorogo_transport.ports import Transport
from lorogo_transport.stores.snapshots import SnapshotHead, SnapshotStore

RESTORED = "restored"
DELETED = "deleted"  # the tombstone is back, and the last content beside it
ERASED = "erased"  # the tombstone is back, and nothing else
THERE = "there already"
LOST = "lost"
DRY = "can be restored"

Progress = Callable[[str, int, int], None]  # activity, amount done, total


class NotRestored(LorogoError):
    """Nothing was restored; the message has the reason and a remedy."""

    code = "not-restored"


class NothingAsOld(NotRestored):
    """The document is younger than the wanted time."""

    def __init__(self, document_id: str, first_ns: int) -> None:
        super().__init__(f"{document_id} has nothing as old as that; its first record is of {first_ns} ns")
        self.document_id = document_id
        self.first_ns = first_ns


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """Arguments of a restore."""

    at_ns: int | None = None
    document: str = ""  # only this one
    to: str = ""  # under this id
    merge: bool = False  # NATS has documents: restore only missing ones


@dataclass(slots=True)
class RestoreOutcome:
    """Result of one document."""

    document: str
    state: str
    stored_as: str = ""
    updates: int = 0  # without repetitions
    applied: int = 0
    repeated: int = 0
    later: int = 0  # left out: newer than the wanted time
    size: int = 0  # of the snapshot
    version: str = ""  # a hash of the version vector
    content: str = ""  # a hash of the value
    proved: bool = False  # a fresh load has the same version vector and content
    missing: dict[str, int] = field(default_factory=dict)  # number of updates by reason
    problem: str = ""
    vector: bytes = b""

    @property
    def good(self) -> bool:
        return not self.missing and not self.problem and self.state != LOST


@dataclass(slots=True)
class RestoreReport:
    """Results of all documents."""

    outcomes: list[RestoreOutcome]
    sources: int
    records: int
    damage: list[str]
    repaired: list[str]  # damage that another copy made good
    torn: list[str]
    dry: bool
    epoch: int = 0

    @property
    def complete(self) -> bool:
        """True if nothing is missing, no damage is known, and every document reads back."""
        proved = self.dry or all(one.proved for one in self.outcomes if one.state != LOST)
        return proved and not self.damage and all(one.good for one in self.outcomes)


async def restore(
    transport: Transport | None,
    sources: Sequence[RestoreSource],
    wanted: RestoreRequest,
    *,
    settings: ServerSettings,
    clock: Clock,
    new_id: Callable[[], str],
    scratch: Path,
    progress: Progress = lambda *_: None,
) -> RestoreReport:
    """Restore documents; without a transport, only report what can be restored. Raises NotRestored.

    `scratch`: an empty folder with room for a copy of the journals.
    """
    storing = None
    if transport is not None:
        storing = _Storing(transport, settings, clock, new_id)
        await storing.check(wanted)
    total = sum(source.size for source in sources)
    free = shutil.disk_usage(scratch).free
    if free < total and not wanted.document:
        raise NotRestored(f"the journals have {total} bytes and {scratch} has room for {free}: use --scratch")
    pile = await asyncio.to_thread(_sort, sources, wanted, scratch, total, progress)
    if wanted.document:
        await asyncio.to_thread(_check_one, pile, wanted)
    if storing is not None:
        await storing.prepare(pile.epoch, pile.lease)
    outcomes: list[RestoreOutcome] = []
    now_ns = clock.wall_ns()
    documents = pile.documents()
    done = 0
    while (one := await asyncio.to_thread(_next, documents, wanted, now_ns)) is not None:
        if storing is None:
            one.outcome.state = DRY if one.outcome.state == RESTORED else one.outcome.state
        elif one.outcome.state != LOST:
            await storing.store(one, wanted)
        outcomes.append(one.outcome)
        done += one.records
        progress("restoring documents", done, pile.records)
    if storing is not None:
        for number, outcome in enumerate(outcomes, 1):
            await storing.prove(outcome)
            progress("reading back", number, len(outcomes))
    damage, repaired = await asyncio.to_thread(unrepaired, sources)
    return RestoreReport(
        sorted(outcomes, key=lambda outcome: outcome.document),
        len(sources),
        pile.records,
        damage,
        repaired,
        [source.torn for source in sources if source.torn],
        dry=storing is None,
        epoch=0 if storing is None else storing.epoch,
    )


# --- reading and rebuilding: in a thread ----------------------------------------------------------


def _sort(
    sources: Sequence[RestoreSource], wanted: RestoreRequest, folder: Path, total: int, progress: Progress
) -> SortFiles:
    """Read every journal once."""
    pile = SortFiles(folder, total)
    seen = 0

    def on_bytes(count: int) -> None:
        nonlocal seen
        seen += count
        progress("reading journals", seen, max(total, seen))

    for source in sources:
        for record in source.records(wanted.document or None, on_bytes):
            if record.key != ANSWERS_KEY:  # about a server, not a document
                pile.add(record.key, record.time, record.payload)
    pile.close()
    return pile


def _check_one(pile: SortFiles, wanted: RestoreRequest) -> None:
    """Refuse one document that cannot be restored, before anything is written. Raises NotRestored."""
    name, first_ns = wanted.document, 0
    for one in pile.documents():
        found = gather(one.places, one.fetch, at_ns=wanted.at_ns)
        if found.erased_ns and wanted.to:
            raise NotRestored(f"{name} was erased: nothing of it can be restored, under any id")
        if _has_anything(found):
            return
        first_ns = min(time_ns for time_ns, _ in one.places)
    if not first_ns or wanted.at_ns is None:
        raise NotRestored(f"none of these journals has a document {name!r}")
    raise NothingAsOld(name, first_ns)


def _has_anything(found: Gathered) -> bool:
    return bool(found.erased_ns or found.contents or found.deleted_ns or found.left)


@dataclass(slots=True)
class _Document:
    """One document between the journals and NATS."""

    outcome: RestoreOutcome
    found: Gathered
    rebuilt: Rebuilt | None
    records: int


def _next(piles: Iterator[DocumentRecords], wanted: RestoreRequest, now_ns: int) -> _Document | None:
    """Return the next document with records up to the wanted time; None: the end."""
    for pile in piles:
        try:
            ids.check_document_id(pile.document_id)
        except InvalidDocumentId:
            continue  # another program's log
        found = gather(pile.places, pile.fetch, at_ns=wanted.at_ns)
        if _has_anything(found):
            return _rebuilt(pile, found, wanted, now_ns)
    return None


def _rebuilt(pile: DocumentRecords, found: Gathered, wanted: RestoreRequest, now_ns: int) -> _Document:
    outcome = RestoreOutcome(
        pile.document_id,
        RESTORED,
        stored_as=wanted.to or pile.document_id,
        updates=found.updates,
        repeated=found.repeated,
        later=found.later,
    )
    document = _Document(outcome, found, None, len(pile.places))
    if found.erased_ns:
        outcome.state = ERASED
        return document
    try:
        rebuilt = rebuild(found, pile.fetch, now_ns=now_ns)
        version = rebuilt.replica.version().vector
        if found.deleted_ns and not wanted.to:
            outcome.state = DELETED
        elif version == crdt.nothing_known():
            outcome.state, outcome.missing = LOST, rebuilt.left
            return document
        outcome.content = content_hash(rebuilt.replica)
    except CrdtError as error:
        outcome.state, outcome.problem = LOST, f"Loro cannot hold it: {error}"
        return document
    outcome.vector, outcome.version = version, version_hash(version)
    outcome.applied = rebuilt.applied
    outcome.missing = rebuilt.left
    outcome.size = len(rebuilt.snapshot)
    document.rebuilt = rebuilt
    return document


def version_hash(vector: bytes) -> str:
    """Return a hash that is equal for equal version vectors."""
    return xxhash.xxh64_hexdigest(repr(crdt.vector_items(vector)).encode())


def content_hash(replica: Replica) -> str:
    """Return a hash that is equal for equal content."""
    try:
        value = query.to_json(document_value.document_value(replica.settled()))
    except TooDeep:
        return "too deep to read"
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


# --- NATS -----------------------------------------------------------------------------------------


class _Storing:
    """Stores and reads back documents."""

    def __init__(
        self, transport: Transport, settings: ServerSettings, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        self._transport = transport
        self._settings = settings
        self._clock = clock
        self._new_id = new_id
        self._epochs = EpochTracker(transport)
        self._wal = transport.stream(subjects.WAL_STREAM)
        self._snapshots = SnapshotStore(
            transport.stream(subjects.SNAPSHOT_STREAM),
            max_payload=transport.bus.max_payload,
            clock=clock,
            new_id=new_id,
        )
        self._empty = True

    @property
    def epoch(self) -> int:
        return self._epochs.current

    async def check(self, wanted: RestoreRequest) -> None:
        """Refuse, before journals are read, if NATS has documents. Raises NotRestored."""
        try:
            messages = (await self._wal.state()).messages
            stored = [head async for head in self._snapshots.list()]
        except StreamMissing:
            return
        self._empty = not messages and not stored
        if wanted.document:
            target = wanted.to or wanted.document
            if await self._there(target):
                raise NotRestored(
                    f"{target} is there already, and a document that lives is never written over:"
                    + (" choose another id with --to" if not wanted.to else " choose another id")
                )
        elif not self._empty and not wanted.merge:
            raise NotRestored(
                f"this NATS is not empty (with a snapshot: {len(stored)}, messages in the WAL: {messages}):"
                " give --merge to add only documents that are not there, or --document for one"
            )

    async def prepare(self, epoch: int, lease: int) -> None:
        """Create the streams with an epoch and lease tokens above those of every journal."""
        guarded = self._transport.bus.guarded or None
        await streams.ensure(self._transport, self._settings, self._clock, guarded=guarded, above=lease)
        if self._empty:
            self._epochs.recall(EpochWitness(Position(epoch + 1)))
        await self._epochs.check()

    async def _there(self, document_id: str) -> bool:
        return (
            await self._snapshots.head(document_id) is not None
            or await self._wal.last(subjects.wal(document_id)) is not None
        )

    async def store(self, document: _Document, wanted: RestoreRequest) -> None:
        """Store the snapshot, if none is stored."""
        outcome, found, rebuilt = document.outcome, document.found, document.rebuilt
        target = outcome.stored_as
        facts, stone = SnapshotMetadata(), found.tombstone
        chosen = bool(wanted.to) or (wanted.at_ns is not None and stone is None)
        if not wanted.to:
            terms = found.terms
            facts = replace(
                facts,
                generation=terms.generation,
                founded=lineage(*sorted(terms.founded & terms.incarnation().living)),
                undone=lineage(*sorted(terms.undone)),
            )
            if stone is not None:
                facts = replace(
                    facts,
                    tombstone=terms.incarnation().tombstone,
                    ended=lineage(*sorted(stone.ends)),
                    lease=stone.lease,
                    ended_ns=stone.deleted_ns,
                    deleted_ns=found.erased_ns or stone.deleted_ns,
                    erased_ns=found.erased_ns,
                )
        if chosen:  # an absent server may know a deletion of the same content, which must not end it
            term = new_term(self._new_id)
            facts = replace(facts.founded_by(term), term=term)
        try:
            if await self._there(target):
                outcome.state = THERE
            elif rebuilt is None or not document.found.contents:
                await self._snapshots.put_facts(None, target, facts.render())
            else:
                facts = replace(
                    facts,
                    frontiers=rebuilt.replica.frontiers(),
                    trim=rebuilt.replica.trimmed(),
                    dated=rebuilt.dated,
                )
                await self._snapshots.put(target, rebuilt.snapshot, facts.render(), expected_revision=0)
        except WrongLastSequence:
            outcome.state = THERE
        except TransportError as error:
            outcome.problem = f"it could not be stored: {error}"
        document.rebuilt = None

    async def prove(self, outcome: RestoreOutcome) -> None:
        """Load it as a server does, and compare."""
        if outcome.state == LOST or outcome.problem:
            return
        try:
            outcome.problem = await self._difference(outcome)
        except LorogoError as error:
            outcome.problem = f"it does not read back: {error}"
        outcome.proved = not outcome.problem

    async def _difference(self, outcome: RestoreOutcome) -> str:
        name, settings = outcome.stored_as, self._settings
        request = LoadRequest(self._transport, self._snapshots, name, settings, self._clock, self.epoch)
        loaded = await load(request)
        replica = loaded.intake.replica
        if outcome.state == ERASED:
            return "" if loaded.facts.erased_ns and not _size(loaded.snapshot) else "it is not erased there"
        if outcome.state == DELETED:
            if not loaded.intake.deleted:
                return "it is not deleted there"
            replica = await self._last_content(loaded.snapshot)
        if outcome.state == THERE:
            return _lacks(outcome, replica, deleted=loaded.intake.deleted)
        version = version_hash(replica.version().vector)
        if (version, content_hash(replica)) == (outcome.version, outcome.content):
            return ""
        return "what reads back is not what was stored"

    async def _last_content(self, head: SnapshotHead | None) -> Replica:
        if head is None or not head.size:
            return Replica()
        return Replica.from_snapshot(
            await self._snapshots.get(head, bytes_max=self._settings.snapshot_bytes_max)
        )


def _lacks(outcome: RestoreOutcome, replica: Replica, *, deleted: bool) -> str:
    """Return what NATS lacks of a document that was stored before; "": nothing."""
    if deleted:
        return ""  # the tombstone counts
    if not outcome.vector:
        return "these journals have its erasure, and it lives: `lorogo doc delete --purge` erases it"
    if replica.includes(outcome.vector):
        return ""  # perhaps with later edits
    return "what is there lacks changes of these journals: a server that starts with them adds those"


def _size(head: SnapshotHead | None) -> int:
    return 0 if head is None else head.size
