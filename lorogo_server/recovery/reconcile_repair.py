"""Bringing back what the stream lost of one document, from its records in the journals.

Nothing is published that a fresh load would refuse: every update is first given to a scratch copy of
the document, by the same code that a live owner judges it with.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from lorogo_protocol.errors import CrdtError, MalformedMessage
from lorogo_protocol.journal.incarnation import Ends, includes
from lorogo_protocol.journal.records import BaseRecord, DocumentRecord, UpdateRecord
from lorogo_protocol.limits import UNFINISHED_BYTES_MAX, UPDATE_BYTES_MAX
from lorogo_protocol.loro import causal_order, crdt
from lorogo_protocol.loro.crdt import UnclearPanic
from lorogo_protocol.messages import chunks, subjects
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import sentence
from lorogo_protocol.position import NOWHERE, Position
from lorogo_server.context import ServerContext
from lorogo_server.document.loading import DocumentLoadFailed, Loaded, LoadRequest, load
from lorogo_server.intake.admission import admit
from lorogo_server.intake.decisions import (
    Accepted,
    Again,
    Effect,
    Poisoned,
    RefusedUpdate,
)
from lorogo_server.journal.journal_scan import ScannedRecord
from lorogo_server.recovery.base_merge import as_update, fits, merge
from lorogo_server.recovery.incarnation_plan import amend
from lorogo_server.recovery.journal_table import JournalledDocument
from lorogo_server.recovery.reconcile_publish import Publisher
from lorogo_server.sandbox.decode_sandbox import SUSPECTED, ValidateUpdate, validate_ahead
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.errors import OutcomeUnknown, WrongLastSequence
from lorogo_transport.ports import StoredMessage
from lorogo_transport.stores.snapshots import SnapshotReplaced
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_LOAD_TRIES = 5
_AGAIN_SECONDS = 0.05
_SLICE_SECONDS = 0.01  # of work on records, before others get a turn
_ALL = 1 << 62  # of sequences and times: a load for comparing keeps nothing for the journal
_FOR_EVER = (Reason.INVALID_UPDATE, Reason.HISTORY_TRIMMED)  # a limit may be raised
_NOT_WHOLE = (Reason.DIGEST_MISMATCH, Reason.CHUNK_MISSING)


@dataclass(slots=True)
class ReconcileFindings:
    """What reconciliation did since the start, for people."""

    compared: int = 0  # documents that were loaded to be compared
    documents: int = 0  # that had lost something
    republished: int = 0  # updates
    bases: int = 0  # snapshots stored again
    rejected: int = 0  # can never be accepted again
    skipped: int = 0  # left out because an owner had found them out
    tombstones: int = 0  # stored again
    contradictions: int = 0  # documents that live although a journal says that they are deleted


@dataclass(slots=True)
class RepairOutcome:
    """What was done about one document in one go."""

    ends: Ends  # of the document as a fresh load sees it now
    published: int = 0  # updates
    stored: int = 0  # snapshots
    rejected: int = 0
    waiting: int = 0  # updates whose dependencies are nowhere yet
    unjudged: int = 0  # that could not be tried, or not for good: they are still missed


@dataclass(slots=True)
class _Scratch:
    """The document as a fresh load sees it, with what was published since."""

    document_id: str
    loaded: Loaded
    sequence: int
    refused: dict[tuple[str, str], str]  # for good, by an owner or by us: (log id, digest), and why
    publisher: Publisher
    stored: frozenset[tuple[str, str]]  # (log id, digest): the WAL has them, without their dependencies
    held: dict[tuple[str, str], tuple[UpdateRecord, int]] = field(default_factory=dict)  # wait for others

    @property
    def ends(self) -> Ends:
        return crdt.counters(self.loaded.intake.replica.version().vector)

    def lacks(self, updates: Iterable[tuple[UpdateRecord, int]]) -> int:
        """How many of the updates it does not include."""
        replica = self.loaded.intake.replica
        return sum(not replica.covers(update.payload) for update, _ in updates)

    async def offer(
        self, parts: Sequence[chunks.Chunk], time_ns: int, now: float, *, validate: ValidateUpdate, fine: bool
    ) -> list[Effect]:
        """What would follow from publishing it; `fine`: the taster has decoded it already."""
        effects: list[Effect] = []
        for part in parts:
            self.sequence += 1
            subject = subjects.wal(self.document_id)
            message = StoredMessage(subject, self.sequence, time_ns, part.data, part.headers())
            fine = fine and len(parts) == 1
            effects += await admit(
                self.loaded.intake, message, now, validate=validate, accepted=True, validated=fine
            )
        return effects


class Repair:
    """Publishes lost updates, stores lost snapshots and tombstones; reads, and owns nothing."""

    def __init__(
        self, context: ServerContext, found: ReconcileFindings, reject: Callable[[str, str, str], bool]
    ) -> None:
        """`reject` notes an update that can never come back; False if it was noted before."""
        self._context = context
        self.found = found
        self._reject = reject
        self._skipped: set[tuple[str, str, str]] = set()  # told
        self._doubted: set[tuple[str, str, str]] = set()  # refused on a suspicion, and tried again by us
        self._rejected = context.transport.stream(subjects.REJECTED_STREAM)
        self._chunk_bytes = chunks.chunk_bytes(context.transport.bus.max_payload)

    async def load(self, document_id: str, *, checked: bool = False, until_ns: int | None = None) -> Loaded:
        """The document as a fresh load sees it, or saw it then. Raises LoadFailed, TransportError.

        Read as of the leader's count of its messages, so that what comes meanwhile is no sign of a replica
        that lags.
        """
        context = self._context
        epoch = context.epochs.current
        settings = replace(  # what any server accepted once may come back: only the wire's limit counts
            context.settings,
            update_bytes_max=UPDATE_BYTES_MAX,
            document_bytes_max=0,
            unfinished_bytes_max=max(context.settings.unfinished_bytes_max, UNFINISHED_BYTES_MAX),
        )
        for number in range(_LOAD_TRIES):
            await asyncio.sleep(number * _AGAIN_SECONDS)
            # Up to that sequence nothing is added to what is counted, however fast the document is written.
            messages, through = await context.wal.count_through(subjects.wal(document_id))
            try:
                request = LoadRequest(
                    context.transport,
                    context.snapshots,
                    document_id,
                    settings,
                    context.clock,
                    epoch,
                    checked=checked,
                    covered=Position(epoch, _ALL, _ALL),
                    accepted=context.journal.covered(document_id).position,
                    validate=context.validate,
                    batch_validation=context.batch_validation,
                    merge=functools.partial(context.children.merge, document_id),
                    until_ns=until_ns,
                    through=through,
                )
                loaded = await load(request)
            except SnapshotReplaced:
                continue
            after = await context.snapshots.head(document_id)
            before = 0 if loaded.snapshot is None else loaded.snapshot.revision
            if before != (0 if after is None else after.revision):
                continue  # the WAL may have been purged for a snapshot that this load did not see
            if loaded.follower.taken <= messages:
                return loaded  # else a lagging replica may have shown messages that are purged
        raise DocumentLoadFailed(
            f"what NATS stores of {document_id} changed during each of {_LOAD_TRIES} loads"
        )

    async def mend(
        self, document_id: str, entries: Sequence[ScannedRecord], row: JournalledDocument
    ) -> RepairOutcome:
        """Publish again what is in those records and not in the document. Raises TransportError.

        When it returns, the stream has confirmed what was published.
        """
        async with Publisher(self._context, document_id, self._chunk_bytes) as publisher:
            return await self._mend(document_id, entries, row, publisher)

    async def _mend(
        self,
        document_id: str,
        entries: Sequence[ScannedRecord],
        row: JournalledDocument,
        publisher: Publisher,
    ) -> RepairOutcome:
        scratch = await self._scratch(document_id, publisher)
        mended = RepairOutcome(scratch.ends)
        if scratch.loaded.facts.deleted:
            mended.unjudged = len(entries)  # somebody deleted it just now; it may be restored
            return mended
        await self._found(scratch, entries, row)
        wanted = [
            entry for entry in entries if _is_content(entry.record, row) and not covered(entry, mended.ends)
        ]
        clock = self._context.clock
        turn_ends = clock.now() + _SLICE_SECONDS
        async for message, fine in validate_ahead(_payloads(wanted), self._context.batch_validation):
            entry, before = wanted[message.sequence], scratch
            match entry.record:
                case BaseRecord() as base if base.content:
                    await publisher.publish()
                    scratch = await self._base(scratch, base, row, mended)
                case UpdateRecord() as update:
                    scratch = await self._update(scratch, update, entry.time_ns, mended, fine=fine)
                case _:
                    pass
            if scratch is not before:
                mended.waiting += scratch.lacks(before.held.values())  # another round offers them again
            if clock.now() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = clock.now() + _SLICE_SECONDS
        held, scratch.held = scratch.held, {}
        payloads = [(one[0].payload, key) for key, one in held.items()]
        for key in causal_order.ready(scratch.loaded.intake.replica, payloads):
            if key is None:
                continue
            before, (update, time_ns) = scratch, held.pop(key)
            scratch = await self._update(scratch, update, time_ns, mended)
            if scratch is not before:
                break
        mended.waiting += scratch.lacks(held.values())
        await publisher.confirmed()
        mended.ends = scratch.ends
        mended.waiting += len(scratch.held)
        return mended

    async def _found(
        self, scratch: _Scratch, entries: Sequence[ScannedRecord], row: JournalledDocument
    ) -> None:
        """Store what journals say of a document without a snapshot: generation and ended terms."""
        bases = any(isinstance(entry.record, BaseRecord) and entry.record.content for entry in entries)
        facts = amend(row.terms, SnapshotMetadata())
        if scratch.loaded.snapshot is None and facts != SnapshotMetadata() and not bases:
            with suppress(WrongLastSequence, OutcomeUnknown):  # another writer was first
                await self._context.snapshots.put_facts(None, scratch.document_id, facts.render())

    async def _scratch(self, document_id: str, publisher: Publisher, *, lazy: bool = True) -> _Scratch:
        """`lazy`: False: each update shows at once what it does to the state."""
        await publisher.confirmed()
        loaded = await self.load(document_id, checked=not lazy)
        if not lazy:
            loaded.intake.replica.settled()
            loaded.intake.replica.lazy = False
        refused = await self._refused(document_id)
        publisher.begin(loaded.intake.replica, refused.keys())
        sequence, stored = loaded.follower.position.sequence, loaded.intake.early
        return _Scratch(document_id, loaded, sequence, refused, publisher, stored)

    async def _refused(self, document_id: str) -> dict[tuple[str, str], str]:
        """What was moved out of the WAL because it can never be accepted.

        A forged update, for one, is found out only after it was journalled; it must not come back. Anybody
        may have a message refused that names another's update: only the bytes tell which one it was.
        """
        refused: dict[tuple[str, str], str] = {}
        assembler = chunks.ChunkAssembler()
        brim: StoredMessage | None = None  # headers whose bytes come in the next message
        async for stored in self._rejected.read(subjects.rejected(document_id)):
            headers = stored.headers
            if h.LOG_ID not in headers and brim is not None:
                headers = brim.headers
            brim = stored if h.LOG_ID in stored.headers and not stored.data else None
            if headers.get(h.REASON) not in _FOR_EVER:
                continue
            try:
                chunk = chunks.parse(headers, stored.data)
            except MalformedMessage:
                continue
            if chunk.final and not stored.data and chunk.digest != digest(b""):
                continue  # its bytes come next
            # As if each came at once: what is rejected of an id says nothing of what comes after it.
            match assembler.add(chunk, sequence=stored.sequence, now=0.0):
                case chunks.Assembled(log_id=log_id, digest=actual):
                    if refused.get((log_id, actual), SUSPECTED) == SUSPECTED:  # a better reason stays
                        refused[log_id, actual] = headers.get(h.MESSAGE, "")
                case _:
                    pass
        return refused

    # --- updates ----------------------------------------------------------------------------------

    async def _update(
        self,
        scratch: _Scratch,
        update: UpdateRecord,
        time_ns: int,
        mended: RepairOutcome,
        *,
        fine: bool = False,
    ) -> _Scratch:
        replica = scratch.loaded.intake.replica
        why = scratch.refused.get((update.log_id, update.digest))
        if why is not None and not self._doubts(scratch.document_id, update, why):
            self._skip(scratch.document_id, update, mended)
            return scratch
        try:
            if replica.covers(update.payload):
                return scratch
        except CrdtError as error:
            await self._give_up(scratch, update, Reason.INVALID_UPDATE, str(error), mended)
            return scratch
        publisher = scratch.publisher
        await publisher.make_room(update)
        try:
            parts, effects, no = await self._offer(scratch, update, time_ns, update.log_id, fine=fine)
            if no is not None and no.reason in _NOT_WHOLE:
                # Chunks of another split are still in the WAL, or the id was used for other bytes since.
                parts, effects, no = await self._offer(
                    scratch, update, time_ns, f"again-{update.digest}", fine=fine
                )
        except UnclearPanic:
            return await self._strictly(scratch, update, time_ns, mended)
        if any(isinstance(effect, Poisoned) for effect in effects):
            if replica.lazy:
                return await self._strictly(scratch, update, time_ns, mended)
            reason = "Loro panicked on it" if no is None else no.message
            await self._give_up(scratch, update, Reason.INVALID_UPDATE, reason, mended)
            await publisher.publish_each()  # the replica can merge nothing any more
            return await self._scratch(scratch.document_id, publisher)
        if no is not None and no.reason is Reason.MISSING_DEPENDENCIES:
            scratch.held[update.log_id, update.digest] = update, time_ns
            return scratch
        if no is not None:
            await self._give_up(scratch, update, no.reason, no.message, mended)
            return scratch
        applied = any(isinstance(effect, Accepted) for effect in effects)
        if not applied and not replica.covers(update.payload):
            # An id that was accepted with these bytes before, and whose changes are not here: not possible
            # unless the record lies. Its chunks would be ignored.
            await self._give_up(scratch, update, Reason.INVALID_UPDATE, "it changes nothing", mended)
            return scratch
        if (update.log_id, update.digest) in scratch.stored:  # a load finds it, and what it depends on
            await publisher.publish_each()  # merged with this one, they might be large
            return scratch
        publisher.add(parts)
        mended.published += 1
        return scratch

    async def _strictly(
        self, scratch: _Scratch, update: UpdateRecord, time_ns: int, mended: RepairOutcome
    ) -> _Scratch:
        """Offer it once more, to a scratch copy that works the state out with each update."""
        await scratch.publisher.publish_each()  # the replica can merge nothing any more
        strict = await self._scratch(scratch.document_id, scratch.publisher, lazy=False)
        return await self._update(strict, update, time_ns, mended)

    async def _offer(
        self, scratch: _Scratch, update: UpdateRecord, time_ns: int, log_id: str, *, fine: bool
    ) -> tuple[list[chunks.Chunk], list[Effect], RefusedUpdate | None]:
        """The update as chunks, what would follow from publishing them, and the refusal if it is one."""
        parts = list(chunks.split(update.payload, log_id, chunk_bytes_max=self._chunk_bytes, again=True))
        validate, now = self._context.validate, self._context.clock.now()
        effects = await scratch.offer(parts, time_ns, now, validate=validate, fine=fine)
        return parts, effects, _refusal(effects, log_id)

    def _doubts(self, document_id: str, update: UpdateRecord, why: str) -> bool:
        """Whether an owner refused what was ACKed only because processes ended over it: one more try."""
        key = (document_id, update.log_id, update.digest)
        if why != SUSPECTED or key in self._doubted:
            return False
        self._doubted.add(key)
        return True

    def _skip(self, document_id: str, update: UpdateRecord, mended: RepairOutcome) -> None:
        """An owner found out after it was journalled that it can never be accepted: not brought back."""
        mended.rejected += 1
        key = (document_id, update.log_id, update.digest)
        if key in self._skipped:
            return
        self._skipped.add(key)
        self.found.skipped += 1
        log.warning(
            "an update of a journal stays out: it was found out after it was accepted",
            document=document_id,
            log_id=update.log_id,
            kept_in=subjects.REJECTED_STREAM,
        )

    async def _give_up(
        self, scratch: _Scratch, update: UpdateRecord, reason: Reason, message: str, mended: RepairOutcome
    ) -> None:
        """An accepted update that no fresh load can take: kept where people look, and told aloud."""
        mended.rejected += 1
        if reason is Reason.TOO_LARGE:
            mended.unjudged += 1  # a limit may be raised
        if reason is Reason.DELETED or not self._reject(scratch.document_id, update.log_id, update.digest):
            return
        self.found.rejected += 1
        log.error(
            "an accepted update was lost by the stream and cannot be brought back",
            document=scratch.document_id,
            log_id=update.log_id,
            reason=reason.value,
            problem=message,
            kept_in=subjects.REJECTED_STREAM,
        )
        facts = {h.REASON: reason.value, h.MESSAGE: sentence(message), h.SEQUENCE: str(update.sequence)}
        subject = subjects.rejected(scratch.document_id)
        for part in chunks.split(update.payload, update.log_id, chunk_bytes_max=self._chunk_bytes):
            await self._rejected.append(subject, part.data, headers={**part.headers(), **facts})

    # --- snapshots --------------------------------------------------------------------------------

    async def _base(
        self, scratch: _Scratch, base: BaseRecord, row: JournalledDocument, mended: RepairOutcome
    ) -> _Scratch:
        """Store a lost snapshot again; where one is, send what it holds as an update."""
        if includes(scratch.ends, crdt.counters(base.vector)):
            return scratch
        head, document_id = scratch.loaded.snapshot, scratch.document_id
        below = crdt.Replica.from_snapshot(base.content, lazy=True)
        if head is not None:
            update = as_update(scratch.loaded.intake.replica, below, base)
            if update is not None and fits(scratch.loaded.intake.replica, update):
                return await self._update(scratch, update, self._context.clock.wall_ns(), mended)
        merged = merge(scratch.loaded.intake.replica, below, base)
        if merged is None:
            if self._reject(document_id, "base", base.snapshot_digest):
                log.error(
                    "a journal holds a snapshot that was lost, and Loro cannot put it together with what was"
                    " written since: it stays in the journal",
                    document=document_id,
                )
            mended.unjudged += 1
            return scratch
        return await self._store(scratch, merged, base, row, mended)

    async def _store(
        self,
        scratch: _Scratch,
        content: bytes,
        base: BaseRecord,
        row: JournalledDocument,
        mended: RepairOutcome,
    ) -> _Scratch:
        """Put a snapshot where the document's stands, if that is still the one which we have seen."""
        loaded, document_id = scratch.loaded, scratch.document_id
        await scratch.publisher.confirmed()
        whole = crdt.Replica.from_snapshot(content, lazy=True)
        version = whole.version()
        facts = replace(
            amend(row.terms, loaded.facts),
            position=NOWHERE,
            frontiers=version.frontiers,
            trim=whole.trimmed(),
        )
        revision = 0 if loaded.snapshot is None else loaded.snapshot.revision
        try:
            await self._context.snapshots.put(
                document_id, content, facts.render(), expected_revision=revision
            )
        except (WrongLastSequence, OutcomeUnknown) as error:
            log.info("a snapshot was not stored again", document=document_id, problem=str(error))
            return await self._scratch(document_id, scratch.publisher)
        self.found.bases += 1
        mended.stored += 1
        log.warning("a lost snapshot is stored again", document=document_id, bytes=len(content))
        after = await self._scratch(document_id, scratch.publisher)
        if not includes(after.ends, crdt.counters(version.vector)) and not after.loaded.facts.deleted:
            raise DocumentLoadFailed(f"the snapshot of {document_id} that was stored is not what is read")
        return after


