"""A refused update leaves the WAL, and is counted."""

import asyncio
from collections.abc import Callable

import pytest

from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.replies import Reply
from lorogo_server.compaction import compaction
from lorogo_server.document.ack_queue import AckQueue
from lorogo_server.intake.decisions import (
    RefusedUpdate,
)
from lorogo_server.ownership.lease import Lease
from lorogo_transport.errors import Disconnected
from tests.server.slow_writes import before_a_trim, writing_slowly
from tests.server.support import Writer, so, until
from tests.server.worlds import World


async def test_what_is_moved_out_of_the_wal_is_counted_once(memory: World) -> None:
    """Two may try to move it: counted twice, as many other messages could be lost unseen."""
    server, _ = await memory.server()
    probe = memory.probe
    await probe.start("doc")
    await probe.accept("doc", Writer().type("one "))
    host, refused = server.hosts["doc"], 20
    for number in range(refused):
        await probe.put("doc", probe.split(b"garbage %d" % number))
    await until(lambda: so(len(host.refused.to_move) > 0))
    await asyncio.gather(*(host.refused.move_all(host.epoch) for _ in range(2)))
    await until(lambda: so(host.loaded.follower.taken == refused + 1 and not host.refused.to_move))
    assert host.refused.moved == refused
    assert host.wal_messages == await probe.wal.count(subjects.wal("doc")) == 1


async def test_what_is_judged_again_is_not_moved_for_what_was_said_before(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load takes what a full document refused: a running quarantine of them stops."""
    server, _ = await memory.server()
    probe, quarantine, tried = memory.probe, server.context.quarantine, list[int]()
    await probe.start("doc")
    refused = server.hosts["doc"].refused

    async def in_vain(_lease: Lease, no: RefusedUpdate, _still_so: Callable[[], bool]) -> bool:
        tried.extend(no.sequences)
        return False

    monkeypatch.setattr(quarantine, "move", in_vain)
    for number in range(2):
        await probe.put("doc", probe.split(b"garbage %d" % number))
    await until(lambda: so(tried == [1, 2]))

    async def while_it_is_loaded(_lease: Lease, no: RefusedUpdate, _still_so: Callable[[], bool]) -> bool:
        tried.extend(no.sequences)
        refused.clear()
        return False

    monkeypatch.setattr(quarantine, "move", while_it_is_loaded)
    await refused.move_all(server.hosts["doc"].epoch)
    assert tried == [1, 2, 1]


async def test_what_is_answered_while_its_trim_line_is_stored_is_not_left(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would stay in the WAL, and keep all behind it there, until the next compaction."""
    server, host, stale = await before_a_trim(memory)
    refused, probe, answered = host.refused, memory.probe, asyncio.Event()
    reply = AckQueue._reply

    async def later(acks: AckQueue, inbox: str, said: Reply) -> bool:
        await answered.wait()
        return await reply(acks, inbox, said)

    monkeypatch.setattr(AckQueue, "_reply", later)
    async with writing_slowly(server, monkeypatch, compaction.compact) as storing:
        await probe.put("doc", probe.split(stale))
        await until(lambda: so(server.context.counters.refused == 1))
    await storing
    answered.set()
    await probe.answer()
    await until(lambda: so(refused.moved == 1))
    assert not refused.kept
    assert not refused.to_move


async def test_a_refused_update_without_a_reply_is_kept(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forgotten, it would be purged by the next compaction, and no copy of it be anywhere."""
    server, _ = await memory.server()
    probe = memory.probe
    await probe.start("doc")
    refused = server.hosts["doc"].refused

    async def cut_off(_acks: AckQueue, _inbox: str, _said: Reply) -> bool:
        raise Disconnected("no connection")

    monkeypatch.setattr(AckQueue, "_reply", cut_off)
    await probe.put("doc", probe.split(b"garbage"))
    await until(lambda: so(refused.moved == 1))
    assert [stored.data async for stored in probe.rejected.read(subjects.rejected("doc"))] == [b"garbage"]
