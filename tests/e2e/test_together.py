"""The real client against the real server, through what networks and documents go through."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

import lorogo_client
from lorogo_client import Client, ClientSettings, DocumentDeleted, Rebased, Session, State, StorageFull
from lorogo_server import Server, ServerSettings
from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.e2e.support import eventually
from tests.journals import in_memory
from tests.server.support import QUICK


class World:
    """NATS in memory, with servers and clients that can be cut off."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.nats = MemoryNats()
        self._stack = stack

    async def server(self, settings: ServerSettings = QUICK) -> Server:
        return await self._stack.enter_async_context(
            Server(self.nats.connect("server"), settings, **in_memory())
        )

    async def client(self, settings: ClientSettings | None = None) -> tuple[Client, MemoryTransport]:
        line = self.nats.connect("client")
        client = await self._stack.enter_async_context(lorogo_client.connect(line, settings=settings))
        return client, line

    async def open(self, client: Client, document_id: str = "doc") -> Session:
        return await self._stack.enter_async_context(client.open(document_id))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World(stack)


def write(session: Session, text: str, at: int | None = None) -> None:
    body = session.doc.get_text("body")
    body.insert(len(body) if at is None else at, text)
    session.commit()


def read(session: Session) -> str:
    return session.doc.get_text("body").to_string()


async def _read_all(session: Session) -> None:
    async for _ in session.changes():
        pass


async def test_edits_made_offline_arrive_and_the_state_is_honest(world: World) -> None:
    """OFFLINE while cut off, never SAVED before the ACK, and both ends equal afterwards."""
    await world.server()
    (one, line), (two, _) = await world.client(), await world.client()
    ana, ben = await world.open(one), await world.open(two)
    write(ana, "before ")
    await ana.flush(timeout=10)
    line.cut()
    for number in range(10):
        write(ana, f"offline{number} ")
        assert ana.state is State.OFFLINE
    write(ben, "meanwhile ")
    await ben.flush(timeout=10)
    line.heal()
    await ana.flush(timeout=20)
    assert ana.state is State.SAVED
    await eventually(lambda: read(ana) == read(ben))
    assert all(read(ben).count(f"offline{number} ") == 1 for number in range(10))


async def test_an_offline_client_rebases_onto_trimmed_history_once(world: World) -> None:
    """Its own edits survive, exactly once, although the history they were made on is gone."""
    await world.server(replace(QUICK, history_seconds=0))
    (one, _), (two, line) = await world.client(), await world.client()
    ana, ben = await world.open(one), await world.open(two)
    write(ana, "hello world")
    await ana.flush(timeout=10)
    await eventually(lambda: read(ben) == "hello world")
    line.cut()
    write(ben, "OFFLINE ", at=0)
    write(ana, "!")
    await ana.flush(timeout=10)
    await one.document("doc").compact()
    write(ana, "?")
    await ana.flush(timeout=10)
    changes = ben.changes()
    line.heal()
    await ben.flush(timeout=20)
    assert read(ben) == "OFFLINE hello world!?"
    await eventually(lambda: read(ana) == read(ben))
    async with asyncio.timeout(5):
        while not isinstance(await anext(changes), Rebased):
            pass
    write(ben, " and on")
    await ben.flush(timeout=10)
    await eventually(lambda: read(ana) == "OFFLINE hello world!? and on")


async def test_a_deleted_document_is_an_error_and_a_restored_one_goes_on(world: World) -> None:
    """Offline clients get an error on their return; after a restore a new session works."""
    await world.server()
    (one, _), (two, line) = await world.client(), await world.client()
    ana = await world.open(one)
    write(ana, "precious")
    await ana.flush(timeout=10)
    with pytest.raises(DocumentDeleted):  # noqa: PT012  # the session ends in the error as well
        async with two.open("doc") as ben:
            line.cut()
            write(ben, " lost?")
            await one.document("doc").delete()
            line.heal()
            with pytest.raises(DocumentDeleted):
                await ben.flush(timeout=20)
            raise DocumentDeleted("doc")
    with pytest.raises(DocumentDeleted):  # a session that only has it open gets the error as well
        await asyncio.wait_for(_read_all(ana), 5)
    assert ana.state is not State.SAVED
    await one.document("doc").restore()
    carl = await world.open((await world.client())[0])
    assert read(carl) == "precious"
    write(carl, " again")
    await carl.flush(timeout=10)


