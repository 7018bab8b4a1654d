"""The connections of a client, and which of them a document goes over (docs/decisions/0016, 4).

    no token, a seed, or a token that names the document or all of them ──▶ the first connection
    a document that only a pattern of the token covers ───────────────────▶ one that names it

NATS cannot say `minutes-*`, so a connection has the rights of the documents that it named. One is made
when such a document is first used, shared by all that use it, and closed some seconds after the last.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lorogo_client.auth.guarded_transport import TokenTransport
from lorogo_client.auth.token_provider import TokenProvider
from lorogo_client.context import ClientContext, ConnectionToken
from lorogo_client.delivery.replies import Replies
from lorogo_client.delivery.snapshot_check import SnapshotChecks
from lorogo_client.delivery.starter import DocumentStarter
from lorogo_client.errors import SessionClosed, TooManyDocuments
from lorogo_client.settings import ClientSettings
from lorogo_client.tracing import ClientTracing
from lorogo_protocol.tokens import TokenRefused
from lorogo_transport.clock import Clock
from lorogo_transport.errors import NotAuthorized
from lorogo_transport.ports import Transport
from lorogo_transport.rpc.calls import Caller
from lorogo_transport.tasks import Tasks
from lorogo_transport.telemetry.logs import get_logger

if TYPE_CHECKING:
    from lorogo_client.store.local_store import LocalStore

log = get_logger(__name__)

_RENEW_SECONDS_MIN = 1.0  # between two questions for a fresh token
_LOOK_SECONDS_MAX = 30.0  # a machine that slept wakes up with an old token


class RenewableTransport(Transport, Protocol):
    """A transport that can be asked to connect anew, because the token is another."""

    def renew(self) -> None: ...


class Connector(Protocol):
    """Makes a connection that names these documents, with the token that the function gives (if with any).

    `patient`: it comes after a while whether NATS has answered or not, and goes on trying.
    """

    def __call__(
        self, documents: Sequence[str], token: Callable[[], Awaitable[str]], *, patient: bool
    ) -> Awaitable[RenewableTransport]: ...


@dataclass(frozen=True, slots=True)
class ClientResources:
    """What all connections of a client have in common."""

    clock: Clock
    rng: random.Random
    new_id: Callable[[], str]
    settings: ClientSettings
    holder: TokenProvider
    store: "LocalStore | None"
    guarded: bool  # only what a token may do
    tracing: ClientTracing | None = None


class PooledConnection:
    """One connection, and what goes over it."""

    def __init__(self, transport: Transport, shared: ClientResources, badge: ConnectionToken) -> None:
        seen: Transport = TokenTransport(transport) if shared.guarded else transport
        self.context = ClientContext(
            transport=seen,
            clock=shared.clock,
            rng=shared.rng,
            new_id=shared.new_id,
            settings=shared.settings,
            caller=Caller(transport.bus, shared.clock, shared.new_id),
            replies=Replies(transport.bus),
            starter=DocumentStarter(
                seen, shared.clock, shared.rng, shared.new_id, shared.settings, guarded=shared.guarded
            ),
            holder=shared.holder,
            badge=badge,
            store=shared.store,
            tracing=shared.tracing,
        )
        self._stop_watching: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Listen for answers."""
        bus, starter = self.context.bus, self.context.starter
        self._stop_watching = bus.watch_connection(starter.connection)
        starter.connection(bus.connected)
        await self.context.caller.start()
        await self.context.replies.start()

    async def stop(self) -> None:
        """The transport is whoever's it was."""
        self._stop_watching()
        await self.context.replies.close()
        await self.context.caller.close()


@dataclass(slots=True)
class _Place:
    """A document's connection: being made, in use, or about to be closed."""

    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    uses: int = 0
    link: PooledConnection | None = None
    transport: RenewableTransport | None = None
    timer: asyncio.TimerHandle | None = None


