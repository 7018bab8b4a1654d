"""A gateway in this process, behind the real uvicorn, and peers that speak the loro-protocol by hand."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

import uvicorn
from loro import EphemeralStore, ExportMode, LoroDoc, VersionVector
from starlette.applications import Starlette
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from lorogo_client import Client, ClientSettings
from lorogo_gateway import frames
from lorogo_gateway.frames import Crdt, Status
from lorogo_gateway.settings import GatewaySettings
from lorogo_gateway.websocket import Sockets, uvicorn_options
from lorogo_testing.memory_nats import MemoryNats
from tests.client.support import DEADLINE, QUICK, client_of, eventually

F = TypeVar("F", bound=frames.Frame)

__all__ = ["DEADLINE", "Gate", "Peer", "eventually", "gate", "presence", "type_in"]

SETTINGS = GatewaySettings(join_seconds=5.0, rejoin_seconds=0.05, full_seconds=0.05, close_seconds=2.0)


class Gate:
    """A running gateway."""

    def __init__(self, client: Client, sockets: Sockets, port: int) -> None:
        self.client = client
        self.sockets = sockets
        self.port = port
        self.url = f"ws://127.0.0.1:{port}/ws"

    @asynccontextmanager
    async def peer(self, **options: Any) -> AsyncIterator["Peer"]:
        async with connect(self.url, compression=None, max_size=None, **options) as socket_:
            yield Peer(socket_)

    def stat(self, name: str) -> Any:
        return self.sockets.stats()[name]


@asynccontextmanager
async def gate(
    world: MemoryNats,
    settings: GatewaySettings = SETTINGS,
    *,
    client_settings: ClientSettings = QUICK,
    plain: bool = False,
    seed: int = 1,
    port: int = 0,
    send_buffer_bytes: int | None = None,
) -> AsyncIterator[Gate]:
    """`plain`: without our own class in uvicorn, so that frames go out through ASGI's `send`.

    `send_buffer_bytes`: what the operating system takes of a slow reader's.
    """
    async with client_of(
        world, client_settings, transport=world.connect(f"gate-{seed}"), seed=seed
    ) as client:
        sockets = Sockets(client, settings)
        app = Starlette(routes=sockets.routes())
        options = uvicorn_options(settings)
        if plain:
            options["ws"] = "websockets-sansio"
        config = uvicorn.Config(app, lifespan="off", log_level="critical", access_log=False, **options)
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", port)) as listener:
            if send_buffer_bytes is not None:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            task = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                await eventually(lambda: server.started)
                yield Gate(client, sockets, listener.getsockname()[1])
            finally:
                await sockets.close()
                server.should_exit = True
                await task


class Peer:
    """One WebSocket; frames are kept in the order in which they came."""

    _batches = itertools.count(1)

    def __init__(self, socket_: ClientConnection) -> None:
        self.socket = socket_
        self.waiting: list[frames.Frame | str] = []

    async def send(self, frame: frames.Frame) -> None:
        await self.socket.send(frames.encode(frame))

    async def next(self) -> frames.Frame | str:
        """The next frame that no other call has taken."""
        if self.waiting:
            return self.waiting.pop(0)
        return await self._read()

    async def _read(self) -> frames.Frame | str:
        async with asyncio.timeout(DEADLINE):
            data = await self.socket.recv()
        return data if isinstance(data, str) else frames.decode(data)

    async def take(self, kind: type[F], true: Callable[[F], bool] = lambda _: True) -> F:
        """The first frame of this kind, those before it are kept."""
        for place, frame in enumerate(self.waiting):
            if isinstance(frame, kind) and true(frame):
                del self.waiting[place]
                return frame
        while True:
            new = await self._read()
            if isinstance(new, kind) and true(new):
                return new
            self.waiting.append(new)

    async def join(
        self, room: str = "doc", version: bytes = b"", crdt: Crdt = Crdt.LORO, auth: str = ""
    ) -> frames.JoinOk:
        await self.send(frames.JoinRequest(crdt, room, auth.encode(), version))
        return await self.take(frames.JoinOk, lambda ok: (ok.crdt, ok.room) == (crdt, room))

    async def join_error(
        self, room: str = "doc", version: bytes = b"", crdt: Crdt = Crdt.LORO, auth: str = ""
    ) -> frames.JoinError:
        await self.send(frames.JoinRequest(crdt, room, auth.encode(), version))
        return await self.take(frames.JoinError)

    async def update(self, *updates: bytes, room: str = "doc", crdt: Crdt = Crdt.LORO) -> bytes:
        """Send a batch; its id."""
        batch = next(self._batches).to_bytes(8, "big")
        await self.send(frames.DocUpdate(crdt, room, updates, batch))
        return batch

    async def acked(self, batch: bytes) -> Status:
        return (await self.take(frames.AckFrame, lambda ack: ack.ref == batch)).status

    async def save(self, *updates: bytes, room: str = "doc", crdt: Crdt = Crdt.LORO) -> Status:
        return await self.acked(await self.update(*updates, room=room, crdt=crdt))

    async def received(self, room: str = "doc", crdt: Crdt = Crdt.LORO) -> tuple[bytes, ...]:
        return (await self.take(frames.DocUpdate, lambda u: (u.crdt, u.room) == (crdt, room))).updates

    async def room_error(self, crdt: Crdt = Crdt.LORO) -> frames.RoomError:
        return await self.take(frames.RoomError, lambda error: error.crdt is crdt)

    async def closed(self) -> tuple[int, str]:
        """The code and the reason with which the gateway closes it; frames before are kept."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                self.waiting.append(await self._read())
        code, reason = self.socket.close_code, self.socket.close_reason
        assert code is not None
        return code, reason or ""

    async def quiet(self) -> list[frames.Frame | str]:
        """Return the untaken frames that arrived before the answer to a ping sent now."""
        await self.socket.send("ping")
        while "pong" not in self.waiting:
            self.waiting.append(await self._read())
        self.waiting.remove("pong")
        rest, self.waiting = self.waiting, []
        return rest

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.socket.close()


def type_in(doc: LoroDoc, text: str) -> bytes:
    """The update of an insertion at the end."""
    before = doc.oplog_vv
    body = doc.get_text("t")
    body.insert(body.len_unicode, text)
    doc.commit()
    return bytes(doc.export(ExportMode.Updates(before)))


def text_of(doc: LoroDoc) -> str:
    return str(doc.get_text("t").to_string())


def since(doc: LoroDoc, vector: bytes) -> bytes:
    """Export the updates that the vector lacks, as the npm client does after a JoinOk."""
    return bytes(doc.export(ExportMode.Updates(VersionVector.decode(vector))))


def presence(key: str, value: Any) -> bytes:
    store = EphemeralStore(30_000)
    store.set(key, value)
    return bytes(store.encode_all())


def states(*data: bytes) -> dict[str, Any]:
    store = EphemeralStore(30_000)
    for part in data:
        store.apply(part)
    return dict(store.get_all_states())
