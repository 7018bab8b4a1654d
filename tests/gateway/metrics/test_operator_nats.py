"""The operator's part on the real NATS, with real servers that are killed, over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette

import lorogo_client
from lorogo_client import Client
from lorogo_gateway.documents.feed import Feeds
from lorogo_gateway.http.routes import router
from lorogo_gateway.metrics import operator_views, probes
from lorogo_gateway.metrics.collector import Collector
from lorogo_gateway.settings import GatewaySettings
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.e2e.support import servers
from tests.gateway.operator_support import Event, eventually
from tests.server.support import until

pytestmark = pytest.mark.nats
SETTINGS = GatewaySettings(sample_seconds=0.2, feed_comment_seconds=0.2, close_seconds=2.0)


class Running:
    """A gateway that listens."""

    def __init__(self, client: Client, feeds: Feeds, collector: Collector, http: httpx.AsyncClient) -> None:
        self.client, self.feeds, self.collector, self.http = client, feeds, collector, http

    async def get(self, path: str) -> Any:
        response = await self.http.get(path)
        assert response.status_code == 200, response.text
        return response.json()

    async def type(self, document_id: str, text: str) -> None:
        async with self.client.open(document_id) as session:
            session.doc.get_text("body").insert(0, text)
            session.commit()
            await session.flush(timeout=30)

    async def events(self, lines: AsyncIterator[str], count: int) -> list[Event]:
        """So many events of an open feed."""
        found: list[Event] = []
        block = ""
        async with asyncio.timeout(20):
            async for line in lines:
                if line:
                    block += line + "\n"
                    continue
                if (event := Event.parse(block)) is not None:
                    found.append(event)
                block = ""
                if len(found) == count:
                    break
        return found


@asynccontextmanager
async def running(url: str) -> AsyncIterator[Running]:
    async with lorogo_client.connect(url) as client, Collector(client.transport, SETTINGS) as collector:
        feeds = Feeds(client, SETTINGS)
        made = [*operator_views.operations(client, collector), *feeds.operations()]
        app = Starlette(routes=[*probes.routes(client, collector, feeds=feeds), *router(made, SETTINGS)])
        config = uvicorn.Config(app, port=0, log_config=None, lifespan="off", http="httptools", ws="none")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        await eventually(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as http:
                yield Running(client, feeds, collector, http)
        finally:
            await feeds.close()
            server.should_exit = True
            with suppress(asyncio.CancelledError):
                await serving


@pytest.mark.slow
async def test_a_killed_servers_documents_are_seen_to_move(fresh_nats: EmbeddedNats, tmp_path: Path) -> None:
    """The overview names document, from and to; the feed goes on; readiness and metrics follow."""
    async with servers(fresh_nats.url) as start, running(fresh_nats.url) as gateway:
        response = await gateway.http.get("/readyz")
        assert response.status_code == 503
        first = await start(data=tmp_path / "one")
        await gateway.type("doc", "one")

        async def ready() -> bool:
            return (await gateway.http.get("/readyz")).status_code == 200

        await until(ready)
        async with gateway.http.stream("GET", "/v1/feed?since=0") as stream:
            lines = stream.aiter_lines()
            (event,) = await gateway.events(lines, 1)
            assert (event.data["document"], event.data["operations"]) == ("doc", 3)
            second = await start(data=tmp_path / "two")
            await first.kill()
            await gateway.type("doc", "after")
        await eventually(lambda: gateway.feeds.open == 0)
        async with gateway.http.stream("GET", "/v1/feed", headers={"last-event-id": event.id}) as stream:
            (event,) = await gateway.events(stream.aiter_lines(), 1)
            assert event.data["operations"] == 5

        async def reported() -> Any:
            return (await gateway.get("/v1/overview"))["takeovers"]

        (takeover,) = await until(reported)
        assert takeover["document"] == "doc"
        assert (takeover["from"], takeover["to"]) == (first.server_id, second.server_id)

        async def alone() -> bool:
            shown = (await gateway.get("/v1/servers"))["servers"]
            return [one["server"] for one in shown] == [second.server_id]

        await until(alone)

        async def settled() -> bool:
            shown = await gateway.get("/v1/overview")
            return (shown["documents"]["UP"], shown["wal"]["messages"]) == (1, 2)

        await until(settled)
        metrics = (await gateway.http.get("/metrics")).text
        assert f'lorogo_takeovers_total{{server="{second.server_id}"}} 1.0' in metrics


async def test_closing_ends_open_feeds_so_that_the_server_can_stop(fresh_nats: EmbeddedNats) -> None:
    """A reader sees the end, not a reset."""
    async with servers(fresh_nats.url) as start, running(fresh_nats.url) as gateway:
        await start(durability="stream")  # has no journal, so no feed
        refused = await gateway.http.get("/v1/feed")
        assert (refused.status_code, refused.json()["code"]) == (503, "feed-unavailable")
    async with (
        running(fresh_nats.url) as gateway,
        gateway.http.stream("GET", "/v1/feed") as stream,
    ):
        lines = stream.aiter_lines()
        assert (await anext(lines)).startswith("retry:")
        await gateway.feeds.close()
        async with asyncio.timeout(10):
            rest = [line async for line in lines]
        assert all(not line or line.startswith((":", "id:")) for line in rest)
