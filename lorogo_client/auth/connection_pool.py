"""The connections of a client, and the choice of one for a document (docs/decisions/0016, 4).

    no token, a seed, or a token that names the document or all of them ──▶ the first connection
    a document that the token grants only by a pattern ──────────────────▶ a connection that names it

NATS permissions cannot express `minutes-*`, so a connection has the permissions of the documents that it
names. It opens when its document is first used, is shared by all users, and closes some seconds after the
last.
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
from lorogo_protocol.access.tokens import TokenRefused
from lorogo_transport.clock import Clock
from lorogo_transport.errors import NotAuthorized
from lorogo_transport.ports import Transport
from lorogo_transport.rpc.calls import Caller
from lorogo_transport.tasks import Tasks
from lorogo_transport.telemetry.logs import get_logger

if TYPE_CHECKING:
    from lorogo_client.store.local_store import LocalStore

log = get_logger(__name__)

_RENEW_SECONDS_MIN = 1.0  # between two requests for a fresh token
_CHECK_SECONDS_MAX = 30.0  # after a machine's sleep the token may be old


class RenewableTransport(Transport, Protocol):
    """A transport that can reconnect with another token."""

    def renew(self) -> None: ...


class Connector(Protocol):
    """Opens a connection that names these documents; `token` returns the token for each connect.

    `patient`: return after a while even if NATS has not answered, and keep trying in the background.
    """

    def __call__(
        self, documents: Sequence[str], token: Callable[[], Awaitable[str]], *, patient: bool
    ) -> Awaitable[RenewableTransport]: ...


@dataclass(frozen=True, slots=True)
class ClientResources:
    """The objects that all connections of a client share."""

    clock: Clock
    rng: random.Random
    new_id: Callable[[], str]
    settings: ClientSettings
    token_provider: TokenProvider
    store: "LocalStore | None"
    guarded: bool  # connected with a token: document subjects only
    tracing: ClientTracing | None = None


class PooledConnection:
    """One connection with its caller, replies and document starter."""

    def __init__(
        self, transport: Transport, shared: ClientResources, connection_token: ConnectionToken
    ) -> None:
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
            token_provider=shared.token_provider,
            connection_token=connection_token,
            store=shared.store,
            tracing=shared.tracing,
        )
        self._stop_watching: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Subscribe for replies."""
        bus, starter = self.context.bus, self.context.starter
        self._stop_watching = bus.watch_connection(starter.connection)
        await self.context.caller.start()
        await self.context.replies.start()

    async def stop(self) -> None:
        """Unsubscribe; the transport stays open, its owner closes it."""
        self._stop_watching()
        await self.context.replies.close()
        await self.context.caller.close()


@dataclass(slots=True)
class _DocumentConnection:
    """A document's connection: opening, in use, or about to close."""

    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    uses: int = 0
    link: PooledConnection | None = None
    transport: RenewableTransport | None = None
    timer: asyncio.TimerHandle | None = None


