"""`lorogo serve`: several processes on one NATS."""

import json
import os
import signal
from pathlib import Path

import pytest

from lorogo_cli.errors import CommandError
from lorogo_cli.services.worker_identity import held
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.cli.support import Running, lorogo, refused, said, said_json, until

pytestmark = [pytest.mark.nats, pytest.mark.slow]


def _free(data: Path, worker: int) -> bool | None:
    """True if no server runs on that worker's folder; None if one does."""
    try:
        with held(data, worker, lambda: "never", closed=False):
            return True
    except CommandError:
        return None


async def test_workers_are_kept_alive_and_stopped_gracefully(
    fresh_nats: EmbeddedNats, tmp_path: Path
) -> None:
    """Two workers are two servers with lasting ids; a killed one comes back; SIGTERM ends all with 0."""
    nats = {"LOROGO_NATS": fresh_nats.url}
    serve = Running(["serve", "--workers", "2", "--data", "data"], cwd=tmp_path, name="serve", env=nats)
    try:
        ids = {line["server"] for line in serve.wait_for_log("serving", 2)}
        assert len(ids) == 2
        servers = said_json(lorogo("status", "--json", cwd=tmp_path, env=nats))["servers"]
        assert {server["server"] for server in servers} == ids
        said(lorogo("doc", "set", "kept", "title", '"x"', cwd=tmp_path, env=nats))
        locked = refused(lorogo("serve", "--data", "data", cwd=tmp_path, env=nats))
        assert "is in use by another server" in locked

        victim = serve.wait_for_log("worker started", 2)[0]
        os.kill(victim["pid"], signal.SIGKILL)
        again = serve.wait_for_log("worker started", 3)[2]
        assert again["worker"] == victim["worker"]
        assert {line["server"] for line in serve.wait_for_log("serving", 3)} == ids

        said(
            lorogo("doc", "get", "kept", cwd=tmp_path, env=nats)
        )  # a running worker owns it, whichever owned it before
        assert serve.stop(signal.SIGTERM) == 0
        serve.wait_for_log("stopped", 2)
        assert said_json(lorogo("status", "kept", "--json", cwd=tmp_path, env=nats))["state"] == "DOWN"
    finally:
        serve.kill()


async def test_answers_are_in_the_status_and_stay_in_the_journal(
    fresh_nats: EmbeddedNats, tmp_path: Path
) -> None:
    """`status --json` has the times from update to ACK; after a stop the server's journal has them."""
    nats = {"LOROGO_NATS": fresh_nats.url}
    serve = Running(["serve", "--data", "data"], cwd=tmp_path, name="serve", env=nats)
    try:
        (line,) = serve.wait_for_log("serving", 1)
        open_to_all = "running without keys: every NATS client may"
        until("that it is open", lambda: open_to_all in serve.err.read_text())
        said(lorogo("doc", "set", "kept", "title", '"x"', cwd=tmp_path, env=nats))
        (server,) = said_json(lorogo("status", "--json", cwd=tmp_path, env=nats))["servers"]
        stats = server["stats"]
        assert (stats["acked"], stats["nacked"]) == (1, {})
        assert 0 < stats["ack_us_p50"] <= stats["ack_us_p99"]
        assert serve.stop(signal.SIGTERM) == 0
    finally:
        serve.kill()
    journal = tmp_path / "data" / "worker-0" / "journal" / "00"
    shown = said(lorogo("log", "dump", str(journal), "--key", "-answers", cwd=tmp_path))
    kind, layout, server_id, since_ns, until_ns, acked, counts, reasons = json.loads(shown)["value"]
    assert (kind, layout, server_id, acked, reasons) == ("s", 2, line["server"], 1, {})
    assert since_ns < until_ns
    assert sum(counts) == 1


async def test_a_graceful_stop_leaves_documents_down(fresh_nats: EmbeddedNats, tmp_path: Path) -> None:
    """After Ctrl-C the documents of the server are DOWN, and the error of a call is that no server runs."""
    nats = {"LOROGO_NATS": fresh_nats.url}
    serve = Running(["serve", "--data", "data", "--idle-seconds", "60"], cwd=tmp_path, name="serve", env=nats)
    try:
        serve.wait_for_log("serving")
        said(lorogo("doc", "set", "kept", "title", '"x"', cwd=tmp_path, env=nats))
        assert serve.stop(signal.SIGINT) == 0
    finally:
        serve.kill()
    assert said_json(lorogo("status", "kept", "--json", cwd=tmp_path, env=nats))["state"] == "DOWN"
    error = refused(lorogo("doc", "get", "kept", cwd=tmp_path, env=nats))
    assert error.startswith(f"no lorogo server is running on {fresh_nats.url}: start one with `lorogo serve")
    assert "no server is running" in said(lorogo("status", cwd=tmp_path, env=nats))


async def test_workers_do_not_outlive_their_parent(fresh_nats: EmbeddedNats, tmp_path: Path) -> None:
    """After kill -9 of the parent: its workers notice and stop, their documents DOWN."""
    nats = {"LOROGO_NATS": fresh_nats.url}
    serve = Running(["serve", "--workers", "2", "--data", "data"], cwd=tmp_path, name="serve", env=nats)
    try:
        serve.wait_for_log("serving", 2)
        said(lorogo("doc", "set", "kept", "title", '"x"', cwd=tmp_path, env=nats))
    finally:
        serve.kill()
    for worker in (0, 1):
        until(f"the end of worker {worker}", lambda worker=worker: _free(tmp_path / "data", worker))  # type: ignore[misc]
    assert said_json(lorogo("status", "kept", "--json", cwd=tmp_path, env=nats))["state"] == "DOWN"
