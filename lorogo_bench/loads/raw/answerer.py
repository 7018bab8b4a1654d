"""Answer requests, and messages that JetStream has stored and republished, without lorogo."""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any, Self

from lorogo_bench.loads.raw.publisher import ASK, INBOX, republished
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.ports import Message


class RawAnswererLoad:
    """One connection that answers every message."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._transport: JetStreamTransport | None = None
        self._due: deque[str] = deque()
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._answered = 0

    async def __aenter__(self) -> Self:
        self._transport = await connect(self._url, name="bench answerer")
        bus = self._transport.bus
        await bus.subscribe(ASK, self._on_question)
        await bus.subscribe(republished("*"), self._on_stored)
        await bus.barrier()
        self._task = asyncio.create_task(self._answer(), name="answers")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._transport is not None:
            await self._transport.close()

    async def do_count(self) -> dict[str, Any]:
        """Return the number of answers up to now."""
        return {"answered": self._answered}

    def _on_question(self, message: Message) -> None:
        self._due.append(message.reply)
        self._work.set()

    def _on_stored(self, message: Message) -> None:
        inbox = message.headers.get(INBOX)
        if inbox:
            self._due.append(inbox)
            self._work.set()

    async def _answer(self) -> None:
        assert self._transport is not None
        bus = self._transport.bus
        while True:
            await self._work.wait()
            self._work.clear()
            while self._due:
                await bus.publish(self._due.popleft(), b"ACK")
                self._answered += 1
