"""A client that makes documents of a given size, and edits them at random positions.

Every operation inserts one character, so the length of a text is the number of its operations.
"""

import asyncio
import random
import time
from contextlib import AsyncExitStack
from typing import Any, Self

import lorogo_client
from lorogo_bench.content.keys import BODY, key
from lorogo_bench.loads.typist import settled
from lorogo_client import Client, Session

_BURST = 25  # updates between two turns of the loop
_TOGETHER = 1000  # operations per update while a document grows
_UNSAVED_MAX = 8  # such updates without an ACK
_OPEN_SECONDS = 60.0


class EditorLoad:
    """One client; documents are opened on first use."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self._rng = random.Random(seed)
        self._client: Client | None = None
        self._sessions: dict[str, Session] = {}
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        connection = lorogo_client.connect(self._url, name="bench editor")
        self._client = await self._exit.enter_async_context(connection)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def do_grow(self, *, document: str, operations: int) -> dict[str, Any]:
        """Insert until the document has this many operations, many per update; return when all are ACKed."""
        session = await self._session(document)
        left = operations - session.doc.get_text(BODY).len_unicode
        while left > 0:
            self._insert(session, min(left, _TOGETHER))
            session.commit()
            left -= _TOGETHER
            await settled(session, _UNSAVED_MAX)
        await settled(session, 1)
        return {}

    async def do_edit(self, *, document: str, count: int, window: int) -> dict[str, Any]:
        """Make updates of one operation, with up to `window` not ACKed; return when all are ACKed."""
        session = await self._session(document)
        began = time.perf_counter()
        for number in range(count):
            if session.unsaved >= window:
                await settled(session, window)
            self._insert(session, 1)
            session.commit()
            if number % _BURST == _BURST - 1:
                await asyncio.sleep(0)
        await settled(session, 1)
        return {"seconds": time.perf_counter() - began}

    async def do_text(self, *, document: str) -> dict[str, Any]:
        """Return the client's text."""
        return {"text": (await self._session(document)).doc.get_text(BODY).to_string()}

    def _insert(self, session: Session, count: int) -> None:
        text = session.doc.get_text(BODY)
        length = text.len_unicode
        for number in range(length, length + count):
            text.insert(self._rng.randrange(number + 1), key(number))

    async def _session(self, document: str) -> Session:
        assert self._client is not None
        if document not in self._sessions:
            self._sessions[document] = await self._client.open(document, timeout=_OPEN_SECONDS)
        return self._sessions[document]
