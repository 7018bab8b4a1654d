"""Two clients, one server, one real NATS: the smallest whole."""

import asyncio

import lorogo_client
from lorogo_client import Change, Session, State
from lorogo_server import Server, ServerSettings
from lorogo_transport import jetstream
from lorogo_transport.embedded import EmbeddedNats
from tests.journals import in_memory

DEADLINE = 20.0


async def until_text(session: Session, wanted: str) -> None:
    """Wait until the text is there; every change of others is a reason to look again."""
    async with asyncio.timeout(DEADLINE):
        changes = session.changes()
        while session.doc.get_text("body").to_string() != wanted:
            await anext(changes)


async def test_two_clients_end_equal_and_what_is_acked_is_there_for_a_newcomer(
    fresh_nats: EmbeddedNats,
) -> None:
    """What one client saves the other sees, and a third that comes later reads the same."""
    transport = await jetstream.connect(fresh_nats.url, name="server")
    try:
        async with (
            Server(transport, ServerSettings(), **in_memory()),
            lorogo_client.connect(fresh_nats.url) as one,
            lorogo_client.connect(fresh_nats.url) as two,
            one.open("minutes") as anna,
            two.open("minutes") as bob,
        ):
            changes = bob.changes()
            anna.doc.get_text("body").insert(0, "hello")
            anna.commit()
            receipt = await anna.flush(timeout=DEADLINE)
            assert receipt is not None
            assert receipt.sequence > 0
            assert anna.state is State.SAVED
            await until_text(bob, "hello")
            async with asyncio.timeout(DEADLINE):
                first = await anext(changes)
            assert isinstance(first, Change)
            assert first.sequence == receipt.sequence
            bob.doc.get_text("body").insert(5, " world")
            await bob.flush(timeout=DEADLINE)
            await until_text(anna, "hello world")
            anna.presence.set({"cursor": 5})
            async with asyncio.timeout(DEADLINE):
                async for everybody in bob.presence.watch():
                    if everybody:
                        assert list(everybody.values()) == [{"cursor": 5}]
                        break
            async with (
                lorogo_client.connect(fresh_nats.url) as three,
                three.open("minutes", read_only=True) as eve,
            ):
                assert eve.doc.get_text("body").to_string() == "hello world"
                assert eve.state is State.SAVED
                answer = await three.document("minutes").get()
                assert answer["value"] == {"body": "hello world"}
    finally:
        await transport.close()


async def test_an_update_of_many_chunks_arrives_whole(fresh_nats: EmbeddedNats) -> None:
    """20 MiB in one commit are saved, and another client has them."""
    transport = await jetstream.connect(fresh_nats.url, name="server")
    try:
        async with (
            Server(transport, ServerSettings(), **in_memory()),
            lorogo_client.connect(fresh_nats.url) as client,
            lorogo_client.connect(fresh_nats.url) as other,
            client.open("big") as session,
            other.open("big", read_only=True) as reader,
        ):
            changes = reader.changes()
            noise = bytes(range(256)) * (20 * 1024 * 4)
            session.doc.get_map("files").insert("noise", noise)
            assert await session.flush(timeout=60) is not None
            async with asyncio.timeout(60):
                await anext(changes)
            assert reader.doc.get_map("files").get_deep_value() == {"noise": noise}
    finally:
        await transport.close()
