"""`lorogo health`: exit code 0 for a healthy server, else 1 and a sentence."""

import shutil
import subprocess
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lorogo_cli.commands.health_check import find_problems
from lorogo_cli.connect import closed_folder
from lorogo_cli.services import worker_identity
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.rpc.discovery import ServerStats
from tests.cli.support import Running, lorogo, refused, said, until

WELL = {"ready": True, "journal": "open"}
STOPPED = {"ready": False, "journal": "No space left on device"}


def unhealthy(result: subprocess.CompletedProcess[bytes]) -> str:
    """The reason of an unhealthy server: exit code 1, one line on stderr."""
    words = result.stderr.decode()
    assert (result.returncode, result.stdout, words.count("\n")) == (1, b"", 1), words
    assert words.startswith("lorogo: unhealthy: ")
    return words.removeprefix("lorogo: unhealthy: ").rstrip("\n")


def answers(**servers: dict[str, Any]) -> list[ServerStats]:
    return [ServerStats(name, "1", "", stats) for name, stats in servers.items()]


@pytest.mark.parametrize(
    ("found", "workers", "wrong"),
    [
        (answers(a=WELL), 1, ""),
        (answers(a=WELL, other=STOPPED), 1, ""),
        (answers(a={"ready": True}), 1, ""),  # durability stream: no journal
        (answers(a=WELL, b=STOPPED), 1, ""),
        (answers(), 1, "0 of 1 servers answer"),
        (answers(other=WELL), 1, "0 of 1 servers answer"),
        (answers(a=WELL), 2, "1 of 2 servers answer"),
        (answers(a=STOPPED), 1, "a is not ready (journal: No space left on device)"),
        (answers(a=WELL, b=STOPPED), 2, "b is not ready (journal: No space left on device)"),
        (answers(a={}), 2, "a is not ready (journal: none); 1 of 2 servers answer"),
    ],
)
def test_only_the_folder_s_own_servers_count(found: list[ServerStats], workers: int, wrong: str) -> None:
    """Enough of them answer and are ready; other servers on the same NATS do not count."""
    assert find_problems({"a", "b"}, found, workers) == wrong


def _held(data: Path, worker: int, server_id: str) -> AbstractContextManager[str]:
    return worker_identity.held(data, worker, lambda: server_id, closed=False)


def test_a_folder_names_its_servers(tmp_path: Path) -> None:
    """Only servers that hold the folder count; an invalid id is left out."""
    assert worker_identity.known(tmp_path / "none") == frozenset()
    with _held(tmp_path, 0, "first"), _held(tmp_path, 3, "fourth"):
        assert worker_identity.known(tmp_path) == {"first", "fourth"}
    (tmp_path / "worker-3" / "server-id").write_text("no id")
    assert worker_identity.known(tmp_path) == {"first"}


@pytest.mark.nats
@pytest.mark.slow
async def test_a_server_is_well_while_it_serves(fresh_nats: EmbeddedNats, tmp_path: Path) -> None:
    """Before its first start, after its end and on another NATS the server is unhealthy, each with its
    reason.
    """
    nats = {"LOROGO_NATS": fresh_nats.url}

    def health(*more: str) -> subprocess.CompletedProcess[bytes]:
        return lorogo("health", "server", "--data", "data", *more, cwd=tmp_path, env=nats)

    assert unhealthy(health()).startswith("no server has run on data yet")
    serve = Running(["serve", "--data", "data"], cwd=tmp_path, name="serve", env=nats)
    try:
        serve.wait_for_log("serving")
        said(lorogo("doc", "set", "kept", "title", '"x"', cwd=tmp_path, env=nats))
        assert said(health()) == "healthy: 1 document open\n"
        assert unhealthy(health("--workers", "2")) == "1 of 2 servers answer"
        shutil.copytree(tmp_path / "data", tmp_path / "other")
        (tmp_path / "other" / "worker-0" / "server-id").write_text("somebody-else\n")
        other = lorogo("health", "server", "--data", "other", cwd=tmp_path, env=nats)
        assert unhealthy(other) == "0 of 1 servers answer"
        assert serve.stop() == 0
    finally:
        serve.kill()
    assert unhealthy(health()) == "0 of 1 servers answer"
    await fresh_nats.stop()
    assert "nothing answers" in unhealthy(health())


@pytest.mark.nats
@pytest.mark.slow
async def test_a_closed_server_is_asked_with_its_own_seed(tmp_path: Path) -> None:
    """From the same variables that the server has; without them NATS does not let it ask."""
    made = closed_folder.make(tmp_path / "closed")
    async with EmbeddedNats(tmp_path / "nats", configuration=made.accounts) as nats:
        env = {
            "LOROGO_OPEN": "",
            "LOROGO_NATS": nats.url,
            "LOROGO_KEYS_FILE": str(made.key_set),
            "LOROGO_NATS_SEED_FILE": str(made.path / "server.seed"),
        }
        serve = Running(["serve", "--data", "data"], cwd=tmp_path, name="serve", env=env)
        try:
            serve.wait_for_log("serving")
            asked = ("health", "server", "--data", "data", "--seconds", "20")
            assert said(lorogo(*asked, cwd=tmp_path, env=env)) == "healthy: 0 documents open\n"
            stranger = env | {"LOROGO_NATS_SEED_FILE": ""}
            assert "nats://" in unhealthy(lorogo(*asked, cwd=tmp_path, env=stranger))
        finally:
            serve.kill()


@pytest.mark.nats
@pytest.mark.slow
async def test_a_gateway_is_well_before_it_is_ready(fresh_nats: EmbeddedNats, tmp_path: Path) -> None:
    """It answers without any server; ready it is when edits can be ACKed."""
    nats = {"LOROGO_NATS": fresh_nats.url}
    running = [Running(["gateway", "--port", "0"], cwd=tmp_path, name="gateway", env=nats)]
    try:
        address = running[0].wait_for("Ctrl-C").partition(" on ")[2].split()[0]
        asked = ("health", "gateway", "--url", address)
        assert said(lorogo(*asked, cwd=tmp_path)) == "healthy\n"
        assert unhealthy(lorogo(*asked, "--ready", cwd=tmp_path)).startswith(
            f"{address}/readyz answers 503: "
        )
        running.append(Running(["serve", "--data", "data"], cwd=tmp_path, name="serve", env=nats))
        running[1].wait_for_log("serving")
        until("ready", lambda: lorogo(*asked, "--ready", cwd=tmp_path).returncode == 0)
        assert running[0].stop() == 0
        assert "refused" in unhealthy(lorogo(*asked, cwd=tmp_path))
    finally:
        for one in running:
            one.kill()


class Odd(BaseHTTPRequestHandler):
    """Something else that speaks HTTP."""

    def do_GET(self) -> None:
        self.send_response(500)
        self.end_headers()
        self.wfile.write(b'{"reasons": 3}')

    def log_message(self, *_: object) -> None: ...


def test_what_is_no_gateway_is_not_well(tmp_path: Path) -> None:
    """Neither another program on its port, nor an address that is none."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Odd)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        assert (
            unhealthy(lorogo("health", "gateway", "--url", url, cwd=tmp_path)) == f"{url}/healthz answers 500"
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert "not the address of a gateway" in refused(
        lorogo("health", "gateway", "--url", "localhost:80", cwd=tmp_path)
    )
