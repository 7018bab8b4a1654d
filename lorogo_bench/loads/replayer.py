"""Who has written a document: replays a trace, makes copies of the document, and has them stored.

A copy gets the same history by an import, and its last edit is typed: the newest message of a document stays
in the WAL, and it must not be one that has everything in it.
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

_TOGETHER = 1000  # edits of one update
_UNSAVED_MAX = 8  # such updates that are not ACKed
_AT_ONCE = 4  # documents that are imported or compacted
_OPEN_SECONDS = 60.0
_CALL_SECONDS = 60.0


class Load:
    """One client; it has no document open when it has answered."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Client | None = None
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        door = lorogo_client.connect(self._url, name="bench replayer")
        self._client = await self._exit.enter_async_context(door)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def do_replay(self, *, document: str, copies: list[str], patches: list[Patch]) -> dict[str, Any]:
        """Type it, many edits in each update, and make the copies; how long a plain snapshot of it is."""
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
        """Have each stored as a snapshot, without a WAL before it; how long each is."""
        assert self._client is not None
        client, turn = self._client, asyncio.Semaphore(_AT_ONCE)

        async def compact(name: str) -> object:
            async with turn:
                return (await client.document(name).compact(timeout=_CALL_SECONDS))["snapshot_bytes"]

        return {"snapshot_bytes": await asyncio.gather(*map(compact, documents))}


def _edit(session: Session, patches: list[Patch]) -> None:
    """These edits as one update."""
    text = session.doc.get_text(BODY)
    for position, deleted, inserted in patches:
        if deleted:
            text.delete(position, deleted)
        if inserted:
            text.insert(position, inserted)
    session.commit()
