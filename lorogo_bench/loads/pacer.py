"""A client that types at a steady pace, even if earlier keystrokes are not ACKed.

So a server that stops for a second delays all keystrokes of that second, not only one.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any, Self

import lorogo_client
from lorogo_bench.content.keys import BODY, key
from lorogo_client import Session

_OPEN_SECONDS = 60.0
_UNSAVED_MAX = 10_000  # then it waits


class PacerLoad:
    """One client with one document."""

    def __init__(self, url: str, document: str) -> None:
        self._url = url
        self._document = document
        self._session: Session | None = None
        self._typed = 0
        self._milliseconds: list[float] = []
        self._acks: list[asyncio.Task[None]] = []
        self._typing: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            client = await undo.enter_async_context(lorogo_client.connect(self._url, name="bench pacer"))
            self._session = await undo.enter_async_context(client.open(self._document, timeout=_OPEN_SECONDS))
            undo.callback(self._stop.set)
            self._exit = undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def do_begin(self, *, interval_seconds: float) -> dict[str, Any]:
        """Start to type."""
        assert self._typing is None and self._session is not None
        self._stop.clear()
        self._typing = asyncio.create_task(self._type(self._session, interval_seconds), name="typing")
        return {}

    async def do_end(self) -> dict[str, Any]:
        """Stop, wait for all ACKs, and return the milliseconds from commit to ACK of each keystroke."""
        assert self._typing is not None
        self._stop.set()
        await self._typing
        await asyncio.gather(*self._acks)
        found, self._milliseconds, self._acks, self._typing = self._milliseconds, [], [], None
        return {"milliseconds": found, "typed": self._typed}

    async def _type(self, session: Session, interval_seconds: float) -> None:
        due = time.perf_counter()
        while not self._stop.is_set():
            if session.unsaved < _UNSAVED_MAX:
                text = session.doc.get_text(BODY)
                text.insert(text.len_unicode, key(self._typed))
                self._typed += 1
                began = time.perf_counter()
                session.commit()
                self._acks.append(asyncio.create_task(self._acked(session, began), name="ACK"))
            due += interval_seconds
            await asyncio.sleep(max(0.0, due - time.perf_counter()))

    async def _acked(self, session: Session, began: float) -> None:
        await session.flush()
        self._milliseconds.append((time.perf_counter() - began) * 1000)
