"""Documents are looked after in turns: many cost a server no more than some, and none is left out."""

import asyncio
from dataclasses import replace

import pytest

from lorogo_server import scheduler
from lorogo_server.compaction import compaction_schedule
from lorogo_server.document.host import Host
from tests.server.support import QUICK, until
from tests.server.worlds import World


@pytest.mark.parametrize(("documents", "part", "turns"), [(3, 3, 1), (7, 3, 3), (40, 8, 5), (0, 3, 1)])
async def test_each_has_its_turn_in_a_round(
    memory: World, monkeypatch: pytest.MonkeyPatch, documents: int, part: int, turns: int
) -> None:
    """However many they are, a round has five turns at most here, and each document is in it once."""
    monkeypatch.setattr(scheduler, "_TURN_SECONDS", 3600)
    monkeypatch.setattr(compaction_schedule, "_TURN_DOCUMENTS", 3)
    monkeypatch.setattr(compaction_schedule, "_TURNS_MAX", 5)
    server, _ = await memory.server()
    for number in range(documents):
        await memory.probe.start(f"d{number}")
    seen: list[Host] = []
    for _ in range(turns):
        turn = server._compaction_schedule._next_documents()
        assert len(turn) <= part
        seen += turn
    assert sorted(host.document_id for host in seen) == sorted(server.hosts)
    assert server._compaction_schedule._round == []


async def test_who_came_during_a_round_is_in_the_next(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """And all are unloaded when they are unused."""
    monkeypatch.setattr(scheduler, "_TURN_SECONDS", 0.01)
    monkeypatch.setattr(compaction_schedule, "_TURN_DOCUMENTS", 2)
    server, _ = await memory.server(replace(QUICK, idle_seconds=0.3))
    await asyncio.gather(*(memory.probe.start(f"d{number}") for number in range(9)))

    async def empty() -> bool:
        return not server.hosts

    await until(empty)
