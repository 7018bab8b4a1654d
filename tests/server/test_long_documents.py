"""A document whose WAL is long is compacted when its server stops, or after it was loaded so."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from lorogo_protocol import subjects
from lorogo_protocol.status import Down
from lorogo_server import compaction
from lorogo_server import server as servers
from lorogo_server.compaction import Compacted
from lorogo_server.host import Host
from lorogo_transport.errors import Unreachable
from tests.server.support import QUICK, Writer, until
from tests.server.worlds import World, memory_world

LONG = replace(QUICK, compact_idle_bytes=100)
PATIENT = replace(QUICK, compact_idle_bytes=1 << 40)


@pytest.fixture
async def memory() -> AsyncIterator[World]:
    async with memory_world() as made:
        yield made


async def in_wal(memory: World, document_id: str = "doc") -> int:
    return await memory.probe.wal.count(subjects.wal(document_id))


async def typed(memory: World, document_id: str, updates: int) -> str:
    """So many ACKed updates; the text."""
    writer = Writer()
    await memory.probe.start(document_id)
    for number in range(updates):
        await memory.probe.accept(document_id, writer.type(f"{number} "))
    return writer.text


async def text(memory: World, document_id: str = "doc") -> object:
    await memory.probe.start(document_id)
    answer = await memory.probe.call("get", document_id)
    return answer["value"]["body"]  # type: ignore[index]  # as the owner says it


async def test_a_stop_leaves_short_wals(memory: World) -> None:
    """What is long is in a snapshot before it is DOWN; what is short stays as it is; nothing is lost."""
    first, _ = await memory.server(LONG)
    written = await typed(memory, "doc", 10)
    await typed(memory, "short", 1)
    await first.stop()
    assert isinstance((await memory.probe.status("doc")).status, Down)
    assert (await in_wal(memory), await in_wal(memory, "short")) == (1, 1)  # of each the newest stays
    await memory.server(LONG)
    assert await text(memory) == written


async def test_a_stop_does_not_wait_for_ever(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that cannot be compacted keep the others."""
    monkeypatch.setattr(servers, "_SHORTEN_SECONDS", 0.2)
    first, _ = await memory.server(LONG)
    for name in ("away", "doc", "hangs"):
        await typed(memory, name, 10)
    compact = compaction.compact

    async def told(host: Host) -> Compacted:
        if host.document_id == "away":
            raise Unreachable("nobody answers")
        if host.document_id == "hangs":
            await asyncio.sleep(3600)
        return await compact(host)

    monkeypatch.setattr(compaction, "compact", told)
    async with asyncio.timeout(30):
        await first.stop()
    assert [await in_wal(memory, name) for name in ("away", "doc", "hangs")] == [10, 1, 10]
    for name in ("away", "hangs"):
        assert isinstance((await memory.probe.status(name)).status, Down)


async def test_what_took_long_to_load_is_compacted_once(memory: World) -> None:
    """Whoever loads it next has less to read."""
    first, _ = await memory.server(PATIENT)
    written = await typed(memory, "doc", 10)
    await first.stop()
    assert await in_wal(memory) == 10
    second, _ = await memory.server(LONG)
    assert await text(memory) == written

    async def compacted() -> bool:
        return await in_wal(memory) == 1

    await until(compacted)
    assert second.context.counters.compactions == 1
    assert second.hosts["doc"].wants_compaction == ""
    assert await text(memory) == written
