"""A gateway's facts and feed over the in-memory twin, with real servers behind it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
from starlette.applications import Starlette

from lorogo_client import Client
from lorogo_gateway.documents.feed import Feeds
from lorogo_gateway.http.routes import router
from lorogo_gateway.metrics import operator_views, probes
from lorogo_gateway.metrics.collector import Collector
from lorogo_gateway.settings import GatewaySettings
from lorogo_server import Server, ServerSettings
from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from tests.client.support import DEADLINE, client_of, new_world
from tests.journals import in_memory
from tests.server.support import QUICK

SETTINGS = GatewaySettings(call_seconds=5.0, sample_seconds=0.05, close_seconds=1.0)


@dataclass(slots=True)
class Gate:
    """An HTTP client, and the NATS and the lorogo client behind the gateway."""

    http: httpx.AsyncClient
    app: Starlette
    client: Client
    collector: Collector
    feeds: Feeds
    world: MemoryNats
    transport: MemoryTransport
    _stack: AsyncExitStack
    sockets: dict[str, Any] = field(default_factory=dict)

    async def serve(self, settings: ServerSettings = QUICK) -> Server:
        """One more server; stopped with the test."""
        server = Server(self.world.connect("server"), settings, **in_memory())
        return await self._stack.enter_async_context(server)

    async def get(self, path: str) -> Any:
        """Get a path with status 200; return its JSON."""
        response = await self.http.get(path)
        assert response.status_code == 200, response.text
        return response.json()

    async def type(self, document_id: str, text: str = "hello") -> None:
        """An edit that was ACKed."""
        async with self.client.open(document_id) as session:
            session.doc.get_text("body").insert(0, text)
            session.commit()
            await session.flush(timeout=DEADLINE)


@asynccontextmanager
async def gate_of(
    settings: GatewaySettings = SETTINGS, *, servers: int = 1, running: bool = False
) -> AsyncIterator[Gate]:
    """A gateway on a world of its own; `running`: its collector looks by itself."""
    world = await new_world()
    transport = world.connect("gateway")
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(client_of(world, transport=transport))
        collector = Collector(transport, settings)
        stack.push_async_callback(collector.close)
        if running:
            collector.start()
        feeds = Feeds(client, settings)
        sockets: dict[str, Any] = {"connections": 2, "rooms": 1}
        made = [*operator_views.operations(client, collector, sockets=lambda: sockets), *feeds.operations()]
        more = probes.routes(client, collector, feeds=feeds, sockets=lambda: sockets)
        app = Starlette(routes=[*more, *router(made, settings)])
        http = await stack.enter_async_context(
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway")
        )
        gate = Gate(http, app, client, collector, feeds, world, transport, stack, sockets)
        for _ in range(servers):
            await gate.serve()
        yield gate


class Reader:
    """A reader of a feed: an ASGI client that may be slow, or disconnect."""

    def __init__(self, gate: Gate, path: str = "/v1/feed", query: str = "", **headers: str) -> None:
        self._app = gate.app
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "scheme": "http",
            "headers": [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()],
            "client": ("test", 1),
            "server": ("gateway", 80),
        }
        self.status = 0
        self.blocks: asyncio.Queue[str] = asyncio.Queue()
        self.whole = False  # the answer was ended
        self.takes = asyncio.Event()
        self.takes.set()
        self._left = asyncio.Event()
        self._asked = False
        self._text = ""
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self._app(self._scope, self._receive, self._send))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()
        assert self.task is not None
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(self.task, return_exceptions=True)

    def leave(self) -> None:
        self.takes.set()
        self._left.set()

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self.takes.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        self._text += message.get("body", b"").decode()
        while "\n\n" in self._text:
            block, _, self._text = self._text.partition("\n\n")
            self.blocks.put_nowait(block)
        self.whole = not message.get("more_body", False)

    async def block(self) -> str:
        """The next block of lines, whatever it is."""
        async with asyncio.timeout(DEADLINE):
            return await self.blocks.get()

    async def event(self) -> "Event":
        """The next event; comments and ids alone are passed over."""
        while True:
            event = Event.parse(await self.block())
            if event is not None:
                return event


@dataclass(frozen=True, slots=True)
class Event:
    """An event as a browser has it."""

    id: str
    name: str
    data: dict[str, Any]

    @classmethod
    def parse(cls, block: str) -> "Event | None":
        lines = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if "data" not in lines:
            return None
        return cls(lines["id"], lines["event"], json.loads(lines["data"]))


async def eventually(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not true():  # noqa: ASYNC110 - the tested conditions have no events
            await asyncio.sleep(0.005)
