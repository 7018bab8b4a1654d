"""Looking after open documents."""

from collections.abc import AsyncIterator

import pytest

from tests.server.support import Writer, until
from tests.server.worlds import World, memory_world


@pytest.fixture
async def memory() -> AsyncIterator[World]:
    async with memory_world() as made:
        yield made


async def _is(true: bool) -> bool:
    return true


async def test_work_that_ended_before_it_began_is_forgotten(memory: World) -> None:
    """A document that is closed just then, and opened again, was never compacted nor unloaded here."""
    server, _ = await memory.server()
    probe = memory.probe
    await probe.start("doc")
    await probe.accept("doc", Writer().type("one "))
    host = server.hosts["doc"]
    host.due.want("it is wanted")
    server._upkeep.turn(server.context.clock.now())
    await host._tasks.close()  # as its end does
    host.stop("closed")
    await host.closed.wait()
    await probe.start("doc")
    host = server.hosts["doc"]
    host.due.want("it is wanted")
    await until(lambda: _is(host.loaded.snapshot is not None and host.loaded.snapshot.size > 0))
