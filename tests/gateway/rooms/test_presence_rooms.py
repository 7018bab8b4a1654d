"""`%EPH` and `%EPS`: who is there, and what is kept."""

import asyncio
import time
from dataclasses import replace
from typing import cast

import pytest

from lorogo_client import PresenceTooLarge
from lorogo_gateway import frames
from lorogo_gateway.frames import Crdt, RoomErrorCode, Status
from lorogo_gateway.relay.subscriber import Subscriber
from lorogo_gateway.rooms.connection_port import ConnectionPort
from lorogo_gateway.rooms.presence_room import send_present
from lorogo_gateway.state.cursors import Cursors
from lorogo_gateway.state.gateway_state import GatewayState
from lorogo_protocol.errors import CrdtError
from lorogo_protocol.messages import subjects
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.errors import Disconnected
from lorogo_transport.tasks import Tasks
from tests.client.support import FakeOwner, client_of
from tests.gateway.support import SETTINGS, eventually, gate, presence, states

EPH, EPS = Crdt.EPHEMERAL, Crdt.PERSISTED


@pytest.mark.usefixtures("server")
async def test_presence_reaches_all_others_once_and_not_its_sender(world: MemoryNats) -> None:
    """It needs no `%LOR` room, and goes to other gateways, too."""
    async with (
        gate(world, seed=1) as here,
        gate(world, seed=2) as there,
        here.peer() as one,
        here.peer() as two,
        there.peer() as three,
    ):
        for peer in (one, two, three):
            assert (await peer.join(crdt=EPH)).permission == "write"
        data = presence("ann", {"at": 3})
        assert await one.save(data, crdt=EPH) is Status.OK
        for peer in (two, three):
            assert await peer.received(crdt=EPH) == (data,)
        for peer in (one, two, three):
            assert await peer.quiet() == []


@pytest.mark.usefixtures("server")
async def test_a_newcomer_sees_who_is_there(world: MemoryNats) -> None:
    async with gate(world, seed=1) as here, gate(world, seed=2) as there, here.peer() as one:
        await one.join()
        await one.join(crdt=EPH)
        for n in range(3):
            assert await one.save(presence(f"key-{n}", n), crdt=EPH) is Status.OK
        for served in (here, there):
            async with served.peer() as two:
                await two.join(crdt=EPH)
                assert states(*await two.received(crdt=EPH)) == {"key-0": 0, "key-1": 1, "key-2": 2}


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("how", ["leave", "close", "cut"])
async def test_cursors_vanish_with_their_connection(world: MemoryNats, how: str) -> None:
    """Only its own: a client sends its whole store when it joins, with what others set in it."""
    async with gate(world) as served, served.peer() as two, served.peer() as one:
        await two.join(crdt=EPH)
        await one.join(crdt=EPH)
        bob = presence("bob", 1)
        assert await two.save(bob, crdt=EPH) is Status.OK
        assert await one.save(bob, presence("ann", 1), presence("ann-2", 2), crdt=EPH) is Status.OK
        seen = [part for _ in range(3) for part in await two.received(crdt=EPH)]
        assert states(*seen) == {"bob": 1, "ann": 1, "ann-2": 2}
        match how:
            case "leave":
                await one.send(frames.Leave(EPH, "doc"))
            case "close":
                await one.socket.close()
            case _:
                one.socket.transport.abort()
        gone = await two.received(crdt=EPH)
        assert states(*seen, *gone) == {"bob": 1}


@pytest.mark.usefixtures("server")
async def test_sessions_in_python_see_the_same_presence(world: MemoryNats) -> None:
    async with gate(world) as served, served.peer() as one, served.client.open("doc") as session:
        await one.join(crdt=EPH)
        session.presence.set({"name": "py"})
        seen = states(*await one.received(crdt=EPH))
        assert list(seen.values()) == [{"name": "py"}]
        assert await one.save(presence("web", "js"), crdt=EPH) is Status.OK
        await eventually(lambda: session.presence.all().get("web") == "js")


async def test_presence_joins_again_when_the_owner_was_lost(world: MemoryNats) -> None:
    async with gate(world) as served, served.peer() as one:
        async with FakeOwner(world, name="first") as first:
            await one.join(crdt=EPH)
            await first.stop()
        error = await one.room_error(EPH)
        assert error.error is RoomErrorCode.REJOIN_SUGGESTED
        async with FakeOwner(world, name="second"):
            await one.join(crdt=EPH)
            assert await one.save(presence("k", 1), crdt=EPH) is Status.OK


@pytest.mark.usefixtures("server")
async def test_no_member_can_show_so_much_that_joins_fail(world: MemoryNats) -> None:
    """One client shows 64 KiB in all; a newcomer gets what was taken, and its connection stays."""
    async with gate(world) as served, served.peer() as one, served.peer() as two:
        await one.join(crdt=EPH)
        taken = [await one.save(presence(f"k{n}", "x" * 20_000), crdt=EPH) for n in range(6)]
        assert taken == [Status.OK] * 3 + [Status.PAYLOAD_TOO_LARGE] * 3
        await two.join(crdt=EPH)
        assert set(states(*await two.received(crdt=EPH))) == {"k0", "k1", "k2"}


