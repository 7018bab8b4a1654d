"""nats-server, document servers and gateways as real processes, and a Node with npm clients."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import lorogo_client
from lorogo_client import Client
from lorogo_log import Reader
from lorogo_protocol.journal import records
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.e2e.support import ServerProcess, servers
from tests.gateway.npm import ROOT, Npm, npm_clients

QUICK = {"renew_seconds": 0.3, "lease_seconds": 0.8, "stale_seconds": 1.2}  # quick to take over
_SECONDS = 30.0


class GatewayProcess:
    """A `lorogo gateway`, which can be killed and started again on its port."""

    def __init__(self, nats_url: str, *options: str) -> None:
        self._command = [sys.executable, "-m", "lorogo_cli", "gateway", "--nats", nats_url, *options]
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0
        self.http = ""

    @property
    def websocket(self) -> str:
        return f"ws{self.http.removeprefix('http')}/ws"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Started, on the port it had before if it had one."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            *("--port", str(self._port)),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(_SECONDS):
            while not (line := (await self._process.stdout.readline()).decode()).startswith("lorogo gateway"):
                assert line, "the gateway ended"
        self.http = next(word for word in line.split() if word.startswith("http://"))
        self._port = int(self.http.rpartition(":")[2])

    async def kill(self) -> None:
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """As an operator does: SIGTERM, and wait."""
        return await self._end(signal.SIGTERM)

    async def _end(self, number: int) -> int:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        async with asyncio.timeout(_SECONDS):
            return await self._process.wait()


class World:
    """One nats-server with what runs on it."""

    def __init__(
        self, nats: EmbeddedNats, npm: Npm, client: Client, folder: Path, stack: AsyncExitStack
    ) -> None:
        self.nats = nats
        self.npm = npm
        self.client = client  # of Python
        self._folder = folder
        self._stack = stack
        self._start: Callable[..., Awaitable[ServerProcess]] | None = None
        self._servers = 0

    async def server(self) -> ServerProcess:
        """One more document server, with a journal of its own."""
        if self._start is None:
            self._start = await self._stack.enter_async_context(servers(self.nats.url))
        self._servers += 1
        return await self._start(data=self._data(self._servers), **QUICK)

    async def gateway(self, *options: str) -> GatewayProcess:
        """One more gateway."""
        gateway = GatewayProcess(self.nats.url, *options)
        await gateway.start()
        self._stack.push_async_callback(gateway.kill)
        return gateway

    def journalled(self, document_id: str) -> Iterator[bytes]:
        """The updates of a document that are in a journal on disk now."""
        for folder in self._folder.glob("server*/journal/[0-9]*"):
            for batch in Reader.open(folder).read(key=document_id.encode()):
                for record in batch.records():
                    match records.decode_document(record.value):
                        case records.UpdateRecord(payload=payload):
                            yield payload

    def _data(self, number: int) -> Path:
        return self._folder / f"server{number}"


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    """Without servers and gateways yet. All that is started in it ends with it."""
    async with (
        npm_clients() as npm,
        EmbeddedNats(folder / "nats") as nats,
        lorogo_client.connect(nats.url) as client,
        AsyncExitStack() as stack,
    ):
        yield World(nats, npm, client, folder, stack)
