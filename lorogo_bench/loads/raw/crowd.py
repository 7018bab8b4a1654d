"""Many subscribers without lorogo: connections with the same library, each with one subscription."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Self

from lorogo_bench.loads.audience import Audience
from lorogo_bench.loads.raw.speaker import number_of, subject_of
from lorogo_transport.nats.connection import connect
from lorogo_transport.ports import Message

_OPENING_MAX = 16


class RawCrowdLoad:
    """Subscribers of several subjects."""

    def __init__(self, url: str, audiences: dict[str, dict[str, int]]) -> None:
        """`audiences`: for each name the arguments of its Audience."""
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
        """Return the times when the last subscriber in this process had each of the next messages."""
        return {"seen_ns": await self._audiences[document].take(count)}

    async def _subscribe(self, undo: AsyncExitStack, name: str, audience: Audience, reader: int) -> None:
        async with self._opening:
            transport = await connect(self._url, name="bench raw crowd")
            undo.push_async_callback(transport.close)
            await transport.bus.subscribe(subject_of(name), _counting(audience, reader))
            await transport.bus.barrier()


def _counting(audience: Audience, reader: int) -> Callable[[Message], None]:
    received = 0

    def on_message(message: Message) -> None:
        nonlocal received
        if number_of(message.data) == received:  # else a message was lost, and the count never completes
            received += 1
            audience.has(reader, received)

    return on_message
