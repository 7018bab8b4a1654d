"""Frames of every kind have a rate limit, none is lost above it, and a flood yields to other tasks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
import uvicorn
from loro import LoroDoc
from starlette.types import Message, Receive, Scope, Send
from uvicorn.server import ServerState
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from lorogo_gateway import frames
from lorogo_gateway.addresses import RequestOrigin
from lorogo_gateway.frames import Crdt, Status
from lorogo_gateway.limits.limiter import Limiter
from lorogo_gateway.limits.request_quota import RequestQuota
from lorogo_gateway.settings import GatewaySettings
from lorogo_gateway.transport.uvicorn_transport import UNSEEN_PER_SECOND, GatewayWebSocket, uvicorn_options
from lorogo_gateway.websocket.frame_pace import FramePace
from tests.client.support import DEADLINE, eventually
from tests.gateway.limits.test_limits_tokens import Keys, mint
from tests.gateway.support import Peer, type_in
from tests.gateway.whole import neighbour, whole

SETTINGS = GatewaySettings(port=0, close_seconds=1.0, burst_seconds=1.0, trusted_proxies=("127.0.0.1",))
ONE = {"X-Forwarded-For": "198.51.100.1"}
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


async def pongs(peer: Peer, count: int) -> None:
    """Send so many pings at once, and take all their answers."""
    for _ in range(count):
        await peer.socket.send("ping")
    for _ in range(count):
        assert await peer.next() == "pong"


async def test_frames_above_the_rate_wait_and_none_is_lost() -> None:
    """Whatever they are: pings, updates for a room that it is not in, Leaves, Acks."""
    settings = replace(SETTINGS, frames_per_second=100.0)
    async with whole(settings) as served, neighbour(served), served.peer(**ONE) as one:
        await pongs(one, 120)
        assert (before := served.refused("frames")) > 0
        for _ in range(60):
            await one.send(frames.Leave(Crdt.LORO, "a"))
            await one.send(frames.AckFrame(Crdt.LORO, "a", bytes(8), Status.OK))
        assert await one.save(b"x", room="a") is Status.PERMISSION_DENIED
        assert served.refused("frames") > before
        await one.join()
        assert await one.save(type_in(LoroDoc(), "x")) is Status.OK


async def test_an_anonymous_client_is_served_slowly_until_it_shows_a_token() -> None:
    settings = replace(SETTINGS, anonymous_frames_per_second=20.0)
    async with whole(settings, Keys()) as served, served.peer(**ONE) as one:
        await pongs(one, 25)
        assert (before := served.refused("frames")) > 0
        await one.join(auth=mint("ann"))
        await pongs(one, 500)
        assert served.refused("frames") <= before + 1


async def test_frames_of_a_token_add_up_over_connections() -> None:
    settings = replace(SETTINGS, token_frames_per_second=100.0)
    async with whole(settings) as served, served.peer(**ONE) as one, served.peer(**ONE) as two:
        await asyncio.gather(pongs(one, 120), pongs(two, 120))
        assert served.refused("frames") == 0
        assert served.refused("token-frames") > 0


async def test_others_have_their_turn_after_a_few_frames() -> None:
    """The gateway does not process a thousand waiting frames in one turn of the event loop."""
    loop, limiter = asyncio.get_running_loop(), Limiter(SETTINGS)
    quota = RequestQuota(limiter, RequestOrigin("198.51.100.1")).for_connection()
    pace = FramePace(SETTINGS, limiter, quota, anonymous=False, clock=loop.time)
    taken = turns = 0
    most = 0

    async def flood() -> None:
        nonlocal taken
        for _ in range(1000):
            await pace.turn()
            taken += 1

    task = asyncio.create_task(flood())
    while not task.done():
        before = taken
        await asyncio.sleep(0)
        most, turns = max(most, taken - before), turns + 1
    assert taken == 1000
    assert most <= 32
    assert turns > 30


# ---------------------------------------------------------------------------------- one read


class Socket(asyncio.Transport):
    """The transport to which uvicorn writes, without a network."""

    def __init__(self) -> None:
        super().__init__({"peername": ("198.51.100.1", 1), "sockname": ("127.0.0.1", 2)})
        self.reading = True
        self.closing = False
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0


class App:
    """An app that takes a message when the test allows it."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.may = asyncio.Semaphore(0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while True:
            await self.may.acquire()
            message = await receive()
            if message["type"] == "websocket.disconnect":
                return
            self.taken.append(message)