def _is_content(record: DocumentRecord, row: JournalledDocument) -> bool:
    return isinstance(record, UpdateRecord | BaseRecord) and row.incarnation.has(record.term)


def _refusal(effects: Sequence[Effect], log_id: str) -> RefusedUpdate | None:
    for effect in effects:
        match effect:
            case RefusedUpdate() as no if no.log_id == log_id:
                return no
            case Poisoned(no) if no.log_id == log_id:
                return no
            case Accepted() | Again() | RefusedUpdate() | Poisoned():
                pass
    return None


async def _payloads(entries: Sequence[ScannedRecord]) -> AsyncIterator[StoredMessage]:
    """The updates among the records as messages, for `ahead`; the sequence is the place in the list."""
    for number, entry in enumerate(entries):
        data = entry.record.payload if isinstance(entry.record, UpdateRecord) else b""
        yield StoredMessage("", number, entry.time_ns, data)


def covered(entry: ScannedRecord, have: Ends) -> bool:
    """Return True if a document with these ends includes everything in the record."""
    match entry.record:
        case UpdateRecord(spans=spans) if spans:
            return all(have.get(peer, 0) >= end for peer, _, end in spans)
        case BaseRecord(vector=vector):
            return includes(have, crdt.counters(vector))
        case UpdateRecord():
            return False
        case _:
            return True
