"""The feed on real servers: what subscribers see while documents move, servers vanish and lines break."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
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
    InvalidPosition,
    Refused,
    Restored,
    Session,
    Update,
    UpdateFeed,
)
from lorogo_client.feed.memory import FeedMemory
from lorogo_client.feed.position import FeedState
from lorogo_log import MemoryStorage, Reader
from lorogo_protocol.journal.pages import EVERYTHING
from lorogo_protocol.journal.records import ANSWERS_KEY
from lorogo_server import Server, ServerSettings
from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from tests.journals import in_memory
from tests.server.support import QUICK, services_of

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
        server = Server(line, settings, **kept)
        return await self._stack.enter_async_context(server), line

    async def client(self, settings: ClientSettings = PATIENT) -> tuple[Client, MemoryTransport]:
        line = self.nats.connect("client")
        return await self._stack.enter_async_context(lorogo_client.connect(line, settings=settings)), line

    async def open(self, client: Client, document_id: str = "doc") -> Session:
        return await self._stack.enter_async_context(client.open(document_id))

    async def enter(self, feed: AbstractAsyncContextManager[UpdateFeed]) -> UpdateFeed:
        return await self._stack.enter_async_context(feed)


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
    """The text of a document that consists of these updates."""
    doc = LoroDoc()
    for item in items:
        if isinstance(item, Update) and item.document == document:
            assert doc.import_(item.payload).pending is None
    return str(doc.get_text("body").to_string())


async def test_a_feed_gives_old_and_new_without_a_seam(world: World) -> None:
    """The feed gives updates accepted before its start and during it, in one order."""
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


async def move(client: Client, servers: list[Server], to: Server, document: str = "doc") -> None:
    """Have another server own the document; its journal stays where it was."""
    async with asyncio.timeout(SECONDS):
        while document not in to.hosts:
            for server in servers:
                if (host := server.hosts.get(document)) is not None and server is not to:
                    host.stop("moved")
                    await host.closed.wait()
            with suppress(Refused):  # a deleted document is started all the same
                await client.document(document).patch([])  # creates it, and changes nothing


async def test_documents_move_between_servers_and_nothing_is_given_twice(world: World) -> None:
    """Each new owner journals again what the WAL replays; the feed gives it once, in one order."""
    servers = [(await world.server())[0] for _ in range(2)]
    client, _ = await world.client()
    session = await world.open(client)
    async with client.feed(since=0) as live:
        expected = ""
        for turn in range(6):
            await move(client, servers, servers[turn % 2])
            await write(session, f"{turn}x", f"{turn}y")
            expected += f"{turn}x{turn}y"
        items = await some(live, 12)
        await nothing(live)
    assert text(items) == expected
    async with client.feed(since=0) as late:
        again = await some(late, 12)
        await nothing(late)
    assert [item.log_id for item in again if isinstance(item, Update)] == [
        item.log_id for item in items if isinstance(item, Update)
    ]
    journalled = sum(
        stats if isinstance(stats := server.stats()["journal_records"], int) else 0 for server in servers
    )
    assert journalled > 12, "the servers journalled nothing twice, so this shows nothing"


async def test_what_servers_note_of_themselves_is_no_part_of_a_feed(world: World) -> None:
    """Answers between the updates of every journal are no item, no gap, no document; positions pass them."""
    servers = [(await world.server())[0] for _ in range(2)]
    client, _ = await world.client()
    session = await world.open(client)
    items: list[FeedItem] = []
    position: FeedPosition | None = None
    for turn in range(4):
        await move(client, servers, servers[turn % 2])
        await write(session, f"{turn}x", f"{turn}y")
        for server in servers:
            server.context.ack_metrics.acked(turn)
            await services_of(server).record_answers()
        async with client.feed(since=position or 0) as feed:
            items += await some(feed, 2)
            await nothing(feed)
            position = feed.position
    assert all(isinstance(item, Update) and item.document == "doc" for item in items)
    assert text(items) == "0x0y1x1y2x2y3x3y"
    for server in servers:
        assert server.journal is not None
        found = Reader(server.journal.logs[0].core.directory).cursor(key=ANSWERS_KEY)
        assert sum(len(batch) for batch in found) == 4
    async with client.feed(since=0, documents=["doc"]) as late:
        assert text(await some(late, 8)) == text(items)


async def test_what_was_purged_before_a_move_is_read_from_the_first_journal(world: World) -> None:
    """The new owner has only a base; the feed waits for the old owner's journal, and reports no gap."""
    servers = [(await world.server())[0] for _ in range(2)]
    client, _ = await world.client()
    session = await world.open(client)
    expected = ""
    for turn in range(4):
        await move(client, servers, servers[turn % 2])
        await write(session, f"{turn}x", f"{turn}y")
        await client.document("doc").compact()
        expected += f"{turn}x{turn}y"
    for _ in range(3):  # in whichever order the pages come
        async with client.feed(since=0) as feed:
            items = await some(feed, 8)
            await nothing(feed)
        assert text(items) == expected


