"""Connections count from when they are accepted, before TLS, and are given back however they end."""

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect

from lorogo_gateway.limits.limiter import Limiter
from lorogo_gateway.server.listener import listening
from lorogo_gateway.settings import GatewaySettings
from lorogo_gateway.transport import connection_counter
from lorogo_gateway.transport.connection_counter import Acceptor, ConnectionCounter, ConnectionSlot
from tests.certificates import Authority
from tests.client.support import DEADLINE, eventually
from tests.gateway.whole import rest

MOST = 4
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def hello(_: Request) -> Response:
    return PlainTextResponse("hello")


async def talk(socket_: WebSocket) -> None:
    await socket_.accept()
    await socket_.send_text(await socket_.receive_text())


class Served:
    """A gateway's port with TLS, and people at several addresses of this machine."""

    def __init__(self, address: str, limiter: Limiter, trusting: ssl.SSLContext) -> None:
        self.port = httpx.URL(address).port
        self.limiter = limiter
        self.trusting = trusting

    def refused(self, reason: str) -> int:
        return self.limiter.refusals.facts()[reason]

    @asynccontextmanager
    async def line(
        self, who: str = "127.0.0.1", **tls: Any
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(who, 0), **tls)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    async def answered(self, together: int, who: str = "127.0.0.1") -> bool:
        """Return True if the gateway serves this many connections of an address at the same time."""
        async with AsyncExitStack() as stack:
            try:
                for _ in range(together):
                    reader, writer = await stack.enter_async_context(self.line(who, ssl=self.trusting))
                    writer.write(GET)
                    if not (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 "):
                        return False
            except (OSError, asyncio.IncompleteReadError):
                return False
        return True

    async def all_given_back(self) -> None:
        async with asyncio.timeout(DEADLINE):
            while not await self.answered(MOST):
                pass


@asynccontextmanager
async def served(folder: Path, **more: Any) -> AsyncIterator[Served]:
    authority = Authority(folder)
    cert, key = authority.sign("web")
    chosen: dict[str, Any] = {"address_connections_max": MOST, "limit_loopback": True, **more}
    settings = GatewaySettings(port=0, close_seconds=1.0, tls_cert=cert, tls_key=key, **chosen)
    limiter = Limiter(settings)
    app = Starlette(routes=[Route("/", hello), WebSocketRoute("/ws", talk)])
    async with listening(app, settings, limiter) as address:
        yield Served(address, limiter, ssl.create_default_context(cafile=authority.file))


async def test_who_says_nothing_counts_before_the_handshake(tmp_path: Path) -> None:
    """One too many of an address is closed at once; others are served; who goes gives it back."""
    async with served(tmp_path, connections_max=2 * MOST + 1) as gate:  # those who are refused do not stay
        async with AsyncExitStack() as stack:
            lines = [await stack.enter_async_context(gate.line()) for _ in range(MOST + 10)]
            for reader, _ in lines[MOST:]:
                assert await rest(reader) == b""
            assert not any(reader.at_eof() for reader, _ in lines[:MOST])
            assert gate.refused("address-connections") == 10
            assert await gate.answered(MOST, "127.0.0.2")
            assert not await gate.answered(1)
            assert gate.refused("connections") == 0
        await gate.all_given_back()


async def test_all_connections_of_the_gateway_have_their_bound_before_the_handshake(tmp_path: Path) -> None:
    async with served(tmp_path, connections_max=2) as gate:
        async with gate.line(), gate.line("127.0.0.2"), gate.line("127.0.0.3") as (reader, _):
            assert await rest(reader) == b""
            assert gate.refused("connections") == 1
        async with asyncio.timeout(DEADLINE):
            while not await gate.answered(2):
                pass


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 5000])
async def test_a_handshake_that_fails_or_takes_too_long_gives_back(
    tmp_path: Path, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """And it is nothing for the log."""
    async with served(tmp_path, head_seconds=0.2) as gate:
        for _ in range(3):
            async with AsyncExitStack() as stack:
                for _ in range(MOST):
                    reader, writer = await stack.enter_async_context(gate.line())
                    writer.write(said)
                    await rest(reader)  # perhaps an alert; then the end
        await gate.all_given_back()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_connection_counts_once_as_tls_http_and_websocket(tmp_path: Path) -> None:
    async with served(tmp_path, address_connections_max=1) as gate:
        for _ in range(3):
            async with asyncio.timeout(DEADLINE):
                while not await gate.answered(1):  # until the one before is gone
                    pass
        where = f"wss://127.0.0.1:{gate.port}/ws"
        for _ in range(3):
            async with asyncio.timeout(DEADLINE):
                while True:
                    with suppress(OSError):
                        socket_ = await connect(where, ssl=gate.trusting)
                        break
            before = gate.refused("address-connections")
            assert not await gate.answered(1)  # it still counts
            assert gate.refused("address-connections") == before + 1
            await socket_.send("a")
            assert await socket_.recv() == "a"
            await socket_.close()


async def test_who_is_in_a_handshake_does_not_keep_us_from_stopping(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(DEADLINE), served(tmp_path, head_seconds=600.0) as gate:
            reader, _ = await stack.enter_async_context(gate.line())
            assert await gate.answered(1)  # so the silent one was taken before
        assert await rest(reader) == b""


class TestFiles:
    def entrance(self, **more: Any) -> tuple[ConnectionCounter, Limiter]:
        settings = GatewaySettings(**more)
        limiter = Limiter(settings)
        return ConnectionCounter(settings, limiter), limiter

    def test_the_last_files_are_for_no_connection(self, caplog: pytest.LogCaptureFixture) -> None:
        """The gateway counts such a refusal and logs it at most once a minute."""
        entrance, limiter = self.entrance()
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert entrance.enter("192.0.2.1", file=soft - 51, now=0.0) is not None
        for number in range(50):
            assert entrance.enter("192.0.2.1", file=soft - 50 + number, now=float(number)) is None
        assert limiter.refusals.facts()["connections"] == 50
        assert entrance.open == 1
        assert caplog.text.count("ulimit -n") == 1
        assert entrance.enter("192.0.2.1", file=soft - 1, now=61.0) is None
        assert caplog.text.count("ulimit -n") == 2

    def test_an_entry_is_given_back_once(self) -> None:
        entrance, _ = self.entrance(address_connections_max=1)
        first = entrance.enter("192.0.2.1", file=9, now=0.0)
        second = entrance.enter("192.0.2.1", file=10, now=0.0)
        assert first is not None
        assert second is not None
        assert first.refusal is None
        assert second.refusal is not None
        for entry in (second, second, first, first):
            entry.leave()
        assert entrance.open == 0
        again = entrance.enter("192.0.2.1", file=9, now=0.0)
        assert again is not None
        assert again.refusal is None

    async def test_after_the_system_had_none_left_connections_are_taken_again(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(connection_counter, "_PAUSE_SECONDS", 0.0)
        entrance, _ = self.entrance()
        made: list[ConnectionSlot] = []

        class Poor(socket.socket):
            left = 3

            def accept(self) -> Any:
                if self.left:
                    self.left -= 1
                    raise OSError(errno.EMFILE, "Too many open files")
                return super().accept()

        def make(entry: ConnectionSlot) -> asyncio.Protocol:
            made.append(entry)
            return asyncio.Protocol()

        with Poor(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            listener.setblocking(False)
            acceptor = Acceptor(listener, entrance, GatewaySettings(), None, make)
            _, writer = await asyncio.open_connection(*listener.getsockname())
            await eventually(lambda: len(made) == 1)
            await acceptor.close()
            writer.close()
        assert caplog.text.count("ulimit -n") == 1
        assert "Traceback" not in caplog.text
