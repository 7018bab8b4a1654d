"""Control of a load process: one command at a time, with a reply when it is done.

Messages are lines of JSON: `{"do": "type", "with": {"count": 1000}}` on its stdin, and on its stdout
`{"result": {...}, "seconds": 0.2, "cpu_seconds": 0.1}` or `{"failed": "reason"}`. The process ends when its
stdin ends. `lorogo_bench/loads/` is the other side.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lorogo_bench.errors import LoadProcessFailed
from lorogo_transport.secret_files import without_secrets

CALL_SECONDS = 120.0  # default time limit of a command
_START_SECONDS = 60.0
_END_SECONDS = 15.0
_LINE_BYTES_MAX = 64 * 1024 * 1024
_WORDS_MAX = 1000


@dataclass(frozen=True, slots=True)
class LoadReply:
    """The reply of a load process: its result, time and CPU."""

    facts: Mapping[str, Any]
    seconds: float
    cpu_seconds: float  # of that process, with all its threads

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]


class LoadProcess:
    """A load process, from `start()` to `end()`."""

    def __init__(
        self, kind: str, log: Path, *, order: Mapping[str, Any], pass_fds: Sequence[int] = ()
    ) -> None:
        self.kind = kind
        self._log = log
        self._order = dict(order)
        self._pass_fds = tuple(pass_fds)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Return its id; None if it is not running."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if self._process is not None and running else None

    async def start(self) -> None:
        """Start the process, and wait until it is ready. Raises LoadProcessFailed."""
        log = await asyncio.to_thread(os.open, self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "lorogo_bench.loads", self.kind),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # only this process handles Ctrl-C
                pass_fds=self._pass_fds,
                limit=_LINE_BYTES_MAX,
                env={**without_secrets(os.environ), "PYTHONUNBUFFERED": "1"},
            )
        finally:
            os.close(log)
        await self._exchange({"order": self._order}, _START_SECONDS)

    async def call(self, verb: str, *, seconds: float = CALL_SECONDS, **arguments: Any) -> LoadReply:
        """Run a command in the process, and wait until it is done.

        Raises LoadProcessFailed, also on timeout.
        """
        answer = await self._exchange({"do": verb, "with": arguments, "seconds": seconds}, seconds + 5)
        return LoadReply(answer["result"], float(answer["seconds"]), float(answer["cpu_seconds"]))

    async def end(self) -> None:
        """Let the process exit, or kill it after a timeout. Safe to call twice."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    async def _exchange(self, message: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        line = b""
        try:
            async with asyncio.timeout(seconds):
                process.stdin.write(json.dumps(message).encode() + b"\n")
                await process.stdin.drain()
                line = await process.stdout.readline()
        except TimeoutError:
            raise LoadProcessFailed(f"{self.kind} did not answer within {seconds:g} s") from None
        except (ConnectionError, ValueError) as error:
            raise LoadProcessFailed(f"{self.kind}: {error}; {self._log_tail()}") from None
        if not line:
            raise LoadProcessFailed(f"{self.kind} ended: {self._log_tail()}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise LoadProcessFailed(f"{self.kind}: {answer['failed']}")
        return answer

    def _log_tail(self) -> str:
        try:
            return self._log.read_text(errors="replace")[-_WORDS_MAX:].strip() or "(log is empty)"
        except OSError:
            return "(log is empty)"


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """Yield the read end and the write end of a pipe for load processes."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)