@asynccontextmanager
async def protocol() -> AsyncIterator[tuple[GatewayWebSocket, Socket, App]]:
    app, socket = App(), Socket()
    config = uvicorn.Config(app, log_level="critical", **uvicorn_options(SETTINGS))
    config.load()
    state = ServerState()
    made = config.ws_protocol_class(config=config, server_state=state, app_state={})  # type: ignore[call-arg, misc]  # as uvicorn does
    assert isinstance(made, GatewayWebSocket)
    made.connection_made(socket)
    made.data_received(UPGRADE)
    await eventually(lambda: b"101 Switching" in socket.written)
    try:
        yield made, socket, app
    finally:
        made.connection_lost(None)
        for _ in range(2):
            app.may.release()
        for task in list(state.tasks):
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)


def frame(opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin=fin).serialize(mask=True)


async def test_one_read_of_many_frames_is_parsed_a_few_at_a_time() -> None:
    """In order, none is lost, and nothing more is read meanwhile."""
    async with protocol() as (made, socket, app):
        sent = [str(number) for number in range(5_000)]
        made.data_received(b"".join(frame(Opcode.TEXT, text.encode()) for text in sent))
        most = 0
        for _ in range(len(sent)):
            assert not socket.reading
            most = max(most, made.queue.qsize())
            app.may.release()
            await asyncio.sleep(0)
        app.may.release()
        await eventually(lambda: socket.reading)
        assert 0 < most < 500
        assert [message["text"] for message in app.taken] == sent


async def test_a_large_message_in_pieces_and_half_of_the_next_come_as_they_were_sent() -> None:
    async with protocol() as (made, socket, app):
        first = frame(Opcode.BINARY, bytes(100_000), fin=False) + frame(Opcode.CONT, b"x" * 100_000)
        second = frame(Opcode.BINARY, b"y" * 1000)
        made.data_received(first + second[:500])
        assert not socket.reading
        for _ in range(2):
            app.may.release()
        await eventually(lambda: socket.reading)
        made.data_received(second[500:])
        await eventually(lambda: len(app.taken) == 2)
        assert [message["bytes"] for message in app.taken] == [bytes(100_000) + b"x" * 100_000, b"y" * 1000]


@pytest.mark.parametrize("kind", ["PING", "PONG", "empty pieces"])
async def test_frames_that_no_app_sees_are_cut_off_above_their_rate(kind: str) -> None:
    """A few such frames are accepted; above the rate the gateway closes the connection."""
    begin = frame(Opcode.TEXT, b"pi", fin=False) if kind == "empty pieces" else b""
    opcode = {"PING": Opcode.PING, "PONG": Opcode.PONG}.get(kind, Opcode.CONT)
    some = begin + frame(opcode, fin=False) * 50 if begin else frame(opcode) * 50
    async with whole(SETTINGS) as served, neighbour(served), served.line() as (reader, writer):
        writer.write(UPGRADE)
        assert b"101" in await reader.readuntil(b"\r\n\r\n")
        writer.write(some + (frame(Opcode.CONT, b"ng") if begin else frame(Opcode.TEXT, b"ping")))
        async with asyncio.timeout(DEADLINE):
            await reader.readuntil(b"pong")
            assert served.refused("frames") == 0
            writer.write(begin + frame(opcode, fin=not begin) * 1_000)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readuntil(b"never")
        await eventually(lambda: served.refused("frames") == 1)
        assert UNSEEN_PER_SECOND == 20


async def test_who_is_closed_in_the_middle_of_a_flood_hears_why() -> None:
    """The close and its answer are behind and before what was under way."""
    async with whole(replace(SETTINGS, frames_per_second=1_000.0)) as served, served.peer(**ONE) as one:
        for _ in range(50):
            await one.socket.send("ping")
        await one.socket.send("no frame at all")
        with suppress(ConnectionClosed):
            for _ in range(5_000):
                await one.socket.send("ping")
        assert (await one.closed())[0] == 4400
        await eventually(lambda: served.gateway.sockets.stats()["connections"] == 0)
