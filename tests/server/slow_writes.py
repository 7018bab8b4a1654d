"""Snapshots that are being stored while something else happens, and updates that a trim line refuses."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from lorogo_server import Server
from lorogo_server.document.host import Host
from lorogo_transport.stores.snapshots import SnapshotHead
from tests.server.support import QUICK, Probe, Writer
from tests.server.worlds import PATIENCE, World


@asynccontextmanager
async def held_swap(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[asyncio.Event]:
    """The server's next write of metadata waits until the block ends; the event is set while it waits."""
    store, reached, go = server.context.snapshots, asyncio.Event(), asyncio.Event()
    swap = store._swap

    async def late(head: SnapshotHead, expected_revision: int) -> SnapshotHead:
        reached.set()
        await go.wait()
        return await swap(head, expected_revision)

    monkeypatch.setattr(store, "_swap", late)
    try:
        yield reached
    finally:
        go.set()


@asynccontextmanager
async def writing_slowly(
    server: Server, monkeypatch: pytest.MonkeyPatch, write: Callable[[Host], Awaitable[object]]
) -> AsyncIterator[asyncio.Future[object]]:
    """A snapshot's write waits just before it counts, until the block ends; await it behind that."""
    async with held_swap(server, monkeypatch) as reached:
        writing: asyncio.Future[object] = asyncio.ensure_future(write(server.hosts["doc"]))
        async with asyncio.timeout(PATIENCE):
            await reached.wait()
        yield writing


async def from_the_past(probe: Probe) -> bytes:
    """An update that does not build on the newest: what is between them may be trimmed."""
    writer = Writer()
    await probe.start("doc")
    await probe.accept("doc", writer.type("old "))
    update = Writer(writer.everything()).type("from the past ")
    await probe.accept("doc", writer.type("new "))
    return update


async def before_a_trim(memory: World) -> tuple[Server, Host, bytes]:
    """An owner whose next compaction trims all history, and an update that it refuses from then on."""
    server, _ = await memory.server(replace(QUICK, history_seconds=0))
    stale = await from_the_past(memory.probe)
    return server, server.hosts["doc"], stale
