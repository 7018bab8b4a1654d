"""The chart's pods, run: the rendered commands as they stand, on loopback, with a closed NATS.

Paths, ports and the address of NATS are replaced by those of this machine; every option stays.
"""

import asyncio
import re
import shutil
import signal
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from lorogo_transport.nats.embedded import EmbeddedNats
from tests.cli.support import Running, lorogo, said, said_json, until
from tests.deploy import charts
from tests.deploy.charts import Pod, manifests

pytestmark = [pytest.mark.nats, pytest.mark.slow]
SECONDS = 20.0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Machine:
    """A folder in which pods run, with what their Secrets hold."""

    def __init__(self, folder: Path, secrets: Path, nats: str) -> None:
        self.folder = folder
        self.nats = nats
        self._secrets = secrets
        self._ports: dict[int, int] = {}

    def port(self, named: int) -> int:
        """The local port for a port of a pod."""
        return self._ports.setdefault(named, free_port())

    @contextmanager
    def running(self, pod: Pod) -> Iterator[Running]:
        """Its one container, with its volumes as Kubernetes would mount them, until the end of the block."""
        home = self.folder / pod.component
        mounts = {"/data": home / "data", "/etc/lorogo": home / "files"}
        for place in mounts.values():
            place.mkdir(parents=True)
        for volume in pod.spec["volumes"]:
            for source in volume.get("projected", {}).get("sources", []):
                for item in source["secret"]["items"]:
                    copy = mounts["/etc/lorogo"] / item["path"]
                    shutil.copyfile(self._secrets / item["key"], copy)
                    copy.chmod(volume["projected"]["defaultMode"])
        words = [self._here(word, mounts) for word in pod.container["args"]]
        variables = {one["name"]: one.get("value", "") for one in pod.container["env"]}
        assert variables == {"LOROGO_NATS": "nats://nats:4222"}
        env = {"LOROGO_NATS": self.nats, "LOROGO_OPEN": "", "HOME": str(home)}
        process = Running(words, cwd=home, name=pod.component, env=env)
        try:
            yield process
        finally:
            process.kill()

    def _here(self, word: str, mounts: dict[str, Path]) -> str:
        option, equals, value = word.partition("=")
        for place, real in mounts.items():
            if value == place or value.startswith(f"{place}/"):
                value = str(real) + value.removeprefix(place)
        value = re.sub(r"0\.0\.0\.0:(\d+)", lambda found: f"127.0.0.1:{self.port(int(found[1]))}", value)
        if option == "--host":
            value = value.replace("0.0.0.0", "127.0.0.1")
        if option == "--port":
            value = str(self.port(int(value)))
        return f"{option}{equals}{value}"

    def probed(self, pod: Pod, probe: str) -> bool | None:
        """True if a probe of the pod succeeds, else None or False."""
        asked = pod.container[probe]["httpGet"]
        (port,) = [one["containerPort"] for one in pod.container["ports"] if one["name"] == asked["port"]]
        try:
            url = f"{asked['scheme'].lower()}://127.0.0.1:{self.port(port)}{asked['path']}"
            return httpx.get(url, timeout=SECONDS).status_code == 200 or None
        except httpx.TransportError:
            return None


async def test_the_pods_of_a_closed_installation_work_together(tmp_path: Path) -> None:
    """They start in any order, become ready, take an edit with a token, and stop with documents DOWN."""
    await asyncio.to_thread(lambda: said(lorogo("auth", "setup", "closed", cwd=tmp_path)))
    closed = tmp_path / "closed"
    assert {stat.S_IMODE(path.stat().st_mode) for path in closed.glob("*.seed")} == {0o600}
    async with EmbeddedNats(tmp_path / "nats", configuration=_accounts(closed)) as nats:
        await asyncio.to_thread(_work, Machine(tmp_path / "pods", closed, nats.url), closed)


def _accounts(closed: Path) -> str:
    """The part of the files from `lorogo auth setup` that closes NATS."""
    alone = closed / "accounts.conf"
    text = (alone if alone.exists() else closed / "nats.conf").read_text(encoding="utf-8")
    return text[text.index("accounts {") :]


def _work(machine: Machine, closed: Path) -> None:
    found = manifests()
    pods = {part: charts.pod(found, part) for part in ("gateway", "server", "auth")}
    with ExitStack() as stack:
        running = {part: stack.enter_context(machine.running(pod)) for part, pod in pods.items()}
        for part in ("server", "gateway"):
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                until(f"{probe} of {part}", lambda part=part, probe=probe: machine.probed(pods[part], probe))  # type: ignore[misc]
        running["auth"].wait_for("lorogo auth is running")

        words = ["token", "mint", "--key", str(closed / "tokens.jwk"), "--subject", "ana"]
        token = said(
            lorogo(*words, "--grant", "minutes=write", "--expires", "1h", cwd=machine.folder)
        ).strip()
        url = f"http://127.0.0.1:{machine.port(8080)}/v1/documents/minutes"
        bearer = {"Authorization": f"Bearer {token}"}
        saved = httpx.put(url, json={"title": "hello"}, headers=bearer, timeout=SECONDS)
        assert saved.status_code == 201, saved.text
        assert saved.json()["durability"] == "journal"
        assert httpx.get(url, timeout=SECONDS).status_code == 401

        seed = {"LOROGO_NATS": machine.nats, "LOROGO_NATS_SEED_FILE": str(closed / "operator.seed")}
        assert _state(machine, seed) == "UP"
        assert running["server"].stop(signal.SIGTERM) == 0
        assert _state(machine, seed) == "DOWN"
        assert machine.probed(pods["server"], "livenessProbe") is None
        assert machine.probed(pods["gateway"], "livenessProbe")
        until("a gateway that is not ready", lambda: not machine.probed(pods["gateway"], "readinessProbe"))
        for part in ("gateway", "auth"):
            assert running[part].stop(signal.SIGTERM) == 0


def _state(machine: Machine, seed: dict[str, str]) -> Any:
    return said_json(lorogo("status", "minutes", "--json", cwd=machine.folder, env=seed))["state"]
