"""The stack under measurement: a nats-server, document servers, and load processes.

    async with Stack(StackSettings(durability="journal")) as stack:
        typist = await stack.load("typist", documents=["a"])      # lorogo_bench/loads/typist.py
        meter = stack.meter()
        reply = await typist.call("type", count=1000)
        spent = meter.spent()                                     # CPU of each process meanwhile

Everything runs on loopback in one temporary folder, and ends with the stack.
"""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from lorogo_bench.errors import BenchError
from lorogo_bench.stack.load import LoadProcess
from lorogo_bench.stack.servers import ServerProcess
from lorogo_bench.stack.usage import ProcessUsage, usage
from lorogo_bench.workload import Durability
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.nats.embedded import EmbeddedNats

NATS = "nats-server"
_SERVERS_MAX = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class StackSettings:
    """Settings of a stack."""

    durability: Durability = "journal"
    servers: int = 1
    serve_options: tuple[str, ...] = ()  # more options of `lorogo serve`
    folder: Path | None = None  # parent of the temporary folder; None: the system's

    def __post_init__(self) -> None:
        if not 0 <= self.servers <= _SERVERS_MAX:
            raise BenchError(f"servers must be 0 to {_SERVERS_MAX}")


@dataclass(frozen=True, slots=True)
class StackUsage:
    """Usage of each process (`nats-server`, `server-1`) between two measurements."""

    seconds: float
    cpu_seconds: Mapping[str, float | None]

    def servers_cpu_seconds(self) -> float | None:
        """Return the CPU of all document servers with their helper processes."""
        some = [cpu for name, cpu in self.cpu_seconds.items() if name != NATS]
        return None if None in some else sum(cpu for cpu in some if cpu is not None)


class UsageMeter:
    """Measures the usage of a stack from its creation to `spent()`."""

    def __init__(self, stack: "Stack") -> None:
        self._stack = stack
        self._before = stack.usage()
        self._began = time.perf_counter()

    def spent(self) -> StackUsage:
        seconds = time.perf_counter() - self._began
        after = self._stack.usage()
        return StackUsage(seconds, {name: _less(after[name], self._before.get(name)) for name in after})


class Stack:
    """One NATS, its servers and load processes; use with `async with`."""

    def __init__(self, settings: StackSettings | None = None) -> None:
        self.settings = settings if settings is not None else StackSettings()
        self.folder = Path()
        self.servers: list[ServerProcess] = []
        self._nats: EmbeddedNats | None = None
        self._loads: list[LoadProcess] = []
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:  # stops the started processes if a later one fails
            self.folder = await asyncio.to_thread(self._make_folder)
            undo.push_async_callback(asyncio.to_thread, shutil.rmtree, self.folder, True)
            self._nats = await undo.enter_async_context(EmbeddedNats(self.folder / "nats"))
            for number in range(1, self.settings.servers + 1):
                server = self._server(f"server-{number}")
                undo.push_async_callback(server.stop)
                await server.start()  # the first makes the streams
                self.servers.append(server)
            undo.push_async_callback(self._end_loads)
            self._exit = undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    @property
    def nats(self) -> EmbeddedNats:
        assert self._nats is not None, "not in `async with`"
        return self._nats

    @property
    def url(self) -> str:
        return self.nats.url

    async def connect(self) -> JetStreamTransport:
        """Return a connection for `async with`, to count and compare, not for load."""
        return await connect(self.url, name="bench")

    async def load(self, kind: str, *, pass_fds: Sequence[int] = (), **order: Any) -> LoadProcess:
        """Start a load process of `lorogo_bench/loads/{kind}.py`; it ends with the stack.

        `order` has its arguments besides the address of NATS.
        """
        log = self.folder / f"load-{len(self._loads) + 1}-{kind}.log"
        process = LoadProcess(kind, log, pass_fds=pass_fds, order={"url": self.url, **order})
        self._loads.append(process)
        await process.start()
        return process

    async def restart_servers(self) -> None:
        """Stop all servers, then start all again on their folders. Raises BenchNotReady."""
        await asyncio.gather(*(server.stop() for server in self.servers))
        await asyncio.gather(*(server.start() for server in self.servers))

    def usage(self) -> dict[str, ProcessUsage]:
        """Return the usage of NATS and of every server with its helpers since their start."""
        nats = usage(self.nats.pid if self.nats.running else None)
        return {NATS: nats, **{server.name: server.usage() for server in self.servers}}

    def meter(self) -> UsageMeter:
        """Start to measure usage."""
        return UsageMeter(self)

    async def _end_loads(self) -> None:
        await asyncio.gather(*(process.end() for process in self._loads))

    def _server(self, name: str) -> ServerProcess:
        options = ("--durability", self.settings.durability, *self.settings.serve_options)
        return ServerProcess(name, self.url, self.folder / name, options)

    def _make_folder(self) -> Path:
        try:
            return Path(tempfile.mkdtemp(prefix="lorogo-bench-", dir=self.settings.folder))
        except OSError as error:
            raise BenchError(f"cannot make a folder in {self.settings.folder}: {error.strerror}") from None


def _less(after: ProcessUsage, before: ProcessUsage | None) -> float | None:
    if after.cpu_seconds is None or before is None or before.cpu_seconds is None:
        return None
    return after.cpu_seconds - before.cpu_seconds
