"""A client that records when it has each character, on the machine's clock."""

import asyncio
import os
import time
from contextlib import AsyncExitStack
from typing import Any, Self

import lorogo_client
from lorogo_bench.content.keys import BODY
from lorogo_client import Session

_OPEN_SECONDS = 60.0


class ReaderLoad:
    """One client with one document."""

    def __init__(self, url: str, document: str, seen_fd: int = -1) -> None:
        """For each received character, a byte is written to `seen_fd`."""
        self._url = url
        self._document = document
        self._seen_fd = seen_fd
        self._seen_ns: list[int] = []  # of each character that was not taken yet
        self._length = 0
        self._more = asyncio.Event()
        self._session: Session | None = None
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            client = await undo.enter_async_context(lorogo_client.connect(self._url, name="bench reader"))
            connection = client.open(self._document, read_only=True, timeout=_OPEN_SECONDS)
            self._session = await undo.enter_async_context(connection)
            self._look()
            task = asyncio.create_task(self._follow(self._session), name="follow")
            undo.callback(task.cancel)
            self._exit = undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def do_take(self, *, count: int) -> dict[str, Any]:
        """Return the times when each of the next characters arrived."""
        while len(self._seen_ns) < count:
            self._more.clear()
            await self._more.wait()
        taken, self._seen_ns = self._seen_ns[:count], self._seen_ns[count:]
        return {"seen_ns": taken}

    async def do_text(self) -> dict[str, Any]:
        """Return the client's text."""
        assert self._session is not None
        return {"text": self._session.doc.get_text(BODY).to_string()}

    async def _follow(self, session: Session) -> None:
        async for _ in session.changes():
            self._look()

    def _look(self) -> None:
        assert self._session is not None
        now = time.monotonic_ns()
        length = self._session.doc.get_text(BODY).len_unicode
        fresh, self._length = length - self._length, length
        if fresh > 0:
            self._seen_ns += [now] * fresh
            if self._seen_fd >= 0:
                os.write(self._seen_fd, bytes(fresh))
            self._more.set()
