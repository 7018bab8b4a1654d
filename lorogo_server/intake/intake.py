"""What a host does with the messages of its subject: decided here, acted on elsewhere.

`Intake.take()` is called with every message of the WAL, in order, when a document is loaded and while
it is served: the same decisions in both, so what a live owner accepts is what a fresh load accepts.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from lorogo_protocol.errors import (
    CrdtError,
    HistoryTrimmed,
    MalformedMessage,
    OperationIdsReused,
    TooFarBehind,
    TooLong,
    TooManyPeers,
)
from lorogo_protocol.ids import is_inbox, is_token
from lorogo_protocol.journal.records import Span
from lorogo_protocol.limits import UPDATE_BYTES_MAX
from lorogo_protocol.loro.crdt import Applied, CrdtPanic, Replica, SlowImport, UnclearPanic, Unready
from lorogo_protocol.messages import chunks, reasons
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.chunks import (
    Assembled,
    AssemblyRejected,
    ChunkAssembler,
    MemoryBudget,
    Repeated,
)
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.position import Position
from lorogo_server.intake.history import DatedVersion, History
from lorogo_server.sandbox.child_process import Merge
from lorogo_server.settings import ServerSettings
from lorogo_transport.ports import StoredMessage

ORIGIN = "wal"


class Accepted(NamedTuple):
    """The update is in the document. `new`: it changed something."""

    update: Assembled
    previous: int
    position: Position
    new: bool
    spans: tuple[Span, ...]  # what it added


@dataclass(frozen=True, slots=True)
class Again:
    """An update that was accepted before came again: answer it again."""

    log_id: str
    digest: str
    inbox: str
    sequence: int


@dataclass(frozen=True, slots=True)
class RefusedUpdate:
    """The update is not in the document. `quarantine`: it never can be; keep a copy, delete it."""

    log_id: str
    digest: str
    inbox: str
    reason: Reason
    message: str
    sequences: tuple[int, ...]
    quarantine: bool


@dataclass(frozen=True, slots=True)
class Poisoned:
    """Loro panicked on it: refuse it as `refused` says, then load the document afresh."""

    refused: RefusedUpdate


Effect = Accepted | Again | RefusedUpdate | Poisoned


@dataclass(frozen=True, slots=True)
class Unvalidated:
    """A whole update that the sandbox must decode first; `Intake.validated` goes on with it.

    `bounded`: nothing has accepted it yet, so it may be refused because decoding it takes too long.
    """

    update: Assembled
    time_ns: int
    accepted: bool  # a journal has it
    bounded: bool


@dataclass(frozen=True, slots=True)
class Unmerged:
    """An update that may take long: a child process tries it; `Intake.merged` continues with it."""

    update: Assembled
    time_ns: int
    accepted: bool  # a journal has it
    bounded: bool  # no server can have accepted it, so it may be refused because it takes too long
    behind: bool  # the document has changes that its writer had not


_FOR_EVER = frozenset({Reason.TOO_LARGE, Reason.INVALID_UPDATE, Reason.HISTORY_TRIMMED})

_WAITING = frozenset({Reason.MISSING_DEPENDENCIES})  # told at once; it is kept all the same
_OUTDATED_MAX = 1024
_WOKEN_BYTES_MAX = 256 * 1024  # of waiting updates that one update makes ready
_COPIES_MAX = 1024  # messages of one update that waits, of all its copies together


@dataclass(slots=True)
class _Pending:
    update: Assembled
    time_ns: int
    deadline: float


class Intake:
    """One document's replica and everything that is on its way into it."""

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
        """Take over a replica.

        Args:
            sandboxed: `take` returns each update as Unvalidated that the sandbox has not decoded yet.
            merge: Runs slow merges in a child process. None: they run here.
        """
        self.merge = merge
        self.merge_seconds = 0.0  # CPU of children since the last compaction: a load repeats their work
        self._outdated: OrderedDict[str, None] = OrderedDict()  # digests; clients make these edits again
        self.replica = replica
        self.history = history
        self.head = head  # of the last update that changed something
        self.tail = 0  # the sequence of the last that changed something, if it had waited; 0: it is the head
        self.deleted = deleted
        self.erased = False
        self.wal_bytes = 0  # taken since the last compaction
        self.seen_bytes = 0  # taken since it was loaded
        self.stored_bytes = 0  # of the snapshot that is stored
        self.new_bytes = 0  # of accepted updates that are not in it, as far as we know
        self.updates = 0
        self._settings = settings
        # What any server accepted must be accepted again when it is loaded: here only the wire's own
        # limit counts, and this server's from `go_live()` on.
        self._sandboxed = sandboxed
        self._in_hand: tuple[int, ...] = ()  # sequences of the update that is being validated or settled
        self._assembler = ChunkAssembler(
            update_bytes_max=UPDATE_BYTES_MAX,
            unfinished_bytes_max=settings.unfinished_bytes_max,
            unfinished_seconds=settings.unfinished_seconds,
        )
        self._pending: OrderedDict[tuple[str, str], _Pending] = OrderedDict()
        self._pending_bytes = 0
        self._ready = False  # pending updates have what they depend on, and were not tried
        # From the first to the last message that was dropped and is still in the WAL: a load judges it anew.
        self._dropped = range(0)
        self._live = False
        self._room: MemoryBudget | None = None
        self._vouched: Callable[[str], bool] = _nobody_vouches

    @property
    def unfinished_bytes(self) -> int:
        """Held for updates that wait for chunks."""
        return self._assembler.unfinished_bytes

    @property
    def document_bytes(self) -> int:
        """About how large the document is, measured by what is stored of it."""
        return self.stored_bytes + self.new_bytes

    @property
    def nearly_full(self) -> bool:
        """Whether a snapshot is due, because the document may look larger than it is."""
        most = self._settings.document_bytes_max
        eighth = max(1, most // 8)
        return 0 < most < self.document_bytes + eighth and self.new_bytes >= eighth

    @property
    def pending(self) -> int:
        """How many updates wait for what they build on."""
        return len(self._pending)

    @property
    def unfinished(self) -> int:
        """How many updates wait for chunks."""
        return self._assembler.unfinished

    def go_live(self) -> None:
        """The WAL is read: from now on this server's own limits count."""
        self._live = True
        self._assembler.share(self._room)
        self._assembler.set_limit(self._settings.update_bytes_max)

    def share(self, room: MemoryBudget, vouched: Callable[[str], bool]) -> None:
        """What all documents of this server hold unfinished counts from now on, too, while it is live.

        `vouched`: whether a server vouches for the update of a digest: no limit of size refuses it.
        """
        self._room, self._vouched = room, vouched
        if self._live:
            self._assembler.share(room)

    def forget_content(self) -> None:
        """The document is erased: nothing of it stays in memory."""
        self.begin_again(self.head.epoch)
        self.go_live()
        self.replica, self.history, self.deleted = Replica(lazy=True), History(), True
        self.erased = True

    def begin_again(self, epoch: int) -> None:
        """The stream lost messages: what is unfinished or waits must be found there again."""
        self._live = False
        self._assembler.share(None)  # what a load finds is taken, however much others hold
        self._assembler.forget_unfinished()
        self._assembler.set_limit(UPDATE_BYTES_MAX)  # as at a load, until `go_live()`
        self._pending.clear()
        self._pending_bytes = 0
        self._ready = False
        self._in_hand = ()
        self._dropped = range(0)  # judged again
        self.head, self.tail = Position(epoch), 0

    def first_needed(self) -> int | None:
        """The lowest sequence that must stay in the WAL: of an unfinished or a pending update."""
        needed = [min(waiting.update.sequences) for waiting in self._pending.values()]
        needed += self._in_hand
        if (unfinished := self._assembler.first_unfinished()) is not None:
            needed.append(unfinished)
        return min(needed, default=None)

    def first_dropped(self) -> int | None:
        """The lowest sequence that was dropped though it is still in the WAL: a load may accept it."""
        return self._dropped.start if self._dropped else None

    def leave(self, sequences: tuple[int, ...]) -> None:
        """They stay in the WAL though they were refused: a load that accepts them must journal them."""
        self._drop(sequences)

    def purged(self, before: int) -> None:
        """The WAL has no messages below that sequence any more."""
        self._dropped = range(max(self._dropped.start, before), self._dropped.stop)

    def take(
        self, stored: StoredMessage, now: float, *, accepted: bool = False, validated: bool = False
    ) -> list[Effect] | Unvalidated | Unmerged:
        """Take one message of the WAL and return its effects.

        `accepted`: a journal has the update that ends with it.
        `validated`: the sandbox has decoded this message's data already, and nothing happened.
        After Unvalidated or Unmerged, `validated` or `merged` is called before another message is taken.
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
            return [_malformed(stored, str(error))]
        match self._assembler.add(chunk, sequence=stored.sequence, now=now):
            case None:
                return []
            case AssemblyRejected() as no:
                return [_not_whole(no)]
            case Repeated(log_id, digest, inbox, sequence):
                if self.deleted:
                    return [self._deleted(log_id, digest, inbox, (stored.sequence,))]
                return [Again(log_id, digest, inbox, sequence)]
            case Assembled() as update if self.deleted:
                return [self._deleted(update.log_id, update.digest, update.inbox, update.sequences)]
            case Assembled() as update:
                self._in_hand = update.sequences
                # An update of several messages is another than the message that the sandbox has decoded.
                if self._sandboxed and not (validated and update.payload is stored.data):
                    bounded = self._is_new(update) and not accepted
                    return Unvalidated(update, stored.time_ns, accepted, bounded)
                return self._apply(update, stored.time_ns, now, accepted)

    def validated(
        self, waiting: Unvalidated, problem: CrdtError | None, now: float
    ) -> list[Effect] | Unmerged:
        """Continue with an update that the sandbox has decoded; `problem`: it must not be imported."""
        update = waiting.update
        if problem is not None:
            return self._noted([_refuse(update, _reason(problem), str(problem), quarantine=True)])
        applied = self._apply(update, waiting.time_ns, now, waiting.accepted)
        return self._noted(applied) if isinstance(applied, list) else applied

    def merged(self, waiting: Unmerged, outcome: bytes | CrdtError | None, now: float) -> list[Effect]:
        """Continue with an update that a child process has tried.

        `outcome`: the document with it, or why it is refused; None: no child was available.
        """
        update = waiting.update
        self._forget((update.log_id, update.digest))
        if isinstance(outcome, CrdtError):
            if isinstance(outcome, TooFarBehind):
                self._outdated[update.digest] = None
                if len(self._outdated) > _OUTDATED_MAX:
                    self._outdated.popitem(last=False)
            return self._noted([_refuse(update, _reason(outcome), str(outcome), quarantine=True)])
        if outcome is None and waiting.bounded:
            return self._noted([_busy(update)])
        if outcome is None:
            applied = self._apply(update, waiting.time_ns, now, waiting.accepted, defer=False)
            assert isinstance(applied, list)
            return self._noted(applied)
        ended = self.history.before_apply(waiting.time_ns, self.replica.frontiers)
        spans = self.replica.adopt(outcome)
        effects: list[Effect] = [self._accept(update, waiting.time_ns, now, bool(spans), spans, ended)]
        return self._noted(effects + self._wake(now))

    def settled(self) -> None:
        """What was taken last is applied and worked out, or refused."""
        self._in_hand = ()

    def tick(self, now: float, *, span_bytes_max: int | None = None) -> list[Effect]:
        """What time has done: unfinished and pending updates that expired.

        `span_bytes_max`: what an unfinished update may keep in the WAL: all from its first chunk on.
        """
        late = self._assembler.expire(now, span_bytes_max=span_bytes_max)
        effects: list[Effect] = [_not_whole(no) for no in late]
        if self._ready or any(waiting.deadline <= now for waiting in self._pending.values()):
            effects += self._wake(now)  # a compaction may have merged a snapshot with what they need
        # All are looked at: one that was read counts from when it was stored, before others that were heard.
        for key, waiting in list(self._pending.items()):
            if waiting.deadline <= now and not self._ready:
                self._forget(key)
                why = "what it builds on did not come in time"
                effects.append(_given_up(waiting.update, why))
        return self._noted(effects)

    def next_deadline(self) -> float | None:
        """Return the time at which `tick()` next has work."""
        if self._ready:
            return 0.0
        deadlines = [waiting.deadline for waiting in self._pending.values()]
        if (unfinished := self._assembler.next_deadline()) is not None:
            deadlines.append(unfinished)
        return min(deadlines, default=None)

    def _apply(
        self, update: Assembled, time_ns: int, now: float, accepted: bool, *, defer: bool = True
    ) -> list[Effect] | Unmerged:
        if (full := self._full(update)) is not None:
            return [full]
        if update.digest in self._outdated and self._is_new(update) and not accepted:
            return [_refuse(update, Reason.OUTDATED, "it was refused before", quarantine=True)]
        ended = self.history.before_apply(time_ns, self.replica.frontiers)
        try:
            applied = self._import(update, accepted=accepted, defer=defer)
        except UnclearPanic:
            raise
        except SlowImport as slow:
            return Unmerged(update, time_ns, accepted, self._is_new(update) and not accepted, slow.behind)
        except CrdtPanic as error:
            return [poisoned(update, error)]
        except CrdtError as error:
            return [_refuse(update, _reason(error), str(error), quarantine=True)]
        match applied:
            case Unready():
                return self._wait(update, time_ns, now)
            case Applied(new, spans):
                self._forget((update.log_id, update.digest))
                effects: list[Effect] = [self._accept(update, time_ns, now, new, spans, ended)]
                return effects + self._wake(now) if new and self._pending else effects

    def _import(self, update: Assembled, *, accepted: bool = False, defer: bool = True) -> Applied | Unready:
        """What a load finds, or a server publishes again, may be accepted already: the older limits count."""
        new = self._is_new(update) and not accepted
        defer = defer and self.merge is not None
        return self.replica.apply(
            update.payload, ORIGIN, foreign=True, accepted=accepted, new=new, defer=defer, settle=False
        )

    def _is_new(self, update: Assembled) -> bool:
        """Whether no server can have accepted it: it came to an owner, and no server vouches for it."""
        owned = self._live and self._room is not None
        return owned and not (update.again and self._vouched(update.digest))

    def _accept(
        self,
        update: Assembled,
        time_ns: int,
        now: float,
        new: bool,
        spans: tuple[Span, ...],
        ended: DatedVersion | None = None,
    ) -> Accepted:
        if new:  # what a snapshot covers already is dated already
            self.history.after_apply(ended, time_ns, update.sequence)
            self.new_bytes += len(update.payload)
        self._drop(self._assembler.acked(update.log_id, update.digest, update.sequence, now=now))
        position = Position(self.head.epoch, update.sequence, time_ns)
        accepted = Accepted(update, self.tail or self.head.sequence, position, new, spans)
        if new:  # what changes nothing is not published, so it must not look like a gap to readers
            # One that waited is older than the head: only its place in the chain tells who missed it.
            self.tail = update.sequence if update.sequence < self.head.sequence else 0
            self.head = self.head if self.tail else position
        self.updates += 1
        return accepted

    def _full(self, update: Assembled) -> RefusedUpdate | None:
        """The refusal of an update for which the document has no room; None: there is.

        Only while the document is served: a load takes whatever is stored, since it may have been ACKed
        by a server with another limit. So is taken what a server publishes again, if it vouches for it:
        anybody can set LORO_AGAIN, with which the assembler takes any update that the wire allows.
        """
        most, size = self._settings.document_bytes_max, len(update.payload)
        too_large = update.again and size > self._settings.update_bytes_max
        if not self._live or not (too_large or 0 < most < self.document_bytes + size):
            return None
        if (update.again and self._vouched(update.digest)) or self._adds_nothing(update):
            return None
        if too_large:
            why = f"it has {size} bytes, at most {self._settings.update_bytes_max} are taken"
            return _refuse(update, Reason.TOO_LARGE, why, quarantine=True)
        why = f"the document has {self.document_bytes} bytes and may have {most}: {size} more are too many"
        return _refuse(update, Reason.DOCUMENT_FULL, why, quarantine=True)

    def _adds_nothing(self, update: Assembled) -> bool:
        """Whether its changes are here already: its sender did not hear our answer, and must get the same."""
        try:
            return self.replica.covers(update.payload)
        except CrdtError:
            return True  # no update at all: told so by whoever applies it

    def _wait(self, update: Assembled, time_ns: int, now: float) -> list[Effect]:
        """Keep an update whose dependencies are not here; the sender is told at once."""
        key = (update.log_id, update.digest)
        if (before := self._forget(key)) is not None:
            copies = before.update.sequences + update.sequences
            if len(copies) <= _COPIES_MAX:
                update = update._replace(sequences=copies)  # accepted or given up, they go the same way
            else:
                self._drop(before.update.sequences)  # the copy that came first is waited for no more
        self._pending[key] = _Pending(update, time_ns, now + self._settings.pending_seconds)
        self._pending_bytes += len(update.payload)
        why = "it builds on changes that are not here; sync, and send them too"
        effects: list[Effect] = [_refuse(update, Reason.MISSING_DEPENDENCIES, why, quarantine=False)]
        while (
            self._pending_bytes > self._settings.pending_bytes_max
            or len(self._pending) > self._settings.pending_updates_max
        ):
            oldest = self._forget(next(iter(self._pending)))
            assert oldest is not None
            why = "too many updates wait for what they build on; this was the oldest"
            effects.append(_given_up(oldest.update, why))
        return effects

    def _wake(self, now: float) -> list[Effect]:
        """Apply waiting updates whose dependencies have come.

        While the document is served: a few at a time, the rest in the next `tick`; a slow one is refused as
        busy, and its client sends it again.
        """
        effects: list[Effect] = []
        progress, woken_bytes, self._ready = True, 0, False
        while progress:
            progress = False
            for key, waiting in list(self._pending.items()):
                if self._live and woken_bytes > _WOKEN_BYTES_MAX:
                    self._ready = True
                    return effects
                if (full := self._full(waiting.update)) is not None:
                    self._forget(key)
                    effects.append(replace(full, inbox=""))  # it was told when it began to wait
                    continue
                try:
                    applied = self._import(waiting.update, defer=self._live)
                except UnclearPanic:
                    raise
                except SlowImport:
                    self._forget(key)
                    effects.append(_busy(waiting.update))
                    continue
                except CrdtPanic as error:
                    self._forget(key)
                    return [*effects, poisoned(waiting.update, error)]
                except CrdtError as error:
                    self._forget(key)
                    effects.append(_refuse(waiting.update, _reason(error), str(error), quarantine=True))
                    continue
                if isinstance(applied, Applied):
                    self._forget(key)
                    woken_bytes += len(waiting.update.payload)
                    effects.append(
                        self._accept(waiting.update, waiting.time_ns, now, applied.new, applied.spans)
                    )
                    progress = True
        return effects

    def _forget(self, key: tuple[str, str]) -> _Pending | None:
        waiting = self._pending.pop(key, None)
        if waiting is not None:
            self._pending_bytes -= len(waiting.update.payload)
        return waiting

    def _noted(self, effects: list[Effect]) -> list[Effect]:
        """The same; what is refused, and neither waits here nor is moved out of the WAL, is dropped."""
        for effect in effects:
            if isinstance(effect, RefusedUpdate) and not effect.quarantine and effect.reason not in _WAITING:
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


def _nobody_vouches(_: str) -> bool:
    return False


def _reason(error: CrdtError) -> Reason:
    match error:
        case HistoryTrimmed():
            return Reason.HISTORY_TRIMMED
        case TooManyPeers() | TooLong():
            return Reason.TOO_LARGE
        case TooFarBehind():
            return Reason.OUTDATED
        case OperationIdsReused():
            return Reason.PEER_REUSED
        case _:
            return Reason.INVALID_UPDATE


def _malformed(stored: StoredMessage, why: str) -> RefusedUpdate:
    """Answered only where an answer may go, and only with ids that may travel."""
    inbox = stored.headers.get(h.RESPONSE_INBOX, "")
    log_id = stored.headers.get(h.LOG_ID, "")
    digest = stored.headers.get(h.DIGEST, "")
    return RefusedUpdate(
        log_id if is_token(log_id) else "",
        digest if is_token(digest) else "",
        inbox if is_inbox(inbox) else "",
        Reason.INVALID_UPDATE,
        why,
        (stored.sequence,),
        quarantine=True,
    )


def poisoned(update: Assembled, error: CrdtPanic) -> Poisoned:
    """Return the effect of an update that makes Loro panic."""
    return Poisoned(_refuse(update, Reason.INVALID_UPDATE, str(error), quarantine=True))


def _refuse(update: Assembled, reason: Reason, message: str, *, quarantine: bool) -> RefusedUpdate:
    return RefusedUpdate(
        update.log_id, update.digest, update.inbox, reason, message, update.sequences, quarantine
    )


def _busy(update: Assembled) -> RefusedUpdate:
    why = "importing the update may take long, and the server cannot start a process for it now; retry"
    return _refuse(update, Reason.BUSY, why, quarantine=False)


def _given_up(update: Assembled, message: str) -> RefusedUpdate:
    """Its sender was told when it began to wait: no second answer."""
    return replace(_refuse(update, Reason.MISSING_DEPENDENCIES, message, quarantine=True), inbox="")


def _not_whole(no: AssemblyRejected) -> RefusedUpdate:
    quarantine = no.reason in _FOR_EVER
    return RefusedUpdate(no.log_id, no.digest, no.inbox, no.reason, no.message, no.sequences, quarantine)
