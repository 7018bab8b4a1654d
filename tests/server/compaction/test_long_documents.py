"""A document whose WAL is long is compacted when its server stops, or after it was loaded so."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Down
from lorogo_server import scheduler
from lorogo_server.compaction import compaction, compaction_schedule
from lorogo_server.compaction.compaction import Compacted
from lorogo_server.document import startup
from lorogo_server.document.host import Host
from lorogo_server.document.loading import Loaded, load
from lorogo_transport.errors import StorageFull, Unreachable
from tests.server.support import QUICK, WAIT, Writer, until
from tests.server.worlds import World

LONG = replace(QUICK, compact_idle_bytes=100)
PATIENT = replace(QUICK, compact_idle_bytes=1 << 40)


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
    return answer["value"]["body"]  # type: ignore[index]  # as the owner returns it


async def test_a_stop_leaves_short_wals(memory: World) -> None:
    """A long document is in a snapshot before it is DOWN; a short one stays as it is; nothing is lost."""
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
    monkeypatch.setattr(compaction_schedule, "_SHORTEN_SECONDS", 0.2)
    first, _ = await memory.server(LONG)
    for name in ("away", "doc", "hangs"):
        await typed(memory, name, 10)
    compact = compaction.compact

    async def unreachable(host: Host) -> Compacted:
        if host.document_id == "away":
            raise Unreachable("no answer")
        if host.document_id == "hangs":
            await asyncio.sleep(3600)
        return await compact(host)

    monkeypatch.setattr(compaction, "compact", unreachable)
    async with asyncio.timeout(30):
        await first.stop()
    assert [await in_wal(memory, name) for name in ("away", "doc", "hangs")] == [10, 1, 10]
    for name in ("away", "hangs"):
        assert isinstance((await memory.probe.status(name)).status, Down)


async def test_what_took_long_to_load_is_compacted_once(memory: World) -> None:
    """The next load has less to read."""
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
    assert second.hosts["doc"].due.why == ""
    assert await text(memory) == written


@pytest.mark.parametrize("used", [False, True])
async def test_one_that_cannot_be_compacted_is_tried_once(
    memory: World, monkeypatch: pytest.MonkeyPatch, used: bool
) -> None:
    """It is loaded again, since its trim line is not stored, and then left in peace; idle, it is unloaded.

    If it was used since, it is tried once more then.
    """
    monkeypatch.setattr(scheduler, "_TURN_SECONDS", 3600.0)  # the test looks after it
    first, _ = await memory.server(PATIENT)
    written = await typed(memory, "doc", 10)
    await first.stop()
    memory.clock.ahead += 3600.0  # no client waits for answers any more
    second, _ = await memory.server(replace(LONG, history_seconds=0.0, idle_seconds=60.0))
    loads, puts = [0], [0]

    async def counted(*some: Any, **more: Any) -> Loaded:
        loads[0] += 1
        return await load(*some, **more)

    async def full(*_: object, **__: object) -> None:
        puts[0] += 1
        raise StorageFull("no room for a snapshot")

    monkeypatch.setattr(startup, "load", counted)
    monkeypatch.setattr(second.context.snapshots, "put", full)
    assert await text(memory) == written
    host = second.hosts["doc"]
    for tries in range(1, 3 if used else 2):
        second._compaction_schedule._schedule(host, memory.clock.now())

        async def settled(tries: int = tries) -> bool:
            return (puts[0], loads[0]) == (tries, tries + 1) and host.state.is_settled

        await until(settled)
        assert host.due.why == ""
        if used and tries == 1:
            host.touch()
        memory.clock.ahead += 100.0
    second._compaction_schedule._schedule(host, memory.clock.now())
    async with asyncio.timeout(WAIT):
        await host.closed.wait()
    assert (puts[0], host.state.closed_because) == (2 if used else 1, "idle")
    monkeypatch.undo()
    assert await text(memory) == written
