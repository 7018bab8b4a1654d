"""A gateway that has keys, behind the real uvicorn, with a server that has them, too, in memory."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import httpx
from websockets.asyncio.client import connect

from lorogo_client import Client
from lorogo_gateway.auth import COOKIE
from lorogo_gateway.server.app import Gateway
from lorogo_gateway.server.listener import listening
from lorogo_gateway.settings import GatewaySettings
from lorogo_protocol.messages import subjects
from lorogo_server import Server
from lorogo_testing.broker import ConnectionIdentity
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.auth.authority import Authority
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.clock import SystemClock
from tests.client.support import client_of, new_world
from tests.gateway.support import Peer
from tests.journals import in_memory
from tests.security.people import OURS, jwks, mint
from tests.transport.support import make_list

SETTINGS = GatewaySettings(
    port=0, call_seconds=5.0, join_seconds=5.0, rejoin_seconds=0.05, close_seconds=2.0, metrics_open=False
)


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed gateway, its HTTP client, and the NATS and the lorogo client behind it."""

    address: str
    gateway: Gateway
    authority: Authority
    client: Client
    world: MemoryNats
    http: httpx.AsyncClient

    @asynccontextmanager
    async def peer(self, token: str = "", headers: Mapping[str, str] | None = None) -> AsyncIterator[Peer]:
        """A raw WebSocket, with this bearer."""
        more = dict(headers or {})
        more |= bearer(token)
        url = f"{self.address.replace('http', 'ws', 1)}/ws"
        async with connect(url, compression=None, max_size=None, additional_headers=more) as socket:
            yield Peer(socket)

    async def write(self, document: str, text: str = "hello") -> None:
        """Put something into a document, past the gateway."""
        operation: dict[str, object] = {"op": "add", "path": "", "value": {"body": text}}
        await self.patch(document, operation)

    async def patch(self, document: str, operation: dict[str, object]) -> None:
        """Change a document, past the gateway."""
        await self.client.document(document, token=mint({"*": "admin"}, subject="past-the-gateway")).patch(
            [operation]
        )

    async def read(self, document: str) -> object:
        """The content of a document, read past the gateway."""
        return (
            await self.client.document(document, token=mint({"*": "admin"}, subject="past-the-gateway")).get()
        )["value"]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def cookie(token: str, address: str) -> dict[str, str]:
    """As a browser sends it from our own page."""
    return {"Cookie": f"theme=dark; {COOKIE}={token}", "Origin": address} if token else {"Origin": address}


@asynccontextmanager
async def closed(
    settings: GatewaySettings = SETTINGS, *, keys: KeySource | None = None, serving: bool = True
) -> AsyncIterator[Closed]:
    """Everything, on a port of its own."""
    world = await new_world()
    async with world.connect("setup") as transport:
        await make_list(transport)
    source = keys or KeySource.from_text(jwks(OURS))
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        authority = await enter(Authority(source, world.connect("keys"), SystemClock()))
        if serving:
            server = world.connect("server", ConnectionIdentity(subjects.SERVER_INBOX))
            await enter(Server(server, authority=authority, **in_memory()))
        connection = world.connect("gateway", ConnectionIdentity(subjects.GATEWAY_INBOX))
        client = await enter(client_of(world, transport=connection))
        gateway = await enter(Gateway(client, replace(settings, port=0), authority))
        address = await enter(listening(gateway.app, replace(settings, port=0)))
        stack.push_async_callback(gateway.disconnect_all)
        http = await enter(httpx.AsyncClient(base_url=address, timeout=15.0))
        yield Closed(address, gateway, authority, client, world, http)
