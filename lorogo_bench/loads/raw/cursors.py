"""Cursor moves without lorogo: core NATS publish at the same pace to the same number of connections."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Self

from lorogo_bench.loads.cursors import look, summary_of
from lorogo_bench.loads.due import until_ns
from lorogo_bench.results.cursor_moves import MoveObserver, ObservedMoves, Schedule
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.ports import Message

_SUBJECT = "bench.cursors"
_PAYLOAD_BYTES = 49  # size of a presence entry in Loro's encoding
_OPENING_MAX = 16


class RawCursorsLoad:
    """Participants of several documents."""

    def __init__(self, url: str, documents: dict[str, list[list[int]]]) -> None:
        """`documents`: for each document, the participants' indexes on each connection."""
        self._rooms = {name: _Room(url, name, groups) for name, groups in documents.items()}
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            await asyncio.gather(*(room.enter(undo) for room in self._rooms.values()))
            self._exit = undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def do_move(self, *, document: str, schedule: dict[str, Any]) -> dict[str, Any]:
        """Publish all moves when due; return when each connection has the last message of all others."""
        return summary_of(await self._rooms[document].move(Schedule(**schedule)))


class _Room:
    """Participants in groups, with one connection per group."""

    def __init__(self, url: str, document: str, groups: list[list[int]]) -> None:
        self._url = url
        self._subject = f"{_SUBJECT}.{document}"
        self._groups = groups
        self._connections: list[JetStreamTransport] = []
        self._eyes = [MoveObserver() for _ in groups]
        self._more = asyncio.Event()
        self._opening = asyncio.Semaphore(_OPENING_MAX)

    async def enter(self, undo: AsyncExitStack) -> None:
        joins = (self._join(undo, place) for place in range(len(self._groups)))
        self._connections += await asyncio.gather(*joins)

    async def move(self, plan: Schedule) -> list[ObservedMoves]:
        seen = look(plan, self._eyes, self._groups)
        by_whom = {who: place for place, group in enumerate(self._groups) for who in group}
        for who, number in plan.turns(by_whom):
            await until_ns(plan.due_ns(who, number))
            data = f"{who} {number} ".encode().ljust(_PAYLOAD_BYTES, b"-")
            await self._connections[by_whom[who]].bus.publish(self._subject, data)
        while not all(one.whole for one in seen):
            self._more.clear()
            await self._more.wait()
        return seen

    async def _join(self, undo: AsyncExitStack, place: int) -> JetStreamTransport:
        async with self._opening:
            transport = await connect(self._url, name="bench raw cursors")
            undo.push_async_callback(transport.close)
            await transport.bus.subscribe(self._subject, self._receiver(place))
            await transport.bus.barrier()
            return transport

    def _receiver(self, place: int) -> Callable[[Message], None]:
        def on_message(message: Message) -> None:
            who, number, _ = message.data.split(b" ")
            if self._eyes[place].observe(int(who), int(number), time.monotonic_ns()):
                self._more.set()

        return on_message
