"""Limits of a token over all its WebSockets; who has none is counted by address."""

from dataclasses import replace

import pytest
from loro import LoroDoc

from lorogo_gateway import frames
from lorogo_gateway.frames import Crdt, RoomErrorCode, Status
from lorogo_gateway.settings import GatewaySettings
from tests.client.support import eventually
from tests.gateway.support import Peer, presence, type_in
from tests.gateway.whole import whole

SETTINGS = GatewaySettings(
    port=0, close_seconds=1.0, rejoin_seconds=0.05, burst_seconds=1.0, trusted_proxies=("127.0.0.1",)
)
ONE = {"X-Forwarded-For": "198.51.100.1"}
OTHER = {"X-Forwarded-For": "198.51.100.2"}


async def test_updates_add_up_over_connections_and_heal() -> None:
    """Each connection is far below its own rate; the one that is too much is asked to join again later."""
    settings = replace(SETTINGS, token_updates_per_second=1.0, burst_seconds=4.0)
    async with (
        whole(settings) as served,
        served.peer(**ONE) as one,
        served.peer(**ONE) as two,
        served.peer(**OTHER) as other,
    ):
        for peer in (one, two, other):
            await peer.join()
        docs = {peer: LoroDoc() for peer in (one, two, other)}
        limited, found = one, list[Status]()
        while Status.RATE_LIMITED not in found:
            limited = (one, two)[len(found) % 2]
            found.append(await limited.save(type_in(docs[limited], "x")))
        assert found[:4] == [Status.OK] * 4
        assert served.refused("token-updates") == 1
        assert served.refused("updates") == 0
        assert await other.save(type_in(docs[other], "y")) is Status.OK
        error = await limited.room_error()
        assert error.error is RoomErrorCode.REJOIN_SUGGESTED
        await limited.join()


async def test_bytes_of_updates_add_up_over_connections() -> None:
    settings = replace(SETTINGS, token_update_bytes_per_second=100.0, burst_seconds=5.0)
    async with whole(settings) as served, served.peer(**ONE) as one, served.peer(**ONE) as two:
        await one.join()
        await two.join()
        assert await one.save(type_in(LoroDoc(), "x" * 3000)) is Status.OK
        assert await two.save(type_in(LoroDoc(), "x")) is Status.RATE_LIMITED
        assert served.refused("token-update-bytes") == 1


@pytest.mark.parametrize("crdt", [Crdt.EPHEMERAL, Crdt.PERSISTED])
async def test_presence_weighs_more_than_updates(crdt: Crdt) -> None:
    """64 KiB of tiny keys take us as long as megabytes of a document, and a reader may send them."""
    settings = replace(SETTINGS, bytes_per_second=1_000.0, burst_seconds=10.0)
    async with whole(settings) as served, served.peer(**ONE) as one, served.peer(**ONE) as two:
        await one.join()
        doc = LoroDoc()
        for _ in range(2):
            assert await one.save(type_in(doc, "x" * 300)) is Status.OK
        await two.join(crdt=crdt)
        assert await two.save(presence("k", "x" * 300), crdt=crdt) is Status.OK
        assert await two.save(presence("k", "y"), crdt=crdt) is Status.RATE_LIMITED
        assert served.refused("updates") == 1


async def test_an_update_in_fragments_is_paid_for_when_it_is_announced() -> None:
    """Once: before its bytes are in memory, and not again when it is whole."""
    settings = replace(SETTINGS, token_update_bytes_per_second=100.0, burst_seconds=5.0)
    async with whole(settings) as served, served.peer(**ONE) as one, served.peer(**ONE) as two:
        await one.join()
        await two.join()
        update = type_in(LoroDoc(), "x" * 3000)
        first, *rest = frames.update_frames(Crdt.LORO, "doc", update, b"batch-01", fragment_bytes=1500)
        await one.socket.send(first)
        assert await one.quiet() == []
        await two.send(frames.FragmentHeader(Crdt.LORO, "doc", b"batch-02", 2, 3000))
        assert await two.acked(b"batch-02") is Status.RATE_LIMITED
        assert served.refused("token-update-bytes") == 1
        for frame in rest:
            await one.socket.send(frame)
        assert await one.acked(b"batch-01") is Status.OK


