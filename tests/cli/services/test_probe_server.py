"""`lorogo serve --health-listen`: whether a server lives and is ready."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from lorogo_cli.config.probe_address import ListenAddress
from lorogo_cli.errors import CommandError
from lorogo_cli.services import probe_server as module
from lorogo_cli.services.probe_server import ServerReadiness, probes
from lorogo_server import Server, ServerSettings
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.cli.support import Running, lorogo, refused, until
from tests.journals import in_memory

SECONDS = 20.0
WELL = {"ok": True, "reasons": []}


@asynccontextmanager
async def probe_port(standing: ServerReadiness) -> AsyncIterator[int]:
    """Probes on a free port; gives the port."""
    async with asyncio.timeout(SECONDS), probes(ListenAddress("127.0.0.1", 0), standing) as addresses:
        yield int(addresses[0].rpartition(":")[2])


def ill(*codes: str) -> dict[str, Any]:
    return {"ok": False, "reasons": list(codes)}


async def say(port: int, request: bytes) -> bytes:
    """Everything that comes back; nothing from one that cuts us off."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def ask(port: int, path: str) -> tuple[int, Any]:
    async with httpx.AsyncClient(timeout=SECONDS) as http:
        answer = await http.get(f"http://127.0.0.1:{port}{path}")
        return answer.status_code, answer.json()


# --- what is answered ---------------------------------------------------------------------------------


async def test_a_server_is_alive_before_it_is_ready_and_a_stopped_journal_wants_a_new_start() -> None:
    """A disconnected NATS makes the server unready; only a fault that a restart repairs makes it
    unhealthy.
    """
    standing = ServerReadiness()
    transport = MemoryNats().connect("server")
    async with probe_port(standing) as port:
        assert await ask(port, "/healthz") == (200, WELL)
        assert await ask(port, "/readyz") == (503, ill("starting"))
        async with Server(transport, ServerSettings(), **in_memory()) as server:
            standing.server = server
            assert await ask(port, "/readyz") == (200, WELL)
            transport.cut()
            assert await ask(port, "/readyz?verbose") == (503, ill("nats-disconnected"))
            assert await ask(port, "/healthz") == (200, WELL)
            transport.heal()
            assert server.journal is not None
            server.journal.stopped = "no space left"
            assert await ask(port, "/readyz") == (503, ill("journal-stopped"))
            assert await ask(port, "/healthz") == (503, ill("journal-stopped"))
        assert await ask(port, "/readyz") == (503, ill("stopping"))
        assert await ask(port, "/healthz") == (200, WELL)  # it is already stopping


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
        (b"HEAD /healthz HTTP/1.1\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"POST /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz\r\n\r\n", 400),
        (b"\x16\x03\x01 this is TLS\r\n\r\n", 400),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", 400),
    ],
    ids=lambda value: value[:20] if isinstance(value, bytes) else None,
)
async def test_only_two_questions_are_answered(request_: bytes, status: int) -> None:
    """One answer, then the connection is closed; of a HEAD the head alone."""
    async with probe_port(ServerReadiness()) as port:
        answer = await say(port, request_)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    if request_.startswith(b"HEAD"):
        assert body == b""
    else:
        assert f"Content-Length: {len(body)}".encode() in head
        assert json.loads(body)


async def test_an_incomplete_request_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partial request line does not extend the deadline."""
    monkeypatch.setattr(module, "_SECONDS", 0.05)
    async with probe_port(ServerReadiness()) as port:
        assert await say(port, b"GET /healthz HT") == b""


async def test_too_many_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe is answered again as soon as there is room."""
    monkeypatch.setattr(module, "_CONNECTIONS_MAX", 3)
    request = b"GET /healthz HTTP/1.1\r\n\r\n"
    async with probe_port(ServerReadiness()) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        assert await say(port, request) == b""
        for _, writer in silent:
            writer.close()
            await writer.wait_closed()
        while not (answer := await say(port, request)):
            pass  # until it was noticed that they have gone
        assert answer.startswith(b"HTTP/1.1 200")


# --- where --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:8081", "127.0.0.1", 8081), ("[::]:1", "::", 1), ("localhost:0", "localhost", 0)],
)
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    """IPv6 in brackets; worker 3 has the port three above, if it is not any."""
    listen = ListenAddress.parse(text)
    assert listen == ListenAddress(host, port)
    assert listen.of_worker(3).port == (port + 3 if port else 0)


@pytest.mark.parametrize("text", ["", "8081", ":8081", "a:b", "a:99999", "::1:80", "a b:1", "http://a:1"])
def test_what_is_no_address_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        ListenAddress.parse(text)


def test_the_last_worker_needs_a_port_too() -> None:
    with pytest.raises(CommandError, match="worker 1 would need port 65536"):
        ListenAddress("a", 65535).of_worker(1)


# --- the command --------------------------------------------------------------------------------------


@pytest.mark.nats
@pytest.mark.slow
async def test_serve_tells_how_it_stands(fresh_nats: EmbeddedNats, tmp_path: Path) -> None:
    """From its start to its end; a port that is taken is refused in one sentence."""
    nats = {"LOROGO_NATS": fresh_nats.url}
    arguments = ["serve", "--data", "data", "--health-listen", "127.0.0.1:0"]
    serve = Running(arguments, cwd=tmp_path, name="serve", env=nats)
    try:
        ((address,),) = [line["listen"] for line in serve.wait_for_log("health probes enabled")]
        serve.wait_for_log("serving")
        port = int(address.rpartition(":")[2])
        ready = await asyncio.to_thread(until, "readiness", lambda: _ready(port))
        assert ready == WELL
        taken = ["serve", "--data", "other", "--health-listen", address]
        words = await asyncio.to_thread(lambda: refused(lorogo(*taken, cwd=tmp_path, env=nats)))
        assert f"cannot listen on {address}" in words
        assert serve.stop(signal.SIGTERM) == 0
    finally:
        serve.kill()


@pytest.mark.nats
@pytest.mark.slow
async def test_a_server_that_is_watched_waits_for_nats(tmp_path: Path) -> None:
    """The server reports that it is starting, and is ready once NATS is up; without probes it would end."""
    async with EmbeddedNats(tmp_path / "nats") as before:
        port = before.port  # free again in a moment
    nats = {"LOROGO_NATS": f"nats://127.0.0.1:{port}"}
    words = await asyncio.to_thread(
        lambda: refused(lorogo("serve", "--data", "other", cwd=tmp_path, env=nats))
    )
    assert "nothing answers" in words
    serve = Running(["serve", "--health-listen", "127.0.0.1:0"], cwd=tmp_path, name="serve", env=nats)
    try:
        await asyncio.to_thread(serve.wait_for_log, "waiting for NATS")
        ((address,),) = [line["listen"] for line in serve.wait_for_log("health probes enabled")]
        probed = int(address.rpartition(":")[2])
        assert await ask(probed, "/readyz") == (503, ill("starting"))
        assert await ask(probed, "/healthz") == (200, WELL)
        async with EmbeddedNats(tmp_path / "nats", port=port):
            assert await asyncio.to_thread(until, "readiness", lambda: _ready(probed)) == WELL
            assert await asyncio.to_thread(serve.stop, signal.SIGTERM) == 0
    finally:
        serve.kill()


def _ready(port: int) -> Any:
    answer = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=SECONDS)
    return answer.json() if answer.status_code == 200 else None
