"""Limits of a WebSocket connection, and of its cost to the gateway."""

import asyncio
import random
import socket
from dataclasses import replace

import pytest
from loro import LoroDoc
from starlette.types import Message
from websockets import Origin
from websockets.exceptions import InvalidStatus

from lorogo_gateway import frames as wire
from lorogo_gateway.frames import Crdt, RoomErrorCode, Status
from lorogo_gateway.limits.token_bucket import TokenBucket
from lorogo_gateway.settings import GatewaySettings
from lorogo_gateway.state.fan_out import Fanout
from lorogo_gateway.websocket import Sockets
from lorogo_testing.memory_nats import MemoryNats
from tests.client.support import FakeOwner, client_of
from tests.gateway.support import SETTINGS, eventually, gate, presence, type_in

BATCH = b"batch-01"
_UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


async def test_a_frame_above_the_limit_closes_with_1009(world: MemoryNats) -> None:
    async with gate(world, replace(SETTINGS, frame_bytes_max=260_000)) as served, served.peer() as one:
        await one.socket.send(bytes(260_001))
        assert (await one.closed())[0] == 1009
        await eventually(lambda: served.stat("closed") == {"too_large": 1})


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
async def test_pages_of_other_origins_get_no_socket(world: MemoryNats, origin: str) -> None:
    """Any visited web page may try; a socket would give it read and write access to documents."""
    async with gate(world) as served:
        with pytest.raises(InvalidStatus) as caught:
            async with served.peer(origin=Origin(origin)):
                pytest.fail("it was let in")
        assert caught.value.response.status_code == 403
        assert served.stat("closed") == {"origin": 1}
        async with served.peer(origin=Origin(served.url.replace("ws://", "http://").removesuffix("/ws"))):
            pass
    named = replace(SETTINGS, origins=("https://app.example",))
    async with gate(world, named) as served, served.peer(origin=Origin("https://app.example")):
        pass


NO_FRAMES: list[bytes | str] = [
    b"",
    b"garbage",
    b"%LOR\x01a\x07\x00",
    "hello",
    "",
    wire.encode(wire.JoinOk(Crdt.LORO, "doc", "write", b"")),
    wire.encode(wire.JoinError(Crdt.LORO, "doc", wire.JoinErrorCode.UNKNOWN, "no")),
    wire.encode(wire.RoomError(Crdt.LORO, "doc", RoomErrorCode.EVICTED, "go")),
]


async def test_what_is_no_frame_of_a_client_closes_with_4400_and_the_reason(world: MemoryNats) -> None:
    async with gate(world) as served, served.peer() as other:
        for data in NO_FRAMES:
            async with served.peer() as one:
                await one.socket.send(data)
                code, reason = await one.closed()
                assert (code, bool(reason)) == (4400, True), data
        await eventually(lambda: served.stat("closed") == {"malformed": len(NO_FRAMES)})
        assert await other.quiet() == []


@pytest.mark.parametrize("plain", [False, True], ids=["own line", "plain ASGI"])
async def test_a_slow_reader_is_dropped_and_others_get_everything(
    world: MemoryNats, owner: FakeOwner, plain: bool
) -> None:
    settings = replace(SETTINGS, unread_bytes_max=512 * 1024)
    async with gate(world, settings, plain=plain) as served, served.peer() as quick, served.peer() as slow:
        await quick.join()
        await slow.join()
        slow.socket.transport.pause_reading()
        sent, unread = [], 0
        for turn in range(200):
            sent.append(await owner.edit(str(turn % 10) + random.Random(turn).randbytes(50_000).hex()))
            assert await quick.received() == (sent[-1],)
            unread = max(unread, served.stat("unread_bytes"), served.stat("unread_bytes_worst"))
            if served.stat("slow_readers_dropped"):
                break
        assert unread > 0
        assert served.stat("slow_readers_dropped") == 1
        update = await owner.edit("after")
        assert await quick.received() == (update,)
        slow.socket.transport.resume_reading()
        assert (await slow.closed())[0] == 1013
        await eventually(lambda: served.stat("connections") == 1)
        assert served.stat("closed") == {"slow_reader": 1}


