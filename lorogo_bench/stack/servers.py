"""A document server to be measured: the real `lorogo serve`, in a process of its own.

It is started as one of several workers: such a one ends by itself when its stdin does, so nobody is left
behind however a benchmark ends.
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
    """One server; may be stopped, killed and started again on the same folder."""

    def __init__(self, name: str, url: str, folder: Path, options: tuple[str, ...] = ()) -> None:
        """`folder` holds its data folder and its log; `options` are those of `lorogo serve`."""
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
        """None if it is not running."""
        return self._process.pid if self._process is not None and self.running else None

    def usage(self) -> ProcessUsage:
        """Of the server and its helpers, since its start."""
        return usage(self.pid)

    async def start(self) -> None:
        """Start it, and wait until it serves. Raises NotReady."""
        assert not self.running
        self._log_start, log = await asyncio.to_thread(self._open_log)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "lorogo_cli", "serve", "--worker", "0"),
                *("--nats", self._url, "--data", str(self.data), *self._options),
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us
                env={**without_secrets(os.environ), "LOROGO_OPEN": "1", "PYTHONUNBUFFERED": "1"},
            )
        finally:
            os.close(log)
        await self._served()

    async def stop(self) -> None:
        """As an operator does: SIGTERM, and wait; by force if that takes too long. Safe twice."""
        if self._process is not None and self.running:
            with suppress(ProcessLookupError):
                self._process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._process.wait()
        await self.kill()

    async def kill(self) -> None:
        """End it as kill -9 does; its helpers notice and end. Safe twice."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def last_words(self) -> str:
        """The end of what it wrote since it was started the last time."""
        return self._read()[-_WORDS_MAX:].decode(errors="replace").strip() or "(no words)"

    async def _served(self) -> None:
        """Wait until its log says so: a file tells nobody. Raises NotReady."""
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while not await asyncio.to_thread(self._serves):
                    if not self.running:
                        raise BenchNotReady(f"{self.name} ended: {self.last_words()}")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            words = f"{self.name} did not serve within {_READY_SECONDS:g} s: {self.last_words()}"
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
