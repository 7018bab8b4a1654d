"""A whole gateway on a real port, over the in-memory twin with a real server behind it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import httpx
from loro import LoroDoc
from websockets.asyncio.client import connect

from lorogo_gateway.auth import TokenVerifier
from lorogo_gateway.frames import Status
from lorogo_gateway.server.app import Gateway
from lorogo_gateway.server.listener import listening
from lorogo_gateway.settings import GatewaySettings
from lorogo_server import Server
from lorogo_testing.memory_nats import MemoryNats
from tests.client.support import DEADLINE, client_of, new_world
from tests.gateway.support import Peer, type_in
from tests.journals import in_memory


@dataclass(frozen=True, slots=True)
class Whole:
    """Everything of one gateway."""

    address: str
    gateway: Gateway
    world: MemoryNats

    @property
    def port(self) -> int:
        port = httpx.URL(self.address).port
        assert port is not None
        return port

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.address, timeout=DEADLINE)

    def refused(self, reason: str) -> int:
        return self.gateway.limiter.refusals.facts()[reason]

    @asynccontextmanager
    async def peer(self, **headers: str) -> AsyncIterator[Peer]:
        where = f"ws://127.0.0.1:{self.port}/ws"
        async with connect(where, compression=None, max_size=None, additional_headers=headers) as socket_:
            yield Peer(socket_)

    @asynccontextmanager
    async def line(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield reader, writer
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def whole(settings: GatewaySettings, authority: TokenVerifier | None = None) -> AsyncIterator[Whole]:
    world = await new_world()
    async with (
        Server(world.connect("server"), **in_memory()),
        client_of(world) as client,
        Gateway(client, settings, authority) as gateway,
        listening(gateway.app, settings, gateway.limiter) as address,
    ):
        try:
            yield Whole(address, gateway, world)
        finally:
            await gateway.disconnect_all()


class Neighbour:
    """A well-behaved client of the same gateway, which must be unaffected."""

    def __init__(self, served: Whole, peer: Peer) -> None:
        self._served = served
        self._peer = peer
        self._doc = LoroDoc()

    async def is_served(self) -> None:
        """An edit is Acked, and a page answered."""
        assert await self._peer.save(type_in(self._doc, "x"), room="decent") is Status.OK
        async with self._served.http() as http:
            assert (await http.get("/healthz")).status_code == 200


@asynccontextmanager
async def neighbour(served: Whole) -> AsyncIterator[Neighbour]:
    async with served.peer() as peer:
        await peer.join("decent")
        made = Neighbour(served, peer)
        await made.is_served()
        yield made
        await made.is_served()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Everything until the other side ends it, as it likes."""
    said = b""
    with suppress(ConnectionError):
        async with asyncio.timeout(DEADLINE):
            while part := await reader.read(100_000):
                said += part
    return said
