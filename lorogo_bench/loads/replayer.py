"""Replay a trace into a document, make copies of it, and compact them.

A copy imports the same history without the last edit, which is typed: the newest message of a document stays
in the WAL, and it must not contain the whole history.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Any, Self

from loro import ExportMode

import lorogo_client
from lorogo_bench.content.keys import BODY
from lorogo_bench.content.traces import Patch
from lorogo_bench.loads.typist import settled
from lorogo_client import Client, Session

_TOGETHER = 1000  # edits per update
_UNSAVED_MAX = 8  # such updates without an ACK
_AT_ONCE = 4  # concurrent imports or compactions
_OPEN_SECONDS = 60.0
_CALL_SECONDS = 60.0


class ReplayerLoad:
    """One client; it closes its documents before it replies."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Client | None = None
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        connection = lorogo_client.connect(self._url, name="bench replayer")
        self._client = await self._exit.enter_async_context(connection)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def do_replay(self, *, document: str, copies: list[str], patches: list[Patch]) -> dict[str, Any]:
        """Replay the edits, many per update, and make the copies; return the size of a plain snapshot."""
        assert self._client is not None
        client, turn = self._client, asyncio.Semaphore(_AT_ONCE)
        most, last = patches[:-1], patches[-1:]
        async with client.open(document, timeout=_OPEN_SECONDS) as session:
            for start in range(0, len(most), _TOGETHER):
                _edit(session, most[start : start + _TOGETHER])
                await settled(session, _UNSAVED_MAX)
            await settled(session, 1)
            snapshot = session.doc.export(ExportMode.Snapshot())
            _edit(session, last)
            await settled(session, 1)
            size = len(session.doc.export(ExportMode.Snapshot()))

        async def copy(name: str) -> None:
            async with turn:
                await client.document(name).import_(snapshot, timeout=_CALL_SECONDS)
                async with client.open(name, timeout=_OPEN_SECONDS) as session:
                    _edit(session, last)
                    await settled(session, 1)

        await asyncio.gather(*map(copy, copies))
        return {"snapshot_bytes": size}

    async def do_compact(self, *, documents: list[str]) -> dict[str, Any]:
        """Compact each document to a snapshot, and return the sizes."""
        assert self._client is not None
        client, turn = self._client, asyncio.Semaphore(_AT_ONCE)

        async def compact(name: str) -> object:
            async with turn:
                return (await client.document(name).compact(timeout=_CALL_SECONDS))["snapshot_bytes"]

        return {"snapshot_bytes": await asyncio.gather(*map(compact, documents))}


def _edit(session: Session, patches: list[Patch]) -> None:
    """Make these edits as one update."""
    text = session.doc.get_text(BODY)
    for position, deleted, inserted in patches:
        if deleted:
            text.delete(position, deleted)
        if inserted:
            text.insert(position, inserted)
    session.commit()
