"""lorogo as a server of the harness: nats-server, `lorogo serve` and, with ENTRY=gateway, `lorogo gateway`.

Other variables: PORT (of NATS or the gateway, by ENTRY), DATA_DIR, DURABILITY. Prints READY, and stops all on
SIGTERM; a second start on the same folder continues with its data.
"""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from lorogo_bench.stack.servers import ServerProcess
from lorogo_transport.nats.embedded import EmbeddedNats

_STOP_SECONDS = 8.0  # the driver waits for 15


async def main() -> None:
    """Run until SIGTERM."""
    stopped = asyncio.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, stopped.set)
    port, data = int(os.environ["PORT"]), Path(os.environ["DATA_DIR"])
    through_gateway = os.environ["ENTRY"] == "gateway"
    async with AsyncExitStack() as stack:
        nats = await stack.enter_async_context(
            EmbeddedNats(data / "nats", port=0 if through_gateway else port)
        )
        options = ("--durability", os.environ["DURABILITY"])
        server = ServerProcess("server", nats.url, data / "server", options)
        stack.push_async_callback(server.stop)
        await server.start()
        if through_gateway:
            await _gateway(stack, nats.url, port)
        print("READY", flush=True)
        await stopped.wait()


async def _gateway(stack: AsyncExitStack, url: str, port: int) -> None:
    """Started and listening; it ends with the stack."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lorogo_cli", "gateway", "--open", "--nats", url, "--port", str(port)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    stack.push_async_callback(_end, process)
    assert process.stdout is not None
    while line := await process.stdout.readline():
        if line.startswith(b"lorogo gateway on "):
            return
    raise SystemExit("the gateway ended before it listened")


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(main())
