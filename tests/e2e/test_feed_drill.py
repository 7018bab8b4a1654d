"""Three subscribers while documents move: each sees every update once, in order. Run with `-s` for figures.

Real NATS, two servers with journals on the disk. One subscriber is slow, one loses its connection again
and again and is replaced by another process's worth of state, its position as text.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from loro import LoroDoc

import lorogo_client
from lorogo_client import Client, ClientSettings, Session, Update
from lorogo_server import Server
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.server.support import QUICK

pytestmark = [pytest.mark.nats, pytest.mark.slow]

DOCUMENTS = [f"doc-{number}" for number in range(12)]
UPDATES = 50  # of each document
TOTAL = UPDATES * len(DOCUMENTS)
SECONDS = 60.0
SETTINGS = ClientSettings(feed_search_seconds=1.0, retry_seconds_max=0.5)


class Relay:
    """A line to NATS that can be cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""
        self.cuts = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, to_nats = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, to_nats}
        with suppress(OSError):
            await asyncio.gather(_copy(reader, to_nats), _copy(upstream, writer))

    def cut(self) -> None:
        self.cuts += 1
        while self._writers:
            self._writers.pop().transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


@asynccontextmanager
async def relay_to(nats: EmbeddedNats) -> AsyncIterator[Relay]:
    relay = Relay(int(nats.url.rpartition(":")[2]))
    listening = await asyncio.start_server(relay.carry, "127.0.0.1", 0)
    relay.url = f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        listening.close()
        relay.cut()


class Seen:
    """The updates that one subscriber got, and the time when it had all."""

    def __init__(self) -> None:
        self.updates: list[Update] = []
        self.seconds = 0.0
        self.buffered = 0

    def note(self, item: object) -> None:
        assert isinstance(item, Update), item  # no gap: both servers are there all the time
        self.updates.append(item)

    def order(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {name: [] for name in DOCUMENTS}
        for update in self.updates:
            found[update.document].append(update.log_id)
        return found


async def quick(client: Client, seen: Seen) -> None:
    """Reads as fast as it can."""
    began = time.monotonic()
    async with client.feed(since=0) as feed:
        while len(seen.updates) < TOTAL:
            seen.note(await anext(feed))
    seen.seconds = time.monotonic() - began


async def slow(client: Client, seen: Seen, ahead: Seen) -> None:
    """Takes one for every three that the quick one had, and the rest when that one has finished."""
    began = time.monotonic()
    async with client.feed(since=0) as feed:
        while len(seen.updates) < TOTAL:
            while len(ahead.updates) < min(TOTAL, 3 * len(seen.updates)):  # noqa: ASYNC110  # being slow
                await asyncio.sleep(0.005)
            seen.note(await anext(feed))
            held = sum(len(source.entries) for source in feed._merge.sources.values())
            seen.buffered = max(seen.buffered, held)
    seen.seconds = time.monotonic() - began


async def reconnecting(relay: Relay, seen: Seen) -> int:
    """A reader that loses its connection every 60 updates, and every third time starts again from its
    position's text.
    """
    began = time.monotonic()
    position, resumed = "", 0
    while len(seen.updates) < TOTAL:
        async with (
            lorogo_client.connect(relay.url, settings=SETTINGS) as client,
            client.feed(since=position or 0) as feed,
        ):
            cuts = 0
            while len(seen.updates) < TOTAL and cuts < 3:
                seen.note(await anext(feed))
                position = str(feed.position)
                if len(seen.updates) % 60 == 0:
                    relay.cut()
                    cuts += 1
        resumed += 1
    seen.seconds = time.monotonic() - began
    return resumed - 1


async def write(session: Session) -> None:
    for number in range(UPDATES):
        body = session.doc.get_text("body")
        body.insert(len(body), f"{number} ")
        session.commit()
        await session.flush(timeout=SECONDS)


async def stir(client: Client, servers: list[Server], done: asyncio.Event) -> int:
    """Documents change hands, and some are compacted, until the writers are done."""
    rng, moves = random.Random(1), 0
    while not done.is_set():
        owned = [host for server in servers for host in list(server.hosts.values()) if host.state.is_up]
        if owned:
            host = rng.choice(owned)
            if rng.random() < 0.3:
                with suppress(lorogo_client.LorogoError):
                    await client.document(host.document_id).compact(timeout=5.0)
            host.stop("moved")
            await host.closed.wait()
            moves += 1
        await asyncio.sleep(0.02)
    return moves


async def test_three_subscribers_see_every_update_once_and_in_order(
    fresh_nats: EmbeddedNats, tmp_path: Path
) -> None:
    """One is slow, one loses its connection again and again; documents move all the time."""
    url = fresh_nats.url
    async with AsyncExitStack() as stack, asyncio.timeout(SECONDS):
        servers = []
        for number in range(2):
            transport = await stack.enter_async_context(await connect(url, name=f"server-{number}"))
            servers.append(Server(transport, QUICK, data=tmp_path / f"worker-{number}"))
            await stack.enter_async_context(servers[-1])
        relay = await stack.enter_async_context(relay_to(fresh_nats))
        small = replace(SETTINGS, feed_page_bytes=4096)
        writer, one, two = [
            await stack.enter_async_context(lorogo_client.connect(url, settings=settings))
            for settings in (SETTINGS, SETTINGS, small)
        ]
        sessions = [await stack.enter_async_context(writer.open(name)) for name in DOCUMENTS]
        seen = [Seen(), Seen(), Seen()]
        done = asyncio.Event()
        stirring = asyncio.create_task(stir(writer, servers, done))
        reading = [
            asyncio.create_task(quick(one, seen[0])),
            asyncio.create_task(slow(two, seen[1], seen[0])),
        ]
        coming_and_going = asyncio.create_task(reconnecting(relay, seen[2]))
        began = time.monotonic()
        await asyncio.gather(*(write(session) for session in sessions))
        wrote = time.monotonic() - began
        done.set()
        moves = await stirring
        await asyncio.gather(*reading)
        resumed = await coming_and_going
        journalled = sum(
            sum(log.stats().durable_sequence + 1 for log in server.journal.logs)
            for server in servers
            if server.journal
        )
        texts = {session.document_id: str(session.doc.get_text("body").to_string()) for session in sessions}

    print(
        f"\n{TOTAL} updates of {len(DOCUMENTS)} documents written in {wrote:.1f} s,"
        f" {moves} times given up by one of 2 servers, {journalled} records in their journals\n"
        f"  quick        {len(seen[0].updates)} updates, {seen[0].seconds:.1f} s\n"
        f"  slow         {len(seen[1].updates)} updates, {seen[1].seconds:.1f} s,"
        f" at most {seen[1].buffered} waiting in it\n"
        f"  reconnecting {len(seen[2].updates)} updates, {seen[2].seconds:.1f} s,"
        f" {relay.cuts - 1} cuts, resumed {resumed} times from text"
    )
    assert moves >= 5
    orders = [one.order() for one in seen]
    for name in DOCUMENTS:
        assert len(set(orders[0][name])) == UPDATES
        assert orders[0][name] == orders[1][name] == orders[2][name]
    for one_seen in seen:
        assert len(one_seen.updates) == TOTAL
        documents = {name: LoroDoc() for name in DOCUMENTS}
        for update in one_seen.updates:
            assert documents[update.document].import_(update.payload).pending is None
        assert {name: str(doc.get_text("body").to_string()) for name, doc in documents.items()} == texts
    assert seen[1].buffered < TOTAL / 3