async def test_unfinished_fragments_of_all_have_a_bound_and_one_token_a_part_of_it() -> None:
    """The shared limits count received bytes, not announced ones; a closed connection frees its share."""
    settings = replace(SETTINGS, update_bytes_max=100_000, unfinished_bytes_max=200_000)
    third = {"X-Forwarded-For": "198.51.100.3"}

    async def half(peer: Peer, batch: bytes) -> None:
        await peer.send(frames.FragmentHeader(Crdt.LORO, "doc", batch, 2, 100_000))
        await peer.send(frames.Fragment(Crdt.LORO, "doc", batch, 0, bytes(90_000)))

    async with (
        whole(settings) as served,
        served.peer(**ONE) as one,
        served.peer(**ONE) as same,
        served.peer(**OTHER) as other,
        served.peer(**third) as late,
    ):
        for peer in (one, same, other, late):
            await peer.join()
        await half(one, b"batch-01")
        assert await one.quiet() == []
        await half(same, b"batch-02")
        assert await same.acked(b"batch-02") is Status.RATE_LIMITED
        await half(other, b"batch-03")
        assert await other.quiet() == []
        await half(late, b"batch-04")
        assert await late.acked(b"batch-04") is Status.RATE_LIMITED
        assert (await late.room_error()).error is RoomErrorCode.REJOIN_SUGGESTED
        assert served.refused("fragments") == 2
        await one.socket.close()
        await eventually(lambda: served.gateway.sockets.stats()["connections"] == 3)
        await late.join()
        await half(late, b"batch-05")
        assert await late.quiet() == []


async def test_joins_above_the_rate_wait_for_their_turn_and_none_is_lost() -> None:
    settings = replace(SETTINGS, token_joins_per_second=20.0, burst_seconds=0.1)
    async with whole(settings) as served, served.peer(**ONE) as one, served.peer(**OTHER) as other:
        for number in range(8):
            await one.send(frames.JoinRequest(Crdt.PERSISTED, f"room-{number}", b"", b""))
        await other.join("mine")
        joined = {(await one.take(frames.JoinOk)).room for _ in range(8)}
        assert joined == {f"room-{number}" for number in range(8)}
        assert served.refused("token-joins") > 0


async def test_open_documents_add_up_over_connections() -> None:
    """Presence of a document and the document itself are one; what is left makes room."""
    async with (
        whole(replace(SETTINGS, token_documents_max=2)) as served,
        served.peer(**ONE) as one,
        served.peer(**ONE) as two,
        served.peer(**OTHER) as other,
    ):
        await one.join("a")
        await one.join("a", crdt=Crdt.EPHEMERAL)
        await two.join("b")
        refused = await two.join_error("c")
        assert refused.app_code == "too_many_documents"
        await other.join("c")
        await one.send(frames.Leave(Crdt.LORO, "a"))
        assert (await two.join_error("c")).app_code == "too_many_documents"
        await one.send(frames.Leave(Crdt.EPHEMERAL, "a"))
        assert await one.quiet() == []
        await two.join("c")
        assert served.refused("token-documents") == 2


async def test_what_a_connection_had_is_free_when_it_ends() -> None:
    settings = replace(SETTINGS, token_documents_max=1, token_connections_max=1)
    async with whole(settings) as served:
        async with served.peer(**ONE) as one:
            await one.join("a")
            async with served.peer(**ONE) as two:
                code, reason = await two.closed()
                assert (code, "too many" in reason) == (1013, True)
            assert served.refused("token-connections") == 1
        await eventually(lambda: served.gateway.sockets.stats()["connections"] == 0)
        async with served.peer(**ONE) as again:
            await again.join("b")


async def test_rooms_of_one_connection_have_their_own_bound() -> None:
    async with whole(replace(SETTINGS, rooms_max=2)) as served, served.peer() as one:
        await one.join("a")
        await one.join("b")
        assert (await one.join_error("c")).app_code == "too_many_rooms"
        assert served.refused("rooms") == 1
