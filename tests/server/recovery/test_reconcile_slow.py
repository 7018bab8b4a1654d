"""Updates in pieces that come back too slowly: an owner gives up the first before the last is there."""

import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lorogo_protocol.messages import chunks, subjects
from lorogo_testing.stream import MemoryStream
from tests.server.recovery.test_reconcile import WAL, World, figures, journalled, reconciled
from tests.server.support import QUICK, Writer, until


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        made = World(stack, tmp_path)
        await made.begin()
        yield made


@pytest.mark.parametrize(("slow", "times"), [(0, 1), (1, 2), (100, 2)])
async def test_what_took_too_long_is_published_once_more(
    world: World, monkeypatch: pytest.MonkeyPatch, slow: int, times: int
) -> None:
    """As a sender without an ACK does it; and not for ever."""
    first = await world.server(settings=replace(QUICK, compact_idle_bytes=1 << 40))  # it stays in the WAL
    await world.probe.start("doc")
    update = world.writer.type("x" * 3_000_000)
    await world.probe.accept("doc", update)
    await first.stop()
    world.lose(WAL)
    append, left = MemoryStream.append, slow

    async def slowly(stream: MemoryStream, subject: str, data: bytes, **rest: Any) -> int:
        nonlocal left
        if left and subject == subjects.wal("doc"):
            left -= 1
            world.clock.ahead += QUICK.unfinished_seconds
        return await append(stream, subject, data, **rest)

    monkeypatch.setattr(MemoryStream, "append", slowly)
    second = await reconciled(await world.server())
    assert figures(second, "republished") == (1,)
    size = chunks.chunk_bytes(second.context.transport.bus.max_payload)
    assert world.count() == times * math.ceil(len(update) / size)
    await world.is_whole()


async def test_an_owner_that_lacks_what_a_fresh_load_has_loads_it_afresh(world: World) -> None:
    """Its pieces are all in the WAL, and it refused them one by one."""
    update = Writer().type("in two pieces")
    server = await world.server()
    await world.probe.start("doc")
    parts = world.probe.split(update, size=len(update) // 2 + 1)
    assert len(parts) == 2
    intake = server.hosts["doc"].loaded.intake

    async def waits() -> bool:
        return intake.next_deadline() is not None

    async def gave_up() -> bool:
        return intake.next_deadline() is None

    for part in parts:
        await world.probe.put("doc", [part])
        await until(waits)
        await until(gave_up)
    assert await world.probe.value("doc") == {}
    await journalled(world.data / "worker-5" / "journal", update)
    await reconciled(server)

    async def whole() -> bool:
        return await world.probe.value("doc") == {"body": "in two pieces"}

    await until(whole)
    assert figures(server, "republished") == (0,)