@pytest.mark.parametrize(
    ("opcode", "payload"), [(9, b"x" * 125), (9, b""), (1, b"ping")], ids=["PING", "empty PING", "text"]
)
async def test_who_pings_and_does_not_read_is_dropped(world: MemoryNats, opcode: int, payload: bytes) -> None:
    """The gateway bounds unread pongs as it bounds every other frame."""
    settings = replace(SETTINGS, unread_bytes_max=100_000, close_seconds=0.1)
    async with gate(world, settings, send_buffer_bytes=4096) as served, served.peer() as other:
        with socket.socket() as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.connect(("127.0.0.1", served.port))
            line.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(line, _UPGRADE)
            assert b"101" in await loop.sock_recv(line, 20)
            pings = (bytes((0x80 | opcode, 0x80 | len(payload))) + bytes(4) + payload) * 500

            async def ping_on() -> None:
                while True:
                    await loop.sock_sendall(line, pings)
                    assert served.stat("unread_bytes_worst") < 2 * settings.unread_bytes_max

            with pytest.raises(ConnectionError):
                await asyncio.wait_for(ping_on(), 20)
        await eventually(lambda: served.stat("connections") == 1)
        assert await other.quiet() == []


async def test_a_client_with_too_much_in_flight_is_not_read(world: MemoryNats, owner: FakeOwner) -> None:
    """It goes on where it was when the owner has answered."""
    async with gate(world, replace(SETTINGS, unacked_updates_max=4)) as served, served.peer() as one:
        await one.join()
        owner.mute = 12
        doc = LoroDoc()
        batches = [await one.update(type_in(doc, f"{n} ")) for n in range(10)]
        await eventually(lambda: len(owner.received) > 8)  # the first ones were sent again
        assert len({log_id for log_id, _ in owner.received}) == 4
        assert served.stat("unacked") == 4
        assert [await one.acked(batch) for batch in batches] == [Status.OK] * 10
        assert await one.quiet() == []


@pytest.mark.parametrize("kind", [Crdt.LORO, Crdt.EPHEMERAL, Crdt.PERSISTED])
async def test_a_batch_of_too_many_updates_is_refused_before_any_is_sent(
    world: MemoryNats, owner: FakeOwner, kind: Crdt
) -> None:
    """One frame has room for 131,000 of one byte, and each would be a message."""
    settings = replace(SETTINGS, unacked_updates_max=4)
    async with gate(world, settings) as served, served.peer() as one:
        await one.join(crdt=kind)
        assert await one.save(*[b"x"] * 120_000, crdt=kind) is Status.PAYLOAD_TOO_LARGE
        assert owner.received == []
        assert served.stat("unacked") == 0
        doc = LoroDoc()
        if kind is Crdt.LORO:
            assert await one.save(*[type_in(doc, "x") for _ in range(4)]) is Status.OK
        else:
            assert await one.save(presence("k", 1), crdt=kind) is Status.OK


async def test_batches_of_too_many_updates_use_up_the_rate(world: MemoryNats, owner: FakeOwner) -> None:
    settings = replace(SETTINGS, unacked_updates_max=4, updates_per_second=0.1, burst_seconds=70.0)
    async with gate(world, settings) as served, served.peer() as one:
        await one.join()
        answers = [await one.save(*[b"x"] * 1000) for _ in range(3)]
        assert answers == [Status.PAYLOAD_TOO_LARGE] * 2 + [Status.RATE_LIMITED]
        assert owner.received == []


async def test_a_client_whose_updates_are_never_answered_is_sent_away(
    world: MemoryNats, owner: FakeOwner
) -> None:
    settings = replace(SETTINGS, unacked_bytes_max=10, join_seconds=0.3, close_seconds=0.2)
    async with gate(world, settings) as served, served.peer() as one:
        await one.join()
        owner.mute = 10**6
        await one.update(type_in(LoroDoc(), "x"))
        assert (await one.closed())[0] == 1013
        await eventually(lambda: served.stat("connections") == 0)


async def test_connections_are_bounded(world: MemoryNats) -> None:
    async with gate(world, replace(SETTINGS, connections_max=2)) as served, served.peer() as one:
        async with served.peer(), served.peer() as three:
            assert (await three.closed())[0] == 1013
        await eventually(lambda: served.stat("connections") == 1)
        async with served.peer() as four:
            assert await four.quiet() == []
        assert await one.quiet() == []


