"""The processes for benchmarks of the gateway: lorogo's, and Node."""

import asyncio
import os
import shutil
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from lorogo_transport.nats.embedded import EmbeddedNats

ROOT = Path(__file__).parents[1]
NPM = ROOT / "web" / "npm"
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0


@dataclass(frozen=True)
class Started:
    """A running process, and the line with which it reported that it is ready."""

    pid: int
    line: str


@dataclass(frozen=True)
class Lorogo:
    """nats-server, `lorogo serve` and `lorogo gateway`."""

    nats: str
    server: Started
    gateway: Started

    @property
    def http(self) -> str:
        return next(word for word in self.gateway.line.split() if word.startswith("http://"))

    @property
    def websocket(self) -> str:
        return self.http.replace("http://", "ws://") + "/ws"


def node() -> str:
    """Return the path of Node; web/with-node.sh downloads it if it is missing."""
    fetched = ROOT / "build" / "node" / "tools"
    found = shutil.which("node", path=os.pathsep.join([os.environ.get("PATH", ""), str(fetched)]))
    if found is None:
        raise SystemExit("this needs Node 20: `make pages` fetches one")
    return found


async def started_lorogo(folder: Path, stack: AsyncExitStack) -> Lorogo:
    """Start all three processes."""
    nats = await stack.enter_async_context(EmbeddedNats(folder / "nats"))
    lorogo = [sys.executable, "-m", "lorogo_cli"]
    serve = [*lorogo, "serve", "--nats", nats.url, "--data", str(folder / "server")]
    server = await start(stack, serve, log=folder / "serve.log")
    listen = [*lorogo, "gateway", "--nats", nats.url, "--port", "0"]
    gateway = await start(stack, listen, "lorogo gateway on ", log=folder / "gateway.log")
    return Lorogo(nats.url, server, gateway)


async def start(
    stack: AsyncExitStack,
    command: list[str],
    ready: str = "",
    *,
    log: Path | None = None,
    seconds: float = _START_SECONDS,
) -> Started:
    """Start a process; with a prefix, wait for a line that starts with it. It ends with the stack."""
    stderr = None if log is None else stack.enter_context(log.open("wb"))
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": str(ROOT), "LOROGO_OPEN": "1"},
    )
    stack.push_async_callback(_end, process)
    if not ready:
        return Started(process.pid, "")
    assert process.stdout is not None
    async with asyncio.timeout(seconds):
        while line := (await process.stdout.readline()).decode():
            if line.startswith(ready):
                return Started(process.pid, line.strip())
    raise SystemExit(f"{' '.join(command)} ended before it was ready")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def resident_bytes(pid: int) -> int:
    """Return the resident memory of the process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) << 10
    raise SystemExit(f"process {pid} is gone")