class ConnectionPool:
    """All connections of one client."""

    def __init__(self, shared: ClientResources, dial: Connector | None) -> None:
        """Without `dial` there is only the first connection, whatever the token grants."""
        self.holder = shared.holder
        self._shared = shared
        self.settings = shared.settings
        self.clock = shared.clock
        self.snapshot_checks = SnapshotChecks()
        self._dial = dial
        self._first: PooledConnection | None = None
        self._first_transport: Transport | None = None  # if it is ours
        self._renewing: list[RenewableTransport] = []
        self._places: dict[str, _Place] = {}
        self._tasks = Tasks(self._broke)
        self._closed = False

    @property
    def first(self) -> ClientContext:
        """Of the connection that names no document."""
        assert self._first is not None
        return self._first.context

    @property
    def documents(self) -> int:
        """How many connections name a document."""
        return len(self._places)

    async def open(self, given: Transport | None = None) -> None:
        """Make the first connection, or take the one that is given.

        Raises TokenRefused, Unreachable, NotAuthorized, and what the token's source raises.
        """
        badge = ConnectionToken()
        if not self.holder.renewable or given is not None or not self._shared.guarded:
            badge.text = await self.holder.fresh()
        if given is None:
            patient = self._shared.store is not None
            self._first_transport = given = await self._dialled((), badge, patient=patient)
        self._first = PooledConnection(given, self._shared, badge)
        await self._first.start()
        if self.holder.renewable:
            self._tasks.spawn(self._keep_fresh(), name="token")

    @asynccontextmanager
    async def use(self, document_id: str) -> AsyncIterator[ClientContext]:
        """The connection for this document, for as long as the body runs. Raises as `take`."""
        context = await self.take(document_id)
        try:
            yield context
        finally:
            self.give_back(document_id, context)

    async def take(self, document_id: str) -> ClientContext:
        """The connection for this document, until it is given back.

        Raises TooManyDocuments, SessionClosed, Unreachable, NotAuthorized.
        """
        if self._closed:
            raise SessionClosed("the client is closed")
        place = self._places.get(document_id)
        if place is None:
            by_token = self._dial is not None and self._shared.guarded  # else the connection has every right
            if not by_token or not self.holder.by_pattern(document_id):
                return self.first
            await self._make_room()
            place = self._places.setdefault(document_id, _Place())
        place.uses += 1
        if place.timer is not None:
            place.timer.cancel()
            place.timer = None
        context: ClientContext | None = None
        try:
            async with place.opening:
                if place.link is None:
                    await self._connect(document_id, place)
                assert place.link is not None
                context = place.link.context
        finally:
            if context is None:
                self._used(document_id, place)
        return context

    def give_back(self, document_id: str, context: ClientContext) -> None:
        """Whoever took it needs it no more."""
        place = self._places.get(document_id)
        if place is not None and place.link is not None and place.link.context is context:
            self._used(document_id, place)

    async def close(self) -> None:
        """End every connection that is ours. Safe twice."""
        self._closed = True
        self.snapshot_checks.close()
        await self._tasks.close()
        while self._places:
            _, place = self._places.popitem()
            await self._end(place)
        if self._first is not None:
            await self._first.stop()
        if self._first_transport is not None:
            await self._first_transport.close()

    # --- the connections of documents

    async def _make_room(self) -> None:
        """Close one that nobody uses if there are too many."""
        while len(self._places) >= self.settings.documents_open_max:
            idle = next((name for name, place in self._places.items() if not place.uses), None)
            if idle is None:
                raise TooManyDocuments(self.settings.documents_open_max)
            await self._end(self._places.pop(idle))

    async def _connect(self, document_id: str, place: _Place) -> None:
        badge = ConnectionToken()
        # while NATS is away it is waited for, as by those who are on the first connection
        patient = self._shared.store is not None or not self.first.bus.connected
        transport = await self._dialled((document_id,), badge, patient=patient)
        link = PooledConnection(transport, self._shared, badge)
        started = False
        try:
            await link.start()
            started = True
        finally:
            if not started or self._closed:
                self._renewing.remove(transport)
                await transport.close()
        if self._closed:
            raise SessionClosed("the client is closed")
        place.link, place.transport = link, transport

    async def _dialled(
        self, documents: Sequence[str], badge: ConnectionToken, *, patient: bool
    ) -> RenewableTransport:
        assert self._dial is not None

        async def token() -> str:
            try:
                badge.text = await self.holder.fresh()
            except TokenRefused as error:
                raise NotAuthorized(str(error)) from None
            return badge.text

        try:
            transport = await self._dial(documents, token, patient=patient)
        except NotAuthorized as error:
            raise self.holder.explained(error) from None
        self._renewing.append(transport)
        return transport

    def _used(self, document_id: str, place: _Place) -> None:
        place.uses -= 1
        if place.uses or self._places.get(document_id) is not place:
            return
        if place.link is None:  # it could not be made
            del self._places[document_id]
            return
        loop = asyncio.get_running_loop()
        place.timer = loop.call_later(self.settings.idle_link_seconds, self._expire, document_id, place)

    def _expire(self, document_id: str, place: _Place) -> None:
        if not place.uses and self._places.get(document_id) is place and not self._closed:
            del self._places[document_id]
            self._tasks.spawn(self._end(place), name=f"link of {document_id}")

    async def _end(self, place: _Place) -> None:
        if place.timer is not None:
            place.timer.cancel()
        if place.link is not None and place.transport is not None:
            if place.transport in self._renewing:
                self._renewing.remove(place.transport)
            try:
                await place.link.stop()
            finally:
                await place.transport.close()

    # --- a token that ends

    async def _keep_fresh(self) -> None:
        """Ask for a fresh token before the old one ends, and connect anew with it. For ever."""
        while True:
            left = self.holder.seconds_left()
            if left is None or left > 0:
                await asyncio.sleep(_LOOK_SECONDS_MAX if left is None else min(left, _LOOK_SECONDS_MAX))
            else:
                await self.look_now()
                await asyncio.sleep(_RENEW_SECONDS_MIN)

    async def look_now(self) -> None:
        """If the token nears its end, ask for another, and connect anew if there is one."""
        left = self.holder.seconds_left()
        if left is None or left > 0:
            return
        before = self.holder.text
        try:
            await self.holder.fresh(anew=True)
        except Exception as error:  # noqa: BLE001  # it is the app's function
            log.warning("no fresh token could be had", problem=type(error).__name__)
        if self.holder.text != before:
            self._renewed()

    def _renewed(self) -> None:
        if self._dial is None or not self._shared.guarded:  # nobody's connection rests on the token
            self.first.badge.text = self.holder.text
        for transport in list(self._renewing):
            transport.renew()

    def _broke(self, error: Exception) -> None:
        log.error("a connection could not be kept or closed", exc_info=error)