async def test_a_client_that_does_not_answer_pings_is_cut(world: MemoryNats) -> None:
    """Without a close frame: to the npm client 1011 would be final."""
    async with (
        gate(world, replace(SETTINGS, ping_seconds=0.1)) as served,
        served.peer() as one,
        served.peer() as two,
    ):
        one.socket.transport.pause_reading()
        await eventually(lambda: served.stat("connections") == 1)
        assert await two.quiet() == []
        one.socket.transport.resume_reading()
        assert (await one.closed())[0] == 1006
        assert served.stat("closed") == {"lost": 1}


async def test_at_shutdown_what_is_in_flight_is_acked_first(world: MemoryNats, owner: FakeOwner) -> None:
    async with gate(world) as served, served.peer() as one, served.peer() as two:
        await one.join()
        await two.join(crdt=Crdt.EPHEMERAL)
        owner.mute = 1
        batch = await one.update(type_in(LoroDoc(), "x"))
        await eventually(lambda: len(owner.received) == 1)
        closing = asyncio.create_task(served.sockets.close())
        assert await one.acked(batch) is Status.OK
        assert (await one.closed())[0] == 1001
        assert (await two.closed())[0] == 1001
        await closing
        assert served.stat("connections") == 0
        async with served.peer() as late:
            assert (await late.closed())[0] == 1013


async def test_a_shutdown_waits_only_so_long(world: MemoryNats, owner: FakeOwner) -> None:
    async with gate(world, replace(SETTINGS, close_seconds=0.2)) as served, served.peer() as one:
        await one.join()
        owner.mute = 10**6
        await one.update(type_in(LoroDoc(), "x"))
        await eventually(lambda: len(owner.received) == 1)
        await served.sockets.close()
        assert (await one.closed())[0] == 1001
        assert one.waiting == []


# -------------------------------------------------------------------------------- random frames


class Wire:
    """An ASGI connection without a network: it feeds frames, and ends when it is closed."""

    def __init__(self, frames: list[bytes | str]) -> None:
        self._frames = iter(frames)
        self._begun = False
        self._closed = asyncio.Event()
        self.fed = 0

    async def receive(self) -> Message:
        await asyncio.sleep(0)
        if not self._begun:
            self._begun = True
            return {"type": "websocket.connect"}
        if not self._closed.is_set() and (frame := next(self._frames, None)) is not None:
            self.fed += 1
            kind = "text" if isinstance(frame, str) else "bytes"
            return {"type": "websocket.receive", kind: frame}
        return {"type": "websocket.disconnect", "code": 1000}

    async def send(self, message: Message) -> None:
        if message["type"] == "websocket.close":
            self._closed.set()


def random_frame(rng: random.Random) -> bytes | str:
    kind = rng.choice((Crdt.LORO, Crdt.LORO, Crdt.EPHEMERAL, Crdt.PERSISTED, Crdt.YJS))
    room = rng.choice(("doc", "doc", "doc", "other", "", "bad id"))
    batch = rng.choice((BATCH, rng.randbytes(8)))
    blob = rng.choice((b"", rng.randbytes(rng.randrange(200)), presence("k", rng.random())))
    frame: wire.Frame
    match rng.randrange(12):
        case 0 | 1:
            frame = wire.JoinRequest(kind, room, b"", rng.choice((b"", b"", blob)))
        case 2:
            frame = wire.Leave(kind, room)
        case 3 | 4 | 5:
            frame = wire.DocUpdate(kind, room, (blob,) * rng.randrange(4), batch)
        case 6:
            frame = wire.FragmentHeader(kind, room, batch, rng.randrange(5), rng.randrange(300))
        case 7 | 8:
            frame = wire.Fragment(kind, room, batch, rng.randrange(5), blob)
        case 9:
            frame = wire.AckFrame(kind, room, batch, rng.choice(list(Status)))
        case 10:
            return rng.choice(("ping", "pong"))
        case _:
            data = bytearray(wire.encode(wire.DocUpdate(kind, room, (blob,), batch)))
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            return bytes(data)
    return wire.encode(frame)


