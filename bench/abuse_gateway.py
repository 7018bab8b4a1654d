"""A gateway for `abuse.py`: `lorogo gateway` with keys and shorter timeouts, so that attacks end in seconds.

LOROGO_ABUSE_SECRET=... python bench/abuse_gateway.py NATS_URL
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import uvloop

from lorogo_gateway.server.lifecycle import GatewaySettings, running
from lorogo_protocol.access import tokens
from lorogo_protocol.access.tokens import Token

SECRET = "LOROGO_ABUSE_SECRET"
SETTINGS = GatewaySettings(
    port=0,
    connections_max=10_000,
    address_connections_max=20_000,  # all clients connect through one proxy, this machine
    trusted_proxies=("127.0.0.1",),
    idle_seconds=120.0,
    head_seconds=3.0,
    stall_seconds=3.0,
    call_seconds=5.0,
    ping_seconds=10.0,
    fragment_seconds=3.0,
    body_bytes_max=4 * 1024 * 1024,
    token_connections_max=10_000,
    token_requests_per_second=5_000.0,
    token_updates_per_second=200.0,
    token_joins_per_second=400.0,
    auth_failures_per_minute=60.0,
    auth_block_seconds=2.0,
)


class Keys:
    """Verifies tokens without a revocation list."""

    ready = True

    def __init__(self, secret: str) -> None:
        self._keys = tokens.Keys([tokens.make_key("HS256", "abuse", bytes.fromhex(secret))])

    def verify(self, text: str) -> Token:
        return self._keys.verify(text, now=time.time())

    def is_valid(self, token: Token) -> bool:
        return token.expires > time.time()

    def watch(self, _listener: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


async def main(nats: str) -> None:
    """Serve until standard input ends."""
    async with running(nats, SETTINGS, Keys(os.environ[SECRET])) as address:
        print(f"lorogo gateway on {address}", flush=True)
        await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the command does
        runner.run(main(*sys.argv[1:]))