async def test_another_server_goes_on_while_clients_type(world: World) -> None:
    """A graceful handover in the middle of typing: nothing lost, nothing doubled."""
    first = await world.server()
    (one, _), (two, _) = await world.client(), await world.client()
    ana, ben = await world.open(one), await world.open(two)
    for number in range(30):
        write(ana, f"a{number:02d} ")
        write(ben, f"b{number:02d} ")
        if number == 10:
            await world.server()
            await first.stop()
        await asyncio.sleep(0)
    await asyncio.gather(ana.flush(timeout=20), ben.flush(timeout=20))
    await eventually(lambda: read(ana) == read(ben))
    for number in range(30):
        assert read(ana).count(f"a{number:02d} ") == 1
        assert read(ana).count(f"b{number:02d} ") == 1


async def test_a_client_without_rights_on_the_bucket_lets_servers_make_the_move(world: World) -> None:
    """start="server": opened by an init with an empty body, also after the owner has gone."""
    first = await world.server()
    client, _ = await world.client(ClientSettings(start="server"))
    session = await world.open(client)
    write(session, "one ")
    await session.flush(timeout=10)
    await world.server()
    await first.stop()
    write(session, "two")
    await session.flush(timeout=20)
    assert read(session) == "one two"


async def test_a_full_stream_is_a_typed_error_and_not_an_endless_retry(fresh_nats: EmbeddedNats) -> None:
    """The WAL has its limit; the edit stays in the session, honestly unsaved."""
    async with (
        await connect(fresh_nats.url, name="server") as line,
        Server(line, replace(QUICK, wal_bytes_max=200_000, compact_wal_bytes=1 << 30), **in_memory()),
        lorogo_client.connect(
            fresh_nats.url, settings=ClientSettings(reply_seconds=0.5, doubt_seconds=0.2)
        ) as client,
    ):
        with pytest.raises((StorageFull, lorogo_client.Unsaved)):  # noqa: PT012  # both ends of the block
            async with client.open("full") as session:
                session.doc.get_map("m").insert("blob", b"\x01\x02" * 150_000)
                session.commit()
                with pytest.raises(StorageFull):
                    await session.flush(timeout=20)
                assert session.state is not State.SAVED


async def test_nats_goes_away_and_comes_back(fresh_nats: EmbeddedNats) -> None:
    """Kill -9 of nats-server under typing clients: all that was ACKed is there, and typing goes on."""
    async with (
        await connect(fresh_nats.url, name="server") as line,
        Server(line, ServerSettings(), **in_memory()),
        lorogo_client.connect(fresh_nats.url) as one,
        lorogo_client.connect(fresh_nats.url) as two,
        one.open("doc") as ana,
        two.open("doc") as ben,
    ):
        for number in range(20):
            write(ana, f"{number} ")
        await ana.flush(timeout=10)
        await fresh_nats.kill()
        await eventually(lambda: ana.state is State.OFFLINE)
        write(ana, "while away ")
        write(ben, "ben too ")
        await fresh_nats.start()
        await asyncio.gather(ana.flush(timeout=30), ben.flush(timeout=30))
        await eventually(lambda: read(ana) == read(ben))
        assert read(ana).count("while away ") == read(ana).count("ben too ") == 1


async def test_hundreds_of_concurrent_updates_from_many_clients_converge(world: World) -> None:
    """Five clients type at once into one document."""
    await world.server()
    sessions = [await world.open((await world.client())[0]) for _ in range(5)]
    for number in range(50):
        for who, session in enumerate(sessions):
            write(session, f"{who}.{number};", at=0)
        await asyncio.sleep(0)
    await asyncio.gather(*(session.flush(timeout=30) for session in sessions))
    await eventually(lambda: len({read(session) for session in sessions}) == 1)
    assert read(sessions[0]).count(";") == 250
