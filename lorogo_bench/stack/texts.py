"""Read texts and counts with a client that took no part in the load."""

import asyncio
from collections.abc import Sequence

import lorogo_client
from lorogo_bench.content.keys import BODY
from lorogo_bench.stack.stack import Stack
from lorogo_protocol.messages.subjects import WAL_STREAM

_AT_ONCE = 32
_OPEN_SECONDS = 60.0


async def texts(stack: Stack, documents: Sequence[str]) -> list[str]:
    """Return the text of each document, as a new client gets it."""
    turn = asyncio.Semaphore(_AT_ONCE)
    async with lorogo_client.connect(stack.url, name="bench witness") as client:

        async def text(name: str) -> str:
            async with turn, client.open(name, read_only=True, timeout=_OPEN_SECONDS) as session:
                return session.doc.get_text(BODY).to_string()

        return list(await asyncio.gather(*map(text, documents)))


async def stored_updates(stack: Stack) -> int:
    """Return the number of messages ever stored in the WAL, including purged ones."""
    async with await stack.connect() as transport:
        return (await transport.stream(WAL_STREAM).state()).last_sequence
