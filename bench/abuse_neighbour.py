"""A well-behaved client during the attacks of `abuse.py`: an edit and a page per round, one line for each.

LOROGO_ABUSE_TOKEN=... python bench/abuse_neighbour.py PORT
"""

import asyncio
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx
from loro import LoroDoc
from websockets.asyncio.client import connect

from tests.gateway import support
from tests.gateway.support import Peer, type_in

TOKEN = "LOROGO_ABUSE_TOKEN"
support.DEADLINE = 60.0  # the machine is busy attacking; whether it is served is the question, not when
_PAUSE_SECONDS = 0.1


async def main(port: str) -> None:
    """Run until terminated; a line has the status of the Ack, of the page, and milliseconds."""
    doc = LoroDoc()
    bearer = {"Authorization": f"Bearer {os.environ[TOKEN]}", "X-Forwarded-For": "192.0.2.1"}
    where = f"ws://127.0.0.1:{port}/ws"
    async with (
        connect(where, compression=None, additional_headers=bearer) as socket,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=bearer, timeout=60.0) as http,
    ):
        peer = Peer(socket)
        await peer.join("decent")
        while True:
            began = time.perf_counter()
            acked = await peer.save(type_in(doc, "x"), room="decent")
            page = await http.get("/healthz")
            print(acked.name, page.status_code, round(1e3 * (time.perf_counter() - began)), flush=True)
            await asyncio.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
