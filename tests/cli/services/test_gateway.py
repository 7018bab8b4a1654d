"""`lorogo gateway` as operators run it."""

import asyncio
import re
import signal
import socket
from pathlib import Path

import httpx
import pytest
from websockets import connect

from lorogo_gateway import frames
from lorogo_gateway.frames import Crdt
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.cli.support import Running, lorogo, refused
from tests.e2e.support import eventually

pytestmark = [pytest.mark.nats, pytest.mark.slow]


def address(gateway: Running) -> str:
    found = re.search(r"http://\S+", gateway.wait_for("Ctrl-C"))
    assert found is not None
    return found[0]


def ready(web: str) -> bool:
    answer = httpx.get(f"{web}/readyz", timeout=10)
    assert answer.status_code in (200, 503)
    if answer.status_code == 503:
        assert answer.json()["reasons"], "a gateway that is not ready has a reason"
    return answer.status_code == 200


async def test_it_may_start_first_and_is_ready_when_the_rest_is(
    fresh_nats: EmbeddedNats, tmp_path: Path
) -> None:
    """Not ready without a server, ready with one; SIGTERM ends it with 0 and nothing on stderr."""
    gateway = Running(["gateway", "--nats", fresh_nats.url, "--port", "0"], cwd=tmp_path, name="gateway")
    server: Running | None = None
    try:
        web = address(gateway)
        assert await asyncio.to_thread(ready, web) is False
        server = Running(["serve", "--nats", fresh_nats.url, "--data", "data"], cwd=tmp_path, name="server")
        await eventually(lambda: asyncio.to_thread(ready, web))
        assert gateway.stop(signal.SIGTERM) == 0
        assert gateway.out.read_text().splitlines()[-1] == "stopping"
        assert gateway.err.read_text() == ""
        assert gateway.out.read_text().count("No tokens needed: every client") == 1
    finally:
        gateway.kill()
        if server is not None:
            server.kill()


def test_it_runs_without_nats_and_says_so(tmp_path: Path) -> None:
    gateway = Running(
        ["gateway", "--nats", "nats://127.0.0.1:1", "--port", "0"], cwd=tmp_path, name="gateway"
    )
    try:
        web = address(gateway)
        assert httpx.get(f"{web}/healthz", timeout=10).status_code == 200
        answer = httpx.get(f"{web}/readyz", timeout=10)
        assert answer.status_code == 503
        assert "nats" in answer.text.lower()
        assert gateway.stop(signal.SIGINT) == 0
    finally:
        gateway.kill()


def test_an_invalid_option_is_an_error_of_one_sentence(nats_server: EmbeddedNats, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        words = refused(lorogo("gateway", "--nats", nats_server.url, "--port", port, cwd=tmp_path))
    assert port in words and "--port" in words
    assert "is not an origin" in refused(lorogo("gateway", "--origin", "app.example.org", cwd=tmp_path))
    assert "is not a host name" in refused(lorogo("gateway", "--host-name", "*", cwd=tmp_path))


async def test_a_page_that_joins_while_nats_is_away_breaks_nothing(tmp_path: Path) -> None:
    """It waits; the log has no traceback."""
    command = ["gateway", "--nats", "nats://127.0.0.1:1", "--port", "0"]
    gateway = Running(command, cwd=tmp_path, name="gateway")
    try:
        web = address(gateway)
        async with connect(f"ws{web.removeprefix('http')}/ws") as socket:
            for kind in (Crdt.LORO, Crdt.EPHEMERAL, Crdt.PERSISTED):
                await socket.send(frames.encode(frames.JoinRequest(kind, "doc", b"", b"")))
            await socket.send("ping")
            async with asyncio.timeout(20):
                assert await socket.recv() == "pong"
                await asyncio.sleep(0.5)
                await socket.send("ping")
                assert await socket.recv() == "pong"
        assert gateway.stop(signal.SIGTERM) == 0
        assert "Traceback" not in gateway.err.read_text()
    finally:
        gateway.kill()
