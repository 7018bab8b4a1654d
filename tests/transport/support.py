"""What transport tests share: a handler that collects, and a wait with a deadline."""

import asyncio
from collections.abc import Awaitable, Callable

from lorogo_transport.jetstream import JetStreamTransport
from lorogo_transport.memory import MemoryTransport
from lorogo_transport.ports import Message

AnyTransport = JetStreamTransport | MemoryTransport
Connect = Callable[[], Awaitable[AnyTransport]]

DEADLINE = 10.0


class Collector:
    """A handler that keeps what it gets."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._arrived = asyncio.Event()

    def __call__(self, message: Message) -> None:
        self.messages.append(message)
        self._arrived.set()

    @property
    def bodies(self) -> list[bytes]:
        return [message.data for message in self.messages]

    async def wait(self, count: int) -> list[Message]:
        """Until `count` messages are here."""
        async with asyncio.timeout(DEADLINE):
            while len(self.messages) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return self.messages


async def until(condition: Callable[[], bool]) -> None:
    """Until `condition()` holds; fails after the deadline."""
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110  # conditions here have no event
            await asyncio.sleep(0.005)
