"""The WebSocket endpoint with a real server behind it: every client that joins and edits has the
same text.
"""

import asyncio

import pytest
from loro import LoroDoc

from lorogo_gateway import frames
from lorogo_gateway.frames import Crdt, Status
from lorogo_protocol.loro import crdt
from lorogo_server import Server
from lorogo_testing.memory_nats import MemoryNats
from tests.gateway.support import gate, since, text_of, type_in

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture(params=[False, True], ids=["own line", "plain ASGI"])
def plain(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def test_an_update_is_acked_and_reaches_all_others_once(world: MemoryNats, plain: bool) -> None:
    """The sender gets its Ack and not its own update; others get the update and no Ack."""
    async with (
        gate(world, plain=plain) as served,
        served.peer() as one,
        served.peer() as two,
        served.peer() as three,
    ):
        for peer in (one, two, three):
            ok = await peer.join()
            assert (ok.permission, ok.version) == ("write", crdt.nothing_known())
        update = type_in(LoroDoc(), "hello")
        assert await one.save(update) is Status.OK
        assert await two.received() == (update,)
        assert await three.received() == (update,)
        for peer in (one, two, three):
            assert await peer.quiet() == []


async def test_a_newcomer_gets_what_it_lacks_and_a_version_to_compare_with(
    world: MemoryNats, plain: bool
) -> None:
    async with (
        gate(world, plain=plain) as served,
        served.peer() as one,
        served.peer() as two,
        served.peer() as three,
    ):
        await one.join()
        mine, yours = LoroDoc(), LoroDoc()
        for word in ("a", "b", "c"):
            assert await one.save(type_in(mine, word)) is Status.OK
        ok = await two.join()
        assert ok.version == mine.oplog_vv.encode()
        yours.import_batch(list(await two.received()))
        assert text_of(yours) == "abc"
        ok = await three.join(version=yours.oplog_vv.encode())
        assert ok.version == mine.oplog_vv.encode()
        assert await three.quiet() == []


async def test_a_batch_of_several_updates_gets_one_ack_after_all(world: MemoryNats) -> None:
    async with gate(world) as served, served.peer() as one, served.peer() as two:
        await one.join()
        await two.join()
        doc = LoroDoc()
        updates = [type_in(doc, word) for word in "abcd"]
        assert await one.save(*updates) is Status.OK
        assert [await two.received() for _ in updates] == [(update,) for update in updates]
        assert await one.quiet() == []
        assert await one.save() is Status.OK  # of none at all


async def test_updates_of_a_room_keep_their_order(world: MemoryNats) -> None:
    async with gate(world) as served, served.peer() as one, served.peer() as two:
        await one.join()
        await two.join()
        doc = LoroDoc()
        batches = [await one.update(type_in(doc, str(n))) for n in range(100)]
        assert [(await one.take(frames.AckFrame)).ref for _ in batches] == batches
        copy = LoroDoc()
        for _ in batches:
            assert copy.import_batch(list(await two.received())).pending is None
        assert text_of(copy) == text_of(doc)


async def test_what_a_client_did_offline_is_sent_after_its_join(world: MemoryNats) -> None:
    """As the npm client does: it exports what the version in JoinOk lacks."""
    async with gate(world) as served, served.peer() as one, served.peer() as two:
        here, there = LoroDoc(), LoroDoc()
        await one.join()
        assert await one.save(type_in(here, "server ")) is Status.OK
        type_in(there, "offline ")
        ok = await two.join(version=there.oplog_vv.encode())
        there.import_batch(list(await two.received()))
        assert await two.save(since(there, ok.version)) is Status.OK
        here.import_batch(list(await one.received()))
        assert here.get_deep_value() == there.get_deep_value()


async def test_gateways_are_many_and_hear_of_each_other(world: MemoryNats) -> None:
    async with (
        gate(world, seed=1) as left,
        gate(world, seed=2) as right,
        left.peer() as one,
        right.peer() as two,
    ):
        await one.join()
        await two.join()
        update = type_in(LoroDoc(), "over there")
        assert await one.save(update) is Status.OK
        assert await two.received() == (update,)


async def test_rooms_of_one_connection_are_apart(world: MemoryNats) -> None:
    async with gate(world) as served, served.peer() as one, served.peer() as two:
        for room in ("left", "right"):
            await one.join(room)
        await two.join("right")
        assert await one.save(type_in(LoroDoc(), "l"), room="left") is Status.OK
        update = type_in(LoroDoc(), "r")
        assert await one.save(update, room="right") is Status.OK
        assert await two.received("right") == (update,)
        await two.send(frames.Leave(Crdt.LORO, "right"))
        assert await one.save(type_in(LoroDoc(), "more"), room="right") is Status.OK
        assert await two.quiet() == []
        assert await two.save(update, room="right") is Status.PERMISSION_DENIED


async def test_a_large_update_comes_and_goes_in_fragments(world: MemoryNats, plain: bool) -> None:
    """5 MiB up in fragments, to a reader that is there, and to one that joins later."""
    async with (
        gate(world, plain=plain) as served,
        served.peer() as one,
        served.peer() as two,
        served.peer() as three,
    ):
        await one.join()
        await two.join()
        doc = LoroDoc()
        noise = "".join(chr(0x4E00 + (n * 7919) % 20000) for n in range(1_750_000))
        update = type_in(doc, noise)
        assert len(update) > 5 * 1024 * 1024
        batch = b"large-01"
        for frame in frames.update_frames(Crdt.LORO, "doc", update, batch, fragment_bytes=240 * 1024):
            await one.socket.send(frame)
        assert await one.acked(batch) is Status.OK
        await three.join()
        for peer in (two, three):
            header = await peer.take(frames.FragmentHeader)
            parts: dict[int, bytes] = {}
            while len(parts) < header.count:
                part = await peer.take(frames.Fragment, lambda p, b=header.batch: p.batch == b)  # type: ignore[misc]
                parts[part.index] = part.data
            payload = b"".join(parts[index] for index in range(header.count))
            assert len(payload) == header.total
            copy = LoroDoc()
            copy.import_(payload)
            assert copy.get_text("t").len_unicode == len(noise)


async def test_many_writers_converge(world: MemoryNats, server: Server) -> None:
    async with gate(world) as served, served.peer() as one, served.peer() as two, served.peer() as three:
        peers = [one, two, three]
        docs = [LoroDoc() for _ in peers]
        for peer in peers:
            await peer.join()
        for turn in range(20):
            for peer, doc in zip(peers, docs, strict=True):
                await peer.update(type_in(doc, f"{turn} "))
        for peer, doc in zip(peers, docs, strict=True):
            for _ in range(20):
                assert (await peer.take(frames.AckFrame)).status is Status.OK
            for _ in range(40):
                doc.import_batch(list(await peer.received()))
        texts = {text_of(doc) for doc in docs}
        assert len(texts) == 1
        assert len(next(iter(texts)).split()) == 60
        assert "doc" in server.hosts


async def test_pings_are_answered(world: MemoryNats, plain: bool) -> None:
    """Those of the protocol, which are texts, and those of WebSocket."""
    async with gate(world, plain=plain) as served, served.peer() as one:
        await one.socket.send("ping")
        assert await one.next() == "pong"
        await one.socket.send("pong")
        async with asyncio.timeout(5):
            await (await one.socket.ping())
        assert await one.quiet() == []


async def test_what_was_typed_just_before_the_tab_was_closed_is_saved(world: MemoryNats) -> None:
    async with gate(world) as served, served.peer() as two:
        await two.join()
        async with served.peer() as one:
            await one.join()
            update = type_in(LoroDoc(), "last words")
            await one.update(update)
        assert await two.received() == (update,)


async def test_stats_count_what_happens(world: MemoryNats) -> None:
    async with gate(world) as served, served.peer() as one, served.peer() as two:
        await one.join()
        await two.join()
        await two.join(crdt=Crdt.EPHEMERAL)
        assert await one.save(type_in(LoroDoc(), "x")) is Status.OK
        await two.received()
        assert await two.save(b"x", room="elsewhere") is Status.PERMISSION_DENIED
        facts = served.sockets.stats()
        expected = {"connections": 2, "rooms": 2, "members": 3, "documents": 1, "unacked": 0, "joins": 3}
        assert {name: facts[name] for name in expected} == expected
        acks = served.stat("acks")
        assert (acks["ok"], acks["permission_denied"]) == (1, 1)
        assert served.stat("bytes_in") > 0
        assert served.stat("bytes_out") > 0
        assert (served.stat("opened"), served.stat("updates_in"), served.stat("updates_out")) == (2, 1, 1)
