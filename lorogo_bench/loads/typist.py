"""A client that types, one keystroke per update.

`type` types in its documents in turn, and waits for ACKs only when its window is full. `type_one_by_one`
waits until the previous keystroke is ACKed and, with readers, seen: on `seen_fd` each of `seen_by` processes
writes a byte for each character that it has. Text is always appended, so `lorogo_bench/content/keys.py` has
the expected text.
"""

import asyncio
import os
import time
from contextlib import AsyncExitStack
from typing import Any, Self

import lorogo_client
from lorogo_bench.content.keys import BODY, key
from lorogo_client import Client, Session

_BURST = 25  # keystrokes between two turns of the loop, as in the drivers of other servers
_LOOK_SECONDS = 0.001  # between two checks of the window; uvloop rounds less to zero
OPENING_MAX = 64  # documents at once
_OPEN_SECONDS = 60.0


class TypistLoad:
    """One client with several documents."""

    def __init__(self, url: str, documents: list[str], seen_fd: int = -1, seen_by: int = 1) -> None:
        self._url = url
        self._documents = documents
        self._seen_fd = seen_fd
        self._seen_by = seen_by
        self._seen = 0
        self._seen_more = asyncio.Event()
        self._client: Client | None = None
        self._sessions: list[Session] = []
        self._typed: list[int] = []  # per document
        self._turn = 0
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            connection = lorogo_client.connect(self._url, name="bench typist")
            self._client = await undo.enter_async_context(connection)
            await self.do_open(documents=self._documents)
            if self._seen_fd >= 0:
                os.set_blocking(self._seen_fd, False)
                loop = asyncio.get_running_loop()
                loop.add_reader(self._seen_fd, self._on_seen)
                undo.callback(loop.remove_reader, self._seen_fd)
            self._exit = undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def do_open(self, *, documents: list[str]) -> dict[str, Any]:
        """Open more documents to type in."""
        assert self._client is not None
        opening = asyncio.Semaphore(OPENING_MAX)
        opened = await asyncio.gather(*(self._open(self._client, name, opening) for name in documents))
        self._sessions += opened
        self._typed += [0] * len(opened)
        return {}

    async def do_type(self, *, count: int, window: int) -> dict[str, Any]:
        """Type keystrokes with about `window` of them not ACKed; return when all are ACKed."""
        documents = len(self._sessions)
        each = max(1, window // documents)
        began, began_ns = time.perf_counter(), time.monotonic_ns()
        for number in range(count):
            session = self._sessions[self._turn]
            if session.unsaved >= each:
                await settled(session, each)
            if documents > window:  # one per document would exceed the window: wait for an earlier one
                long_ago = self._sessions[(self._turn - window) % documents]
                if long_ago.unsaved:
                    await settled(long_ago, 1)
            self._key(self._turn)
            session.commit()
            self._turn = (self._turn + 1) % len(self._sessions)
            if number % _BURST == _BURST - 1:
                await asyncio.sleep(0)
        for session in self._sessions:
            if session.unsaved:
                await settled(session, 1)
        return {"seconds": time.perf_counter() - began, "began_ns": began_ns, "typed": self._typed}

    async def do_type_one_by_one(self, *, count: int) -> dict[str, Any]:
        """Type in the first document; return the times of commit and ACK of each keystroke."""
        (session, *_), committed, acked = self._sessions, [], []
        for _ in range(count):
            self._key(0)
            committed.append(time.monotonic_ns())
            session.commit()
            await session.flush()
            acked.append(time.monotonic_ns())
            while self._seen_fd >= 0 and self._seen < self._typed[0] * self._seen_by:
                self._seen_more.clear()
                await self._seen_more.wait()
        return {"committed_ns": committed, "acked_ns": acked, "typed": self._typed}

    async def do_rest(self, *, rest_seconds: float) -> dict[str, Any]:
        """Wait with all documents open."""
        await asyncio.sleep(rest_seconds)
        return {}

    def _key(self, place: int) -> None:
        text = self._sessions[place].doc.get_text(BODY)
        text.insert(text.len_unicode, key(self._typed[place]))
        self._typed[place] += 1

    def _on_seen(self) -> None:
        self._seen += len(os.read(self._seen_fd, 65536))
        self._seen_more.set()

    async def _open(self, client: Client, name: str, opening: asyncio.Semaphore) -> Session:
        async with opening:
            return await client.open(name, timeout=_OPEN_SECONDS)


async def settled(session: Session, unsaved: int) -> None:
    """Wait until fewer than `unsaved` updates have no ACK. Raises the session's problem."""
    while session.unsaved >= unsaved:
        if session.problem is not None:
            raise session.problem
        await asyncio.sleep(_LOOK_SECONDS)
