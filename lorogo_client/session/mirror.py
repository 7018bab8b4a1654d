"""Local copy of one document beside its owner: updates to apply, syncs to make, updates to send.

It never waits: message handlers and the room's task call it, read its `need`, and act.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from loro import DiffEvent

from lorogo_client.delivery.accepted import AcceptedChain, AcceptedUpdate
from lorogo_client.delivery.outbox import Outbox, OutgoingUpdate
from lorogo_client.delivery.portions import is_cut
from lorogo_client.delivery.retry_policy import ReplyAction
from lorogo_client.errors import DocumentDeleted, StorageFull, TooLargeUpdate, UpdateRefused
from lorogo_client.replica import LocalReplica, ReplicaListeners
from lorogo_client.session.syncing import Synced, fresh_replica, needs_fresh
from lorogo_client.session.weak_callbacks import weakly
from lorogo_client.settings import ClientSettings
from lorogo_client.store.records import PendingUpdate
from lorogo_client.store.replay import DocumentCopy
from lorogo_client.store.restored_replica import restore
from lorogo_client.store.store_writer import StoreWriter
from lorogo_protocol.errors import CrdtError, LorogoError
from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.loro.crdt import Unready
from lorogo_protocol.messages.reasons import ERASED, Reason
from lorogo_protocol.messages.replies import Ack, Nack, Reply
from lorogo_protocol.status import Down, Up
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MirrorCallbacks:
    """Callbacks for changes of the copy; called inside Loro, they must not raise."""

    on_local: Callable[[], None]  # a local commit
    on_remote: Callable[[DiffEvent, int], None]  # a remote update, with its sequence
    on_rebased: Callable[[], None]  # the document was replaced


@dataclass(slots=True)
class Need:
    """Open needs of the copy."""

    sync: bool = True
    fresh: bool = False  # replace the replica by the owner's state
    everything: bool = False  # send everything that the owner's vector lacks
    resend: bool = False  # updates in flight may be lost
    owner: bool = True  # no owner is known to be there


class Mirror:
    """The copy of one document."""

    def __init__(
        self,
        document_id: str,
        settings: ClientSettings,
        new_id: Callable[[], str],
        callbacks: MirrorCallbacks,
        *,
        read_only: bool,
    ) -> None:
        self.document_id = document_id
        self.read_only = read_only
        self.outbox = Outbox(settings)
        self.chain = AcceptedChain()
        self.need = Need()
        self.token = 0  # the newest lease token seen
        self.generation: int | None = None
        self.incomplete = False  # as of the last sync
        self.receipt: Ack | None = None
        self.ready = False  # synced once
        self.ended = False  # the owner of the last sync wrote DOWN, with its head
        self.failure: LorogoError | None = None  # permanent
        self.stalled: StorageFull | None = None  # until the app retries
        self._settings = settings
        self._new_id = new_id
        self._callbacks = callbacks
        self._synced_lease = 0
        self._requested_all = False  # by the sync under way
        self._settled_meanwhile: list[bytes] = []  # ACKed while a sync was under way
        self._rebasing: list[bytes] | None = None  # collects the update that a rebase makes
        self.damaged = False  # the stored copy is incomplete: the owner must complete it
        self.lost: list[PendingUpdate] = []  # unsaved edits with lost dependencies
        self._loose: list[PendingUpdate] = []  # unsaved edits whose dependencies the owner may have
        self.store_writer = StoreWriter()
        self._listeners = ReplicaListeners(weakly(self._on_local), weakly(self._on_remote))
        self.replica = LocalReplica(self._listeners)

    # --- the store

    def restore(self, kept: DocumentCopy) -> None:
        """Begin with the copy of the store."""
        restored = restore(kept)
        self.replica.retire()
        self.replica = LocalReplica(self._listeners, restored.replica, listening=self.replica.listening)
        self.generation = kept.generation
        if not self.read_only:  # other sessions of this process send their own edits
            sent = [(one.first, one.last, one.log_id, one.payload) for one in restored.sent]
            unsent = [(one.first, one.payload) for one in restored.unsent]
            self.outbox.restore(sent, unsent, kept.commits)
            self._loose = restored.loose
        self.damaged = not restored.whole

    def store_snapshot(self) -> bool:
        """Write a snapshot into the store; False if the store has no space for it now."""
        if not self.store_writer.active:
            return True
        if self.read_only and (self.need.fresh or self.replica.open_edits):
            return True  # it has an edit that is being dropped, which must not be stored
        if isinstance(self.failure, DocumentDeleted):
            return True  # the store keeps the mark of the deletion
        if not self.read_only:
            self.store_writer.require_snapshot()  # the snapshot has the commits so far
            self.replica.commit()
            self.outbox.merge(self.replica.merged)
        return self.store_writer.snapshot(self.replica, self.outbox, self.generation)

    def _apply_loose(self) -> None:
        """Apply edits of a damaged store to the owner's state, if they have their dependencies."""
        loose, self._loose, self.damaged = self._loose, [], False
        for entry in loose:
            try:
                outcome = self.replica.apply(entry.payload)
            except CrdtError:
                outcome = Unready()
            if isinstance(outcome, Unready):
                self.lost.append(entry)
            elif outcome.new:
                self.outbox.add(entry.payload)

    # --- local edits

    def _on_local(self, update: bytes) -> None:
        if self._rebasing is not None:
            self._rebasing.append(update)
            return
        if self.read_only:
            self.drop_local()
        else:
            at_once = self.store_writer.active and self.ready and not (self.need.sync or self.need.owner)
            log_id = self._new_id() if at_once else ""
            self.store_writer.local(self.outbox.add(update, log_id), log_id, update)
            if len(update) > self._settings.update_bytes_max:
                most = self._settings.update_bytes_max
                message = f"it has {len(update)} bytes and may have {most}; commit in smaller parts"
                self.fail(TooLargeUpdate("", Reason.TOO_LARGE, message))
        self._callbacks.on_local()

    def drop_local(self) -> None:
        """Drop local edits: take the owner's state as a new document."""
        self.need.fresh = self.need.sync = True

    def undo_local(self) -> None:
        """Drop local edits, and remove them from the content at once: the owner's state may come later."""
        self.drop_local()
        with suppress(CrdtError):  # a document that the app checked out; the owner's state replaces it
            self.replica.undo_local()

    def fail(self, error: LorogoError) -> None:
        """Fail permanently: no update is sent any more."""
        if self.failure is None:
            self.failure = error
            if isinstance(error, DocumentDeleted):
                self.store_writer.deleted()

    # --- messages of the owner

    def _on_remote(self, event: DiffEvent) -> None:
        self._callbacks.on_remote(event, self.chain.head)

    def on_lease(self, lease: int) -> bool:
        """Note a token; False if it is older than the known one: its owner lost the document."""
        if lease > self.token:
            self.token = lease
            self.need.sync = True
        return lease >= self.token

    def on_status(self, entry: StatusEntry) -> None:
        """Note a newer status."""
        self.token = max(self.token, entry.token)
        self.ended = isinstance(entry.status, Down) and entry.token == self._synced_lease
        if isinstance(entry.status, Up):
            self.need.owner = entry.token != self.token
            self.need.sync |= self.token != self._synced_lease
        else:
            # No server serves it. A reader of a document that `ended` waits for its next start: else idle
            # documents could never be unloaded while a client reads them.
            self.need.owner = True

    def is_renewal(self, entry: StatusEntry) -> bool:
        """Return True if the status has no news: the owner of the last sync has no new update."""
        need = self.need
        if need.owner or need.sync or not self.ready or not isinstance(entry.status, Up):
            return False
        same = entry.token == self.token == self._synced_lease
        return same and not self.chain.behind(entry.head)

    def found_owner(self, entry: StatusEntry | None) -> None:
        """Note an owner that answered, with its entry as read from the leader."""
        if entry is not None:
            self.token = entry.token
        self.need.owner = self.ended = False
        self.need.sync |= self.token != self._synced_lease

    def arrived(self, update: AcceptedUpdate) -> None:
        """Apply an accepted update, or keep it until the current sync ends."""
        if not self.on_lease(update.lease):
            return
        if self.chain.holding:
            self.chain.keep(update)
        elif self.ready and not self.need.sync:
            self._take(update)

    def _take(self, update: AcceptedUpdate) -> None:
        own = self.outbox.owns(update.log_id)
        try:
            if not self.chain.follows(update):
                self.need.sync |= not self._is_old(update, own=own)
                return
            if not own and not self._apply(update):
                self.need.sync = True
                return
            self.chain.took(update)
        except CrdtError as error:
            log.warning("cannot apply an accepted update", document=self.document_id, problem=str(error))
            self.need.sync = self.need.fresh = True

    def _is_old(self, update: AcceptedUpdate, *, own: bool) -> bool:
        """Return True if a sync has brought it."""
        if own:
            return update.sequence <= self.chain.head
        return update.payload is not None and self.replica.covers(update.payload)

    def _apply(self, update: AcceptedUpdate) -> bool:
        if update.payload is None:
            return False
        before, self.chain.head = self.chain.head, update.sequence  # for changes()
        if isinstance(self.replica.apply(update.payload), Unready):
            self.chain.head = before
            return False
        self.store_writer.remote(update.payload)
        return True

    def answered(self, reply: Reply, *, now: float, jitter: float) -> OutgoingUpdate | None:
        """Take the reply to a local update; return the update if it is settled."""
        if isinstance(reply, Ack):
            self.on_lease(reply.lease)
        action, flight = self.outbox.answer(reply, token=self.token, now=now, jitter=jitter)
        if flight is None:
            return None
        match reply:
            case Ack() if action is ReplyAction.SETTLED:
                self.receipt = reply
                self.store_writer.settled(flight.log_id)
                if self.chain.holding:
                    self._settled_meanwhile.append(flight.payload)
                return flight
            case Nack(reason=reason, message=message):
                log.info("refused", document=self.document_id, log_id=flight.log_id, reason=reason.value)
                self._on_permission_denied(action, flight, reason, message)
            case _:
                self.need.owner = True  # the ACK of a server that lost the document
        return None

    def _on_permission_denied(
        self, action: ReplyAction, flight: OutgoingUpdate, reason: Reason, message: str
    ) -> None:
        match action:
            case ReplyAction.FIND_OWNER:
                self.need.owner = True
            case ReplyAction.SYNC:
                self.need.everything = self.need.sync = True
            case ReplyAction.REBASE:
                self.need.fresh = self.need.sync = True
            case ReplyAction.DELETED:
                self.fail(DocumentDeleted(self.document_id, erased=message == ERASED))
            case ReplyAction.FULL:
                self.stalled = StorageFull(message)
            case ReplyAction.REFUSED if reason is Reason.TOO_LARGE and is_cut(flight.payload):
                self.need.everything = self.need.sync = True  # send it in parts
            case ReplyAction.REFUSED:
                kind = TooLargeUpdate if reason is Reason.TOO_LARGE else UpdateRefused
                self.fail(kind(flight.log_id, reason, message))
            case ReplyAction.AGAIN | ReplyAction.IGNORED | ReplyAction.SETTLED:
                pass

    # --- sync

    def syncing(self) -> None:
        """Begin a sync: later needs require another one."""
        self.need.sync = False
        self._requested_all = self.need.fresh
        self.chain.hold()
        self._settled_meanwhile = []

    def sync_failed(self) -> None:
        self.chain.sync_failed()
        self.need.sync = True

    def absorb(self, answer: Synced, *, now: float, jitter: float) -> None:
        """Bring the copy to the owner's state."""
        self.token = max(self.token, answer.lease)
        same = self.generation in (None, answer.generation)
        if not self.need.fresh and needs_fresh(answer, self.replica, same_generation=same):
            self.need.fresh = True
            if answer.mode != "snapshot":
                self.sync_failed()  # sync again, for the whole state
                return
        elif self.need.fresh and not self._requested_all and answer.mode != "snapshot":
            self.sync_failed()  # the need is newer than the request: this is not the whole state
            return
        replaced = self.need.fresh or answer.mode == "snapshot" or self.generation != answer.generation
        replaced |= self.damaged
        if replaced:
            self.store_writer.require_snapshot()
        if not self._applied(answer, now, jitter):
            self.sync_failed()
            return
        self.generation = answer.generation
        self.incomplete = answer.incomplete
        if self.damaged:
            self._apply_loose()
        if not self.read_only:
            replaced |= self._prepare(answer, now, jitter)
        if replaced:
            # One record for replica, generation and outbox: after a crash all of them or none are stored,
            # and no edit is rebased twice.
            self.store_snapshot()
        entry, dropped = self.chain.synced(answer.sequence)
        for update in entry:
            self._take(update)
        self.need.sync |= dropped
        self._synced_lease = answer.lease
        self.ready = True

    def _applied(self, answer: Synced, now: float, jitter: float) -> bool:
        before, self.chain.head = self.chain.head, answer.sequence  # for changes()
        try:
            if self.need.fresh:
                self._rebase(answer, now, jitter)
                return True
            if not answer.payload or not isinstance(self.replica.apply(answer.payload), Unready):
                if answer.payload:
                    self.store_writer.remote(answer.payload)
                return not self.need.fresh  # a read-only copy may have found local edits
        except CrdtError as error:
            log.warning("cannot apply a sync", document=self.document_id, problem=str(error))
            if self.need.fresh:
                message = f"the edits could not be put on the current state: {error}"
                self.fail(UpdateRefused("", Reason.HISTORY_TRIMMED, message))
        self.chain.head = before
        self.need.fresh = True
        return False

    def _prepare(self, answer: Synced, now: float, jitter: float) -> bool:
        """Queue every operation that the owner lacks, each once.

        Return True if the store needs a snapshot: several updates have the same commits.
        """
        self.replica.commit()
        known = [] if self.need.everything else [*self.outbox.payloads(), *self._settled_meanwhile]
        lacking = self.replica.lacking(answer.vector, known, self.outbox.payloads())
        if lacking:
            if len(lacking) > 1:
                self.store_writer.require_snapshot()
            self.store_writer.assigned(self.outbox.replace(lacking, self._new_id, now=now, jitter=jitter))
        elif self.need.resend or self.need.everything or answer.lease != self._synced_lease:
            self.outbox.resend(now)
        self.need.everything = self.need.resend = False
        self.outbox.merge(self.replica.merged)
        return len(lacking) > 1

    def _rebase(self, answer: Synced, now: float, jitter: float) -> None:
        """Take the owner's state as a new document, with unsaved edits on top."""
        fresh = fresh_replica(answer)
        if not self.read_only:
            self.replica.commit()  # an open transaction is an edit
        unsaved = list(self.outbox.payloads())
        self._rebasing = []
        try:
            replica, edited = self.replica.rebased(fresh, unsaved)
            made = self._rebasing
        finally:
            self._rebasing = None
        self.replica, self.need.fresh = replica, False
        self.outbox.forget_acked()
        if edited and made:
            payload = made[0] if len(made) == 1 else replica.merged(made)
            self.outbox.replace([payload], self._new_id, now=now, jitter=jitter)
        elif edited:
            self.outbox.clear()  # they change nothing on the current state
        self._callbacks.on_rebased()
        log.info("rebased", document=self.document_id, edited=edited, generation=answer.generation)
