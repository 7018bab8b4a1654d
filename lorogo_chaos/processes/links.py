"""A link: a small TCP proxy on loopback that can be cut, silenced, delayed and healed.

    async with Line("server-1", [4222]) as link:
        ...  # a connection to link.url reaches port 4222
        link.cut()          # as a cable: every connection is reset, and new ones are refused
        link.blackhole()    # as a broken network: connections stay, and pass no bytes
        link.delay(0.05, jitter=0.02)
        link.throttle(20_000)
        link.heal()

A link may have several target ports, with one listening port for each: those of a cluster. All are cut
together. Bytes held during a blackhole arrive after healing, as TCP resends them. Each direction of a
connection holds a bounded number of bytes; then its sender is blocked.
"""

import asyncio
import random
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Self

from lorogo_chaos.errors import ChaosError

LOOPBACK = "127.0.0.1"
_CHUNK_BYTES = 64 * 1024
_CHUNKS_MAX = 16  # held in each direction of a connection
_CONNECTIONS_MAX = 1024
_CONNECT_SECONDS = 5.0
_RESET = struct.pack("ii", 1, 0)  # linger for no time: closing sends a reset

_Item = tuple[float, bytes]  # due time, and bytes; empty: the other side has closed


class ProxyLink:
    """One link; exists between `open()` and `close()`."""

    def __init__(self, name: str, targets: Sequence[int], *, rng: random.Random | None = None) -> None:
        """`targets` are ports on loopback; the link connects to these only."""
        if not targets or any(not 0 < port < 65536 for port in targets):
            raise ChaosError(f"link {name} needs target ports, not {list(targets)}")
        self.name = name
        self._targets = tuple(targets)
        self._rng = rng if rng is not None else random.Random()
        self._servers: list[asyncio.Server] = []
        self._ports: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._sockets: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self._passes = asyncio.Event()
        self._passes.set()
        self._delay_seconds = 0.0
        self._jitter_seconds = 0.0
        self._bytes_per_second = 0.0  # 0: unlimited

    @property
    def ports(self) -> tuple[int, ...]:
        """The listening ports, one for each target."""
        return tuple(self._ports)

    @property
    def url(self) -> str:
        """The address for NATS clients: all its ports."""
        return ",".join(f"nats://{LOOPBACK}:{port}" for port in self._ports)

    @property
    def connections(self) -> int:
        return len(self._tasks)

    @property
    def condition(self) -> str:
        """The state in one word: whole, cut, silent or slow."""
        if self._is_cut:
            return "cut"
        if not self._passes.is_set():
            return "silent"
        return "slow" if self._delay_seconds or self._jitter_seconds or self._bytes_per_second else "whole"

    async def open(self) -> None:
        """Start listening."""
        for target in self._targets:
            accept = partial(self._accept, target)
            server = await asyncio.start_server(accept, LOOPBACK, 0, limit=_CHUNK_BYTES)
            self._servers.append(server)
            self._ports.append(server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """End every connection, and stop listening. Idempotent."""
        for server in self._servers:
            server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self._servers:
            await server.wait_closed()
        self._servers = []

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- faults -------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Reset every connection, and every new one, until it is healed."""
        self._is_cut = True
        for writer in list(self._sockets):
            _reset(writer)
        for task in self._tasks:
            task.cancel()

    def blackhole(self) -> None:
        """Keep connections, and pass no bytes, until it is healed."""
        self._passes.clear()

    def delay(self, seconds: float, *, jitter: float = 0.0) -> None:
        """Delay each direction by so much, and up to `jitter` seconds more."""
        if seconds < 0 or jitter < 0:
            raise ChaosError("a delay cannot be negative")
        self._delay_seconds, self._jitter_seconds = seconds, jitter

    def throttle(self, bytes_per_second: float) -> None:
        """Limit the rate of each direction of a connection; 0: unlimited."""
        if bytes_per_second < 0:
            raise ChaosError("a rate cannot be negative")
        self._bytes_per_second = bytes_per_second

    def heal(self) -> None:
        """End all faults of the link."""
        self._is_cut = False
        self._delay_seconds = self._jitter_seconds = self._bytes_per_second = 0.0
        self._passes.set()

    # --- connections --------------------------------------------------------------------------------

    def _accept(self, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut or len(self._tasks) >= _CONNECTIONS_MAX:
            _reset(writer)
            return
        self._sockets.add(writer)
        task = asyncio.create_task(self._connection(reader, writer, target), name=f"line {self.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int
    ) -> None:
        far: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                far_reader, far = await asyncio.open_connection(LOOPBACK, target, limit=_CHUNK_BYTES)
            self._sockets.add(far)
            async with asyncio.TaskGroup() as group:
                there = group.create_task(self._direction(reader, far))
                back = group.create_task(self._direction(far_reader, writer))
                await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
                there.cancel()
                back.cancel()
        except (OSError, TimeoutError):
            pass  # the target does not listen: the caller is reset, as without the link
        finally:
            for end in (writer, far):
                if end is not None:
                    self._sockets.discard(end)
                    _reset(end)

    async def _direction(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one direction until a side has closed, and the other got all bytes."""
        held: asyncio.Queue[_Item] = asyncio.Queue(_CHUNKS_MAX)
        async with asyncio.TaskGroup() as group:
            taking = group.create_task(self._take(reader, held))
            try:
                await self._give(held, writer)
            finally:
                taking.cancel()

    async def _take(self, reader: asyncio.StreamReader, held: asyncio.Queue[_Item]) -> None:
        loop = asyncio.get_running_loop()
        due = 0.0
        data = b"."
        while data:
            try:
                data = await reader.read(_CHUNK_BYTES)
            except OSError:
                data = b""
            seconds = self._delay_seconds + self._rng.uniform(0, self._jitter_seconds)
            due = max(due, loop.time() + seconds)  # TCP keeps the order
            await held.put((due, data))

    async def _give(self, held: asyncio.Queue[_Item], writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await held.get()
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            await self._passes.wait()
            if not data:
                return
            if rate := self._bytes_per_second:
                await asyncio.sleep(len(data) / rate)
            try:
                writer.write(data)
                await writer.drain()
            except (OSError, RuntimeError):  # already closed; uvloop raises RuntimeError
                return


def _reset(writer: asyncio.StreamWriter) -> None:
    """Reset the connection, which the other side notices at once, also if it never reads."""
    with suppress(OSError, AttributeError, ValueError):  # already closed; uvloop raises ValueError
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
