"""A session: what an app holds while it works on a document."""

from loro import LoroDoc

from lorogo_client.awaitables import within
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
from lorogo_protocol.crdt import Version
from lorogo_protocol.errors import LorogoError
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)


class Session:
    """A view of a document that all sessions of this process with the same rights share."""

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
        """The document. Ask for it anew after a `Rebased` change: it is another one then."""
        return self._mirror.replica.doc

    @property
    def document_id(self) -> str:
        return self._room.document_id

    @property
    def read_only(self) -> bool:
        return self._mirror.read_only

    @property
    def generation(self) -> int:
        """How often the document was restored after a deletion."""
        return self._mirror.generation or 0

    @property
    def incomplete(self) -> bool:
        """Whether ACKed edits may be missing, as of the last sync.

        NATS lost data, and a server whose journal may hold edits of this document was absent. Edits that
        its journal holds appear when that server is back.
        """
        return self._mirror.incomplete

    @property
    def state(self) -> State:
        """SAVED only if we are connected and every commit is ACKed."""
        return State.OFFLINE if self._closed else self._room.state

    @property
    def problem(self) -> LorogoError | None:
        """Why edits cannot be saved now, or ever, or not on this disk; None if nothing is wrong."""
        return self._room.problem or self._room.full or self._room.archive.failure

    @property
    def unsaved(self) -> int:
        """How many updates are not ACKed."""
        return self._mirror.outbox.unsaved

    def version(self) -> Version:
        """Where the replica stands, in Loro's encodings."""
        return self._mirror.replica.version()

    def commit(self, message: str | None = None) -> None:
        """Commit what is open in the document; it is sent in the background, in order.

        Raises ReadOnly (the edit is taken out of `doc`), OfflineBufferFull (the edit stays open), or what
        failed for good.
        """
        self._check_open()
        mirror = self._mirror
        if mirror.read_only:
            if mirror.replica.open_edits or mirror.need.fresh:
                mirror.undo_local()
                self._room.wake()
                raise ReadOnly(f"the session of {self.document_id} is read-only; the edit is taken back")
            return
        self._raise_failure()
        if mirror.outbox.full:
            waiting = mirror.outbox.unsaved_bytes
            raise OfflineBufferFull(f"{waiting} bytes wait to be sent; the edit stays open, commit it later")
        mirror.replica.commit(message)
        self._raise_failure()
        self._room.unstall()

    async def flush(self, timeout: float | None = None) -> Receipt | None:
        """Commit, and return when every local edit is ACKed: the newest receipt.

        None if this replica never sent anything. Raises Timeout, and whatever keeps edits from being
        saved: UpdateRefused, DocumentDeleted, DocumentFailed, NotAllowed, TokenExpired, StorageFull,
        SessionClosed.
        """
        self._check_open()
        room, outbox = self._room, self._mirror.outbox
        if not self.read_only:
            self._mirror.replica.commit()
        room.unstall()
        commit = outbox.commits
        self._raise_failure()
        if not await within(timeout, self._saved(commit)):
            hindrance = room.unauthorized or room.hindrance
            why = f": {hindrance}" if hindrance else ""
            raise Timeout(f"{outbox.unsaved} update(s) of {self.document_id} have no ACK yet{why}")
        self._raise_failure()
        ack = self._mirror.receipt
        if ack is None:
            return None
        return Receipt(ack.sequence, ack.lease, ack.durability, self.version().frontiers, ack.log_id)

    async def stored(self, timeout: float | None = None) -> None:
        """Commit, and return when every local edit is in the local store: it survives this process.

        Says nothing about the server: that is `flush()`. Raises StoreFailed (also if the client has no
        store), Timeout, SessionClosed.
        """
        self._check_open()
        if self.read_only:
            return
        keeping, outbox = self._mirror.keeping, self._mirror.outbox
        if keeping.shelf is None:
            raise StoreFailed("this client has no store: connect(..., store=path) gives it one")
        self._mirror.replica.commit()
        commit = outbox.commits
        if not await within(timeout, self._on_disk(commit)):
            raise Timeout(f"the store did not take the edits of {self.document_id} in {timeout:g} s")

    def states(self) -> NotificationQueue[State]:
        """The state now, and whenever it changes; the latest wins."""
        self._check_open()
        self._room.tell()
        feed = self._room.standing.states()
        self._states.append(feed)
        return feed

    def changes(self) -> NotificationQueue[Item]:
        """Edits of others from now on: Change, Lagged if some were dropped, Rebased if `doc` is another.

        Ends when the session does, with the error if it failed for good.
        """
        self._check_open()
        self._mirror.replica.listen()
        feed = self._room.standing.changes()
        self._changes.append(feed)
        return feed

    async def ready(self, timeout: float) -> None:
        """Return when the document is synced once. Raises what stands in the way."""
        room = self._room
        if not await within(timeout, self._synced()):
            match room.unauthorized or room.hindrance:
                case NotServed() | NotAuthorized() as why:
                    raise why
                case why:
                    raise NotServed(self.document_id, str(why or f"no answer in {timeout:g} s"))

    async def save(self) -> LorogoError | None:
        """Give what is not ACKed a last, bounded chance; what went wrong, None if all is saved."""
        if self._closed or self.read_only:
            return None
        if self._mirror.outbox.empty and not self._mirror.replica.open_edits:
            return None  # also when the document is gone: nothing of ours is lost with it
        kept = await self._kept()
        if kept and not self._room.connected:
            return None
        try:
            await self.flush(self._close_seconds)
        except LorogoError as error:
            if kept and self._mirror.failure is None:
                log.info("edits wait in the store", document=self.document_id, why=str(error))
                return None
            return Unsaved(self.document_id, max(1, self.unsaved), str(error))
        return None

    async def _kept(self) -> bool:
        """Whether every edit is in the store, so that leaving loses nothing."""
        try:
            await self.stored(self._close_seconds)
        except (StoreFailed, Timeout, SessionClosed):
            return False
        return True

    def end(self) -> None:
        """The session is over: its readers end, its entry in the presence goes."""
        if self._closed:
            return
        self._closed = True
        self._room.standing.forget(self._states, self._changes)
        self._room.presence.remove(self.presence.key)
        self.presence.end(self.document_id)

    async def _saved(self, commit: int) -> None:
        while not self._mirror.outbox.saved_through(commit):
            self._check_open()
            if (problem := self._room.obstacle) is not None:
                raise problem
            await self._room.standing.progress()

    async def _on_disk(self, commit: int) -> None:
        keeping = self._mirror.keeping
        while not keeping.stored(commit):
            self._check_open()
            if not keeping.active:
                raise keeping.failure or StoreFailed(f"another session keeps {self.document_id} now")
            await self._room.standing.progress()

    async def _synced(self) -> None:
        while not self._mirror.ready:
            self._check_open()
            if (problem := self._room.obstacle) is not None:
                raise problem
            await self._room.standing.progress()

    def _open_presence(self) -> RoomPresence:
        self._check_open()
        return self._room.presence

    def _raise_failure(self) -> None:
        if self._mirror.failure is not None:
            raise self._mirror.failure

    def _check_open(self) -> None:
        if self._closed or self._room.closed:
            raise SessionClosed(f"the session of {self.document_id} is closed")
