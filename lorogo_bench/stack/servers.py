"""A document server under measurement: the real `lorogo serve` in its own process.

It is started as a worker: a worker exits when its stdin closes, so no server survives the benchmark.
"""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

from lorogo_bench.errors import BenchNotReady
from lorogo_bench.stack.usage import ProcessUsage, usage
from lorogo_transport.secret_files import without_secrets

_READY = b'"message": "serving"'
_READY_SECONDS = 60.0
_STOP_SECONDS = 40.0  # above stop_seconds of a server
_POLL_SECONDS = 0.02
_WORDS_MAX = 2000


class ServerProcess:
    """A server that can be stopped, killed and started again on the same folder."""

    def __init__(self, name: str, url: str, folder: Path, options: tuple[str, ...] = ()) -> None:
        """`folder` gets its data folder and its log; `options` are options of `lorogo serve`."""
        self.name = name
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "serve.log"
        self._url = url
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._log_start = 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int | None:
        """Return its id; None if it is not running."""
        return self._process.pid if self._process is not None and self.running else None

    def usage(self) -> ProcessUsage:
        """Return the usage of the server and its helper processes since its start."""
        return usage(self.pid)

    async def start(self) -> None:
        """Start the server, and wait until it serves. Raises BenchNotReady."""
        assert not self.running
        self._log_start, log = await asyncio.to_thread(self._open_log)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "lorogo_cli", "serve", "--worker", "0"),
                *("--nats", self._url, "--data", str(self.data), *self._options),
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # only this process handles Ctrl-C
                env={**without_secrets(os.environ), "LOROGO_OPEN": "1", "PYTHONUNBUFFERED": "1"},
            )
        finally:
            os.close(log)
        await self._served()

    async def stop(self) -> None:
        """Stop with SIGTERM, and kill after a timeout. Safe to call twice."""
        if self._process is not None and self.running:
            with suppress(ProcessLookupError):
                self._process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._process.wait()
        await self.kill()

    async def kill(self) -> None:
        """Kill the server with SIGKILL; its helper processes exit, too. Safe to call twice."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def log_tail(self) -> str:
        """Return the end of its log since the last start."""
        return self._read()[-_WORDS_MAX:].decode(errors="replace").strip() or "(log is empty)"

    async def _served(self) -> None:
        """Wait until its log has the event "serving". Raises BenchNotReady."""
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while not await asyncio.to_thread(self._serves):
                    if not self.running:
                        raise BenchNotReady(f"{self.name} ended: {self.log_tail()}")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            words = f"{self.name} did not serve within {_READY_SECONDS:g} s: {self.log_tail()}"
            raise BenchNotReady(words) from None

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

    def _serves(self) -> bool:
        return _READY in self._read()
