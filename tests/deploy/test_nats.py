"""The real nats-server accepts the files of deploy/nats, and three of it are a cluster.

One alone, with the auth callout, is started in test_systemd.py.
"""

import json
import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from lorogo_cli.connect import closed_folder
from lorogo_protocol import limits
from tests.cli.support import Running, lorogo, said, said_json, until
from tests.deploy.support import (
    NATS,
    ROOT,
    NatsServer,
    checked,
    compose,
    free_ports,
    installed,
    said_of,
    wanted,
)

CONFS = sorted(path.name for path in NATS.glob("*.conf"))
SETTINGS = {
    "NATS_NAME": "nats-1",
    "NATS_LISTEN": "127.0.0.1:4222",
    "NATS_MONITOR": "127.0.0.1:8222",
    "NATS_ROUTE_LISTEN": "127.0.0.1:6222",
    "NATS_ROUTE_PASSWORD": "secret",
    "NATS_ROUTES": '["nats-route://lorogo:secret@127.0.0.1:6222"]',
    "NATS_STORE": "/nowhere",
    "NATS_FILE_STORE": "1GB",
}


@pytest.mark.parametrize("conf", ["single.conf", "cluster.conf"])
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_nats_server_takes_it(conf: str, closed: bool, tmp_path: Path) -> None:
    """With the accounts that `lorogo auth setup` writes, and with the open ones; and not without either."""
    accounts = closed_folder.make(tmp_path / "keys").path / "accounts.conf" if closed else NATS / "open.conf"
    folder = installed(tmp_path / "nats", accounts)
    settings = {name: SETTINGS[name] for name in wanted(conf)}
    good = checked(folder / conf, settings)
    assert good.returncode == 0, good.stderr
    for name in settings:
        lacking = checked(folder / conf, {key: value for key, value in settings.items() if key != name})
        assert lacking.returncode != 0
        assert name in lacking.stderr
    (folder / "accounts.conf").unlink()
    assert "accounts.conf" in checked(folder / conf, settings).stderr


@pytest.mark.parametrize("conf", ["single.conf", "cluster.conf"])
def test_a_file_names_what_it_wants(conf: str) -> None:
    """Every variable stands in the comment at its top."""
    head = (NATS / conf).read_text(encoding="utf-8").partition("server_name")[0]
    assert set(re.findall(r"NATS_\w+", head)) == wanted(conf)


@pytest.mark.parametrize("conf", CONFS)
def test_no_file_holds_a_secret(conf: str) -> None:
    """Passwords come from the environment, and users from accounts.conf."""
    text = said_of(conf)
    assert re.findall(r"(?:password|token|nkey|seed)\s*:\s*(\S+)", text) in ([], ["$NATS_ROUTE_PASSWORD"])


def test_messages_of_ours_fit() -> None:
    """A chunk with its headers, and the longest answer of the callout (250 KB)."""
    found = re.search(r"^max_payload: (\d+)MB$", said_of("common.conf"), re.MULTILINE)
    assert found is not None
    assert int(found[1]) * 1_000_000 > 2 * max(
        limits.CHUNK_BYTES_MAX + limits.CHUNK_HEADER_BYTES_RESERVED, 250_000
    )


def test_what_waits_for_a_stream_is_bounded() -> None:
    """In the file, in what `lorogo auth setup` writes and in the page for Kubernetes: as in limits.py."""
    mib = limits.INGEST_BYTES_MAX // limits.MIB
    bound = f"max_buffered_size: {mib}MB"
    assert re.search(rf"^  {bound}$", said_of("common.conf"), re.MULTILINE)
    assert bound in (ROOT / "docs" / "DEPLOY.md").read_text(encoding="utf-8")
    assert bound in (ROOT / "docs" / "handbook" / "operations.md").read_text(encoding="utf-8")
    kubernetes = (ROOT / "docs" / "KUBERNETES.md").read_text(encoding="utf-8")
    assert f"max_buffered_size: << {mib}MB >>" in kubernetes


