"""Server side of one sandbox process: exchanges one request for one reply at a time, on the event loop."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

from lorogo_server.sandbox.sandbox_worker import REPLY_BYTES_MAX
from lorogo_transport.secret_files import without_secrets

_START_SECONDS = 10.0
_COMMAND = "from lorogo_server.sandbox.sandbox_worker import main; main()"


class SandboxProcess:
    """One parent with its worker, and the pipes to both."""

    def __init__(self) -> None:
        """Start the parent. Raises OSError."""
        self.popen = subprocess.Popen(
            [sys.executable, "-c", _COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the server; parent and worker are killed as one group
            env={**without_secrets(os.environ), "RUST_BACKTRACE": "0"},  # backtraces are long and unused
        )
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self._in, self._out = self.popen.stdin, self.popen.stdout
        for pipe in (self._in, self._out):
            os.set_blocking(pipe.fileno(), False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._out.fileno(), self._on_readable)
        self._is_ready = False
        self._on_reply: Callable[[bytes | None], None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._unsent = memoryview(b"")

    def send(self, request: bytes, seconds: float, on_reply: Callable[[bytes | None], None]) -> None:
        """Send a request, and call `on_reply` once with the reply.

        The reply is empty if the process ended, and None if the time is up. No other request is under way.
        """
        assert self._on_reply is None
        self._on_reply = on_reply
        seconds = seconds if self._is_ready else max(seconds, _START_SECONDS)
        self._deadline = self._loop.call_later(seconds, self._reply, None)
        self._unsent = memoryview(request)
        self._write()

    def end(self) -> int:
        """Kill both processes and return the parent's exit code. A request under way gets no reply."""
        self._on_reply = None
        self._forget_deadline()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._out.fileno())  # before the descriptor is closed and used again
            self._loop.remove_writer(self._in.fileno())
        self._unsent = memoryview(b"")
        with suppress(ProcessLookupError, PermissionError):  # the worker may still run
            os.killpg(self.popen.pid, signal.SIGKILL)
        for pipe in (self._in, self._out):
            pipe.close()
        return self.popen.wait()

    def _write(self) -> None:
        fd = self._in.fileno()
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(fd, self._unsent) :]
        except BlockingIOError:
            self._loop.add_writer(fd, self._write)
            return
        except BrokenPipeError:
            self._unsent = memoryview(b"")
            self._loop.call_soon(self._reply, b"")
        self._loop.remove_writer(fd)

    def _on_readable(self) -> None:
        try:
            data = os.read(self._out.fileno(), REPLY_BYTES_MAX if self._is_ready else 1)
        except BlockingIOError:
            return
        if data and not self._is_ready:
            self._is_ready = True
            return
        if not data:
            self._loop.remove_reader(self._out.fileno())
        self._reply(data)

    def _reply(self, reply: bytes | None) -> None:
        self._forget_deadline()
        on_reply, self._on_reply = self._on_reply, None
        if on_reply is not None:
            on_reply(reply)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
