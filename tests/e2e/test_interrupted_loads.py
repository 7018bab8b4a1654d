"""Servers are killed while they load: what counts against a document, and what does not."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest

import lorogo_client
from lorogo_client import ClientSettings
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.status import Failed, Starting, Up
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.stores.statuses import Statuses
from tests.e2e.support import servers

SETTINGS = {"renew_seconds": 0.2, "lease_seconds": 0.5, "stale_seconds": 0.8}
KILLS = 4
PATIENCE = 30.0


async def _want(url: str, document_id: str) -> None:
    """A client that opens the document again and again, however often it is not served."""
    while True:
        with suppress(LorogoError):
            async with (
                lorogo_client.connect(url, settings=ClientSettings(stale_seconds=0.8)) as client,
                client.open(document_id),
            ):
                return
        await asyncio.sleep(0.1)


def _is(entry: StatusEntry, kinds: tuple[type, ...], after: int) -> bool:
    taken = not isinstance(entry.status, Starting) or (entry.server and entry.token > after)
    return isinstance(entry.status, kinds) and bool(taken)


def _loading(notes: Path) -> list[str]:
    try:
        return list(json.loads(notes.read_bytes())["loading"])
    except OSError:
        return []


@pytest.mark.deep
@pytest.mark.parametrize(("documents", "ends_as"), [(2, Up), (1, Failed)], ids=["two loads", "a lone load"])
async def test_kills_within_loads(tmp_path: Path, documents: int, ends_as: type) -> None:
    """Kills within the loads of several documents bring none of them into ERROR; kills within the load
    of one document alone do, since a kill for want of memory looks the same.
    """
    names = [f"doc{number}" for number in range(documents)]
    async with (
        EmbeddedNats(tmp_path / "nats") as nats,
        servers(nats.url) as start,
        lorogo_client.connect(nats.url) as client,
    ):
        statuses = Statuses(client.transport)

        async def until(*kinds: type, after: int = 0) -> int:
            """Wait until each document is in such a status, taken after this token; the newest token."""
            async with asyncio.timeout(PATIENCE):
                while True:
                    entries = []
                    with suppress(LorogoError):
                        entries = [entry for name in names if (entry := await statuses.read(name))]
                    if len(entries) == documents and all(_is(entry, kinds, after) for entry in entries):
                        return max(entry.token for entry in entries)
                    await asyncio.sleep(0.02)

        async def until_noted() -> None:
            """Wait until the server has noted every load on its disk."""
            async with asyncio.timeout(PATIENCE):
                while True:
                    if _loading(tmp_path / "data/journal/loads") == names:
                        return
                    await asyncio.sleep(0.02)

        users: list[asyncio.Task[None]] = []
        token = 0
        for _ in range(KILLS):
            server = await start(data=tmp_path / "data", load_seconds=60.0, **SETTINGS)
            users = users or [asyncio.create_task(_want(nats.url, name)) for name in names]
            token = await until(Starting, after=token)
            await until_noted()
            await server.kill()
        await start(data=tmp_path / "data", **SETTINGS)
        await until(Up, Failed)
        entries = [await statuses.read(name) for name in names]
        assert [type(entry.status) for entry in entries if entry is not None] == [ends_as] * documents
        for user in users:
            user.cancel()
        await asyncio.gather(*users, return_exceptions=True)
