"""Clients that open a document at the same time, and the same bytes and imports without lorogo."""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any, Self

from loro import LoroDoc

import lorogo_client
from lorogo_bench.content import bulk
from lorogo_bench.loads.due import until_ns
from lorogo_bench.loads.heavy import offered
from lorogo_client import Client
from lorogo_protocol.limits import CHUNK_BYTES_MAX, WINDOW_BYTES
from lorogo_transport.nats.connection import JetStreamTransport, connect

_OPEN_SECONDS = 110.0
_REPLY_SECONDS = 30.0


class NewcomersLoad:
    """Up to `count` clients, each on its own connection, which is made before the measurement."""

    def __init__(self, url: str, count: int) -> None:
        self._url = url
        self._count = count
        self._clients: list[Client] = []
        self._connections: list[JetStreamTransport] = []
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            for _ in range(self._count):
                connection = lorogo_client.connect(self._url, name="bench newcomer")
                self._clients.append(await undo.enter_async_context(connection))
                transport = await connect(self._url, name="bench raw newcomer")
                undo.push_async_callback(transport.close)
                self._connections.append(transport)
            self._exit = undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def do_open(self, *, document: str, count: int, begin_ns: int = 0) -> dict[str, Any]:
        """Open the document in all clients at once; return the time of the last one, and all digests."""
        await until_ns(begin_ns)
        async with AsyncExitStack() as leaving:
            opens = (
                leaving.enter_async_context(client.open(document, read_only=True, timeout=_OPEN_SECONDS))
                for client in self._clients[:count]
            )
            sessions = await asyncio.gather(*opens)
            ended_ns = time.monotonic_ns()
            return {"ended_ns": ended_ns, "digests": [bulk.digest(bulk.text_in(one.doc)) for one in sessions]}

    async def do_fetch(self, *, document: str, size: int, count: int, begin_ns: int) -> dict[str, Any]:
        """Request the chunks of its snapshot and import them, on all connections at once."""
        await until_ns(begin_ns)
        fetches = (self._fetch(one, document, size) for one in self._connections[:count])
        docs = await asyncio.gather(*fetches)
        ended_ns = time.monotonic_ns()
        return {"ended_ns": ended_ns, "digests": [bulk.digest(bulk.text_in(doc)) for doc in docs]}

    async def _fetch(self, transport: JetStreamTransport, document: str, size: int) -> LoroDoc:
        turn = asyncio.Semaphore(WINDOW_BYTES // CHUNK_BYTES_MAX)

        async def chunk(begin: int) -> bytes:
            async with turn:
                answer = await transport.bus.request(
                    offered(document), str(begin).encode(), timeout=_REPLY_SECONDS
                )
                return answer.data

        chunks = await asyncio.gather(*map(chunk, range(0, size, CHUNK_BYTES_MAX)))
        return bulk.plainly_imported(b"".join(chunks))
