"""Helpers of transport tests: message collectors, waits with a deadline, NATS with given settings."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lorogo_protocol.messages import subjects
from lorogo_testing.fault_model import Kind
from lorogo_testing.memory_nats import MemoryTransport
from lorogo_transport.auth.revocations import Revocations
from lorogo_transport.clock import SystemClock
from lorogo_transport.nats.connection import JetStreamTransport
from lorogo_transport.nats.embedded import find_nats_server
from lorogo_transport.ports import Message, StoredMessage, Stream, Transport
from lorogo_transport.stores import topology

AnyTransport = JetStreamTransport | MemoryTransport
Connect = Callable[[], Awaitable[AnyTransport]]
StartNats = Callable[[dict[str, object]], Awaitable[str]]

DEADLINE = 10.0


class Slow:
    """A weather that only delays: as a socket, with some time each way."""

    waiting_max = 0

    def travel(self, line: str, kind: Kind, subject: str, size: int) -> tuple[float, ...]:
        return (0.0004,) if kind in {"publish", "ask"} else (0.0002,)

    def lag(self, stream: str) -> int:
        return 0


class Collector:
    """A handler that keeps what it gets."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._arrived = asyncio.Event()

    def __call__(self, message: Message) -> None:
        self.messages.append(message)
        self._arrived.set()

    @property
    def bodies(self) -> list[bytes]:
        return [message.data for message in self.messages]

    async def wait(self, count: int) -> list[Message]:
        """Until `count` messages are here."""
        async with asyncio.timeout(DEADLINE):
            while len(self.messages) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return self.messages


async def until(condition: Callable[[], bool]) -> None:
    """Until `condition()` holds; fails after the deadline."""
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110  # conditions here have no event
            await asyncio.sleep(0.005)


@asynccontextmanager
async def nats_with(folder: Path, settings: dict[str, object]) -> AsyncIterator[str]:
    """The address of a nats-server with these settings, for as long as the block lasts."""
    config = folder / "nats.conf"
    config.write_text(json.dumps({"ports_file_dir": str(folder), "host": "127.0.0.1", "port": -1} | settings))
    process = await asyncio.create_subprocess_exec(
        find_nats_server(), "--config", config, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        ports = folder / f"{Path(find_nats_server()).name}_{process.pid}.ports"
        await until(lambda: ports.exists() and ports.read_text().endswith("}"))
        yield str(json.loads(ports.read_text())["nats"][0])
    finally:
        process.kill()
        await process.wait()


async def newest(stream: Stream, pattern: str) -> list[StoredMessage]:
    """The last message of every matching subject."""
    return [stored async for stored in stream.newest_of(list(await stream.subjects(pattern)))]


async def make_list(transport: Transport, **changes: Any) -> None:
    """The bucket of revoked tokens, marked as complete as a server marks it on a new NATS."""
    spec = next(spec for spec in topology.specs() if spec.name == subjects.REVOKED_STREAM)
    await transport.ensure(replace(spec, **changes))
    await Revocations(transport, SystemClock()).mark_complete()
