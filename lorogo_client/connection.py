"""The entry point: `connect()` returns a Client, which opens sessions and makes calls."""

import asyncio
import dataclasses
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import nanoid

from lorogo_client.api import DocumentApi
from lorogo_client.auth.connection_pool import ClientResources, ConnectionPool, Connector, RenewableTransport
from lorogo_client.auth.guarded_transport import beyond_token
from lorogo_client.auth.token_provider import TokenProvider, TokenSource
from lorogo_client.awaitables import AwaitableContext
from lorogo_client.context import ClientContext
from lorogo_client.errors import DocumentFailed, NotAllowed, NotServed, SessionClosed
from lorogo_client.feed import Since, UpdateFeed
from lorogo_client.feed import since as beginning
from lorogo_client.session.kept_presence import KeptPresence
from lorogo_client.session.room import Room
from lorogo_client.session.session import Session
from lorogo_client.settings import ClientSettings
from lorogo_client.store.stored_document import StoredDocument
from lorogo_client.tracing import tracing_of
from lorogo_protocol.access.grants import Access
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.ids import check_document_id
from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.messages import calls, subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.status import Down, Failed
from lorogo_transport.clock import Clock, SystemClock
from lorogo_transport.errors import NoResponders, NotAuthorized, PermissionDenied, WrongLastSequence
from lorogo_transport.ports import Transport
from lorogo_transport.stores.statuses import Statuses
from lorogo_transport.telemetry.logs import get_logger

if TYPE_CHECKING:
    from lorogo_client.store.local_store import LocalStore
    from lorogo_log import Storage

log = get_logger(__name__)

DEFAULT_URL = "nats://127.0.0.1:4222"


def new_nanoid() -> str:
    """Return a random id of 21 characters."""
    return str(nanoid.generate())


def connect(
    where: str | Transport = DEFAULT_URL,
    *,
    token: TokenSource | None = None,
    seed: str | None = None,
    store: str | os.PathLike[str] | None = None,
    storage: "Storage | None" = None,
    settings: ClientSettings | None = None,
    name: str = "lorogo-client",
    clock: Clock | None = None,
    rng: random.Random | None = None,
    new_id: Callable[[], str] = new_nanoid,
    tracer_provider: object | None = None,
) -> "AwaitableContext[Client]":
    """Return a client: enter it with `async with`, or await it and close it yourself.

    `where` is the address of NATS (several with commas between), or a transport that is already
    connected; closing the client leaves that transport open. Raises Unreachable.

    `token` is a token that your app's backend minted, or a function (plain or async) that returns a fresh
    one: the client calls it before the current token expires and on every reconnect. With a token the client
    may do what the token grants, and nothing else of NATS. `seed` is the nkey seed of an operator's NATS user
    instead; with both, the connection is the operator's and calls carry the token. Raises TokenRefused,
    NotAuthorized, TokenExpired.

    `store` is a directory for copies of the documents: they open offline, and edits survive a crash.
    With a store, Unreachable is not raised: the client retries NATS in the background. One process at a
    time can open a store: raises StoreLocked, StoreFailed. `storage` replaces the disk.

    `tracer_provider` is OpenTelemetry's (its SDK's): each update becomes a span, and the owner's spans are
    its children (docs/OBSERVABILITY.md). Raises TypeError, and ImportError without `lorogo[otel]`.
    """
    given: object = where
    if not isinstance(given, str | Transport):
        kind = type(given).__name__
        raise TypeError(f"`where` is the address of NATS, as in {DEFAULT_URL!r}, or a transport; not {kind}")
    if seed is not None and not isinstance(seed, str):
        raise TypeError("`seed` is the text of an nkey seed: for a file give Path(...).read_text().strip()")
    guarded = token is not None and seed is None
    chosen = settings or ClientSettings()
    if guarded:
        chosen = dataclasses.replace(chosen, start="server")
    now = clock or SystemClock()
    tracing = tracing_of(tracer_provider, now)

    async def enter() -> Client:
        async with AsyncExitStack() as undo:
            kept = None if store is None else await _open_store(store, storage)
            if kept is not None:
                undo.push_async_callback(kept.close)
            shared = ClientResources(
                clock=now,
                rng=rng or random.Random(),
                new_id=new_id,
                settings=chosen,
                token_provider=TokenProvider(token, now, seconds=chosen.connect_seconds),
                store=kept,
                guarded=guarded,
                tracing=tracing,
            )
            dial = None
            if isinstance(where, str):
                dial = _dialling(where, name, chosen, seed, guarded=guarded)
            pool = ConnectionPool(shared, dial)
            undo.push_async_callback(pool.close)
            await pool.open(None if isinstance(where, str) else where)
            client = Client(pool, shared)
            undo.pop_all()
        return client

    async def leave(client: Client, raise_unsaved: bool) -> None:
        await client.leave(raise_unsaved=raise_unsaved)

    return AwaitableContext(enter, leave)


