"""Bounds of connections: half a request, an endless head, a reader who takes nothing, one too many."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect

from lorogo_gateway.server.listener import listening
from lorogo_gateway.settings import GatewaySettings
from tests.client.support import DEADLINE
from tests.gateway.whole import rest

PATIENT = GatewaySettings(port=0, close_seconds=1.0)
QUICK = replace(PATIENT, head_seconds=0.2, idle_seconds=0.2, stall_seconds=0.2)
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


async def hello(request: Request) -> Response:
    return PlainTextResponse(f"hello {len(await request.body())}")


async def talk(socket_: WebSocket) -> None:
    await socket_.accept()
    while True:
        await socket_.send_text(await socket_.receive_text())


ROUTES = [Route("/", hello, methods=["GET", "PUT"]), WebSocketRoute("/ws", talk)]


@asynccontextmanager
async def port_of(settings: GatewaySettings, *routes: BaseRoute) -> AsyncIterator[int]:
    async with listening(Starlette(routes=[*routes, *ROUTES]), settings) as address:
        port = httpx.URL(address).port
        assert port is not None
        yield port


@asynccontextmanager
async def line_to(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"G",
        HEAD,
        HEAD + b"X-Long: ",
        b"\r\n\r\n",
        HEAD + b"\r\n",  # whole, and nothing after it
        HEAD + b"\r\n" + HEAD,
        HEAD + b"Content-Length: 9\r\n\r\n",
    ],
)
async def test_who_sends_no_whole_request_is_cut_off(half: bytes) -> None:
    async with port_of(QUICK, Route("/", _unread)) as port, line_to(port) as (reader, writer):
        writer.write(half)
        said = await rest(reader)
    assert said.count(b"200 OK") == (b"\r\n\r\n" in half and half.startswith(HEAD))


async def _unread(_: Request) -> Response:
    """A response that ignores the body of the request."""
    return PlainTextResponse("hello")


@pytest.mark.parametrize("drop", [b"\r\n", b"X-A: b\r\n"])
async def test_a_trickle_does_not_help(drop: bytes) -> None:
    """The head has its time, however often something comes."""
    async with port_of(QUICK) as port, line_to(port) as (reader, writer):
        writer.write(HEAD if drop.startswith(b"X") else b"")
        ended = asyncio.create_task(rest(reader))
        with suppress(ConnectionError):
            async with asyncio.timeout(DEADLINE):
                while not ended.done():
                    writer.write(drop)
                    await writer.drain()
                    await asyncio.sleep(0.02)
        assert await ended == b""


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (HEAD, b"X-A: " + b"y" * 1000 + b"\r\n"),
        (HEAD + b"X-A: ", b"y" * 1000),
        (b"GET /", b"y" * 1000),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-A: " + b"y" * 1000 + b"\r\n"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-A: ", b"y" * 1000),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", b"y" * 1000),
    ],
)
async def test_an_endless_head_is_cut_off(start: bytes, more: bytes) -> None:
    """As headers, as one header, as an address, behind a body: it is not kept."""
    async with port_of(PATIENT) as port, line_to(port) as (reader, writer):
        writer.write(start)
        sent = 0
        with suppress(ConnectionError):
            async with asyncio.timeout(DEADLINE):
                while sent < 20_000_000:
                    writer.write(more * 20)
                    await writer.drain()
                    sent += len(more) * 20
        assert sent < 20_000_000
        await rest(reader)


async def test_a_long_body_in_small_chunks_is_no_head() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20_000):
            yield b"x" * 100

    async with port_of(PATIENT) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        assert (await http.put("/", content=chunks())).text == "hello 2000000"
        assert (await http.put("/", content=b"x" * 3_000_000)).text == "hello 3000000"
        assert (await http.get("/", headers={"x-a": "y" * 60_000})).text == "hello 0"


async def test_many_requests_ahead_of_their_answers_are_too_many() -> None:
    """Some are answered in their order."""
    async with port_of(PATIENT) as port:
        async with line_to(port) as (reader, writer):
            writer.write((HEAD + b"\r\n") * 10 + HEAD + b"Connection: close\r\n\r\n")
            assert (await rest(reader)).count(b"200 OK") == 11
        async with line_to(port) as (reader, writer):
            writer.write((HEAD + b"\r\n") * 1000)
            assert (await rest(reader)).count(b"200 OK") < 100


async def test_connections_have_a_bound_that_websockets_share() -> None:
    """The one too many is gone at once; when one ends there is room again."""
    async with port_of(replace(PATIENT, connections_max=2)) as port:
        async with connect(f"ws://127.0.0.1:{port}/ws") as one:
            await one.send("a")
            assert await one.recv() == "a"
            async with line_to(port) as (first, writer):
                writer.write(HEAD + b"\r\n")
                assert b"200 OK" in await first.readuntil(b"hello 0")
                async with line_to(port) as (second, _):
                    assert await rest(second) == b""
        async with asyncio.timeout(DEADLINE):
            while True:
                with suppress(httpx.TransportError):
                    async with httpx.AsyncClient() as http:
                        assert (await http.get(f"http://127.0.0.1:{port}/")).text == "hello 0"
                        break


async def test_a_websocket_outlives_the_deadlines_of_requests() -> None:
    async with port_of(QUICK) as port, connect(f"ws://127.0.0.1:{port}/ws") as one:
        async with line_to(port) as (reader, _):
            await rest(reader)  # which came later, and had its time
        await one.send("a")
        assert await one.recv() == "a"


class Endless:
    """An answer without end."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        gone = asyncio.create_task(self._left(receive))
        while not gone.done():
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
            await asyncio.sleep(0)
        self.ended.set()

    async def _left(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass


@pytest.mark.parametrize("behind", [b"", HEAD + b"\r\n"])
async def test_a_reader_who_takes_nothing_is_cut_off(behind: bytes) -> None:
    """A second request behind the first changes nothing; the handler that answers is informed of the end."""
    endless = Endless()
    async with port_of(QUICK, Route("/endless", endless)) as port:
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(slow, ("127.0.0.1", port))
            await loop.sock_sendall(slow, b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n" + behind)
            async with asyncio.timeout(DEADLINE):
                await endless.ended.wait()
