"""The in-memory NATS with servers and one clock in it, for tests of faults."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from lorogo_server import Server, ServerSettings
from lorogo_server.ownership.lease import Lease
from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from lorogo_transport.clock import SystemClock
from lorogo_transport.stores.statuses import Statuses
from tests.journals import in_memory
from tests.server.support import QUICK, Probe, until

PATIENCE = 5.0  # far above what anything here takes, far below the deadlines that it must not wait for


class ShiftedClock:
    """The machine's clocks, put forward by a test: NATS's, the servers' and the people's."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.ahead = ahead

    def wall_ns(self) -> int:
        return time.time_ns() + int(self.ahead * 1e9)

    def now(self) -> float:
        return SystemClock().now() + self.ahead


class World:
    """The in-memory NATS with servers in it."""

    def __init__(self, stack: AsyncExitStack, probe: Probe, nats: MemoryNats, clock: ShiftedClock) -> None:
        self.nats = nats
        self.clock = clock
        self.probe = probe
        self._stack = stack

    async def server(
        self, settings: ServerSettings = QUICK, clock: ShiftedClock | None = None
    ) -> tuple[Server, MemoryTransport]:
        line = self.nats.connect("server")
        server = Server(line, settings, clock=clock or self.clock, **in_memory())
        return await self._stack.enter_async_context(server), line

    async def pass_time(self, seconds: float) -> None:
        """Put all clocks forward, and wait until the owner of `doc` is sure of its lease again."""
        self.clock.ahead += seconds
        await until(lambda: self.probe.call("version", "doc"))


@asynccontextmanager
async def memory_world() -> AsyncIterator[World]:
    """A world with one clock, and a client of its servers."""
    clock = ShiftedClock()
    nats = MemoryNats(now_ns=clock.wall_ns)
    async with AsyncExitStack() as stack:
        probe = await stack.enter_async_context(Probe(nats.connect("probe")))
        yield World(stack, probe, nats, clock)


def lease_of(server: Server, token: int, statuses: Statuses | None = None) -> Lease:
    """A lease on `doc` as the server would hold it with that token, taken a second ago."""
    context = server.context
    return Lease(
        "doc",
        server_id=server.server_id,
        operation_id="op",
        retry_count=0,
        token=token,
        acquired_at=context.clock.now() - 1,
        statuses=statuses or context.statuses,
        clock=context.clock,
        settings=context.settings,
    )
