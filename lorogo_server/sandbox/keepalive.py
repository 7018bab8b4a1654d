"""Keeps this server's leases alive while the server itself is too busy to do so.

Loro holds the interpreter's lock while it imports, so a very large update stops every thread of the
server, renewals included (measured: 300,000 list entries, 3.5 MB, take about a second). The pacemaker
is a small process of its own with its own connection. It does nothing as long as it hears a beat from
the server; when the beats stop *and the server is using the CPU*, it renews the server's statuses in its
name, for a minute at most. A server that was stopped, hangs without computing, or died is not helped:
its documents must go to others.

The server writes to its standard input: the settings as one JSON line, then beats (empty lines) and
`+{id} {token}` / `-{id}` for what it holds; the end of input is the end.
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
from lorogo_protocol.status import Starting, Up
from lorogo_protocol.subjects import SERVER_INBOX
from lorogo_transport.clock import Clock, SystemClock
from lorogo_transport.errors import TransportError
from lorogo_transport.nats.connection import connect
from lorogo_transport.ports import Transport
from lorogo_transport.secret_files import without_secrets
from lorogo_transport.stores.statuses import Statuses
from lorogo_transport.telemetry.logs import get_logger, to_stderr

log = get_logger(__name__)

BEAT_SECONDS = 0.25
_SILENCE_SECONDS = 1.0  # without a beat, before the pacemaker looks at the server
_HELP_SECONDS_MAX = 60.0
_AT_ONCE = 64
_LINE_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class KeepaliveSettings:
    """What the process is told when it starts."""

    nats: str = field(repr=False)  # it may hold a password
    server_id: str
    server_pid: int
    renew_seconds: float
    seed: str | None = field(default=None, repr=False)  # the server's nkey


class KeepaliveState:
    """The decisions of the process; time and the server's CPU time come in."""

    def __init__(self, settings: KeepaliveSettings, now: float) -> None:
        self.settings = settings
        self.held: dict[str, int] = {}  # document id -> token
        self.last_beat = now
        self._cpu_seconds = 0.0
        self._helping_since: float | None = None
        self._next_renewal = 0.0

    def hear(self, line: str, now: float) -> None:
        """A line from the server."""
        self.last_beat = now
        self._helping_since = None
        if line.startswith("+"):
            document_id, _, token = line[1:].partition(" ")
            self.held[document_id] = int(token)
        elif line.startswith("-"):
            self.held.pop(line[1:], None)

    def silent_since(self, now: float) -> Callable[[], bool]:
        """A function that says whether the server has been silent since `now`."""
        return lambda: self.last_beat <= now

    def must_renew(self, now: float, cpu_seconds: float | None) -> bool:
        """Whether to renew now; `cpu_seconds` is what the server has used so far (None: it is gone)."""
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
    transport: Transport, pacemaker: KeepaliveState, clock: Clock, still_needed: Callable[[], bool]
) -> int:
    """Write every held status again with a new time, if it is still the server's; returns how many."""
    statuses = Statuses(transport)
    slots = asyncio.Semaphore(_AT_ONCE)
    server_id = pacemaker.settings.server_id
    done = 0

    async def renew(document_id: str, token: int) -> None:
        nonlocal done
        async with slots:
            with suppress(TransportError):  # a lost race, or no connection: the server sees to it
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
                    tail=entry.tail,
                    trace=entry.trace,
                    failures=entry.failures,
                )
                done += 1

    async with asyncio.TaskGroup() as group:
        for document_id, token in list(pacemaker.held.items()):
            group.create_task(renew(document_id, token))
    return done


def cpu_seconds(pid: int) -> float | None:
    """The CPU time of a process, or None if it is gone or this system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in "TtZX":  # stopped, traced, dead
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def run() -> None:
    """The process: until standard input ends."""
    clock = SystemClock()
    reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    settings = KeepaliveSettings(**json.loads(await reader.readline()))
    pacemaker = KeepaliveState(settings, clock.now())
    async with (
        await connect(
            settings.nats,
            name=f"pacemaker-{settings.server_id}",
            seed=settings.seed,
            inbox_prefix="_INBOX" if settings.seed is None else SERVER_INBOX,
        ) as transport,
        asyncio.TaskGroup() as group,
    ):
        watching = group.create_task(_watch(transport, pacemaker, clock))
        while line := await reader.readline():
            pacemaker.hear(line.decode().strip(), clock.now())
        watching.cancel()


async def _watch(transport: Transport, pacemaker: KeepaliveState, clock: Clock) -> None:
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        if pacemaker.must_renew(clock.now(), cpu_seconds(pacemaker.settings.server_pid)):
            renewed = await renew_all(transport, pacemaker, clock, pacemaker.silent_since(clock.now()))
            log.warning("the server is busy, renewed its leases", documents=renewed)


class KeepaliveProcess:
    """The server's end: starts the process, tells it what is held, beats."""

    def __init__(self, nats: str, *, seed: str | None = None) -> None:
        """Address and seed go to the process by its standard input: nobody can list them."""
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
            start_new_session=True,  # Ctrl-C is for the server; the end of input is for us
            env=without_secrets(os.environ),
        )
        assert self._settings is not None
        self._write(json.dumps(asdict(self._settings)))
        for document_id, token in self._held.items():
            self._write(f"+{document_id} {token}")

    def hold(self, document_id: str, token: int) -> None:
        """The server has this document with this token; saying it again costs nothing."""
        if self._held.get(document_id) != token:
            self._held[document_id] = token
            self._write(f"+{document_id} {token}")

    def drop(self, document_id: str) -> None:
        """The server has given it up."""
        self._held.pop(document_id, None)
        self._write(f"-{document_id}")

    async def run(self) -> None:
        """Beat for ever, and start the process again should it end; ends by cancellation."""
        while True:
            if self._process is not None and self._process.returncode is not None:
                log.warning("the pacemaker ended, starting another", code=self._process.returncode)
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
    """The process's door."""
    to_stderr("warning")  # it has our server's standard error
    with suppress(KeyboardInterrupt, LorogoError):
        asyncio.run(run())
