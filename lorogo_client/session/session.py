"""A session: the app's handle on an open document."""

from loro import LoroDoc

from lorogo_client.errors import (
    NotAuthorized,
    NotServed,
    OfflineBufferFull,
    ReadOnly,
    SessionClosed,
    StoreFailed,
    Timeout,
    Unsaved,
)
from lorogo_client.session.notifications import Item, NotificationQueue, State
from lorogo_client.session.presence import Presence, RoomPresence
from lorogo_client.session.receipt import Receipt
from lorogo_client.session.room import Room
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.loro.crdt import Version
from lorogo_transport.tasks import within
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)


class Session:
    """A view of a document; sessions of this process with the same access share the replica."""

    def __init__(self, room: Room, key: str, *, close_seconds: float) -> None:
        self._room = room
        self._mirror = room.mirror
        self._close_seconds = close_seconds
        self._closed = False
        self._states: list[NotificationQueue[State]] = []
        self._changes: list[NotificationQueue[Item]] = []
        self.presence = Presence(self._open_presence, key)

    @property
    def doc(self) -> LoroDoc:
        """The document. Read this property again after a `Rebased` change: the object is replaced."""
        return self._mirror.replica.doc

    @property
    def document_id(self) -> str:
        return self._room.document_id

    @property
    def read_only(self) -> bool:
        return self._mirror.read_only

    @property
    def generation(self) -> int:
        """The number of times that the document was restored after a deletion."""
        return self._mirror.generation or 0

    @property
    def incomplete(self) -> bool:
        """True if ACKed edits may be missing, as of the last sync.

        NATS lost data, and a server whose journal may hold edits of this document was absent. Edits that
        its journal holds appear when that server returns.
        """
        return self._mirror.incomplete

    @property
    def state(self) -> State:
        """The current state; SAVED only if the client is connected and every commit is ACKed."""
        return State.OFFLINE if self._closed else self._room.state

    @property
    def problem(self) -> LorogoError | None:
        """The error that prevents saving on the server or in the local store; None if nothing is wrong."""
        return self._room.problem or self._room.full or self._room.room_copy.failure

    @property
    def unsaved(self) -> int:
        """The number of updates without an ACK."""
        return self._mirror.outbox.unsaved

    def version(self) -> Version:
        """The replica's version, in Loro's encodings."""
        return self._mirror.replica.version()

    def commit(self, message: str | None = None) -> None:
        """Commit the open edits; they are sent in the background, in order.

        Raises ReadOnly (the edit is removed from `doc`), OfflineBufferFull (the edit stays open), or the
        session's permanent failure.
        """
        self._check_open()
        mirror = self._mirror
        if mirror.read_only:
            if mirror.replica.open_edits or mirror.need.fresh:
                mirror.undo_local()
                self._room.wake()
                raise ReadOnly(f"the session of {self.document_id} is read-only; the edit is undone")
            return
        self._raise_failure()
        if mirror.outbox.full:
            waiting = mirror.outbox.unsaved_bytes
            raise OfflineBufferFull(f"{waiting} bytes are unsent; the edit stays open, commit it later")
        mirror.replica.commit(message)
        self._raise_failure()
        self._room.retry_full_stream()

    async def flush(self, timeout: float | None = None) -> Receipt | None:
        """Commit, wait until every local edit is ACKed, and return the newest receipt.

        None if this replica never sent anything. Raises Timeout, and the reason if edits cannot be
        saved: UpdateRefused, DocumentDeleted, DocumentFailed, NotAllowed, TokenExpired, StorageFull,
        SessionClosed.
        """
        self._check_open()
        room, outbox = self._room, self._mirror.outbox
        if not self.read_only:
            self._mirror.replica.commit()
        room.retry_full_stream()
        commit = outbox.commits
        self._raise_failure()
        if not await within(timeout, self._saved(commit)):
            delay_reason = room.unauthorized or room.delay_reason
            why = f": {delay_reason}" if delay_reason else ""
            raise Timeout(f"{outbox.unsaved} update(s) of {self.document_id} have no ACK yet{why}")
        self._raise_failure()
        ack = self._mirror.receipt
        if ack is None:
            return None
        return Receipt(ack.sequence, ack.lease, ack.durability, self.version().frontiers, ack.log_id)

    async def stored(self, timeout: float | None = None) -> None:
        """Commit, and wait until the local store has every local edit: it survives a crash of this process.

        Does not wait for the server: `flush()` does. Raises StoreFailed (also if the client has no
        store), Timeout, SessionClosed.
        store), Timeout, SessionClosed.
        """
        self._check_open()
        if self.read_only:
            return
        store_writer, outbox = self._mirror.store_writer, self._mirror.outbox
        if store_writer.document_store is None:
            raise StoreFailed("this client has no store: pass one with connect(..., store=path)")
        self._mirror.replica.commit()
        commit = outbox.commits
        if not await within(timeout, self._on_disk(commit)):
            raise Timeout(f"the store did not write the edits of {self.document_id} in {timeout:g} s")

    def states(self) -> NotificationQueue[State]:
        """Iterate over the state, now and after each change; an unread state is replaced by a newer one."""
        self._check_open()
        self._room.notify()
        feed = self._room.notifier.states()
        self._states.append(feed)
        return feed

    def changes(self) -> NotificationQueue[Item]:
        """Iterate over remote edits from now on: Change, Lagged after a loss, Rebased if `doc` was replaced.

        Ends with the session, and raises the error if the session failed for good.
        """
        self._check_open()
        self._mirror.replica.listen()
        feed = self._room.notifier.changes()
        self._changes.append(feed)
        return feed

    async def ready(self, timeout: float) -> None:
        """Return when the document has synced once. Raises the reason if it does not."""
        room = self._room
        if not await within(timeout, self._synced()):
            match room.unauthorized or room.delay_reason:
                case NotServed() | NotAuthorized() as why:
                    raise why
                case why:
                    raise NotServed(self.document_id, str(why or f"no answer in {timeout:g} s"))

    async def save(self) -> LorogoError | None:
        """Wait up to `close_seconds` for missing ACKs; return the problem, None if every edit is saved."""
        if self._closed or self.read_only:
            return None
        if self._mirror.outbox.empty and not self._mirror.replica.open_edits:
            return None  # also if the document is deleted: no local edit is lost
        kept = await self._in_store()
        if kept and not self._room.connected:
            return None
        try:
            await self.flush(self._close_seconds)
        except LorogoError as error:
            if kept and self._mirror.failure is None:
                log.info("unsent edits stay in the store", document=self.document_id, why=str(error))
                return None
            return Unsaved(self.document_id, max(1, self.unsaved), str(error))
        return None

    async def _in_store(self) -> bool:
        """True if the store has every edit, so that leaving loses nothing."""
        try:
            await self.stored(self._close_seconds)
        except (StoreFailed, Timeout, SessionClosed):
            return False
        return True

    def end(self) -> None:
        """End the session: close its readers and remove its presence entry."""
        if self._closed:
            return
        self._closed = True
        self._room.notifier.forget(self._states, self._changes)
        self._room.presence.remove(self.presence.key)
        self.presence.end(self.document_id)

    async def _saved(self, commit: int) -> None:
        while not self._mirror.outbox.saved_through(commit):
            self._check_open()
            if (problem := self._room.blocking_problem) is not None:
                raise problem
            await self._room.notifier.progress()

    async def _on_disk(self, commit: int) -> None:
        store_writer = self._mirror.store_writer
        while not store_writer.stored(commit):
            self._check_open()
            if not store_writer.active:
                raise store_writer.failure or StoreFailed(f"another session stores {self.document_id} now")
            await self._room.notifier.progress()

    async def _synced(self) -> None:
        while not self._mirror.ready:
            self._check_open()
            if (problem := self._room.blocking_problem) is not None:
                raise problem
            await self._room.notifier.progress()

    def _open_presence(self) -> RoomPresence:
        self._check_open()
        return self._room.presence

    def _raise_failure(self) -> None:
        if self._mirror.failure is not None:
            raise self._mirror.failure

    def _check_open(self) -> None:
        if self._closed or self._room.closed:
            raise SessionClosed(f"the session of {self.document_id} is closed")
