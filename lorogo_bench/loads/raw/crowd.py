"""Many who listen without lorogo: connections with the same library, each with one subscription."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Self

from lorogo_bench.loads.audience import Audience
from lorogo_bench.loads.raw.speaker import number_of, spoken
from lorogo_transport.nats.connection import connect
from lorogo_transport.ports import Message

_OPENING_MAX = 16


class Load:
    """So many subscribers of each subject."""

    def __init__(self, url: str, audiences: dict[str, dict[str, int]]) -> None:
        """`audiences`: for each name `readers` and `seen_fd`, as an Audience has them."""
        self._url = url
        self._audiences = {name: Audience(**one) for name, one in audiences.items()}
        self._opening = asyncio.Semaphore(_OPENING_MAX)
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            for name, audience in self._audiences.items():
                await asyncio.gather(
                    *(self._subscribe(undo, name, audience, reader) for reader in range(audience.readers))
                )
            self._exit = undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def do_take(self, *, document: str, count: int) -> dict[str, Any]:
        """When the last of the subscribers here had each of the next so many messages."""
        return {"seen_ns": await self._audiences[document].take(count)}

    async def _subscribe(self, undo: AsyncExitStack, name: str, audience: Audience, reader: int) -> None:
        async with self._opening:
            transport = await connect(self._url, name="bench raw crowd")
            undo.push_async_callback(transport.close)
            await transport.bus.subscribe(spoken(name), _counting(audience, reader))
            await transport.bus.barrier()


def _counting(audience: Audience, reader: int) -> Callable[[Message], None]:
    heard = 0

    def on_message(message: Message) -> None:
        nonlocal heard
        if number_of(message.data) == heard:  # else one is lost: then it is never whole
            heard += 1
            audience.has(reader, heard)

    return on_message
