"""A client with large updates, and the same bytes and imports without lorogo."""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any, Self

import lorogo_client
from lorogo_bench.content import bulk
from lorogo_bench.content.keys import BODY
from lorogo_bench.loads.raw.publisher import STREAM, spec, stored
from lorogo_client import Client
from lorogo_protocol.limits import CHUNK_BYTES_MAX
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.ports import Message

_OPEN_SECONDS = 60.0
_SAVE_SECONDS = 110.0
_PIECE_CHARS = 1024 * 1024  # per update while a document grows
_UNCONFIRMED_MAX = 16  # chunks that JetStream has not confirmed


def offered(name: str) -> str:
    """Return the subject on which chunks are requested."""
    return f"bench.offered.{name}"


class HeavyLoad:
    """One client, and one separate connection."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Client | None = None
        self._transport: JetStreamTransport | None = None
        self._answers: set[asyncio.Task[None]] = set()
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            self._client = await undo.enter_async_context(
                lorogo_client.connect(self._url, name="bench heavy")
            )
            self._transport = await connect(self._url, name="bench raw heavy")
            undo.push_async_callback(self._transport.close)
            await self._transport.ensure(spec())
            self._exit = undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def do_send(self, *, document: str, seed: int, chars: int) -> dict[str, Any]:
        """Send one large update to a new document; return the time from commit to ACK."""
        assert self._client is not None
        body = bulk.text(seed, chars)
        async with self._client.open(document, timeout=_OPEN_SECONDS) as session:
            session.doc.get_text(BODY).insert(0, body)
            began = time.perf_counter()
            session.commit()
            await session.flush(_SAVE_SECONDS)
            return {"seconds": time.perf_counter() - began}

    async def do_make(self, *, document: str, seed: int, chars: int) -> dict[str, Any]:
        """Make a document in updates of 1 MiB; return the size of its snapshot."""
        assert self._client is not None
        body = bulk.text(seed, chars)
        async with self._client.open(document, timeout=_OPEN_SECONDS) as session:
            for begin in range(0, chars, _PIECE_CHARS):
                text = session.doc.get_text(BODY)
                text.insert(text.len_unicode, body[begin : begin + _PIECE_CHARS])
                session.commit()
                await session.flush(_SAVE_SECONDS)
            return {"bytes": len(bulk.snapshot(session.doc))}

    async def do_raw(self, *, seed: int, chars: int) -> dict[str, Any]:
        """Publish the bytes of such an update to a stream in chunks, and import them with plain Loro."""
        assert self._transport is not None
        body = bulk.text(seed, chars)
        payload = bulk.update(body)
        stream, turn = self._transport.stream(STREAM), asyncio.Semaphore(_UNCONFIRMED_MAX)

        async def store(begin: int) -> int:
            async with turn:
                return await stream.append(stored("heavy"), payload[begin : begin + CHUNK_BYTES_MAX])

        began = time.perf_counter()
        sequences = await asyncio.gather(*map(store, range(0, len(payload), CHUNK_BYTES_MAX)))
        stored_at = time.perf_counter()
        doc = bulk.plainly_imported(payload)
        ended = time.perf_counter()
        assert len(set(sequences)) == len(sequences) and bulk.text_in(doc) == body, "the limit lost data"
        return {
            "bytes": len(payload),
            "publish_seconds": stored_at - began,
            "import_seconds": ended - stored_at,
        }

    async def do_offer(self, *, document: str) -> dict[str, Any]:
        """Answer requests for chunks of this document's snapshot, by core NATS."""
        assert self._client is not None and self._transport is not None
        async with self._client.open(document, read_only=True, timeout=_OPEN_SECONDS) as session:
            payload = bulk.snapshot(session.doc)
        bus = self._transport.bus

        def on_question(message: Message) -> None:
            begin = int(message.data)
            task = asyncio.create_task(bus.publish(message.reply, payload[begin : begin + CHUNK_BYTES_MAX]))
            self._answers.add(task)  # bounded by the requesters' windows
            task.add_done_callback(self._answers.discard)

        await bus.subscribe(offered(document), on_question)
        await bus.barrier()
        return {"bytes": len(payload)}
