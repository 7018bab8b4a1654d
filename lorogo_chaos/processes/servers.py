"""Document servers of a fault run: real `lorogo serve` processes, each with a link, a folder and a log.

A server that exits by itself is recorded and restarted, as an operator's supervisor would do.
"""

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lorogo_chaos.errors import StackNotReady
from lorogo_chaos.processes.links import ProxyLink
from lorogo_chaos.processes.processes import ProcessGuard, ProcessIdentity, process_tree, wait_ended
from lorogo_transport.secret_files import without_secrets

_READY = b'"message": "serving"'
_READY_SECONDS = 60.0
_STOP_SECONDS = 40.0  # above stop_seconds of a server
_POLL_SECONDS = 0.05
_RESTART_SECONDS = 1.0  # before a server that exited by itself is restarted
_ENDS_MAX = 1000
_WORDS_MAX = 2000
_MESSAGE_PREFIX = "lorogo: "  # prefix of the command's messages
_SENTENCE_MAX = 300


@dataclass(frozen=True, slots=True)
class ServerExit:
    """An unexpected exit of a server."""

    at: float  # Unix seconds
    code: int  # negative: a signal
    words: str  # its last message


def last_message(words: str) -> str:
    """Return the reason of an exit in one line: the command's message, or the last log line."""
    lines = [line.strip() for line in words.splitlines() if line.strip()] or ["(no output)"]
    sentences = [line.removeprefix(_MESSAGE_PREFIX) for line in lines if line.startswith(_MESSAGE_PREFIX)]
    if sentences:
        return sentences[-1][:_SENTENCE_MAX]
    with suppress(ValueError, TypeError, KeyError):
        return str(json.loads(lines[-1])["message"])[:_SENTENCE_MAX]
    return lines[-1][:_SENTENCE_MAX]


class ServerUnderTest:
    """One server; exists between `start()` and `close()`, with any number of kills and starts."""

    def __init__(self, name: str, folder: Path, link: ProxyLink, *, options: tuple[str, ...] = ()) -> None:
        """`folder` has its data folder and its log; `options` are added to those of `lorogo serve`."""
        self.name = name
        self.link = link
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "serve.log"
        self.exits: list[ServerExit] = []  # unexpected exits
        self.started_ns = 0  # time of the last start
        self.paused = False
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._guard: ProcessGuard | None = None
        self._monitors: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()  # one change at a time
        self._helpers: list[ProcessIdentity] = []
        self._log_start = 0
        self._wanted = False

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int | None:
        """The process id of the server; None if it is not running."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def pids(self) -> list[int]:
        """The process ids of the server and its helpers."""
        return [member.pid for member in self._process_tree()]

    @property
    def server_id(self) -> str:
        """The server's own id; empty before its first start."""
        try:
            return (self.data / "worker-0" / "server-id").read_text().strip()
        except OSError:
            return ""

    @property
    def journal(self) -> Path:
        """The folder of its journal."""
        return self.data / "worker-0" / "journal"

    # --- faults -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start it; no-op if it runs. `ready()` waits until it serves."""
        self._wanted = True
        async with self._turn:
            if not self.running:
                await self._launch()

    async def ready(self, seconds: float = _READY_SECONDS) -> None:
        """Wait until its log has `serving`. Raises StackNotReady."""
        try:
            async with asyncio.timeout(seconds):
                while not await asyncio.to_thread(self._in_log):  # noqa: ASYNC110  # a file has no events
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise StackNotReady(
                f"{self.name} did not serve within {seconds:g} s; its log ends with: {self.log_tail()}"
            ) from None

    async def kill(self) -> None:
        """Kill it with SIGKILL. Its helpers notice and end. No-op if it is not running."""
        self._wanted = False
        async with self._turn:
            await self._kill()

    async def stop(self) -> int:
        """Stop it with SIGTERM, as an operator does; return its exit code, -9 if it had to be killed."""
        self._wanted = False
        async with self._turn:
            self.resume()
            if self._process is None or not self.running:
                return 0
            self._helpers += self._process_tree()[1:]
            with suppress(ProcessLookupError):
                self._process.terminate()
            code = -int(signal.SIGKILL)
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    code = await self._process.wait()
            await self._kill()
            return code

    def pause(self, *, helpers: bool = True) -> None:
        """Stop the process with SIGSTOP; connections stay. With its helpers: as a machine that hangs."""
        for member in self._process_tree() if helpers else self._process_tree()[:1]:
            member.send(signal.SIGSTOP)
        self.paused = self.running

    def resume(self) -> None:
        """Continue all its processes."""
        if self.paused:
            for member in self._process_tree():
                member.send(signal.SIGCONT)
            self.paused = False

    async def close(self) -> None:
        """End all its processes for good. Idempotent."""
        await self.kill()
        for monitor in self._monitors:
            monitor.cancel()
        await asyncio.gather(*self._monitors, return_exceptions=True)
        await self.kill()
        await wait_ended(self._helpers)
        self._helpers = []

    def log_tail(self) -> str:
        """Return the end of its log since the last start."""
        words = self._read()
        return words[-_WORDS_MAX:].decode(errors="replace").strip() or "(none)"

    # --- inside -------------------------------------------------------------------------------------

    async def _launch(self) -> None:
        self._log_start, log = await asyncio.to_thread(self._open_log)
        self._helpers = [helper for helper in self._helpers if helper.alive]
        self.started_ns = time.time_ns()
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "lorogo_cli",
                "serve",
                "--nats",
                self.link.url,
                "--data",
                str(self.data),
                *self._options,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                # settings of the user's environment are not for these servers
                env={**without_secrets(os.environ), "LOROGO_OPEN": "1", "PYTHONUNBUFFERED": "1"},
            )
        finally:
            os.close(log)
        self._guard = await ProcessGuard.watch(self._process.pid)
        monitor = asyncio.create_task(self._restart_on_exit(self._process), name=f"keeper of {self.name}")
        self._monitors.add(monitor)
        monitor.add_done_callback(self._monitors.discard)

    def _open_log(self) -> tuple[int, int]:
        self.folder.mkdir(parents=True, exist_ok=True)
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        return os.fstat(log).st_size, log

    def _read(self) -> bytes:
        try:
            with self.log.open("rb") as log:
                log.seek(self._log_start)
                return log.read()
        except OSError:
            return b""

    def _in_log(self) -> bool:
        return self.running and _READY in self._read()

    def _process_tree(self) -> list[ProcessIdentity]:
        return [] if self.pid is None else process_tree(self.pid)

    async def _restart_on_exit(self, process: asyncio.subprocess.Process) -> None:
        """Restart it if it exits by itself."""
        code = await process.wait()
        if not self._wanted or process is not self._process:
            return
        words = await asyncio.to_thread(self.log_tail)
        if len(self.exits) < _ENDS_MAX:
            self.exits.append(ServerExit(time.time(), code, words))
        await asyncio.sleep(_RESTART_SECONDS)
        async with self._turn:
            if process is self._process:  # it was not stopped meanwhile
                await self._ended()
                await self._launch()

    async def _kill(self) -> None:
        if self._process is not None and self.running:
            helpers = self._process_tree()[1:]
            with suppress(ProcessLookupError):
                self._process.kill()
            for helper in helpers:
                helper.send(signal.SIGCONT)
            self._helpers += helpers
        await self._ended()

    async def _ended(self) -> None:
        if self._process is not None:
            await self._process.wait()
        if self._guard is not None:
            await self._guard.release()
        self._process = self._guard = None
        self.paused = False
