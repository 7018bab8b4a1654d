"""Document servers of a drill: the real `lorogo serve`, each with a line, a folder and a log of its own.

A server that ends without being told is noted and started again, as an operator's supervisor would do.
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
from lorogo_chaos.processes.processes import ProcessGuard, ProcessIdentity, family, gone
from lorogo_transport.secret_files import without_secrets

_READY = b'"message": "serving"'
_READY_SECONDS = 60.0
_STOP_SECONDS = 40.0  # above stop_seconds of a server
_POLL_SECONDS = 0.05
_AGAIN_SECONDS = 1.0  # before a server that ended by itself is started again
_ENDS_MAX = 1000
_WORDS_MAX = 2000
_SENTENCE = "lorogo: "  # so begins what the command says to people
_SENTENCE_MAX = 300


@dataclass(frozen=True, slots=True)
class ServerExit:
    """A server ended without being told."""

    at: float  # Unix seconds
    code: int  # negative: a signal
    words: str  # the last that it said


def last_said(words: str) -> str:
    """Why a server ended, on one line: the sentence of the command, or what its log said last."""
    lines = [line.strip() for line in words.splitlines() if line.strip()] or ["(no words)"]
    sentences = [line.removeprefix(_SENTENCE) for line in lines if line.startswith(_SENTENCE)]
    if sentences:
        return sentences[-1][:_SENTENCE_MAX]
    with suppress(ValueError, TypeError, KeyError):
        return str(json.loads(lines[-1])["message"])[:_SENTENCE_MAX]
    return lines[-1][:_SENTENCE_MAX]


class ServerUnderTest:
    """One server; lives between `start()` and `close()`, in which it may be killed and started often."""

    def __init__(self, name: str, folder: Path, line: ProxyLink, *, options: tuple[str, ...] = ()) -> None:
        """`folder` holds its data folder and its log; `options` are more of those of `lorogo serve`."""
        self.name = name
        self.line = line
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "serve.log"
        self.ends: list[ServerExit] = []  # without being told
        self.started_ns = 0  # when it was started the last time
        self.paused = False
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._guard: ProcessGuard | None = None
        self._keepers: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()  # one change at a time
        self._helpers: list[ProcessIdentity] = []
        self._log_start = 0
        self._wanted = False

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int | None:
        """Of the server itself; None if it is not running."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def pids(self) -> list[int]:
        """Of the server and its helpers."""
        return [member.pid for member in self._family()]

    @property
    def server_id(self) -> str:
        """As it calls itself; empty until its first start."""
        try:
            return (self.data / "worker-0" / "server-id").read_text().strip()
        except OSError:
            return ""

    @property
    def journal(self) -> Path:
        """Where its journal is."""
        return self.data / "worker-0" / "journal"

    # --- what can be done to it ---------------------------------------------------------------------

    async def start(self) -> None:
        """Start it; nothing if it runs. `ready()` waits until it serves."""
        self._wanted = True
        async with self._turn:
            if not self.running:
                await self._launch()

    async def ready(self, seconds: float = _READY_SECONDS) -> None:
        """Wait until it has said that it serves. Raises NotReady."""
        try:
            async with asyncio.timeout(seconds):
                while not await asyncio.to_thread(self._said):  # noqa: ASYNC110  # a file tells nobody
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise StackNotReady(
                f"{self.name} did not serve within {seconds:g} s; its last words: {self.last_words()}"
            ) from None

    async def kill(self) -> None:
        """End it as kill -9 does. Its helpers notice and end. Nothing if it is not running."""
        self._wanted = False
        async with self._turn:
            await self._kill()

    async def stop(self) -> int:
        """As an operator does: SIGTERM, and wait. Its exit code; -9 if it had to be killed."""
        self._wanted = False
        async with self._turn:
            self.resume()
            if self._process is None or not self.running:
                return 0
            self._helpers += self._family()[1:]
            with suppress(ProcessLookupError):
                self._process.terminate()
            code = -int(signal.SIGKILL)
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    code = await self._process.wait()
            await self._kill()
            return code

    def pause(self, *, helpers: bool = True) -> None:
        """It does nothing any more, and its connections stay; with its helpers, as a machine that hangs."""
        for member in self._family() if helpers else self._family()[:1]:
            member.send(signal.SIGSTOP)
        self.paused = self.running

    def resume(self) -> None:
        """All of it goes on."""
        if self.paused:
            for member in self._family():
                member.send(signal.SIGCONT)
            self.paused = False

    async def close(self) -> None:
        """End everything of it, for good. Safe twice."""
        await self.kill()
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await self.kill()
        await gone(self._helpers)
        self._helpers = []

    def last_words(self) -> str:
        """The end of what it wrote since it was started the last time."""
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
                self.line.url,
                "--data",
                str(self.data),
                *self._options,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                # settings of whoever runs the drill are none of its servers'
                env={**without_secrets(os.environ), "LOROGO_OPEN": "1", "PYTHONUNBUFFERED": "1"},
            )
        finally:
            os.close(log)
        self._guard = await ProcessGuard.over(self._process.pid)
        keeper = asyncio.create_task(self._keep(self._process), name=f"keeper of {self.name}")
        self._keepers.add(keeper)
        keeper.add_done_callback(self._keepers.discard)

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

    def _said(self) -> bool:
        return self.running and _READY in self._read()

    def _family(self) -> list[ProcessIdentity]:
        return [] if self.pid is None else family(self.pid)

    async def _keep(self, process: asyncio.subprocess.Process) -> None:
        """Start it again if it ends without being told."""
        code = await process.wait()
        if not self._wanted or process is not self._process:
            return
        words = await asyncio.to_thread(self.last_words)
        if len(self.ends) < _ENDS_MAX:
            self.ends.append(ServerExit(time.time(), code, words))
        await asyncio.sleep(_AGAIN_SECONDS)
        async with self._turn:
            if process is self._process:  # not told to end meanwhile
                await self._ended()
                await self._launch()

    async def _kill(self) -> None:
        if self._process is not None and self.running:
            helpers = self._family()[1:]
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
