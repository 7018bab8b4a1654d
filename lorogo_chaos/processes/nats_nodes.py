"""nats-servers of a fault run: one, or a cluster of three with links as routes.

one:      NatsParty "nats-1"
three:    nats-1 ──link──▶ nats-2 ...   each node knows the others by their links only: the addresses that it
          advertises lead nowhere, so that no route bypasses a link
"""

import asyncio
import os
import random
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lorogo_chaos.errors import ChaosError, StackNotReady
from lorogo_chaos.processes.links import LOOPBACK, ProxyLink
from lorogo_transport.errors import TransportError
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.nats.streams import call
from lorogo_transport.ports import Bus

CLUSTER_NODES = 3
_NOWHERE = f"{LOOPBACK}:1"
_PORTS = range(20_000, 32_000)  # below the range for outgoing connections
_PORT_TRIES = 200
_POLL_SECONDS = 0.1


class NatsNode:
    """One nats-server, its files, and the links of its routes."""

    def __init__(
        self, name: str, folder: Path, port: int, *, configuration: str = "", routes: Sequence[ProxyLink] = ()
    ) -> None:
        self.name = name
        self.routes = tuple(routes)  # every link between it and another node, in both directions
        self.paused = False
        self._nats = EmbeddedNats(folder, port=port, configuration=configuration, name=name)

    @property
    def store(self) -> Path:
        """The folder with all its data."""
        return self._nats.store_dir

    @property
    def log(self) -> Path:
        return self._nats.log_path

    @property
    def port(self) -> int:
        return self._nats.port

    @property
    def url(self) -> str:
        """Its own address, without a link."""
        return self._nats.url

    @property
    def running(self) -> bool:
        return self._nats.running

    @property
    def pid(self) -> int | None:
        """The process id; None if it is not running."""
        return self._nats.pid if self._nats.running else None

    async def start(self) -> None:
        """Start, on the same port and files; no-op if it runs. Raises EmbeddedError."""
        await self._nats.start()

    async def kill(self) -> None:
        """Kill it with SIGKILL; no-op if it is not running."""
        self.paused = False
        await self._nats.kill()

    async def stop(self) -> None:
        """Stop it gracefully."""
        self.resume()
        await self._nats.stop()

    def pause(self) -> None:
        """Stop the process with SIGSTOP; its connections stay."""
        self._send(signal.SIGSTOP)
        self.paused = self.running

    def resume(self) -> None:
        """Continue the process."""
        if self.paused:
            self._send(signal.SIGCONT)
            self.paused = False

    def _send(self, number: signal.Signals) -> None:
        if self.running:
            with suppress(ProcessLookupError):
                os.kill(self._nats.pid, number)


async def one(folder: Path, rng: random.Random) -> list[NatsNode]:
    """Return a single nats-server; not started."""
    return [NatsNode("nats-1", folder / "nats-1", free_port(rng))]


async def cluster(folder: Path, rng: random.Random) -> tuple[list[NatsNode], list[ProxyLink]]:
    """Return three nodes connected by open links; the nodes are not started."""
    names = [f"nats-{number + 1}" for number in range(CLUSTER_NODES)]
    ports = {name: free_port(rng) for name in names}
    links: dict[tuple[str, str], ProxyLink] = {}
    for near in names:
        for far in names:
            if near != far:
                link = links[near, far] = ProxyLink(f"{near}>{far}", [ports[far]], rng=rng)
                await link.open()
    nodes = [
        NatsNode(
            name,
            folder / name,
            free_port(rng),
            configuration=_configuration(
                ports[name], [link.ports[0] for (near, _), link in links.items() if near == name]
            ),
            routes=[link for pair, link in links.items() if name in pair],
        )
        for name in names
    ]
    return nodes, list(links.values())


def _configuration(port: int, routes: Sequence[int]) -> str:
    addresses = ", ".join(f'"nats://{LOOPBACK}:{route}"' for route in routes)
    return f"""
cluster {{
  name: "chaos"
  listen: "{LOOPBACK}:{port}"
  advertise: "{_NOWHERE}"
  no_advertise: true
  routes: [{addresses}]
}}
"""


async def formed(nodes: Sequence[NatsNode], seconds: float = 30.0) -> None:
    """Wait until JetStream of these nodes answers, and has a leader. Raises StackNotReady."""
    problem: Exception | None = None
    for node in nodes:
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        async with await connect(node.url, name="operator", timeout=2.0) as link:
                            await link.bus.request("$JS.API.INFO", timeout=2.0)
                            break
                    except TransportError as error:
                        problem = error
                        await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise StackNotReady(
                f"JetStream of {node.name} did not answer within {seconds:g} s: {problem}"
            ) from None


async def leader(bus: Bus, stream: str) -> str:
    """Return the node that leads the stream; empty if none does, or there is no cluster."""
    info = await call(bus, "STREAM.INFO", stream, None, 5.0)
    return str((info.get("cluster") or {}).get("leader") or "")


async def step_down(bus: Bus, stream: str) -> None:
    """Request another leader of the stream."""
    await call(bus, "STREAM.LEADER.STEPDOWN", stream, None, 5.0)


def free_port(rng: random.Random) -> int:
    """Return a free port on loopback, outside the range for outgoing connections."""
    for _ in range(_PORT_TRIES):
        port = rng.choice(_PORTS)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise ChaosError("no free port was found on loopback")
