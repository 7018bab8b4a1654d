"""Keeps this server's leases alive while the server itself is too busy to do so.

Loro holds the interpreter's lock while it imports, so a very large update stops every thread of the
server, renewals included (measured: 300,000 list entries, 3.5 MB, take about a second). The keepalive
process is small and has its own connection to NATS. It does nothing while it receives heartbeats from
the server. When the heartbeats stop *and the server uses the CPU*, it renews the server's leases for a
minute at most. It does not renew for a server that is stopped, hangs without computing, or died: other
servers must acquire those documents.

The server writes to the process's standard input: the settings as one JSON line, then heartbeats (empty
lines) and `+{id} {token}` / `-{id}` for the leases that it holds. The process exits at the end of input.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages.subjects import SERVER_INBOX
from lorogo_protocol.status import Starting, Up
from lorogo_transport.clock import Clock, SystemClock
from lorogo_transport.errors import TransportError
from lorogo_transport.nats.connection import connect
from lorogo_transport.ports import Transport
from lorogo_transport.secret_files import without_secrets
from lorogo_transport.stores.statuses import Statuses
from lorogo_transport.telemetry.logs import get_logger, to_stderr

log = get_logger(__name__)

BEAT_SECONDS = 0.25
_SILENCE_SECONDS = 1.0  # without a heartbeat, before the process checks the server's CPU time
_HELP_SECONDS_MAX = 60.0
_AT_ONCE = 64
_LINE_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class KeepaliveSettings:
    """Settings that the process reads from its standard input."""

    nats: str = field(repr=False)  # it may hold a password
    server_id: str
    server_pid: int
    renew_seconds: float
    seed: str | None = field(default=None, repr=False)  # the server's nkey


class KeepaliveState:
    """Decides when the process renews leases; time and the server's CPU time are arguments."""

    def __init__(self, settings: KeepaliveSettings, now: float) -> None:
        self.settings = settings
        self.held: dict[str, int] = {}  # document id -> token
        self.last_beat = now
        self._cpu_seconds = 0.0
        self._helping_since: float | None = None
        self._next_renewal = 0.0

    def handle_line(self, line: str, now: float) -> None:
        """Handle one line from the server."""
        self.last_beat = now
        self._helping_since = None
        if line.startswith("+"):
            document_id, _, token = line[1:].partition(" ")
            self.held[document_id] = int(token)
        elif line.startswith("-"):
            self.held.pop(line[1:], None)

    def silent_since(self, now: float) -> Callable[[], bool]:
        """Return a function that returns True while no heartbeat has arrived since `now`."""
        return lambda: self.last_beat <= now

    def must_renew(self, now: float, cpu_seconds: float | None) -> bool:
        """Return True if the leases must be renewed now.

        `cpu_seconds` is the CPU time of the server so far; None if the server is gone.
        """
        working = cpu_seconds is not None and cpu_seconds > self._cpu_seconds
        self._cpu_seconds = cpu_seconds or 0.0
        if now - self.last_beat < _SILENCE_SECONDS or not working:
            return False
        if self._helping_since is None:
            self._helping_since = now
            self._next_renewal = now
        if now - self._helping_since > _HELP_SECONDS_MAX or now < self._next_renewal:
            return False
        self._next_renewal = now + self.settings.renew_seconds / 2
        return True


async def renew_all(
    transport: Transport, state: KeepaliveState, clock: Clock, still_needed: Callable[[], bool]
) -> int:
    """Rewrite each held status with a new time if the server still owns it; return the number of writes."""
    statuses = Statuses(transport)
    slots = asyncio.Semaphore(_AT_ONCE)
    server_id = state.settings.server_id
    done = 0

    async def renew(document_id: str, token: int) -> None:
        nonlocal done
        async with slots:
            with suppress(TransportError):  # a lost race or no connection: the server handles it
                entry = await statuses.read(document_id)
                if entry is None or entry.server != server_id or entry.token != token:
                    return
                if not isinstance(entry.status, Starting | Up) or not still_needed():
                    return
                await statuses.write(
                    document_id,
                    replace(entry.status, time_ns=clock.wall_ns()),
                    expected_revision=entry.revision,
                    server=server_id,
                    lease=token,
                    head=entry.head,
                    trace=entry.trace,
                    failures=entry.failures,
                    journal_of=entry.journal_of,
                )
                done += 1

    async with asyncio.TaskGroup() as group:
        for document_id, token in list(state.held.items()):
            group.create_task(renew(document_id, token))
    return done


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time of a process; None if it is gone or the system does not report it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in "TtZX":  # stopped, traced, dead
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def run() -> None:
    """Run the process until standard input ends."""
    clock = SystemClock()
    reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    settings = KeepaliveSettings(**json.loads(await reader.readline()))
    state = KeepaliveState(settings, clock.now())
    async with (
        await connect(
            settings.nats,
            name=f"keepalive-{settings.server_id}",
            seed=settings.seed,
            inbox_prefix="_INBOX" if settings.seed is None else SERVER_INBOX,
        ) as transport,
        asyncio.TaskGroup() as group,
    ):
        watching = group.create_task(_watch(transport, state, clock))
        while line := await reader.readline():
            state.handle_line(line.decode().strip(), clock.now())
        watching.cancel()


async def _watch(transport: Transport, state: KeepaliveState, clock: Clock) -> None:
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        if state.must_renew(clock.now(), cpu_seconds(state.settings.server_pid)):
            renewed = await renew_all(transport, state, clock, state.silent_since(clock.now()))
            log.warning("server is busy, renewed its leases", documents=renewed)


class KeepaliveProcess:
    """Server side: start the keepalive process, send it the held leases and heartbeats."""

    def __init__(self, nats: str, *, seed: str | None = None) -> None:
        """Address and seed go through standard input: process listings do not show them."""
        self._nats = nats
        self._seed = seed
        self._held: dict[str, int] = {}
        self._settings: KeepaliveSettings | None = None
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, server_id: str, renew_seconds: float) -> None:
        """Start the process."""
        self._settings = KeepaliveSettings(self._nats, server_id, os.getpid(), renew_seconds, self._seed)
        await self._launch()

    async def _launch(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from lorogo_server.sandbox.keepalive import main; main()",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the server; this process exits at the end of input
            env=without_secrets(os.environ),
        )
        assert self._settings is not None
        self._write(json.dumps(asdict(self._settings)))
        for document_id, token in self._held.items():
            self._write(f"+{document_id} {token}")

    def hold(self, document_id: str, token: int) -> None:
        """Add a lease to renew. Repeated calls with the same token write nothing."""
        if self._held.get(document_id) != token:
            self._held[document_id] = token
            self._write(f"+{document_id} {token}")

    def drop(self, document_id: str) -> None:
        """Remove the lease of a document."""
        self._held.pop(document_id, None)
        self._write(f"-{document_id}")

    async def run(self) -> None:
        """Send heartbeats until cancelled, and restart the process if it ends."""
        while True:
            if self._process is not None and self._process.returncode is not None:
                log.warning("keepalive process ended, restarting it", code=self._process.returncode)
                await self._launch()
            self._write("")
            await asyncio.sleep(BEAT_SECONDS)

    async def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            async with asyncio.timeout(2):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def _write(self, line: str) -> None:
        process = self._process
        if process is None or process.stdin is None or process.stdin.is_closing():
            return
        process.stdin.write(f"{line}\n".encode())


def main() -> None:
    """Entry point of the keepalive process."""
    to_stderr("warning")  # it shares the server's standard error
    with suppress(KeyboardInterrupt, LorogoError):
        asyncio.run(run())
