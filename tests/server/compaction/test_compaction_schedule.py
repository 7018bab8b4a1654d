"""Looking after open documents."""

import asyncio

import pytest

from lorogo_server.compaction import compaction
from lorogo_server.document.host import Host
from lorogo_transport.errors import StorageFull
from tests.server.support import Writer, so, until
from tests.server.worlds import World


async def test_work_that_ended_before_it_began_is_forgotten(memory: World) -> None:
    """A document that is closed just then, and opened again, was never compacted nor unloaded here."""
    server, _ = await memory.server()
    probe = memory.probe
    await probe.start("doc")
    await probe.accept("doc", Writer().type("one "))
    host = server.hosts["doc"]
    host.due.want("it is wanted")
    server._compaction_schedule.turn(server.context.clock.now())
    await host.tasks.close()  # as its end does
    host.stop("closed")
    await host.closed.wait()
    await probe.start("doc")
    host = server.hosts["doc"]
    host.due.want("it is wanted")
    await until(lambda: so(host.loaded.snapshot is not None and host.loaded.snapshot.size > 0))


async def test_a_stop_stores_what_only_memory_holds_though_another_document_fails(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that cannot be stored is reported at once, and the others are waited for."""
    server, _ = await memory.server()
    probe, compact = memory.probe, compaction.compact
    for name in ("fails", "takes-long"):
        await probe.start(name)
        await probe.accept(name, Writer().type("one "))
        server.hosts[name].state.memory_is_only_copy = True

    async def slowly(host: Host) -> compaction.Compacted:
        if host.document_id == "fails":
            raise StorageFull("no room")
        await asyncio.sleep(0.2)
        return await compact(host)

    monkeypatch.setattr(compaction, "compact", slowly)
    await server.stop()
    stored = await server.context.snapshots.head("takes-long")
    assert stored is not None
    assert stored.size > 0
