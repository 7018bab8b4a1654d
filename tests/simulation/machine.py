"""A machine with one server on it: a disk, a clock that may be wrong, a supervisor that starts it again."""

import asyncio
import random
from pathlib import Path
from typing import TYPE_CHECKING

from lorogo_protocol.errors import LorogoError
from lorogo_server import Server, ServerSettings
from lorogo_testing.memory_nats import MemoryTransport
from lorogo_testing.process import SimulatedProcess
from lorogo_testing.virtual_loop import SimLoop
from tests.simulation import chance
from tests.simulation.disk import SimStorage

if TYPE_CHECKING:
    from tests.simulation.world import World

DATA = Path("/data")
_RESTART_SECONDS = (0.2, 3.0)


class SimClock:
    """A machine's clocks: the wall clock may be wrong and jump, the other goes a little too fast or slow."""

    def __init__(self, loop: SimLoop, rng: random.Random) -> None:
        self._loop = loop
        self.offset_ns = int(rng.choice((0.0, 0.0, rng.uniform(-3600, 3600))) * 1e9)
        self._pace = 1.0 + rng.uniform(-2e-4, 2e-4)
        self._begin = rng.uniform(10.0, 1e6)

    def wall_ns(self) -> int:
        return chance.WALL_BEGIN_NS + int(self._loop.time() * 1e9) + self.offset_ns

    def now(self) -> float:
        return self._begin + self._loop.time() * self._pace


class Machine:
    """One server's home."""

    def __init__(self, world: "World", number: int, rng: random.Random) -> None:
        self.name = f"server-{number}"
        self.server: Server | None = None
        self.line: MemoryTransport | None = None
        self.process: SimulatedProcess | None = None
        self.clock = SimClock(world.loop, rng)
        self.disk = SimStorage(random.Random(rng.getrandbits(64)))
        self.wanted = True  # whether the supervisor keeps it running
        self._world = world
        self._rng = rng
        self._lives = 0

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.running

    def start(self) -> None:
        """Another life of the server, on the same disk."""
        if self.running:
            return
        self._lives += 1
        self.server = None
        self.process = process = SimulatedProcess(
            f"{self.name}", self._world.loop, random.Random(self._rng.getrandbits(64))
        )
        self._world.processes.append(process)
        self._world.trace.note("started", machine=self.name, life=self._lives)
        process.run(self._serve(process), self._ended)

    async def _serve(self, process: SimulatedProcess) -> None:
        world, rng = self._world, process.rng
        line = self.line = world.nats.connect(self.name)
        settings = ServerSettings(server_id=self.name, wal_bytes_max=-1, **world.plan.settings)  # type: ignore[arg-type]  # numbers
        server = Server(
            line,
            settings,
            clock=self.clock,
            rng=rng,
            new_id=chance.new_id(rng),
            data=DATA,
            storage=self.disk,
        )
        try:
            async with server:
                self.server = server
                while server.journal is None or not server.journal.stopped:
                    await asyncio.sleep(1.0)
                    if not self.wanted:
                        break
        except LorogoError as error:
            world.trace.note("the server gave up", problem=str(error))
        finally:
            await line.close()

    def _ended(self, process: SimulatedProcess) -> None:
        """Its main task is over: as a service manager would, start it again after a while."""
        self.server = None
        self.disk.let_go()
        if process.failed is not None:
            self._world.crashed(process.name, process.failed)
        self._world.trace.note("ended", machine=self.name, why=repr(process.failed))
        self._later()

    def _later(self) -> None:
        def again() -> None:
            if self.wanted:
                self.start()

        self._world.loop.call_later(self._rng.uniform(*_RESTART_SECONDS), again)

    def kill(self, *, power: bool) -> None:
        """The process is gone; with `power` also what its disk had not synced."""
        if self.process is None or not self.process.alive:
            return
        self.process.kill()
        if self.line is not None:
            self.line.kill()
        self.server = None
        if power:
            self.disk.crash()
        self.disk.let_go()
        self._later()

    def stop(self) -> None:
        """Ask it to end gracefully; the supervisor starts it again."""
        if self.server is not None and self.process is not None and self.process.runs:
            server = self.server
            self._world.loop.create_task(server.stop(), context=self.process.context)