def test_what_auth_setup_writes_bounds_what_waits_for_a_stream(tmp_path: Path) -> None:
    """nats-server takes it."""
    folder = closed_folder.make(tmp_path / "keys").path
    written = (folder / "nats.conf").read_text(encoding="utf-8")
    assert f"  max_buffered_size: {limits.INGEST_BYTES_MAX}\n" in written
    good = checked(folder / "nats.conf", {})
    assert good.returncode == 0, good.stderr


@pytest.mark.deep
@pytest.mark.nats
@pytest.mark.timeout(300)  # a dozen processes, one after the other
def test_three_nats_servers_are_a_cluster_that_bears_the_loss_of_one(tmp_path: Path) -> None:
    """With the environment of docker-compose.yml, on loopback: edits are ACKed with three, and with two."""
    folder = installed(tmp_path / "nats", NATS / "open.conf")
    services = {name: one for name, one in compose()["services"].items() if name.startswith("nats-")}
    assert len(services) == 3
    ports = {name: free_ports(3) for name in services}
    nodes = {}
    serve: Running | None = None
    try:
        for name, service in services.items():
            settings = at_home(service["environment"], name, ports, tmp_path / name)
            assert settings.keys() == wanted("cluster.conf")
            nodes[name] = NatsServer(folder / "cluster.conf", settings, tmp_path / f"{name}.log")
        for name, node in nodes.items():
            health = f"http://127.0.0.1:{ports[name][1]}/healthz"
            until(f"{name} in the cluster", lambda node=node, health=health: node.answers(health))  # type: ignore[misc]
        addresses = ",".join(f"nats://127.0.0.1:{one[0]}" for one in ports.values())
        env = {"LOROGO_NATS": addresses}
        options = ["--data", "data", "--replicas", "3", "--wal-bytes-max", "64MiB"]
        serve = Running(["serve", *options], cwd=tmp_path, name="serve", env=env)
        serve.wait_for_log("serving")
        said(lorogo("doc", "set", "plans", "title", '"three"', cwd=tmp_path, env=env))
        with urlopen(
            f"http://127.0.0.1:{ports['nats-2'][1]}/jsz?streams=true&config=true", timeout=10
        ) as answer:
            streams = {
                stream["name"]: stream["config"]["num_replicas"]
                for account in json.load(answer)["account_details"]
                for stream in account["stream_detail"]
            }
        assert streams["loro-wal"] == 3
        nodes["nats-3"].kill()
        edited = ("doc", "set", "plans", "title", '"two"')
        until("an ACK with two", lambda: lorogo(*edited, cwd=tmp_path, env=env).returncode == 0)
        assert said_json(lorogo("doc", "get", "plans", cwd=tmp_path, env=env)) == {"title": "two"}
    finally:
        if serve is not None:
            serve.kill()
        for node in nodes.values():
            node.kill()


def at_home(
    environment: dict[str, Any], name: str, ports: dict[str, list[int]], store: Path
) -> dict[str, str]:
    """A container's environment, with its addresses on loopback and its store in a folder."""
    client, monitor, route = ports[name]
    replaced = {
        "NATS_LISTEN": f"127.0.0.1:{client}",
        "NATS_MONITOR": f"127.0.0.1:{monitor}",
        "NATS_ROUTE_LISTEN": f"127.0.0.1:{route}",
        "NATS_STORE": str(store),
        "NATS_FILE_STORE": "1GB",
        "NATS_ROUTES": re.sub(
            r"@(nats-\d):6222", lambda found: f"@127.0.0.1:{ports[found[1]][2]}", environment["NATS_ROUTES"]
        ),
    }
    assert replaced["NATS_ROUTES"].count("@127.0.0.1:") == 3
    return {**{key: str(value) for key, value in environment.items()}, **replaced}