async def test_a_feed_begins_at_its_since(world: World) -> None:
    """Now, behind a sequence, at a time; replays of what is older do not count as new."""
    servers = [(await world.server())[0] for _ in range(2)]
    client, _ = await world.client()
    session = await world.open(client)
    await write(session, "a", "b")
    receipt = await session.flush(timeout=SECONDS)
    assert receipt is not None
    between = datetime.now(UTC)
    async with (
        client.feed() as now,
        client.feed(since=receipt.sequence) as behind,
        client.feed(since=between) as at,
    ):
        for server in servers:
            await move(client, servers, server)
        await write(session, "c")
        for feed in (now, behind, at):
            (item,) = await some(feed, 1)
            assert isinstance(item, Update)
            assert item.sequence > receipt.sequence
            assert item.time_ns >= between.timestamp() * 1e9
            await nothing(feed)
    async with client.feed(since=datetime.now(UTC) - timedelta(hours=1)) as old:
        assert text(await some(old, 3)) == "abc"


async def test_a_position_goes_on_exactly_there(world: World) -> None:
    """Nothing twice, nothing missed, by another process, although the document moved meanwhile."""
    servers = [(await world.server())[0] for _ in range(2)]
    client, _ = await world.client()
    session = await world.open(client)
    items: list[FeedItem] = []
    position = ""
    words = [f"{number} " for number in range(12)]
    for number in range(0, 12, 3):
        await move(client, servers, servers[number % 2])
        await write(session, *words[number : number + 3])
        other, _ = await world.client()
        async with other.feed(since=FeedPosition.parse(position) if position else 0) as feed:
            items += await some(feed, 2 if number < 9 else 12 - len(items))
            position = str(feed.position)
    async with client.feed(since=position) as feed:
        await nothing(feed)
    assert text(items) == "".join(words)
    assert len(items) == 12


async def test_a_position_is_exact_although_the_server_that_gave_it_is_gone(world: World) -> None:
    """The next owner replays what the lost server's journal had; none of it is given again."""
    first, line = await world.server()
    client, _ = await world.client()
    session = await world.open(client)
    await write(session, "a", "b", "c", "d")
    async with client.feed(since=0) as feed:
        items = await some(feed, 3)
        position = feed.position
    await world.server()
    line.cut()
    await write(session, "e")
    async with client.feed(since=position) as feed:
        items += await some(feed, 2)
        await nothing(feed)
    assert text(items) == "abcde"
    assert not first.ready


async def test_updates_of_a_lost_server_alone_are_a_gap(world: World) -> None:
    """The updates were compacted, so no server replays them; after its return the server does not send them
    again.
    """
    _, line = await world.server()
    client, _ = await world.client()
    session = await world.open(client)
    await write(session, "a", "b")
    await client.document("doc").compact()
    await world.server()
    line.cut()
    await write(session, "c")
    async with client.feed(since=0) as feed:
        gap, update = await some(feed, 2)
        assert isinstance(gap, Gap)
        assert sum(end - first for _, first, end in gap.missing) == 2
        assert isinstance(update, Update)
        line.heal()
        await nothing(feed)
        await write(session, "d")
        (last,) = await some(feed, 1)
        await nothing(feed)
    doc = LoroDoc()
    doc.import_(await client.document("doc").export())
    assert isinstance(last, Update)
    assert str(doc.get_text("body").to_string()) == "abcd"


