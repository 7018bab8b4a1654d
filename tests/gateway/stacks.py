"""Everything that a browser needs, as real processes: nats-server, servers that can be killed, a gateway."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lorogo_transport.nats.embedded import EmbeddedNats
from tests.cli.support import Running


class Stack:
    """One NATS, one gateway, and servers by number, each with its own journal."""

    def __init__(self, folder: Path, nats: EmbeddedNats) -> None:
        self.nats = nats
        self._folder = folder
        self._servers: dict[int, Running] = {}
        self._gateway: Running | None = None
        self.web = ""

    def serve(self, number: int = 0) -> Running:
        """Start a server, or start it again."""
        name = f"server-{number}"
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        options = ["serve", "--nats", self.nats.url, "--data", str(folder / "data"), "--verbose"]
        server = self._servers[number] = Running(options, cwd=folder, name=name)
        server.wait_for_log("serving")
        return server

    def serve_killed(self, number: int = 0) -> None:
        """The server is gone at once, as with the power."""
        self._servers[number].kill()

    def gate(self, *options: str) -> str:
        """Start the gateway, or start it again at the same address."""
        port = self.web.rpartition(":")[2] or "0"
        command = ["gateway", "--nats", self.nats.url, "--port", port, *options]
        self._gateway = Running(command, cwd=self._folder, name="gateway")
        found = re.search(r"http://\S+", self._gateway.wait_for("Ctrl-C"))
        assert found is not None
        self.web = found[0]
        return self.web

    @property
    def gateway(self) -> Running:
        assert self._gateway is not None
        return self._gateway

    def end(self) -> None:
        for running in (*self._servers.values(), *([self._gateway] if self._gateway else [])):
            running.kill()


@asynccontextmanager
async def stack(folder: Path) -> AsyncIterator[Stack]:
    """A stack with one server and a gateway; everything is gone afterwards."""
    async with EmbeddedNats(folder / "nats") as nats:
        made = Stack(folder, nats)
        try:
            made.serve()
            made.gate()
            yield made
        finally:
            made.end()
