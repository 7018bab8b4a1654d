"""The door: `connect()` gives a Client, a Client opens sessions and makes calls."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import nanoid

from lorogo_client.api import DocumentApi
from lorogo_client.context import Context
from lorogo_client.errors import DocumentFailed, NotServed, SessionClosed
from lorogo_client.feed import Since, UpdateFeed, beginning
from lorogo_client.kept_presence import KeptPresence
from lorogo_client.relay import Relay
from lorogo_client.relay_member import Listener, Member
from lorogo_client.room import Room
from lorogo_client.sending import Replies
from lorogo_client.session import Session
from lorogo_client.settings import ClientSettings
from lorogo_client.starting import Starter
from lorogo_client.storing.place import StoredDocument
from lorogo_client.waiting import Door
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.ids import check_document_id
from lorogo_protocol.lease import Entry
from lorogo_protocol.status import Down, Failed
from lorogo_transport.calls import Caller
from lorogo_transport.clock import Clock, SystemClock
from lorogo_transport.errors import WrongLastSequence
from lorogo_transport.logs import get_logger
from lorogo_transport.ports import Transport
from lorogo_transport.statuses import Statuses

if TYPE_CHECKING:
    from lorogo_client.storing.local import LocalStore

log = get_logger(__name__)

DEFAULT_URL = "nats://127.0.0.1:4222"


def new_nanoid() -> str:
    """21 characters that nobody else makes."""
    return str(nanoid.generate())


def connect(
    where: str | Transport = DEFAULT_URL,
    *,
    store: str | os.PathLike[str] | None = None,
    settings: ClientSettings | None = None,
    name: str = "lorogo-client",
    clock: Clock | None = None,
    rng: random.Random | None = None,
    new_id: Callable[[], str] = new_nanoid,
) -> "Door[Client]":
    """A client, to enter with `async with`, or to await and close yourself.

    `where` is the address of NATS (several with commas between), or a transport that is already
    connected; that one is left open. Raises Unreachable.

    `store` is a directory for copies of the documents: they open offline, and edits survive a crash.
    Then Unreachable is not raised: NATS is tried in the background until it answers. One process at a
    time: raises StoreLocked, StoreFailed.
    """
    chosen = settings or ClientSettings()

    async def enter() -> Client:
        async with AsyncExitStack() as undo:
            kept = None if store is None else await _open_store(store)
            if kept is not None:
                undo.push_async_callback(kept.close)
            transport = where
            if isinstance(transport, str):
                transport = await _dial(transport, name, chosen, patient=kept is not None)
                undo.push_async_callback(transport.close)
            client = Client(
                transport,
                chosen,
                clock=clock or SystemClock(),
                rng=rng or random.Random(),
                new_id=new_id,
                owns_transport=isinstance(where, str),
                store=kept,
            )
            await client.start()
            undo.pop_all()
        return client

    async def leave(client: Client, calm: bool) -> None:
        await client.leave(calm=calm)

    return Door(enter, leave)


async def _open_store(path: str | os.PathLike[str]) -> "LocalStore":
    from lorogo_client.storing.local import LocalStore  # noqa: PLC0415 - loads the log

    store = LocalStore(path)
    await store.open()
    return store


async def _dial(url: str, name: str, settings: ClientSettings, *, patient: bool) -> Transport:
    # nats-py is loaded only when it is needed: an app may bring another transport
    from lorogo_transport import jetstream  # noqa: PLC0415

    wait = settings.store_open_seconds if patient else None
    return await jetstream.connect(url, name=name, timeout=settings.connect_seconds, wait_seconds=wait)


class Client:
    """A connection to NATS, and the documents that are open on it."""

    def __init__(
        self,
        transport: Transport,
        settings: ClientSettings,
        *,
        clock: Clock,
        rng: random.Random,
        new_id: Callable[[], str],
        owns_transport: bool,
        store: "LocalStore | None" = None,
    ) -> None:
        self.transport = transport
        self.settings = settings
        self._owns_transport = owns_transport
        self._context = Context(
            transport=transport,
            clock=clock,
            rng=rng,
            new_id=new_id,
            settings=settings,
            caller=Caller(transport.bus, clock, new_id),
            replies=Replies(transport.bus),
            starter=Starter(transport, clock, rng, new_id, settings),
            store=store,
        )
        self._statuses = Statuses(transport)
        self._rooms: dict[tuple[str, bool], Room] = {}
        self._sessions: dict[Session, Room] = {}
        self._feeds: set[UpdateFeed] = set()
        self._relays: dict[str, Relay] = {}
        self._members: dict[Member, Relay] = {}
        self.kept_presence = KeptPresence(transport, settings)
        self._stop_watching: Callable[[], None] = lambda: None
        self._closed = False

    async def start(self) -> None:
        """Listen for answers; `connect()` does it."""
        self._stop_watching = self.transport.bus.watch_connection(self._context.starter.connection)
        self._context.starter.connection(self.transport.bus.connected)
        await self._context.caller.start()
        await self._context.replies.start()

    def open(
        self,
        document_id: str,
        *,
        read_only: bool = False,
        create: bool = False,
        timeout: float | None = None,
    ) -> Door[Session]:
        """A session: `async with client.open(id) as session`. It is usable: synced once.

        Leaving it waits, within `close_seconds`, until every edit is ACKed, and raises Unsaved if that
        did not happen. Raises InvalidDocumentId, NotServed, DocumentFailed, DocumentDeleted.

        With a store, a document that is in it opens at once when there is no connection, else after
        the sync or after `store_open_seconds`; `session.ready()` waits for the sync. One that is not in
        it raises NotStored when there is no connection, unless `create` asks for an empty one, which is
        merged with whatever the server has later (when connected, only after `timeout`). Leaving raises
        no Unsaved if all edits are stored.
        """
        check_document_id(document_id)
        allowed = self.settings.open_seconds if timeout is None else timeout

        async def enter() -> Session:
            return await self._open(document_id, read_only, create, allowed)

        async def leave(session: Session, calm: bool) -> None:
            await self.close_session(session, calm=calm)

        return Door(enter, leave)

    def feed(
        self,
        since: Since = "now",
        documents: Iterable[str] | None = None,
        *,
        only: Callable[[str], bool] | None = None,
    ) -> Door[UpdateFeed]:
        """Every accepted update of all documents, or of these, once and in order: `async for item in feed`.

        `since`: "now"; 0, for everything that the journals have; a sequence of the WAL; a datetime with
        its zone; or a FeedPosition (or its text), which goes on exactly where `feed.position` was.
        `only` leaves documents out for which it says no: neither items nor positions name them.
        Raises FeedUnavailable, InvalidPosition, InvalidDocumentId, ValueError.
        """
        begin, wanted = beginning.check(since, documents)

        async def enter() -> UpdateFeed:
            if self._closed:
                raise SessionClosed("the client is closed")
            state = await beginning.begin(self.transport, begin, wanted)
            feed = UpdateFeed(self._context, state, only)
            await feed.start()
            self._feeds.add(feed)
            return feed

        async def leave(feed: UpdateFeed, _calm: bool) -> None:
            self._feeds.discard(feed)
            await feed.close()

        return Door(enter, leave)

    def relay(self, document_id: str, listener: Listener) -> Door[Member]:
        """A member who follows the document without a replica: `member.join()`, then `listener` is told.

        All members of one document in this client share their subscriptions. Does not wait for the document
        to be served. Raises InvalidDocumentId, SessionClosed.
        """
        check_document_id(document_id)

        async def enter() -> Member:
            if self._closed:
                raise SessionClosed("the client is closed")
            relay = self._relays.get(document_id)
            if relay is None or relay.over is not None:
                relay = self._relays[document_id] = Relay(self._context, document_id)
            try:
                member = await relay.enter(listener)
                self._members[member] = relay
            finally:
                await self._leave_relay(relay)  # if nobody is in it
            return member

        async def leave(member: Member, _calm: bool) -> None:
            await self._leave(member)

        return Door(enter, leave)

    def document(self, document_id: str) -> DocumentApi:
        """Calls to the document's owner."""
        return DocumentApi(self._context, check_document_id(document_id))

    def statuses(self) -> AsyncIterator[tuple[str, Entry]]:
        """Every document that has a status, in any order."""
        return self._statuses.all()

    def stored_documents(self) -> list[StoredDocument]:
        """What the local store holds; those with `unsaved` go on when they are opened."""
        return [] if self._context.store is None else self._context.store.documents()

    async def forget(self, document_id: str) -> bool:
        """Drop the local copy of a document that is not open, unsaved edits included. Raises StoreFailed."""
        return self._context.store is not None and await self._context.store.forget(document_id)

    async def reset(self, document_id: str) -> bool:
        """Take a document out of ERROR, so that servers try again; False if it was not in ERROR."""
        check_document_id(document_id)
        entry = await self._statuses.read(document_id)
        if entry is None or not isinstance(entry.status, Failed):
            return False
        down = Down(self._context.clock.wall_ns())
        try:
            await self._statuses.write(document_id, down, expected_revision=entry.revision)
        except WrongLastSequence:
            return False
        return True

    async def close_session(self, session: Session, *, calm: bool = True) -> None:
        """Leave a session that `await client.open(...)` gave. Raises Unsaved, unless not `calm`."""
        room = self._sessions.get(session)
        if room is None:
            return
        problem: LorogoError | None = None
        try:
            problem = await session.save()
        finally:
            await self._leave_room(session, room)
        if problem is not None:
            log.warning("edits are not saved", document=room.document_id, problem=str(problem))
            if calm:
                raise problem

    async def close(self) -> None:
        """Leave every session and the connection. Raises Unsaved for the first that was not saved."""
        await self.leave(calm=True)

    async def leave(self, *, calm: bool) -> None:
        """Close; `calm` says whether Unsaved may be raised."""
        if self._closed:
            return
        self._closed = True
        try:
            # together, so that many sessions without a server do not wait one after the other
            saved = await asyncio.gather(*(session.save() for session in self._sessions))
        finally:
            await self._shut()
        problems = [problem for problem in saved if problem is not None]
        for problem in problems:
            log.warning("edits are not saved", problem=str(problem))
        if problems and calm:
            raise problems[0]

    async def close_member(self, member: Member) -> None:
        """Leave a relay that `await client.relay(...)` entered."""
        await self._leave(member)

    async def _leave(self, member: Member) -> None:
        relay = self._members.pop(member, None)
        if relay is not None:
            await relay.leave(member)
            await self._leave_relay(relay)

    async def _leave_relay(self, relay: Relay) -> None:
        if not relay.members:
            if self._relays.get(relay.document_id) is relay:
                del self._relays[relay.document_id]
            await relay.close()

    async def _shut(self) -> None:
        self._stop_watching()
        for member in list(self._members):
            await self._leave(member)
        while self._feeds:
            await self._feeds.pop().close()
        for session, room in list(self._sessions.items()):
            await self._leave_room(session, room)
        await self._context.replies.close()
        await self._context.caller.close()
        if self._owns_transport:
            await self.transport.close()
        if self._context.store is not None:
            await self._context.store.close()

    async def _open(self, document_id: str, read_only: bool, create: bool, allowed: float) -> Session:
        if self._closed:
            raise SessionClosed("the client is closed")
        key = (document_id, read_only)  # rights are not shared: an edit must not leave through another's
        room = self._rooms.get(key)
        new = room is None or room.closed or room.mirror.failure is not None
        if room is None or new:
            room = self._rooms[key] = Room(self._context, document_id, read_only=read_only)
        room.sessions += 1
        session = Session(room, self._context.new_id(), close_seconds=self.settings.close_seconds)
        self._sessions[session] = room
        opened = False
        try:
            if new:
                await room.start(create=create)
            else:
                await room.started(allowed)
            await self._usable(session, room, allowed)
            opened = True
        finally:
            if not opened:
                await self._leave_room(session, room)
        return session

    async def _usable(self, session: Session, room: Room, allowed: float) -> None:
        """Return when the session may be given to the app: synced, or with a copy from the store."""
        if not room.archive.usable:
            if self._context.store is not None and not room.connected:
                raise room.archive.why_not()
            await session.ready(allowed)
        elif room.connected:
            # an empty document is given only if the server cannot say what is in it
            patience = allowed if room.archive.blank else min(allowed, self.settings.store_open_seconds)
            try:
                await session.ready(patience)
            except (NotServed, DocumentFailed) as error:
                log.info("opened from the store", document=room.document_id, why=str(error))

    async def _leave_room(self, session: Session, room: Room) -> None:
        if self._sessions.pop(session, None) is None:
            return
        session.end()
        room.sessions -= 1
        if room.sessions == 0:
            key = (room.document_id, room.mirror.read_only)
            if self._rooms.get(key) is room:
                del self._rooms[key]
            await room.close()
