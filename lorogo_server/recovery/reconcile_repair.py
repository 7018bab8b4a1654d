"""Repair of one document: publishes again what journals have and the stream lost.

Invariant: nothing is published that a fresh load would refuse. The owner's own code first decides about every
update on a scratch copy of the document.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from lorogo_protocol.errors import CrdtError
from lorogo_protocol.journal.incarnation import Ends, includes
from lorogo_protocol.journal.records import BaseRecord, DocumentRecord, UpdateRecord
from lorogo_protocol.limits import UNFINISHED_BYTES_MAX, UPDATE_BYTES_MAX
from lorogo_protocol.loro import causal_order, crdt
from lorogo_protocol.loro.crdt import UnclearPanic
from lorogo_protocol.messages import chunks, subjects
from lorogo_protocol.messages import headers as h
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
from lorogo_server.recovery.rejected_updates import rejected_updates
from lorogo_server.sandbox.decode_sandbox import SUSPECTED, ValidateUpdate, validate_ahead
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.errors import OutcomeUnknown, WrongLastSequence
from lorogo_transport.ports import StoredMessage
from lorogo_transport.stores.snapshots import SnapshotReplaced
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_LOAD_TRIES = 5
_AGAIN_SECONDS = 0.05
_SLICE_SECONDS = 0.01  # of work on records, before the loop runs other tasks
_ALL = 1 << 62  # of sequences and times: a load for comparing collects no updates for the journal
_NOT_WHOLE = (Reason.DIGEST_MISMATCH, Reason.CHUNK_MISSING)


@dataclass(slots=True)
class ReconcileFindings:
    """Counts of reconciliation since the start, for operators."""

    compared: int = 0  # documents that were loaded to be compared
    documents: int = 0  # that had lost something
    republished: int = 0  # updates
    bases: int = 0  # snapshots stored again
    rejected: int = 0  # updates that can never be accepted again
    skipped: int = 0  # updates that an owner had moved to `loro-rejected`
    tombstones: int = 0  # stored again
    contradictions: int = 0  # documents that live after a deletion of their journals


@dataclass(slots=True)
class RepairOutcome:
    """Result of repairing one document from some records."""

    ends: Ends  # of the document as a fresh load sees it now
    published: int = 0  # updates
    stored: int = 0  # snapshots
    rejected: int = 0
    waiting: int = 0  # updates with missing dependencies
    unjudged: int = 0  # records that could not be tried, or whose refusal may end: they are still missing


@dataclass(slots=True)
class _Scratch:
    """The document as a fresh load sees it, with what was published since."""

    document_id: str
    loaded: Loaded
    sequence: int
    refused: dict[tuple[str, str], str]  # by (log id, digest): message of the refusal, which never ends
    publisher: Publisher
    stored: frozenset[tuple[str, str]]  # (log id, digest): in the WAL, without their dependencies
    held: dict[tuple[str, str], tuple[UpdateRecord, int]] = field(default_factory=dict)  # early

    @property
    def ends(self) -> Ends:
        return crdt.counters(self.loaded.intake.replica.version().vector)

    def lacks(self, updates: Iterable[tuple[UpdateRecord, int]]) -> int:
        """Return the number of the updates that the document does not include."""
        replica = self.loaded.intake.replica
        return sum(not replica.covers(update.payload) for update, _ in updates)

    async def offer(
        self,
        parts: Sequence[chunks.Chunk],
        time_ns: int,
        now: float,
        *,
        validate: ValidateUpdate,
        validated: bool,
    ) -> list[Effect]:
        """Return the effects of publishing it; `validated`: the sandbox has decoded it."""
        effects: list[Effect] = []
        for part in parts:
            self.sequence += 1
            subject = subjects.wal(self.document_id)
            message = StoredMessage(subject, self.sequence, time_ns, part.data, part.headers())
            validated = validated and len(parts) == 1
            effects += await admit(
                self.loaded.intake, message, now, validate=validate, accepted=True, validated=validated
            )
        return effects


class Repair:
    """Publishes lost updates, and stores lost snapshots; owns no document."""

    def __init__(
        self, context: ServerContext, found: ReconcileFindings, reject: Callable[[str, str, str], bool]
    ) -> None:
        """`reject` notes an update that can never be accepted again; False if it was noted before."""
        self._context = context
        self.found = found
        self._reject = reject
        self._reported: set[tuple[str, str, str]] = set()  # updates that are left out
        self._retried: set[tuple[str, str, str]] = set()  # refused on a suspicion only
        self._rejected = context.transport.stream(subjects.REJECTED_STREAM)
        self._chunk_bytes = chunks.chunk_bytes(context.transport.bus.max_payload)

    async def load(self, document_id: str, *, checked: bool = False, until_ns: int | None = None) -> Loaded:
        """Load the document, as of `until_ns` if given. Raises DocumentLoadFailed, TransportError.

        A load reads up to the sequence for which the leader counted the messages: one that took more messages
        than this count read from a lagging replica.
        """
        context = self._context
        epoch = context.epochs.current
        settings = replace(  # an update that any server accepted meets only the limits of the wire
            context.settings,
            update_bytes_max=UPDATE_BYTES_MAX,
            document_bytes_max=0,
            unfinished_bytes_max=max(context.settings.unfinished_bytes_max, UNFINISHED_BYTES_MAX),
        )
        for number in range(_LOAD_TRIES):
            await asyncio.sleep(number * _AGAIN_SECONDS)
            # No message is added up to that sequence, however fast clients write the document.
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
                continue  # the WAL may be purged for a snapshot that this load did not read
            if loaded.follower.taken <= messages:
                return loaded  # else a lagging replica may have served purged messages
        raise DocumentLoadFailed(
            f"what NATS stores of {document_id} changed during each of {_LOAD_TRIES} loads"
        )

    async def repair(
        self, document_id: str, entries: Sequence[ScannedRecord], row: JournalledDocument
    ) -> RepairOutcome:
        """Publish again what is in those records and not in the document. Raises TransportError.

        On return, the stream has confirmed every update that was published.
        """
        async with Publisher(self._context, document_id, self._chunk_bytes) as publisher:
            return await self._repair(document_id, entries, row, publisher)

    async def _repair(
        self,
        document_id: str,
        entries: Sequence[ScannedRecord],
        row: JournalledDocument,
        publisher: Publisher,
    ) -> RepairOutcome:
        scratch = await self._scratch(document_id, publisher)
        outcome = RepairOutcome(scratch.ends)
        if scratch.loaded.facts.deleted:
            outcome.unjudged = len(entries)  # deleted just now; it may be restored
            return outcome
        await self._store_facts(scratch, entries, row)
        wanted = [
            entry for entry in entries if _is_content(entry.record, row) and not covered(entry, outcome.ends)
        ]
        clock = self._context.clock
        slice_ends = clock.now() + _SLICE_SECONDS
        async for message, validated in validate_ahead(_payloads(wanted), self._context.batch_validation):
            entry, before = wanted[message.sequence], scratch
            match entry.record:
                case BaseRecord() as base if base.content:
                    await publisher.publish()
                    scratch = await self._base(scratch, base, row, outcome)
                case UpdateRecord() as update:
                    scratch = await self._update(scratch, update, entry.time_ns, outcome, validated=validated)
                case _:
                    pass
            if scratch is not before:
                outcome.waiting += scratch.lacks(before.held.values())  # another round tries them again
            if clock.now() >= slice_ends:
                await asyncio.sleep(0)
                slice_ends = clock.now() + _SLICE_SECONDS
        held, scratch.held = scratch.held, {}
        payloads = [(one[0].payload, key) for key, one in held.items()]
        for key in causal_order.ready(scratch.loaded.intake.replica, payloads):
            if key is None:
                continue
            before, (update, time_ns) = scratch, held.pop(key)
            scratch = await self._update(scratch, update, time_ns, outcome)
            if scratch is not before:
                break
        outcome.waiting += scratch.lacks(held.values())
        await publisher.confirmed()
        outcome.ends = scratch.ends
        outcome.waiting += len(scratch.held)
        return outcome

    async def _store_facts(
        self, scratch: _Scratch, entries: Sequence[ScannedRecord], row: JournalledDocument
    ) -> None:
        """Store generation and ended terms of a document without a snapshot."""
        bases = any(isinstance(entry.record, BaseRecord) and entry.record.content for entry in entries)
        facts = amend(row.terms, SnapshotMetadata())
        if scratch.loaded.snapshot is None and facts != SnapshotMetadata() and not bases:
            with suppress(WrongLastSequence, OutcomeUnknown):  # another writer was first
                await self._context.snapshots.put_facts(None, scratch.document_id, facts.render())

    async def _scratch(self, document_id: str, publisher: Publisher, *, lazy: bool = True) -> _Scratch:
        """Load a scratch copy; `lazy`: False: it computes the state with each update."""
        await publisher.confirmed()
        loaded = await self.load(document_id, checked=not lazy)
        if not lazy:
            loaded.intake.replica.settled()
            loaded.intake.replica.lazy = False
        refused = await rejected_updates(self._rejected, document_id)
        publisher.begin(loaded.intake.replica, refused.keys())
        sequence, stored = loaded.follower.position.sequence, loaded.intake.early
        return _Scratch(document_id, loaded, sequence, refused, publisher, stored)

    # --- updates ----------------------------------------------------------------------------------

    async def _update(
        self,
        scratch: _Scratch,
        update: UpdateRecord,
        time_ns: int,
        outcome: RepairOutcome,
        *,
        validated: bool = False,
    ) -> _Scratch:
        replica = scratch.loaded.intake.replica
        why = scratch.refused.get((update.log_id, update.digest))
        if why is not None and not self._retries(scratch.document_id, update, why):
            self._leave_out(scratch.document_id, update, outcome)
            return scratch
        try:
            if replica.covers(update.payload):
                return scratch
        except CrdtError as error:
            await self._give_up(scratch, update, Reason.INVALID_UPDATE, str(error), outcome)
            return scratch
        publisher = scratch.publisher
        await publisher.make_room(update)
        try:
            parts, effects, refusal = await self._offer(
                scratch, update, time_ns, update.log_id, validated=validated
            )
            if refusal is not None and refusal.reason in _NOT_WHOLE:
                # The WAL has chunks of another split, or other bytes under this id.
                parts, effects, refusal = await self._offer(
                    scratch, update, time_ns, f"again-{update.digest}", validated=validated
                )
        except UnclearPanic:
            return await self._strictly(scratch, update, time_ns, outcome)
        if any(isinstance(effect, Poisoned) for effect in effects):
            if replica.lazy:
                return await self._strictly(scratch, update, time_ns, outcome)
            reason = "Loro panicked on it" if refusal is None else refusal.message
            await self._give_up(scratch, update, Reason.INVALID_UPDATE, reason, outcome)
            await publisher.publish_each()  # the replica is broken
            return await self._scratch(scratch.document_id, publisher)
        if refusal is not None and refusal.reason is Reason.MISSING_DEPENDENCIES:
            scratch.held[update.log_id, update.digest] = update, time_ns
            return scratch
        if refusal is not None:
            await self._give_up(scratch, update, refusal.reason, refusal.message, outcome)
            return scratch
        applied = any(isinstance(effect, Accepted) for effect in effects)
        if not applied and not replica.covers(update.payload):
            # The id was accepted with these bytes, and the document lacks its changes: the record is wrong.
            await self._give_up(scratch, update, Reason.INVALID_UPDATE, "it changes nothing", outcome)
            return scratch
        if (update.log_id, update.digest) in scratch.stored:  # a load finds it beside its dependencies
            await publisher.publish_each()  # merged with this one, they may be too large
            return scratch
        publisher.add(parts)
        outcome.published += 1
        return scratch

    async def _strictly(
        self, scratch: _Scratch, update: UpdateRecord, time_ns: int, outcome: RepairOutcome
    ) -> _Scratch:
        """Try it once more, on a scratch copy that computes the state with each update."""
        await scratch.publisher.publish_each()  # the replica is broken
        strict = await self._scratch(scratch.document_id, scratch.publisher, lazy=False)
        return await self._update(strict, update, time_ns, outcome)

    async def _offer(
        self, scratch: _Scratch, update: UpdateRecord, time_ns: int, log_id: str, *, validated: bool
    ) -> tuple[list[chunks.Chunk], list[Effect], RefusedUpdate | None]:
        """Return the update as chunks, the effects of publishing them, and the refusal if there is one."""
        parts = list(chunks.split(update.payload, log_id, chunk_bytes_max=self._chunk_bytes, again=True))
        validate, now = self._context.validate, self._context.clock.now()
        effects = await scratch.offer(parts, time_ns, now, validate=validate, validated=validated)
        return parts, effects, _refusal(effects, log_id)

    def _retries(self, document_id: str, update: UpdateRecord, why: str) -> bool:
        """Return True, once, if an owner refused it only because processes ended while they decoded it."""
        key = (document_id, update.log_id, update.digest)
        if why != SUSPECTED or key in self._retried:
            return False
        self._retried.add(key)
        return True

    def _leave_out(self, document_id: str, update: UpdateRecord, outcome: RepairOutcome) -> None:
        """Count and report an update that an owner moved to `loro-rejected` after it was journalled."""
        outcome.rejected += 1
        key = (document_id, update.log_id, update.digest)
        if key in self._reported:
            return
        self._reported.add(key)
        self.found.skipped += 1
        log.warning(
            "an update of a journal is left out: it was refused after it was accepted",
            document=document_id,
            log_id=update.log_id,
            kept_in=subjects.REJECTED_STREAM,
        )

    async def _give_up(
        self, scratch: _Scratch, update: UpdateRecord, reason: Reason, message: str, outcome: RepairOutcome
    ) -> None:
        """Report an accepted update that no fresh load can accept, and copy it to `loro-rejected`."""
        outcome.rejected += 1
        if reason is Reason.TOO_LARGE:
            outcome.unjudged += 1  # a limit may be raised
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
        self, scratch: _Scratch, base: BaseRecord, row: JournalledDocument, outcome: RepairOutcome
    ) -> _Scratch:
        """Store a lost snapshot again; beside another snapshot, publish its content as an update."""
        if includes(scratch.ends, crdt.counters(base.vector)):
            return scratch
        head, document_id = scratch.loaded.snapshot, scratch.document_id
        below = crdt.Replica.from_snapshot(base.content, lazy=True)
        if head is not None:
            update = as_update(scratch.loaded.intake.replica, below, base)
            if update is not None and fits(scratch.loaded.intake.replica, update):
                return await self._update(scratch, update, self._context.clock.wall_ns(), outcome)
        merged = merge(scratch.loaded.intake.replica, below, base)
        if merged is None:
            if self._reject(document_id, "base", base.snapshot_digest):
                log.error(
                    "a journal has a lost snapshot that Loro cannot merge with later edits:"
                    " it stays in the journal",
                    document=document_id,
                )
            outcome.unjudged += 1
            return scratch
        return await self._store(scratch, merged, base, row, outcome)

    async def _store(
        self,
        scratch: _Scratch,
        content: bytes,
        base: BaseRecord,
        row: JournalledDocument,
        outcome: RepairOutcome,
    ) -> _Scratch:
        """Replace the document's snapshot by compare-and-swap with the loaded one."""
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
        outcome.stored += 1
        log.warning("a lost snapshot is stored again", document=document_id, bytes=len(content))
        after = await self._scratch(document_id, scratch.publisher)
        if not includes(after.ends, crdt.counters(version.vector)) and not after.loaded.facts.deleted:
            raise DocumentLoadFailed(f"the snapshot of {document_id} reads back without stored operations")
        return after


def _is_content(record: DocumentRecord, row: JournalledDocument) -> bool:
    return isinstance(record, UpdateRecord | BaseRecord) and row.incarnation.has(record.term)


def _refusal(effects: Sequence[Effect], log_id: str) -> RefusedUpdate | None:
    for effect in effects:
        match effect:
            case RefusedUpdate() as refused if refused.log_id == log_id:
                return refused
            case Poisoned(refused) if refused.log_id == log_id:
                return refused
            case Accepted() | Again() | RefusedUpdate() | Poisoned():
                pass
    return None


async def _payloads(entries: Sequence[ScannedRecord]) -> AsyncIterator[StoredMessage]:
    """Yield the updates among the records as messages; the sequence is the index in the list."""
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
