"""Many readers: real clients, each with its own connection and replica, in one process."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any, Self

import lorogo_client
from lorogo_bench.content.keys import BODY
from lorogo_bench.loads.audience import Audience
from lorogo_client import Session

_OPENING_MAX = 16
_OPEN_SECONDS = 60.0


class CrowdLoad:
    """Readers of several documents."""

    def __init__(self, url: str, audiences: dict[str, dict[str, int]]) -> None:
        """`audiences`: for each document the arguments of its Audience."""
        self._url = url
        self._audiences = {name: Audience(**one) for name, one in audiences.items()}
        self._sessions: dict[str, list[Session]] = {name: [] for name in audiences}
        self._opening = asyncio.Semaphore(_OPENING_MAX)
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            for name, audience in self._audiences.items():
                opens = (self._open(undo, name) for _ in range(audience.readers))
                self._sessions[name] += await asyncio.gather(*opens)
                for reader, session in enumerate(self._sessions[name]):
                    task = asyncio.create_task(_follow(session, audience, reader), name=f"{name} {reader}")
                    undo.callback(task.cancel)
            self._exit = undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def do_take(self, *, document: str, count: int) -> dict[str, Any]:
        """Return the times when the last reader in this process had each of the next characters."""
        return {"seen_ns": await self._audiences[document].take(count)}

    async def do_texts(self, *, document: str) -> dict[str, Any]:
        """Return each text, with the number of readers that have it."""
        found: dict[str, int] = {}
        for session in self._sessions[document]:
            text = session.doc.get_text(BODY).to_string()
            found[text] = found.get(text, 0) + 1
        return {"texts": found}

    async def _open(self, undo: AsyncExitStack, name: str) -> Session:
        async with self._opening:
            client = await undo.enter_async_context(lorogo_client.connect(self._url, name="bench crowd"))
            return await client.open(name, read_only=True, timeout=_OPEN_SECONDS)


async def _follow(session: Session, audience: Audience, reader: int) -> None:
    async for _ in session.changes():
        audience.has(reader, session.doc.get_text(BODY).len_unicode)
