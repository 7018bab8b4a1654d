"""A document server as a process of its own, for drills: `python -m tests.e2e.serve URL SKEW SETTINGS`.

The same `Server` that `lorogo serve` runs; only its wall clock may be set wrong.
"""

import asyncio
import json
import signal
import sys

import uvloop

from lorogo_server import Server, ServerSettings
from lorogo_server.pacemaker import Pulse
from lorogo_transport.clock import SystemClock
from lorogo_transport.jetstream import connect


class SkewedClock(SystemClock):
    """A machine whose clock is wrong by so many seconds."""

    def __init__(self, skew_seconds: float) -> None:
        self._skew_ns = int(skew_seconds * 1e9)

    def wall_ns(self) -> int:
        return super().wall_ns() + self._skew_ns


async def main(url: str, skew_seconds: float, settings: ServerSettings) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with (
        await connect(url, name="drill-server") as transport,
        Server(transport, settings, clock=SkewedClock(skew_seconds), pulse=Pulse(url)) as server,
    ):
        print(f"serving {server.server_id}", flush=True)
        await ended.wait()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], float(sys.argv[2]), ServerSettings(**json.loads(sys.argv[3]))))
