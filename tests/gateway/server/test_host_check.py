"""DNS rebinding: the page of a name that points at loopback by now is not our own page."""

from collections.abc import AsyncIterator

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from lorogo_gateway.server.app import Gateway
from lorogo_gateway.server.listener import listening
from lorogo_gateway.settings import GatewaySettings
from lorogo_server import Server
from lorogo_testing.memory_nats import MemoryNats
from tests.client.support import client_of
from tests.gateway.http_support import problem


@pytest.fixture
async def place(world: MemoryNats, server: Server) -> AsyncIterator[str]:
    settings = GatewaySettings(port=0, host_names=("docs.example.org",), close_seconds=1.0)
    async with (
        client_of(world) as client,
        Gateway(client, settings) as gateway,
        listening(gateway.app, settings) as address,
    ):
        yield address
        await gateway.disconnect_all()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v1/documents/doc"),
        ("GET", "/v1/documents"),
        ("GET", "/v1/nothing"),
        ("GET", "/v1/feed"),
        ("GET", "/"),
        ("GET", "/metrics"),
        ("OPTIONS", "/v1/documents"),
    ],
)
async def test_a_request_for_another_name_is_421(place: str, method: str, path: str) -> None:
    """The gateway refuses a foreign host name with 421, even if Origin and Host agree, and answers its own
    name.
    """
    port = httpx.URL(place).port
    async with httpx.AsyncClient(base_url=place) as http:
        evil = {"host": f"evil.example:{port}", "origin": f"http://evil.example:{port}"}
        body = {"a": "x"} if method == "PUT" else None
        problem(await http.request(method, path, headers=evil, json=body), 421, "wrong-host")
        own = {"host": f"docs.example.org:{port}", "origin": f"http://docs.example.org:{port}"}
        async with http.stream(method, path, headers=own, json=body) as answer:
            assert answer.status_code < 500
            assert answer.status_code != 421


async def test_a_websocket_for_another_name_is_421(place: str, caplog: pytest.LogCaptureFixture) -> None:
    """Such requests leave no lines in the log."""
    address = httpx.URL(place)
    with pytest.raises(InvalidStatus) as caught:
        await connect("ws://evil.example/ws", host=address.host, port=address.port)
    assert caught.value.response.status_code == 421
    async with connect("ws://docs.example.org/ws", host=address.host, port=address.port) as socket:
        await socket.send("ping")
        assert await socket.recv() == "pong"
    assert not caplog.records


async def test_an_origin_that_is_no_address_is_refused(place: str) -> None:
    """It is not ours, and no mistake of the gateway."""
    async with httpx.AsyncClient(base_url=place) as http:
        answer = await http.put("/v1/documents/doc", json={"a": "x"}, headers={"origin": "http://["})
    problem(answer, 403, "cross-origin")