@pytest.mark.usefixtures("server")
async def test_ten_thousand_random_frames_leave_nothing_behind(world: MemoryNats) -> None:
    """Random frames cause no internal error and leave no room, no task and no unusable document."""
    rng = random.Random(10)
    async with client_of(world) as client:
        sockets = Sockets(client, replace(SETTINGS, join_seconds=0.2, close_seconds=0.2, rejoin_seconds=0.01))
        fed = sessions = 0
        while fed < 10_000:
            wires = [Wire([random_frame(rng) for _ in range(400)]) for _ in range(8)]
            async with asyncio.timeout(30), asyncio.TaskGroup() as group:
                for one in wires:
                    group.create_task(
                        sockets.serve({"type": "websocket", "headers": []}, one.receive, one.send)
                    )
            fed += sum(one.fed for one in wires)
            sessions += len(wires)
        facts = sockets.stats()
        assert (facts["connections"], facts["members"], facts["unread_bytes"]) == (0, 0, 0)
        assert facts["opened"] == sessions
        closed = facts["closed"]
        assert isinstance(closed, dict)
        assert sum(closed.values()) == sessions
        assert "broke" not in closed
        await sockets.close()
        assert sockets._gateway.relays._relays == {}
    async with gate(world, seed=2) as served, served.peer() as peer:
        await peer.join()
        assert await peer.save(type_in(LoroDoc(), "fine")) is Status.OK


# --------------------------------------------------------------------------------- small things


class TestBucket:
    """A token bucket."""

    def test_a_burst_passes_and_then_the_rate(self) -> None:
        bucket = TokenBucket(10.0, 2.0, now=0.0)
        assert [bucket.take(1, now=0.0) for _ in range(25)] == [True] * 20 + [False] * 5
        assert bucket.take(1, now=0.1)
        assert not bucket.take(1, now=0.1)

    def test_one_that_is_larger_than_the_bucket_passes_once_and_is_paid_back(self) -> None:
        bucket = TokenBucket(10.0, 1.0, now=0.0)
        assert bucket.take(50, now=0.0)
        assert not bucket.take(1, now=4.0)
        assert bucket.take(1, now=4.1)

    def test_it_says_when_a_second_s_worth_may_pass(self) -> None:
        bucket = TokenBucket(10.0, 5.0, now=0.0)
        assert bucket.seconds(now=0.0) == 0.0
        bucket.take(60, now=0.0)
        assert bucket.seconds(now=0.0) == pytest.approx(2.0)
        small = TokenBucket(10.0, 0.5, now=0.0)
        small.take(5, now=0.0)
        assert small.seconds(now=0.0) == pytest.approx(0.5)

    def test_it_never_holds_more_than_its_burst(self) -> None:
        bucket = TokenBucket(10.0, 1.0, now=0.0)
        assert [bucket.take(1, now=1000.0) for _ in range(12)] == [True] * 10 + [False] * 2


def test_an_update_is_encoded_once_for_all_members() -> None:
    fanout = Fanout(1000, random.Random(1))
    payload = bytes(500)
    first = fanout.frames(Crdt.LORO, "doc", payload)
    assert fanout.frames(Crdt.LORO, "doc", payload) is first
    assert fanout.frames(Crdt.LORO, "other", payload) is not first
    assert fanout.frames(Crdt.EPHEMERAL, "other", payload) != fanout.frames(Crdt.LORO, "other", payload)
    assert len(fanout.frames(Crdt.LORO, "doc", bytes(2500))) == 1 + 3


def test_batch_ids_of_a_gateway_differ() -> None:
    fanout = Fanout(1000, random.Random(1))
    assert len({fanout.next_batch() for _ in range(1000)}) == 1000


@pytest.mark.parametrize("name", ["rejoin_seconds", "full_seconds", "rooms_max", "ping_seconds"])
def test_settings_are_above_zero(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        replace(GatewaySettings(), **{name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"frame_bytes_max": 300_000}, {"fragment_bytes": 260_000}])
def test_frames_stay_within_what_the_protocol_allows(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"frame_bytes_max"):
        replace(GatewaySettings(), **wrong)  # type: ignore[arg-type]