async def test_a_newcomer_is_sent_what_is_present_as_fast_as_it_reads(world: MemoryNats) -> None:
    """In many rooms it may be more than may wait for a slow reader."""

    class Reader:
        """A port and its writer: a wait for the writer takes everything unread."""

        unread = worst = 0
        writer = property(lambda self: self)

        def __init__(self, gateway: GatewayState) -> None:
            self.gateway = gateway

        async def writable(self) -> None:
            self.unread = 0

        def send(self, data: bytes) -> None:
            self.unread += len(data)
            self.worst = max(self.worst, self.unread)

    async with client_of(world) as client:
        reader = Reader(GatewayState(client, replace(SETTINGS, fragment_bytes=50_000), Tasks(lambda _: None)))
        await send_present(cast(ConnectionPort, reader), EPH, "doc", bytes(1_000_000), lambda: True)
        assert 50_000 <= reader.worst < 51_000


@pytest.mark.usefixtures("server")
async def test_presence_that_was_not_passed_on_is_not_acked_ok(
    world: MemoryNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is asked to join again, and sends all of it then."""
    async with gate(world) as served, served.peer() as one, served.peer() as two:
        await one.join(crdt=EPH)
        await two.join(crdt=EPH)
        data = presence("k", 1)
        with monkeypatch.context() as patch:
            patch.setattr(Subscriber, "tell", _disconnected)
            assert await one.save(data, crdt=EPH) is Status.APP_ERROR
            assert (await one.room_error(EPH)).error is RoomErrorCode.REJOIN_SUGGESTED
        await one.join(crdt=EPH)
        assert await one.save(data, crdt=EPH) is Status.OK
        assert states(*await two.received(crdt=EPH)) == {"k": 1}


async def test_kept_presence_is_there_for_those_who_come_later(world: MemoryNats) -> None:
    """No server is needed; its Ack means stored."""
    async with gate(world, seed=1) as here, gate(world, seed=2) as there, here.peer() as one:
        await one.join(crdt=EPS)
        async with there.peer() as two:
            await two.join(crdt=EPS)
            assert await one.save(presence("title", "Minutes"), crdt=EPS) is Status.OK
            assert states(*await two.received(crdt=EPS)) == {"title": "Minutes"}
            assert await two.save(presence("color", "blue"), crdt=EPS) is Status.OK
            assert states(*await one.received(crdt=EPS)) == {"title": "Minutes", "color": "blue"}
        async with here.peer() as three:
            await three.join(crdt=EPS)
            assert states(*await three.received(crdt=EPS)) == {"title": "Minutes", "color": "blue"}
        await one.send(frames.Leave(EPS, "doc"))
        assert await one.save(presence("x", 1), crdt=EPS) is Status.PERMISSION_DENIED


async def test_kept_presence_of_many_batches_is_acked_in_order(world: MemoryNats) -> None:
    async with gate(world) as served, served.peer() as one, served.peer() as two:
        await one.join(crdt=EPS)
        await two.join(crdt=EPS)
        batches = [await one.update(presence(f"k{n}", n), crdt=EPS) for n in range(30)]
        acks = [await one.take(frames.AckFrame) for _ in batches]
        assert [ack.ref for ack in acks] == batches
        assert {ack.status for ack in acks} == {Status.OK}
        seen: list[bytes] = []
        async with asyncio.timeout(5):
            while len(states(*seen)) < 30:
                seen += await two.received(crdt=EPS)


async def test_a_room_of_kept_presence_leaves_no_task_behind(world: MemoryNats) -> None:
    """Merging ends when there is nothing to merge."""
    async with gate(world) as served, served.peer() as one:
        before = len(asyncio.all_tasks())
        for turn in range(5):
            await one.join(crdt=EPS)
            assert await one.save(presence("k", turn), crdt=EPS) is Status.OK
            if turn % 2:
                await one.send(frames.Leave(EPS, "doc"))
        await eventually(lambda: len(asyncio.all_tasks()) <= before)


async def test_what_came_before_a_client_went_is_kept(world: MemoryNats) -> None:
    """It is given `close_seconds`, also when the connection is cut."""
    async with gate(world) as served, served.peer() as one:
        await one.join(crdt=EPS)
        for n in range(30):
            await one.update(presence(f"k{n}", n), crdt=EPS)
        await one.take(frames.AckFrame)
        unacked = served.stat("updates_in")
        one.socket.transport.abort()
        await eventually(lambda: served.stat("connections") == 0)
        async with asyncio.timeout(5):
            while len(states(await served.client.kept_presence.load("doc"))) < unacked:
                pass


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("purge", [False, True])
async def test_a_deleted_document_keeps_no_presence_any_more(world: MemoryNats, purge: bool) -> None:
    async with gate(world) as served, served.peer() as one, served.peer() as two:
        async with served.client.open("doc"):
            pass
        await one.join(crdt=EPS)
        assert await one.save(presence("k", 1), crdt=EPS) is Status.OK
        await served.client.document("doc").delete(purge=purge)
        assert await one.save(presence("k", 2), crdt=EPS) is Status.APP_ERROR
        assert (await one.room_error(EPS)).error is RoomErrorCode.EVICTED
        for peer in (one, two):
            assert (await peer.join_error(crdt=EPS)).app_code == "deleted"
        assert await one.quiet() == []
        kept = await served.client.kept_presence.load("doc")
        assert kept == b"" if purge else states(kept) == {"k": 1}


async def test_when_the_bucket_is_full_the_client_tries_again(world: MemoryNats) -> None:
    async with gate(world) as served, served.peer() as one:
        await one.join(crdt=EPS)
        config = world.store(subjects.PRESENCE_STREAM).config
        before, config["max_bytes"] = config["max_bytes"], 10
        assert await one.save(data := presence("k", 1), crdt=EPS) is Status.APP_ERROR
        assert (await one.room_error(EPS)).error is RoomErrorCode.REJOIN_SUGGESTED
        config["max_bytes"] = before
        await one.join(crdt=EPS)
        assert await one.save(data, crdt=EPS) is Status.OK


class TestCursors:
    """Which connection set which key."""

    def test_a_key_belongs_to_its_last_writer(self) -> None:
        cursors = Cursors()
        ann, bob = object(), object()
        cursors.set_by(ann, presence("k", 1))
        newer = _later("k", 2)
        cursors.set_by(bob, newer)
        assert cursors.deletion(ann) == b""
        time.sleep(0.003)
        assert states(newer, cursors.deletion(bob)) == {}

    def test_a_key_that_another_gateway_renews_is_not_ours_any_more(self) -> None:
        cursors = Cursors()
        ann = object()
        mine = presence("k", 1)
        cursors.set_by(ann, mine)
        cursors.receive(bytes(bytearray(mine)))  # the echo of our own changes nothing
        cursors.receive(_later("k", 2))
        assert cursors.deletion(ann) == b""
        assert states(cursors.all()) == {"k": 2}

    def test_what_was_deleted_is_not_deleted_twice(self) -> None:
        cursors = Cursors()
        ann = object()
        cursors.set_by(ann, presence("k", 1))
        assert cursors.deletion(ann) != b""
        assert cursors.deletion(ann) == b""
        assert cursors.all() == b""

    @pytest.mark.parametrize("data", [b"x", b"\xff" * 100])
    def test_bytes_that_are_no_presence_change_nothing(self, data: bytes) -> None:
        cursors = Cursors()
        with pytest.raises(CrdtError):
            cursors.set_by(object(), data)
        assert cursors.all() == b""

    def test_one_setter_has_a_bound_and_what_it_set_before_stays(self) -> None:
        cursors = Cursors(setter_bytes_max=1_000)
        ann, bob = object(), object()
        cursors.set_by(ann, presence("a", "x" * 600))
        with pytest.raises(PresenceTooLarge):
            cursors.set_by(ann, presence("b", "x" * 600))
        with pytest.raises(PresenceTooLarge):
            cursors.set_by(ann, presence("c", 1), _later("b", "x" * 600))
        cursors.set_by(ann, shorter := _later("a", "short"))
        cursors.set_by(ann, presence("b", "x" * 600))
        cursors.set_by(bob, shorter, presence("bob", "x" * 900))  # what it repeats is not its own
        assert set(states(cursors.all())) == {"a", "b", "bob"}
        time.sleep(0.003)
        assert len(cursors.deletion(ann)) <= 1_000
        assert set(states(cursors.all())) == {"bob"}

    def test_a_key_without_a_value_counts_as_well(self) -> None:
        cursors = Cursors(setter_bytes_max=1_000)
        with pytest.raises(PresenceTooLarge):
            cursors.set_by(object(), presence("k" * 2_000, None))

    def test_a_document_has_a_bound(self) -> None:
        """Members of this gateway are refused above it; of what comes from elsewhere the oldest goes."""
        cursors = Cursors(bytes_max=10_000)
        for n in range(9):
            cursors.set_by(object(), presence(f"k{n}", "x" * 1_000))
        with pytest.raises(PresenceTooLarge):
            cursors.set_by(object(), presence("k9", "x" * 1_000))
        assert len(states(cursors.all())) == 9
        for n in range(9, 30):
            cursors.receive(presence(f"k{n}", "x" * 1_000))
            assert len(cursors.all()) <= 10_000
        keys = set(states(cursors.all()))
        assert keys == {f"k{n}" for n in range(30 - len(keys), 30)}
        assert len(keys) > 5


async def _disconnected(_member: Subscriber, _data: bytes) -> None:
    raise Disconnected("NATS is away")


def _later(key: str, value: int | str) -> bytes:
    """An entry whose stamp is some milliseconds after now."""
    time.sleep(0.003)
    return presence(key, value)