class ConnectionPool:
    """All connections of one client."""

    def __init__(self, shared: ClientResources, dial: Connector | None) -> None:
        """Without `dial` there is only the first connection, whatever the token grants."""
        self.token_provider = shared.token_provider
        self._shared = shared
        self.settings = shared.settings
        self.clock = shared.clock
        self.snapshot_checks = SnapshotChecks()
        self._dial = dial
        self._first: PooledConnection | None = None
        self._first_transport: Transport | None = None  # if the pool must close it
        self._renewing: list[RenewableTransport] = []
        self._connections: dict[str, _DocumentConnection] = {}
        self._tasks = Tasks(self._broke)
        self._closed = False

    @property
    def first(self) -> ClientContext:
        """The context of the connection that names no document."""
        assert self._first is not None
        return self._first.context

    @property
    def documents(self) -> int:
        """The number of connections that name a document."""
        return len(self._connections)

    async def open(self, given: Transport | None = None) -> None:
        """Open the first connection, or use the given one.

        Raises TokenRefused, Unreachable, NotAuthorized, and the errors of the token's source.
        """
        connection_token = ConnectionToken()
        if not self.token_provider.renewable or given is not None or not self._shared.guarded:
            connection_token.text = await self.token_provider.fresh()
        if given is None:
            patient = self._shared.store is not None
            self._first_transport = given = await self._dialled((), connection_token, patient=patient)
        self._first = PooledConnection(given, self._shared, connection_token)
        await self._first.start()
        if self.token_provider.renewable:
            self._tasks.spawn(self._keep_fresh(), name="token")

    @asynccontextmanager
    async def use(self, document_id: str) -> AsyncIterator[ClientContext]:
        """Hold the connection for this document while the body runs. Raises as `take`."""
        context = await self.take(document_id)
        try:
            yield context
        finally:
            self.give_back(document_id, context)

    async def take(self, document_id: str) -> ClientContext:
        """Return the connection for this document; return it with `give_back`.

        Raises TooManyDocuments, SessionClosed, Unreachable, NotAuthorized.
        """
        if self._closed:
            raise SessionClosed("the client is closed")
        connection = self._connections.get(document_id)
        if connection is None:
            by_token = (
                self._dial is not None and self._shared.guarded
            )  # else the first connection has all permissions
            if not by_token or not self.token_provider.by_pattern(document_id):
                return self.first
            await self._make_room()
            connection = self._connections.setdefault(document_id, _DocumentConnection())
        connection.uses += 1
        if connection.timer is not None:
            connection.timer.cancel()
            connection.timer = None
        context: ClientContext | None = None
        try:
            async with connection.opening:
                if connection.link is None:
                    await self._connect(document_id, connection)
                assert connection.link is not None
                context = connection.link.context
        finally:
            if context is None:
                self._used(document_id, connection)
        return context

    def give_back(self, document_id: str, context: ClientContext) -> None:
        """Release a connection from `take`."""
        connection = self._connections.get(document_id)
        if connection is not None and connection.link is not None and connection.link.context is context:
            self._used(document_id, connection)

    async def close(self) -> None:
        """Close every connection that the pool opened. Idempotent."""
        self._closed = True
        self.snapshot_checks.close()
        await self._tasks.close()
        while self._connections:
            _, connection = self._connections.popitem()
            await self._end(connection)
        if self._first is not None:
            await self._first.stop()
        if self._first_transport is not None:
            await self._first_transport.close()

    # --- the connections of documents

    async def _make_room(self) -> None:
        """Close an unused connection if there are too many."""
        while len(self._connections) >= self.settings.documents_open_max:
            idle = next((name for name, connection in self._connections.items() if not connection.uses), None)
            if idle is None:
                raise TooManyDocuments(self.settings.documents_open_max)
            await self._end(self._connections.pop(idle))

    async def _connect(self, document_id: str, connection: _DocumentConnection) -> None:
        connection_token = ConnectionToken()
        # while NATS is unreachable, wait for it as the first connection does
        patient = self._shared.store is not None or not self.first.bus.connected
        transport = await self._dialled((document_id,), connection_token, patient=patient)
        link = PooledConnection(transport, self._shared, connection_token)
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
        connection.link, connection.transport = link, transport

    async def _dialled(
        self, documents: Sequence[str], connection_token: ConnectionToken, *, patient: bool
    ) -> RenewableTransport:
        assert self._dial is not None

        async def token() -> str:
            try:
                connection_token.text = await self.token_provider.fresh()
            except TokenRefused as error:
                raise NotAuthorized(str(error)) from None
            return connection_token.text

        try:
            transport = await self._dial(documents, token, patient=patient)
        except NotAuthorized as error:
            raise self.token_provider.explained(error) from None
        self._renewing.append(transport)
        return transport

    def _used(self, document_id: str, connection: _DocumentConnection) -> None:
        connection.uses -= 1
        if connection.uses or self._connections.get(document_id) is not connection:
            return
        if connection.link is None:  # connecting failed
            del self._connections[document_id]
            return
        loop = asyncio.get_running_loop()
        connection.timer = loop.call_later(
            self.settings.idle_link_seconds, self._expire, document_id, connection
        )

    def _expire(self, document_id: str, connection: _DocumentConnection) -> None:
        if not connection.uses and self._connections.get(document_id) is connection and not self._closed:
            del self._connections[document_id]
            self._tasks.spawn(self._end(connection), name=f"link of {document_id}")

    async def _end(self, connection: _DocumentConnection) -> None:
        if connection.timer is not None:
            connection.timer.cancel()
        if connection.link is not None and connection.transport is not None:
            if connection.transport in self._renewing:
                self._renewing.remove(connection.transport)
            try:
                await connection.link.stop()
            finally:
                await connection.transport.close()

    # --- token expiry

    async def _keep_fresh(self) -> None:
        """Renew the token before it expires, and reconnect with the new one. Runs until cancelled."""
        while True:
            left = self.token_provider.seconds_left()
            if left is None or left > 0:
                await asyncio.sleep(_CHECK_SECONDS_MAX if left is None else min(left, _CHECK_SECONDS_MAX))
            else:
                await self.renew_if_due()
                await asyncio.sleep(_RENEW_SECONDS_MIN)

    async def renew_if_due(self) -> None:
        """Renew the token if it is close to its expiry, and reconnect if it changed."""
        left = self.token_provider.seconds_left()
        if left is None or left > 0:
            return
        before = self.token_provider.text
        try:
            await self.token_provider.fresh(renew=True)
        except Exception as error:  # noqa: BLE001  # the app's function may raise anything
            log.warning("cannot renew the token", problem=type(error).__name__)
        if self.token_provider.text != before:
            self._renewed()

    def _renewed(self) -> None:
        if self._dial is None or not self._shared.guarded:  # no connection depends on the token
            self.first.connection_token.text = self.token_provider.text
        for transport in list(self._renewing):
            transport.renew()

    def _broke(self, error: Exception) -> None:
        log.error("connection pool task failed", exc_info=error)