async def _open_store(path: str | os.PathLike[str], storage: "Storage | None") -> "LocalStore":
    from lorogo_client.store.local_store import LocalStore  # noqa: PLC0415 - loads the log

    store = LocalStore(path, storage)
    await store.open()
    return store


def _dialling(url: str, name: str, settings: ClientSettings, seed: str | None, *, guarded: bool) -> Connector:
    async def dial(
        documents: Sequence[str], token: Callable[[], Awaitable[str]], *, patient: bool
    ) -> RenewableTransport:
        # nats-py is loaded only when it is needed: an app may bring another transport
        from lorogo_transport.nats import connection  # noqa: PLC0415

        try:
            return await connection.connect(
                url,
                name=name,
                timeout=settings.connect_seconds,
                wait_seconds=settings.store_open_seconds if patient else None,
                token=token if guarded else None,
                documents=documents,
                seed=seed,
                inbox_prefix=subjects.OPERATOR_INBOX if seed is not None else "_INBOX",
            )
        except NotAuthorized as error:
            if guarded or seed is not None or "@" in url:
                raise
            raise NotAuthorized(f"{error}: pass a token with connect(..., token=...)") from None

    return dial


class Client:
    """A connection to NATS, and the documents that are open on it."""

    def __init__(self, pool: ConnectionPool, shared: ClientResources) -> None:
        self.settings = shared.settings
        self.transport = pool.first.transport
        self.pool = pool  # for what is built on the client, such as the gateway's relay
        self.guarded = (
            shared.guarded
        )  # connected with a token, which grants documents and nothing else of NATS
        self._context = pool.first
        self._rooms: dict[tuple[str, bool], Room] = {}
        self._sessions: dict[Session, tuple[Room, ClientContext]] = {}
        self._feeds: set[UpdateFeed] = set()
        self._kept_presence = KeptPresence(self.transport, self.settings)
        self._closed = False

    @property
    def subject(self) -> str:
        """The subject of this client's token; "" without a token."""
        return self.pool.token_provider.subject

    def access(self, document_id: str) -> Access:
        """Return the access that the token claims for a document; ADMIN without a token."""
        return self.pool.token_provider.access(check_document_id(document_id))

    @property
    def kept_presence(self) -> KeptPresence:
        """Persisted presence. Raises NotAllowed with a token: it is stored in a NATS bucket."""
        if self.guarded:
            raise beyond_token("persisted presence")
        return self._kept_presence

    def open(
        self,
        document_id: str,
        *,
        read_only: bool = False,
        create: bool = False,
        timeout: float | None = None,
    ) -> AwaitableContext[Session]:
        """Return a session that has synced once: `async with client.open(id) as session`.

        Leaving it waits up to `close_seconds` until every edit is ACKed, and raises Unsaved if some are not.
        Raises InvalidDocumentId, NotServed, DocumentFailed, DocumentDeleted; with a token
        NotAllowed, NotAuthorized, TooManyDocuments. A document on which the token grants only `read` opens
        read-only.

        With a store, a stored document opens at once when there is no connection, else after
        the sync or after `store_open_seconds`; `session.ready()` waits for the sync. A document that is not
        stored raises NotStored when there is no connection, unless `create` is set: then it opens empty and
        is merged with the server's content later (when connected, only after `timeout`). Leaving does not
        raise Unsaved if the store has all edits.
        """
        check_document_id(document_id)
        allowed = self.settings.open_seconds if timeout is None else timeout

        async def enter() -> Session:
            return await self._open(document_id, read_only, create, allowed)

        async def leave(session: Session, raise_unsaved: bool) -> None:
            await self.close_session(session, raise_unsaved=raise_unsaved)

        return AwaitableContext(enter, leave)

    def feed(
        self,
        since: Since = "now",
        documents: Iterable[str] | None = None,
        *,
        only: Callable[[str], bool] | None = None,
    ) -> AwaitableContext[UpdateFeed]:
        """Return a feed of accepted updates, each once and in order: `async for item in feed`.

        `since`: "now"; 0, for everything in the journals; a WAL sequence; a datetime with
        its zone; or a FeedPosition (or its text), which continues exactly at `feed.position`.
        `documents` limits the feed to these ids. `only` filters by document id: neither items nor positions
        name a document for which it returns False.
        Raises FeedUnavailable, InvalidPosition, InvalidDocumentId, ValueError, and NotAllowed with a token.
        """
        begin, wanted = beginning.check(since, documents)

        async def enter() -> UpdateFeed:
            if self._closed:
                raise SessionClosed("the client is closed")
            if self.guarded:
                raise beyond_token("the feed of all updates")
            state = await beginning.begin(self.transport, begin, wanted)
            feed = UpdateFeed(self._context, state, only)
            await feed.start()
            self._feeds.add(feed)
            return feed

        async def leave(feed: UpdateFeed, _calm: bool) -> None:
            self._feeds.discard(feed)
            await feed.close()

        return AwaitableContext(enter, leave)

    def document(self, document_id: str, *, token: str = "") -> DocumentApi:
        """Return the calls to the document's owner; they carry this `token`, or the client's own."""
        return DocumentApi(self.pool, check_document_id(document_id), token)

    def statuses(self) -> AsyncIterator[tuple[str, StatusEntry]]:
        """Yield every document that has a status, in any order. Raises NotAllowed with a token."""
        if self.guarded:
            raise beyond_token("a list of all documents")
        return Statuses(self.transport).all()

    def stored_documents(self) -> list[StoredDocument]:
        """List the documents in the local store; opening one with `unsaved` edits sends them."""
        return [] if self._context.store is None else self._context.store.documents()

    async def forget(self, document_id: str) -> bool:
        """Drop the local copy of a document that is not open, unsaved edits included. Raises StoreFailed."""
        return self._context.store is not None and await self._context.store.forget(document_id)

    async def reset(self, document_id: str) -> bool:
        """Take a document out of ERROR, so that servers load it again; False if it was not in ERROR.

        With a token, which must grant `admin`, a server does this. Raises NotAllowed, NotServed.
        """
        check_document_id(document_id)
        if self.guarded:
            return await self._reset_by_server(document_id)
        statuses = Statuses(self.transport)
        entry = await statuses.read(document_id)
        if entry is None or not isinstance(entry.status, Failed):
            return False
        down = Down(self._context.clock.wall_ns())
        try:
            await statuses.write(
                document_id, down, expected_revision=entry.revision, journal_of=entry.journal_of
            )
        except WrongLastSequence:
            return False
        return True

    async def _reset_by_server(self, document_id: str) -> bool:
        """Request the reset from any server."""
        self.pool.token_provider.require(document_id, Access.ADMIN)
        async with self.pool.use(document_id) as context:
            try:
                answer = await context.caller.ask(
                    subjects.reset(document_id),
                    timeout=self.settings.reply_seconds,
                    whom=f"the server that resets {document_id}",
                    token=context.connection_token.text,
                )
            except NoResponders:
                raise NotServed(document_id, "no server is connected to NATS") from None
            except PermissionDenied as error:
                raise NotAllowed(str(error), document_id=document_id) from None
            except Refused as no:
                if no.reason is Reason.PERMISSION_DENIED:
                    raise NotAllowed(str(no), document_id=document_id) from None
                raise
        return calls.need(answer, "reset", bool)

    async def close_session(self, session: Session, *, raise_unsaved: bool = True) -> None:
        """Leave a session that `await client.open(...)` returned. Raises Unsaved if `raise_unsaved`."""
        entry = self._sessions.get(session)
        if entry is None:
            return
        room, context = entry
        problem: LorogoError | None = None
        try:
            problem = await session.save()
        finally:
            await self._leave_room(session, room, context)
        if problem is not None:
            log.warning("edits are not saved", document=room.document_id, problem=str(problem))
            if raise_unsaved:
                raise problem

    async def close(self) -> None:
        """Leave every session and the connection. Raises Unsaved for the first session with unsaved edits."""
        await self.leave(raise_unsaved=True)

    async def leave(self, *, raise_unsaved: bool) -> None:
        """Close; raise Unsaved only if `raise_unsaved`."""
        if self._closed:
            return
        self._closed = True
        try:
            # concurrently: without a server each of them waits for `close_seconds`
            saved = await asyncio.gather(*(session.save() for session in self._sessions))
        finally:
            await self._shut()
        problems = [problem for problem in saved if problem is not None]
        for problem in problems:
            log.warning("edits are not saved", problem=str(problem))
        if problems and raise_unsaved:
            raise problems[0]

    async def _shut(self) -> None:
        try:
            while self._feeds:
                await self._feeds.pop().close()
            for session, (room, context) in list(self._sessions.items()):
                await self._leave_room(session, room, context)
        finally:
            await self.pool.close()
            if self._context.store is not None:
                await self._context.store.close()

    async def _open(self, document_id: str, read_only: bool, create: bool, allowed: float) -> Session:
        if self._closed:
            raise SessionClosed("the client is closed")
        token_provider = self.pool.token_provider
        token_provider.require(document_id, Access.READ)
        read_only = read_only or token_provider.access(document_id) < Access.WRITE
        context = await self.pool.take(document_id)
        key = (
            document_id,
            read_only,
        )  # sessions with other rights do not share a room: edits leave through it
        room = self._rooms.get(key)
        new = room is None or room.closed or room.mirror.failure is not None
        if room is None or new:
            room = self._rooms[key] = Room(context, document_id, read_only=read_only)
        room.sessions += 1
        session = Session(room, context.new_id(), close_seconds=self.settings.close_seconds)
        self._sessions[session] = (room, context)
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
                await self._leave_room(session, room, context)
        return session

    async def _usable(self, session: Session, room: Room, allowed: float) -> None:
        """Return when the session is usable: synced, or with a copy from the store."""
        if room.mirror.ready and not room.connected:
            return  # another session of this process has it open
        if not room.room_copy.usable:
            if self._context.store is not None and not room.connected:
                raise room.unauthorized or room.room_copy.why_not()
            await session.ready(allowed)
        elif room.connected:
            # the app gets an empty document only if the server's content is unavailable
            patience = allowed if room.room_copy.blank else min(allowed, self.settings.store_open_seconds)
            try:
                await session.ready(patience)
            except (NotServed, DocumentFailed) as error:
                log.info("opened from the store", document=room.document_id, why=str(error))

    async def _leave_room(self, session: Session, room: Room, context: ClientContext) -> None:
        if self._sessions.pop(session, None) is None:
            return
        session.end()
        room.sessions -= 1
        try:
            if room.sessions == 0:
                key = (room.document_id, room.mirror.read_only)
                if self._rooms.get(key) is room:
                    del self._rooms[key]
                await room.close()
        finally:
            self.pool.give_back(room.document_id, context)
