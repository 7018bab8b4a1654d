"""Real processes for drills: servers that can be killed, stopped and continued, and typing clients."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import lorogo_client
from lorogo_client import Session
from lorogo_protocol.errors import LorogoError

QUICK = {"renew_seconds": 0.3, "lease_seconds": 0.8, "stale_seconds": 1.2}  # a lease that ends soon


class ServerProcess:
    """One server process."""

    def __init__(self, process: asyncio.subprocess.Process, server_id: str) -> None:
        self._process = process
        self.server_id = server_id

    @property
    def pid(self) -> int:
        return self._process.pid

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> int:
        """As an operator does: SIGTERM, and wait."""
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            return await self._process.wait()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    async def end(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)
                self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def servers(url: str) -> AsyncIterator[Callable[..., Awaitable[ServerProcess]]]:
    """A function that starts server processes; all are gone afterwards."""
    started: list[ServerProcess] = []

    async def start(
        skew_seconds: float = 0.0, data: Path | None = None, load_seconds: float = 0.0, **settings: object
    ) -> ServerProcess:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.e2e.serve",
            url,
            str(skew_seconds),
            json.dumps(settings),
            *([] if data is None else [str(data), str(load_seconds)]),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        server = ServerProcess(process, "")
        started.append(server)
        async with asyncio.timeout(30):
            while not (line := (await process.stdout.readline()).decode()).startswith("serving "):
                assert line, "the server ended"
        server.server_id = line.split()[1]
        drain = asyncio.create_task(_drain(process.stdout))
        drains.append(drain)
        return server

    drains: list[asyncio.Task[None]] = []
    try:
        yield start
    finally:
        for server in started:
            await server.end()
        for drain in drains:
            drain.cancel()
        await asyncio.gather(*drains, return_exceptions=True)


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.readline():
        pass


class Typist:
    """A user who types numbered words and records each ACK with its time."""

    def __init__(self, session: Session, name: str) -> None:
        self.session = session
        self.name = name
        self.typed = 0
        self.acked: list[str] = []
        self.acked_at: list[float] = []

    async def run(self, until: asyncio.Event, pause_seconds: float = 0.02) -> None:
        while not until.is_set():
            await self.word()
            await asyncio.sleep(pause_seconds)

    async def word(self, timeout: float = 60.0) -> None:
        word = f"{self.name}{self.typed:05d} "
        self.typed += 1
        body = self.session.doc.get_text("body")
        body.insert(len(body), word)
        self.session.commit()
        await self.session.flush(timeout=timeout)
        self.acked.append(word)
        self.acked_at.append(time.monotonic())

    @property
    def longest_silence(self) -> float:
        """The longest time between two ACKs."""
        return max(
            (later - earlier for earlier, later in zip(self.acked_at, self.acked_at[1:], strict=False)),
            default=0.0,
        )


async def text_of(url: str, document_id: str) -> str:
    """The text that a new client gets."""
    async with (
        lorogo_client.connect(url) as client,
        client.open(document_id, read_only=True) as session,
    ):
        return session.doc.get_text("body").to_string()


async def eventually(look: Callable[[], Awaitable[bool] | bool], seconds: float = 30.0) -> None:
    """Until it is so."""
    async with asyncio.timeout(seconds):
        while True:
            with suppress(LorogoError):
                found = look()
                if await found if isinstance(found, Awaitable) else found:
                    return
            await asyncio.sleep(0.02)
