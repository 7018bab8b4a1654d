"""Processes of a fault run: guards that end them if the run dies, and their helper processes.

A process may have helpers (a server has a keepalive process and a decode sandbox). `process_tree()` finds
them where the system has /proc; elsewhere a process counts as one without helpers.
"""

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# A paused process receives only KILL, and its helpers must run to notice its end.
_GUARD = """
go_on() {
  for child in $(cat /proc/"$1"/task/*/children); do go_on "$child"; done
  kill -CONT "$1"
}
read _
go_on "$1" 2>/dev/null
kill -KILL "$1" 2>/dev/null
"""
_GONE_SECONDS = 5.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, identified by its id and start time, because ids are reused."""

    pid: int
    started: str

    @property
    def alive(self) -> bool:
        return _started(self.pid) == self.started

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def process_tree(pid: int) -> list[ProcessIdentity]:
    """Return the process and its descendants, parents first. Empty if it has ended."""
    started = _started(pid)
    found = [] if started is None else [ProcessIdentity(pid, started)]
    for child in _children(pid):
        found += process_tree(child)
    return found


async def wait_ended(members: list[ProcessIdentity]) -> None:
    """Wait until they have ended, and kill those that do not."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_GONE_SECONDS):
            while any(member.alive for member in members):  # noqa: ASYNC110  # they are not our children
                await asyncio.sleep(_POLL_SECONDS)
    for member in members:
        member.send(signal.SIGKILL)


class ProcessGuard:
    """A small shell that kills a process and its helpers if the fault run dies."""

    def __init__(self, shell: asyncio.subprocess.Process) -> None:
        self._shell = shell

    @classmethod
    async def watch(cls, pid: int) -> "ProcessGuard":
        """Guard the process."""
        return await cls.running(_GUARD, str(pid))

    @classmethod
    async def running(cls, script: str, subject: str) -> "ProcessGuard":
        """Run the script, with the subject as "$1", when our end of its stdin closes."""
        shell = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            script,
            "guard",
            subject,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        return cls(shell)

    async def release(self) -> None:
        """End the guard: the process id may be reused soon. Idempotent."""
        with suppress(ProcessLookupError):
            self._shell.kill()
        await self._shell.wait()


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, path.read_text().split())
    return found


def _started(pid: int) -> str | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _without_proc(pid)
    return None if fields[0] in "ZX" else fields[19]


def _without_proc(pid: int) -> str | None:
    """Return a constant start time for a running process."""
    try:
        os.kill(pid, 0)
    except OSError:
        return None
    return "?"
