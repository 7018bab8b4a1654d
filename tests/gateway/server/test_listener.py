"""The gateway's port: found, taken, and let go."""

import resource
import socket

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from lorogo_gateway.server.listener import CannotListen, listening, make_room
from lorogo_gateway.settings import GatewaySettings


async def hello(_request: object) -> PlainTextResponse:
    return PlainTextResponse("hello")


APP = Starlette(routes=[Route("/", hello)])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
async def test_port_0_takes_a_free_one_and_tells_which(host: str) -> None:
    async with listening(APP, GatewaySettings(host=host, port=0)) as address, httpx.AsyncClient() as web:
        answer = await web.get(address)
    assert answer.text == "hello"
    assert "server" not in answer.headers


async def test_after_it_nothing_listens() -> None:
    async with listening(APP, GatewaySettings(port=0)) as address:
        pass
    async with httpx.AsyncClient() as web:
        with pytest.raises(httpx.ConnectError):
            await web.get(address)


async def test_a_taken_port_is_an_error_of_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
            async with listening(APP, GatewaySettings(port=port)):
                pytest.fail("it listens")


async def test_an_invalid_host_is_refused() -> None:
    with pytest.raises(CannotListen, match="cannot listen on no such host:0"):
        async with listening(APP, GatewaySettings(host="no such host", port=0)):
            pytest.fail("it listens")


@pytest.mark.parametrize(
    "wrong", [{"port": -1}, {"port": 70000}, {"rooms_max": 0}, {"fragment_bytes": 256 * 1024}]
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        GatewaySettings(**wrong)  # type: ignore[arg-type] # on purpose


def test_as_many_files_may_be_open_as_connections_are_allowed() -> None:
    """The usual limit of 1,024 files is below the setting; the gateway does not exceed the hard limit of the
    system.
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (500, before[1]))
        assert make_room(600) == 700
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 700
        assert make_room(100) == 200
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 700
        if before[1] != resource.RLIM_INFINITY:
            assert make_room(before[1]) == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
