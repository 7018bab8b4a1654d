"""The feed on real servers and the NATS in memory: what subscribers see while documents move and lines break."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from loro import LoroDoc

import lorogo_client
from lorogo_client import (
    Client,
    ClientSettings,
    Deleted,
    FeedItem,
    FeedPosition,
    FeedUnavailable,
    Gap,
    Restored,
    Session,
    Update,
    UpdateFeed,
)
from lorogo_log import MemoryStorage
from lorogo_server import Server, ServerSettings
from lorogo_transport.memory import MemoryNats, MemoryTransport
from tests.journals import in_memory
from tests.server.support import QUICK

SECONDS = 10.0
PATIENT = ClientSettings(feed_patience_seconds=0.5, feed_search_seconds=0.2, retry_seconds_max=0.2)


class World:
    """NATS in memory, with servers and clients that can be cut off."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.nats = MemoryNats()
        self._stack = stack

    async def server(
        self, settings: ServerSettings = QUICK, *, storage: MemoryStorage | None = None
    ) -> tuple[Server, MemoryTransport]:
        line = self.nats.connect("server")
        kept = in_memory() if storage is None else {"data": Path("data"), "storage": storage}
        server = Server(line, settings, **kept)  # type: ignore[arg-type]  # as in_memory() gives it
        return await self._stack.enter_async_context(server), line

    async def client(self, settings: ClientSettings = PATIENT) -> tuple[Client, MemoryTransport]:
        line = self.nats.connect("client")
        return await self._stack.enter_async_context(lorogo_client.connect(line, settings=settings)), line

    async def open(self, client: Client, document_id: str = "doc") -> Session:
        return await self._stack.enter_async_context(client.open(document_id))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World(stack)


async def write(session: Session, *words: str) -> None:
    """Each word is an update of its own."""
    for word in words:
        body = session.doc.get_text("body")
        body.insert(len(body), word)
        session.commit()
        await session.flush(timeout=SECONDS)


async def some(feed: UpdateFeed, count: int) -> list[FeedItem]:
    async with asyncio.timeout(SECONDS):
        return [await anext(feed) for _ in range(count)]


async def nothing(feed: UpdateFeed) -> None:
    """Nothing comes, although every journal has been asked."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            raise AssertionError(await anext(feed))


def text(items: list[FeedItem], document: str = "doc") -> str:
    """What a document of just these updates says."""
    doc = LoroDoc()
    for item in items:
        if isinstance(item, Update) and item.document == document:
            assert doc.import_(item.payload).pending is None
    return str(doc.get_text("body").to_string())


async def test_a_feed_gives_old_and_new_without_a_seam(world: World) -> None:
    """What was accepted before it began, and what comes while it reads, in one order."""
    await world.server()
    client, _ = await world.client()
    session = await world.open(client)
    await write(session, "a", "b", "c")
    async with client.feed(since=0) as feed:
        items = await some(feed, 3)
        await write(session, "d", "e")
        items += await some(feed, 2)
        await nothing(feed)
    assert text(items) == "abcde"
    updates = [item for item in items if isinstance(item, Update)]
    assert len(updates) == 5
    assert [item.sequence for item in updates] == sorted(item.sequence for item in updates)
    assert len({(item.log_id, item.digest) for item in updates}) == 5
