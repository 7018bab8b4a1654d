"""Decides about the messages of one document's WAL: accept, repeat, refuse; other modules execute.

A read of the whole subject (a load, a re-read) and a live owner decide alike, except about an early update,
whose dependencies are missing. A live owner refuses it. A read sets it aside, and applies it after all
messages if the document has its dependencies then. So a fresh load accepts every update that an owner
accepted: it applies them in their order, before those that it set aside.

Invariant: an update that a later load could accept bounds the purge and the journal's coverage.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace

from lorogo_protocol.errors import (
    CrdtError,
    MalformedMessage,
    TooFarBehind,
)
from lorogo_protocol.journal.records import Span
from lorogo_protocol.limits import UPDATE_BYTES_MAX
from lorogo_protocol.loro import causal_order, crdt
from lorogo_protocol.loro.crdt import Applied, CrdtPanic, Replica, SlowImport, UnclearPanic, Unready
from lorogo_protocol.messages import chunks, reasons
from lorogo_protocol.messages.chunks import (
    Assembled,
    AssemblyRejected,
    ChunkAssembler,
    MemoryBudget,
    Repeated,
)
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.position import Position
from lorogo_server.intake.decisions import (
    Accepted,
    Again,
    Candidate,
    EarlyUpdate,
    Effect,
    RefusedUpdate,
    Unmerged,
    Unvalidated,
    busy,
    early_refusal,
    is_early,
    malformed,
    not_whole,
    poisoned,
    reason_of,
    refuse,
)
from lorogo_server.intake.history import DatedVersion, History
from lorogo_server.sandbox.child_process import Merge
from lorogo_server.settings import ServerSettings
from lorogo_transport.ports import StoredMessage

ORIGIN = "wal"

_OUTDATED_MAX = 1024
_EARLY_MESSAGES_MAX = 16_384  # of all early updates of a document
_LEFT_OVER_SECONDS = 7 * 86_400.0  # since the update was stored


class Intake:
    """Replica of one document, and its updates that are not complete or not decided yet."""

    def __init__(
        self,
        replica: Replica,
        history: History,
        settings: ServerSettings,
        *,
        head: Position,
        deleted: bool,
        sandboxed: bool = False,
        merge: Merge | None = None,
    ) -> None:
        """Begin with a replica.

        Args:
            sandboxed: `take` returns an update that the sandbox has not decoded yet as Unvalidated.
            merge: Runs slow imports in a child process. None: they run in this process.
        """
        self.merge = merge
        self.merge_seconds = 0.0  # CPU of children since the last compaction: a load repeats their work
        self._outdated: OrderedDict[str, None] = OrderedDict()  # digests; their clients rebase these edits
        self.replica = replica
        self.history = history
        self.head = head  # the highest of the updates that changed something
        self.deleted = deleted
        self.erased = False
        self.wal_bytes = 0  # of messages since the last compaction
        self.seen_bytes = 0  # of messages since the load
        self.stored_bytes = 0  # of the stored snapshot
        self.new_bytes = 0  # of accepted updates that the stored snapshot may not have
        self.updates = 0
        self._settings = settings
        self._sandboxed = sandboxed
        self._in_hand: tuple[int, ...] = ()  # sequences of the update that is being validated or settled
        self._assembler = ChunkAssembler(
            update_bytes_max=UPDATE_BYTES_MAX,  # of a read: another server may have had a higher limit
            unfinished_bytes_max=settings.unfinished_bytes_max,
            unfinished_seconds=settings.unfinished_seconds,
        )
        self._early: OrderedDict[tuple[str, str], EarlyUpdate] = OrderedDict()  # by log id and digest
        self._early_bytes = 0  # during a read
        self._first_beyond: int | None = None  # lowest sequence of early updates that did not fit into memory
        self._progress = False  # the read under way has changed the document
        # From the first to the last dropped message that is still in the WAL: a load may accept its update.
        self._dropped = range(0)
        self.is_live = False  # False during a read of the whole subject
        self._room: MemoryBudget | None = None
        self._vouched: Callable[[str], bool] = _never_vouched

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of updates with missing chunks."""
        return self._assembler.unfinished_bytes

    @property
    def document_bytes(self) -> int:
        """Size of the document, estimated by the bytes that are stored of it."""
        return self.stored_bytes + self.new_bytes

    @property
    def nearly_full(self) -> bool:
        """True if a snapshot is due, because the estimate may be above the real size."""
        most = self._settings.document_bytes_max
        eighth = max(1, most // 8)
        return 0 < most < self.document_bytes + eighth and self.new_bytes >= eighth

    @property
    def pending(self) -> int:
        """Number of updates with missing dependencies whose messages are still in the WAL."""
        return len(self._early)

    @property
    def unfinished(self) -> int:
        """Number of updates with missing chunks."""
        return self._assembler.unfinished

    def go_live(self) -> None:
        """End the read of the WAL: from now on this server's own limits count."""
        self.is_live = True
        for key, early in list(self._early.items()):
            self._early[key] = early.without_payload()
            if len(self._early) > self._settings.pending_updates_max:
                self._leave_beyond(self._early.pop(key).update)
        self._early_bytes = 0
        self._assembler.share(self._room)
        self._assembler.set_limit(self._settings.update_bytes_max)

    def share(self, room: MemoryBudget, vouched: Callable[[str], bool]) -> None:
        """Set the server's memory budget for unfinished updates, which counts while the document is live.

        `vouched`: returns True if a server vouches for the update of a digest: no size limit refuses it.
        """
        self._room, self._vouched = room, vouched
        if self.is_live:
            self._assembler.share(room)

    def forget_content(self) -> None:
        """Drop all content of an erased document."""
        self.begin_again(self.head.epoch)
        self.go_live()
        self.replica, self.history, self.deleted = Replica(lazy=True), History(), True
        self.erased = True

    def begin_again(self, epoch: int) -> None:
        """Read the subject from its beginning: what is unfinished or early must be found there again."""
        self.is_live = False
        self._assembler.share(None)  # a load must not depend on other documents
        self._assembler.forget_unfinished()
        self._assembler.set_limit(UPDATE_BYTES_MAX)  # as at a load, until `go_live()`
        self._early.clear()
        self._early_bytes, self._first_beyond, self._progress = 0, None, False
        self._in_hand = ()
        self._dropped = range(0)
        self.wal_bytes = 0
        if self.head.epoch != epoch:
            self.head = Position(epoch)

    def first_needed(self) -> int | None:
        """Return the lowest sequence that must stay in the WAL: of an unfinished or an early update."""
        for early in list(self._early.values()):
            if self.replica.includes(early.ends):  # its changes came in another update
                self._forget_early(early.update)
        needed = [min(early.update.sequences) for early in self._early.values()]
        needed += self._in_hand
        needed += [] if self._first_beyond is None else [self._first_beyond]
        if (unfinished := self._assembler.first_unfinished()) is not None:
            needed.append(unfinished)
        return min(needed, default=None)

    def first_dropped(self) -> int | None:
        """Return the lowest sequence of a dropped message in the WAL: a load may accept its update."""
        return self._dropped.start if self._dropped else None

    def leave(self, sequences: tuple[int, ...]) -> None:
        """Note a refused update that stays in the WAL: a load that accepts it must journal it."""
        self._drop(sequences)

    def purged(self, before: int) -> None:
        """Note that the WAL has no messages below that sequence."""
        self._dropped = range(max(self._dropped.start, before), self._dropped.stop)

    def take(
        self, stored: StoredMessage, now: float, *, accepted: bool = False, validated: bool = False
    ) -> list[Effect] | Unvalidated | Unmerged:
        """Take one message of the WAL and return its effects.

        `accepted`: a journal has the update that this message completes.
        `validated`: the sandbox has already decoded the data of this message without a crash.
        After Unvalidated or Unmerged, call `validated` or `merged` before the next `take`.
        """
        taken = self._take(stored, now, accepted, validated)
        return self._noted(taken) if isinstance(taken, list) else taken

    def _take(
        self, stored: StoredMessage, now: float, accepted: bool, validated: bool
    ) -> list[Effect] | Unvalidated | Unmerged:
        self.wal_bytes += len(stored.data)
        self.seen_bytes += len(stored.data)
        try:
            chunk = chunks.parse(stored.headers, stored.data)
        except MalformedMessage as error:
            return [malformed(stored, str(error))]
        match self._assembler.add(chunk, sequence=stored.sequence, now=now):
            case None:
                return []
            case AssemblyRejected() as no:
                return [not_whole(no)]
            case Repeated(log_id, digest, inbox, sequence):
                if self.deleted:
                    return [self._deleted(log_id, digest, inbox, (stored.sequence,))]
                return [Again(log_id, digest, inbox, sequence)]
            case Assembled() as update if self.deleted:
                return [self._deleted(update.log_id, update.digest, update.inbox, update.sequences)]
            case Assembled() as update:
                self._in_hand = update.sequences
                bounded = self._is_new(update) and not accepted
                candidate = Candidate(update, stored.time_ns, accepted, bounded)
                # The sandbox has decoded the message, which is not the whole update if it has several.
                if self._sandboxed and not (validated and update.payload is stored.data):
                    return Unvalidated(candidate)
                return self._apply(candidate, now)

    def validated(
        self, unvalidated: Unvalidated, problem: CrdtError | None, now: float
    ) -> list[Effect] | Unmerged:
        """Continue with an update that the sandbox has decoded; `problem`: it must not be imported."""
        candidate = unvalidated.candidate
        if problem is not None:
            return self._noted([refuse(candidate.update, reason_of(problem), str(problem), quarantine=True)])
        applied = self._apply(candidate, now)
        return self._noted(applied) if isinstance(applied, list) else applied

    def merged(self, unmerged: Unmerged, outcome: bytes | CrdtError | None, now: float) -> list[Effect]:
        """Continue with an update that a child process has tried.

        `outcome`: the document with the update, or its refusal; None: no child was available.
        """
        candidate, update = unmerged.candidate, unmerged.candidate.update
        if isinstance(outcome, CrdtError):
            if isinstance(outcome, TooFarBehind):
                self._outdated[update.digest] = None
                if len(self._outdated) > _OUTDATED_MAX:
                    self._outdated.popitem(last=False)
            return self._noted([refuse(update, reason_of(outcome), str(outcome), quarantine=True)])
        if outcome is None and candidate.bounded:
            return self._noted([busy(update)])
        if outcome is None:
            applied = self._apply(candidate, now, defer=False)
            assert isinstance(applied, list)
            return self._noted(applied)
        ended = self.history.before_apply(candidate.time_ns, self.replica.frontiers)
        spans = self.replica.adopt(outcome)
        return self._noted([self._accept(candidate, now, bool(spans), spans, ended)])

    # --- updates with missing dependencies ----------------------------------------------------------

    def ready_again(self) -> Iterator[EarlyUpdate | None]:
        """Yield, after a read, each early update whose dependencies the document has; `retry` it at once.

        Yields None for an update that is not ready.
        """
        return causal_order.ready(
            self.replica, [(early.update.payload, early) for early in self._early.values()]
        )

    def retry(self, early: EarlyUpdate, now: float) -> list[Effect] | Unmerged:
        """Apply an early update that is ready."""
        update = early.update
        self._forget_early(update)
        self._in_hand = update.sequences
        applied = self._apply(early.candidate, now)
        return self._noted(applied) if isinstance(applied, list) else applied

    def left_over(self) -> list[tuple[Effect, int]]:
        """Return the refusals of updates that are early after a read, with the times of their messages."""
        return [(early_refusal(one.update), one.candidate.time_ns) for one in self._early.values()]

    @property
    def early(self) -> frozenset[tuple[str, str]]:
        """Log ids and digests of the updates with missing dependencies."""
        return frozenset(self._early)

    @property
    def needs_another_read(self) -> bool:
        """True if updates did not fit into memory, and others were applied that they may depend on."""
        return self._first_beyond is not None and self._progress

    def _note_early(self, candidate: Candidate, now: float) -> list[Effect]:
        """Note an update whose dependencies are missing: a read sets it aside, a live owner refuses it."""
        update, seconds = candidate.update, _LEFT_OVER_SECONDS
        if self.is_live:
            seconds = self._settings.pending_seconds
        deadline = now + seconds
        if (before := self._forget_early(update)) is not None:
            copies = update._replace(sequences=before.update.sequences + update.sequences)
            candidate, deadline = replace(candidate, update=copies), max(deadline, before.deadline)
        key, early = (
            (update.log_id, update.digest),
            EarlyUpdate(candidate, crdt.ends(update.payload), deadline),
        )
        self._early[key] = early if not self.is_live else early.without_payload()
        if not self.is_live:
            self._early_bytes += early.bytes
            while self._early_bytes > self._settings.pending_bytes_max:
                _, oldest = self._early.popitem(last=False)
                self._leave_beyond(oldest.update)
                self._early_bytes -= oldest.bytes
            return []
        effects: list[Effect] = [early_refusal(update)]
        while (
            len(self._early) > self._settings.pending_updates_max
            or sum(len(one.update.sequences) for one in self._early.values()) > _EARLY_MESSAGES_MAX
        ):
            key = min(self._early, key=lambda one: self._early[one].deadline)
            effects += self._given_up(key, "the document has too many updates with missing dependencies")
        return effects

    def _forget_early(self, update: Assembled) -> EarlyUpdate | None:
        early = self._early.pop((update.log_id, update.digest), None)
        if early is not None and not self.is_live:
            self._early_bytes -= early.bytes
        return early

    def _leave_beyond(self, update: Assembled) -> None:
        """Note only that messages from there on are needed; the next read finds the update again."""
        first = min(update.sequences)
        self._first_beyond = first if self._first_beyond is None else min(first, self._first_beyond)

    def _given_up(self, key: tuple[str, str], message: str) -> list[Effect]:
        """Forget an early update; move it out of the WAL unless the document has its changes."""
        early = self._early.pop(key)
        if self.replica.includes(early.ends):
            return []
        no = refuse(early.update, Reason.MISSING_DEPENDENCIES, message, quarantine=True)
        return [replace(no, inbox="")]  # the sender has its NACK

    def settled(self) -> None:
        """Note that the last message is processed, and the state computed."""
        self._in_hand = ()

    def tick(self, now: float, *, span_bytes_max: int | None = None) -> list[Effect]:
        """Return the effects of elapsed time: unfinished and early updates that expired.

        `span_bytes_max`: bytes that an unfinished update may keep in the WAL, from its first chunk on.
        """
        late = self._assembler.expire(now, span_bytes_max=span_bytes_max)
        effects: list[Effect] = [not_whole(no) for no in late]
        # In no order: a message that was read counts from when it was stored.
        for key in [key for key, early in self._early.items() if early.deadline <= now]:
            effects += self._given_up(key, "what it builds on did not come in time")
        return self._noted(effects)

    def next_deadline(self) -> float | None:
        """Return the time at which `tick()` next has work."""
        deadlines = [early.deadline for early in self._early.values()]
        if (unfinished := self._assembler.next_deadline()) is not None:
            deadlines.append(unfinished)
        return min(deadlines, default=None)

    def _apply(self, candidate: Candidate, now: float, *, defer: bool = True) -> list[Effect] | Unmerged:
        update = candidate.update
        if (full := self._full(update)) is not None:
            return [full]
        if update.digest in self._outdated and candidate.bounded:
            return [refuse(update, Reason.OUTDATED, "it was refused before", quarantine=True)]
        ended = self.history.before_apply(candidate.time_ns, self.replica.frontiers)
        try:
            applied = self.replica.apply(
                update.payload,
                ORIGIN,
                foreign=True,
                accepted=candidate.accepted,
                new=candidate.bounded,
                defer=defer and self.merge is not None,
                settle=False,
            )
        except UnclearPanic:
            raise
        except SlowImport as slow:
            return Unmerged(candidate, slow.behind)
        except CrdtPanic as error:
            return [poisoned(update, error)]
        except CrdtError as error:
            return [refuse(update, reason_of(error), str(error), quarantine=True)]
        match applied:
            case Unready():
                return self._note_early(candidate, now)
            case Applied(new, spans):
                return [self._accept(candidate, now, new, spans, ended)]

    def _is_new(self, update: Assembled) -> bool:
        """Return True if no server can have accepted it: an owner received it, and none vouches for it."""
        owned = self.is_live and self._room is not None
        return owned and not (update.again and self._vouched(update.digest))

    def _accept(
        self,
        candidate: Candidate,
        now: float,
        new: bool,
        spans: tuple[Span, ...],
        ended: DatedVersion | None,
    ) -> Accepted:
        update, time_ns = candidate.update, candidate.time_ns
        if new:  # otherwise the history has its date
            self.history.after_apply(ended, time_ns, update.sequence)
            self.new_bytes += len(update.payload)
            self._progress = True
        self._drop(self._assembler.acked(update.log_id, update.digest, update.sequence, now=now))
        self._forget_early(update)
        position = Position(self.head.epoch, update.sequence, time_ns)
        accepted = Accepted(update, self.head.sequence, position, new, spans)
        if new and position.sequence > self.head.sequence:  # an early one, after a read, is below it
            self.head = position  # only of updates that are published: others would look like a gap
        self.updates += 1
        return accepted

    def _full(self, update: Assembled) -> RefusedUpdate | None:
        """Return the refusal of an update for which the document has no space; None: it has.

        A load refuses none, since a server with a higher limit may have ACKed the update; nor does an owner
        refuse an update that a server publishes again and vouches for. Any client can set LORO_AGAIN, with
        which the assembler accepts each update within the wire's limits.
        """
        most, size = self._settings.document_bytes_max, len(update.payload)
        too_large = update.again and size > self._settings.update_bytes_max
        if not self.is_live or not (too_large or 0 < most < self.document_bytes + size):
            return None
        if (update.again and self._vouched(update.digest)) or self._adds_nothing(update):
            return None
        if too_large:
            why = f"it has {size} bytes, at most {self._settings.update_bytes_max} are allowed"
            return refuse(update, Reason.TOO_LARGE, why, quarantine=True)
        why = f"the document has {self.document_bytes} bytes and may have {most}: {size} more are too many"
        return refuse(update, Reason.DOCUMENT_FULL, why, quarantine=True)

    def _adds_nothing(self, update: Assembled) -> bool:
        """Return True if the document has its changes: a repeated update must get the same answer."""
        try:
            return self.replica.covers(update.payload)
        except CrdtError:
            return True  # the import refuses it

    def _noted(self, effects: list[Effect]) -> list[Effect]:
        """Return the effects; note refused updates that are neither early nor moved out of the WAL."""
        for effect in effects:
            if isinstance(effect, RefusedUpdate) and not (effect.quarantine or is_early(effect)):
                self._drop(effect.sequences)
        return effects

    def _drop(self, sequences: tuple[int, ...]) -> None:
        if sequences:
            first, behind = min(sequences), max(sequences) + 1
            if self._dropped:
                first, behind = min(first, self._dropped.start), max(behind, self._dropped.stop)
            self._dropped = range(first, behind)

    def _deleted(self, log_id: str, digest: str, inbox: str, sequences: tuple[int, ...]) -> RefusedUpdate:
        why = reasons.ERASED if self.erased else reasons.DELETED
        return RefusedUpdate(log_id, digest, inbox, Reason.DELETED, why, sequences, False)


def _never_vouched(_: str) -> bool:
    return False
