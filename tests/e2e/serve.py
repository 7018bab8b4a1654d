"""A document server as a process of its own.

`python -m tests.e2e.serve URL SKEW SETTINGS [DATA [LOAD_SECONDS]]`

The same `Server` that `lorogo serve` runs; only its wall clock may be set wrong, and its loads may be slow.
"""

import asyncio
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import uvloop

from lorogo_server import Server, ServerSettings
from lorogo_server.document import loading, startup
from lorogo_server.document.loading import Loaded
from lorogo_server.sandbox.keepalive import KeepaliveProcess
from lorogo_transport.clock import SystemClock
from lorogo_transport.nats.connection import connect


class SkewedClock(SystemClock):
    """A machine whose clock is wrong by so many seconds."""

    def __init__(self, skew_seconds: float) -> None:
        self._skew_ns = int(skew_seconds * 1e9)

    def wall_ns(self) -> int:
        return super().wall_ns() + self._skew_ns


async def main(url: str, skew_seconds: float, settings: ServerSettings, data: Path) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with (
        await connect(url, name="drill-server") as transport,
        Server(
            transport, settings, clock=SkewedClock(skew_seconds), keepalive=KeepaliveProcess(url), data=data
        ) as server,
    ):
        print(f"serving {server.server_id}", flush=True)
        await ended.wait()


def load_slowly(seconds: float) -> None:
    """Every load of this process takes so much longer."""

    async def slow(*arguments: Any, **options: Any) -> Loaded:
        await asyncio.sleep(seconds)
        return await loading.load(*arguments, **options)

    setattr(startup, "load", slow)  # noqa: B010 - the name is imported there


if __name__ == "__main__":
    url, skew, settings, *rest = sys.argv[1:]
    if len(rest) > 1:
        load_slowly(float(rest[1]))
    with tempfile.TemporaryDirectory() as temporary:
        data = Path(rest[0] if rest else temporary)
        uvloop.run(main(url, float(skew), ServerSettings(**json.loads(settings)), data))
