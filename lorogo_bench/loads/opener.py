"""Open documents and read their texts, with a lorogo client and without lorogo.

Without lorogo is the limit: get the object, and import it into a Loro document.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

import nanoid
from loro import LoroDoc

import lorogo_client
from lorogo_bench.content.keys import BODY
from lorogo_client import Client, Session
from lorogo_protocol.limits import MIB
from lorogo_protocol.messages.subjects import SNAPSHOT_STREAM
from lorogo_transport.clock import SystemClock
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.stores.snapshots import SnapshotStore

_OPEN_SECONDS = 60.0
_BYTES_MAX = 1024 * MIB


class OpenerLoad:
    """One client, and one plain connection."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Client | None = None
        self._transport: JetStreamTransport | None = None
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            connection = lorogo_client.connect(self._url, name="bench opener")
            self._client = await undo.enter_async_context(connection)
            plain = await connect(self._url, name="bench plain opener")
            self._transport = await undo.enter_async_context(plain)
            self._exit = undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def do_open(self, *, documents: list[str]) -> dict[str, Any]:
        """Open all documents at once, read their texts, and close them."""
        assert self._client is not None
        client = self._client
        async with AsyncExitStack() as sessions:

            async def text(name: str) -> str:
                connection = client.open(name, timeout=_OPEN_SECONDS)
                session: Session = await sessions.enter_async_context(connection)
                return session.doc.get_text(BODY).to_string()

            began = time.perf_counter()
            texts = await asyncio.gather(*map(text, documents))
            seconds = time.perf_counter() - began
        return {"seconds": seconds, "texts": _counted(texts)}

    async def do_get(self, *, documents: list[str]) -> dict[str, Any]:
        """Do the same without lorogo: get all objects at once, import each into a LoroDoc, read the texts."""
        assert self._transport is not None
        stream, most = self._transport.stream(SNAPSHOT_STREAM), self._transport.bus.max_payload
        store = SnapshotStore(stream, max_payload=most, clock=SystemClock(), new_id=nanoid.generate)

        async def text(name: str) -> str:
            head = await store.head(name)
            assert head is not None, f"{name} is not stored"
            doc = LoroDoc()
            doc.import_(await store.get(head, bytes_max=_BYTES_MAX))
            return doc.get_text(BODY).to_string()

        began = time.perf_counter()
        texts = await asyncio.gather(*map(text, documents))
        return {"seconds": time.perf_counter() - began, "texts": _counted(texts)}


def _counted(texts: Sequence[str]) -> list[tuple[str, int]]:
    """Return each distinct text with its count."""
    return list(Counter(texts).items())