async def resumed_without_a_server(world: World, patience: float) -> tuple[UpdateFeed, MemoryTransport]:
    """A feed that stands before "b", which a lost server alone has, and "c", which builds on it."""
    _, line = await world.server()
    client, _ = await world.client(replace(PATIENT, feed_patience_seconds=patience))
    session = await world.open(client)
    await write(session, "a", "b")
    async with client.feed(since=0) as feed:
        await some(feed, 1)
        position = feed.position
    await client.document("doc").compact()
    await world.server()
    line.cut()
    await write(session, "c")
    return await world.enter(client.feed(since=position)), line


async def test_a_journal_that_no_server_has_is_waited_for(world: World) -> None:
    """It has a place in the position, so something may follow there: when it is back nothing is missing."""
    feed, line = await resumed_without_a_server(world, patience=60)
    await nothing(feed)
    line.heal()
    items = await some(feed, 2)
    assert [type(item) for item in items] == [Update, Update]


async def test_a_journal_that_no_server_has_is_not_waited_for_forever(world: World) -> None:
    """A gap appears when the patience ends."""
    feed, _ = await resumed_without_a_server(world, patience=0.5)
    items = await some(feed, 2)
    assert [type(item) for item in items] == [Gap, Update]


async def test_unknown_journals_cost_next_to_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A client may write any position: a thousand journals in it cost one task and one line in the log."""
    await world.server()
    client, _ = await world.client()
    await write(await world.open(client), "a")
    places = {f"nobody{number}": "" for number in range(1_000)}
    position = FeedPosition.of(FeedState(EVERYTHING, None, places, FeedMemory()))
    before = len(asyncio.all_tasks())
    with caplog.at_level("INFO", logger="lorogo_client.feed.reader"):
        async with client.feed(since=position) as feed:
            assert text(await some(feed, 1)) == "a"
            assert len(asyncio.all_tasks()) < before + 100  # a server has a few journals
            async with asyncio.timeout(SECONDS):
                while not caplog.records:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(0.05):
                            await anext(feed)
            await nothing(feed)
    assert len(caplog.records) == 1


async def test_only_the_documents_that_were_asked_for(world: World) -> None:
    """Others are not sent at all; a position keeps the choice."""
    await world.server()
    client, _ = await world.client()
    one, two = await world.open(client, "one"), await world.open(client, "two")
    async with client.feed(since=0, documents=["one"]) as feed:
        await write(two, "x", "y")
        await write(one, "a")
        await write(two, "z")
        await write(one, "b")
        items = await some(feed, 2)
        position = feed.position
    assert text(items, "one") == "ab"
    await write(two, "!")
    await write(one, "c")
    async with client.feed(since=position) as feed:
        assert [item.document for item in await some(feed, 1)] == ["one"]
        await nothing(feed)
    with pytest.raises(ValueError, match="documents"):
        async with client.feed(since=position, documents=["two"]):
            pass


async def test_deletion_and_restoration_are_items(world: World) -> None:
    """Once each, between the updates before and after."""
    await world.server()
    client, _ = await world.client()
    async with client.feed() as feed:
        async with client.open("doc") as session:
            await write(session, "a")
        await client.document("doc").delete()
        await client.document("doc").restore()
        async with client.open("doc") as session:
            await write(session, "b")
        kinds = [type(item) for item in await some(feed, 4)]
        await nothing(feed)
    assert kinds == [Update, Deleted, Restored, Update]


async def test_a_restoration_by_another_server_comes_after_the_deletion(world: World) -> None:
    """Whichever journal is read first: the second server's begins with the restoration."""
    servers = [(await world.server())[0] for _ in range(2)]
    client, _ = await world.client()
    await move(client, servers, servers[0])
    async with client.open("doc") as session:
        await write(session, "a")
    await client.document("doc").delete()
    await move(client, servers, servers[1])
    await client.document("doc").restore()
    async with client.open("doc") as session:
        await write(session, "b")
    for _ in range(3):
        async with client.feed(since=0) as feed:
            kinds = [type(item) for item in await some(feed, 4)]
            await nothing(feed)
        assert kinds == [Update, Deleted, Restored, Update]


async def test_a_fork_begins_with_a_gap(world: World) -> None:
    """Its history is another document's: the updates of the fork begin behind it."""
    await world.server()
    client, _ = await world.client()
    async with client.open("doc") as session:
        await write(session, "a")
    await client.document("doc").fork("copy")
    async with client.open("copy") as session:
        await write(session, "b")
    async with client.feed(since=0, documents=["copy"]) as feed:
        gap, update = await some(feed, 2)
        await nothing(feed)
    assert isinstance(gap, Gap)
    assert isinstance(update, Update)
    assert gap.document == update.document == "copy"


async def test_without_a_journal_there_is_no_feed(world: World) -> None:
    """A server that keeps none is named, at once or when it appears: its updates are not just left out."""
    client, _ = await world.client()
    async with client.feed(since=0) as feed:
        server, _ = await world.server(replace(QUICK, durability="stream"))
        with pytest.raises(FeedUnavailable, match=server.server_id):
            await some(feed, 1)
    with pytest.raises(FeedUnavailable, match="durability stream"):
        async with client.feed():
            pass


async def test_a_slow_subscriber_holds_little_and_slows_no_other(world: World) -> None:
    """While one does not read, the other gets everything; the slow one then finds everything there."""
    await world.server()
    (client, _), (quick, _) = await world.client(replace(PATIENT, feed_page_bytes=2000)), await world.client()
    session = await world.open(client)
    async with client.feed(since=0) as slow, quick.feed(since=0) as fast:
        first = await some(slow, 0)
        for number in range(200):
            session.doc.get_text("body").insert(0, f"{number} ")
            session.commit()
        await session.flush(timeout=SECONDS)
        count = len(await some(fast, 200))
        held = [len(source.entries) for source in slow._merge.sources.values()]
        assert sum(held) < 60
        first += await some(slow, 200)
    assert count == len(first) == 200
    assert text(first) == session.doc.get_text("body").to_string()


async def test_a_feed_goes_on_after_its_line_was_cut(world: World) -> None:
    """The feed gives the updates of the outage then, and no update twice."""
    servers = [(await world.server())[0] for _ in range(2)]
    (client, _), (reader, line) = await world.client(), await world.client()
    session = await world.open(client)
    async with reader.feed(since=0) as feed:
        await write(session, "a")
        items = await some(feed, 1)
        line.cut()
        await write(session, "b")
        await move(client, servers, servers[0])
        await move(client, servers, servers[1])
        await write(session, "c")
        line.heal()
        items += await some(feed, 2)
        await nothing(feed)
    assert text(items) == "abc"


async def test_a_worker_that_comes_back_under_another_name_goes_on_with_its_journal(world: World) -> None:
    """A journal is known by the id of its log, not by who serves it."""
    storage = MemoryStorage()
    client, _ = await world.client()
    line = world.nats.connect("server")
    async with client.feed(since=0) as feed:
        async with Server(line, QUICK, data=Path("data"), storage=storage):
            async with client.open("doc") as session:
                await write(session, "a")
            items = await some(feed, 1)
        await world.server(storage=storage)
        async with client.open("doc") as session:
            await write(session, "b")
            items += await some(feed, 1)
        await nothing(feed)
        assert len(feed._merge.sources) == 1
    assert text(items) == "ab"


async def test_a_feed_ends_with_its_client(world: World) -> None:
    """The iteration of a waiting reader ends; invalid arguments are refused at once."""
    await world.server()
    async with lorogo_client.connect(world.nats.connect("client"), settings=PATIENT) as client:
        feed = await client.feed()
        waiting = asyncio.ensure_future(anext(feed, None))
        await nothing(await client.feed())
        for since in (-1, True, datetime(2026, 1, 1), "lf1-x"):  # noqa: DTZ001  # that is what is refused
            with pytest.raises((ValueError, InvalidPosition)):
                client.feed(since=since)
        with pytest.raises(TypeError):
            client.feed(documents="doc")
        with pytest.raises(ValueError, match="documents"):
            client.feed(documents=[])
    async with asyncio.timeout(SECONDS):
        assert await waiting is None


async def test_a_server_that_stops_answers_those_who_wait(world: World) -> None:
    """It does not wait for their time to run out."""
    server, _ = await world.server()
    client, _ = await world.client()
    async with client.feed(since=0) as feed:
        await nothing(feed)
        async with asyncio.timeout(2):
            await server.stop()
        await nothing(feed)
