"""Updates of others, read by another process first: what ends that one must not end the server.

A forged update can make Loro ask for more memory than there is, and then Rust ends the process: no panic,
nothing to catch (docs/decisions/0004). The message stays in the WAL, so whoever takes the document next would
end, too. The taster is a small process that decodes each update before the server does, about 25 us for a
small one. If an update ends it, that update is refused for good and another taster is started. If it does not
answer in time, or ends for another reason, nobody knows anything about the update, and it is taken as it
would be without a taster.

It reads `length (4) | update` from its standard input and answers with one byte; the end of input is the end.
"""

import os
import resource
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from lorogo_protocol import crdt
from lorogo_protocol.errors import CrdtError, InvalidUpdate
from lorogo_transport.logs import get_logger
from lorogo_transport.secret_files import without_secrets

log = get_logger(__name__)

#: Raises InvalidUpdate for what must not be imported.
Taste = Callable[[bytes], None]

_SECONDS = 2.0  # for one update: a lease is longer
_START_SECONDS = 10.0
_LENGTH = struct.Struct("<I")
_DONE = b"."
#: how a process ends that native code ended; others (killed, for want of memory or by a person) say nothing
_POISONED = frozenset({-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL})


def untasted(_: bytes) -> None:
    """For a server without a taster: every update is let through."""


class _Gone(Exception):
    """The process ended."""


class Taster:
    """The server's end: starts the process, and asks it. The server waits for the answer, for 2 s at most."""

    def __init__(self, *, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, if it does not run, and wait until it can answer."""
        if self._process is not None:
            return
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from lorogo_server.tasting import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # where Rust tells of its panics, a page each
            start_new_session=True,  # Ctrl-C is for the server; the end of input is for us
            env=without_secrets(os.environ),
        )
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        with suppress(_Gone, TimeoutError):  # one that does not start is noticed when it is asked
            self._hear(time.monotonic() + _START_SECONDS)

    def taste(self, update: bytes) -> None:
        """Raises InvalidUpdate if decoding the update ends a process."""
        self.start()
        deadline = time.monotonic() + self._seconds
        try:
            self._tell(_LENGTH.pack(len(update)) + update, deadline)
            self._hear(deadline)
        except TimeoutError:
            log.warning("the taster did not answer in time, starting another", bytes=len(update))
            self._end()
        except _Gone:
            code = self._end()
            log.warning("the taster ended, starting another", code=code, bytes=len(update))
            if code in _POISONED:
                raise InvalidUpdate("decoding it ends the process: it was made to do harm") from None

    def stop(self) -> None:
        """End the process."""
        self._end()

    def _tell(self, data: bytes, deadline: float) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        fd, view = self._process.stdin.fileno(), memoryview(data)
        while view:
            try:
                view = view[os.write(fd, view) :]
            except BlockingIOError:
                _wait(fd, select.POLLOUT, deadline)
            except BrokenPipeError:
                raise _Gone from None

    def _hear(self, deadline: float) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while True:
            _wait(fd, select.POLLIN, deadline)
            try:
                if not os.read(fd, 1):
                    raise _Gone
            except BlockingIOError:
                continue
            return

    def _end(self) -> int | None:
        """How the process ended, or was ended now."""
        process, self._process = self._process, None
        if process is None:
            return None
        try:
            code: int | None = process.wait(0.5 if process.poll() is None and self._closed(process) else 0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        return code

    @staticmethod
    def _closed(process: subprocess.Popen[bytes]) -> bool:
        """Close its input: then it ends by itself, if it is not busy."""
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()
        return True


def _wait(fd: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(fd, event)
    left = deadline - time.monotonic()
    if left <= 0 or not poll.poll(left * 1000):
        raise TimeoutError


def main() -> None:
    """The process's door."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # ends are expected, and nobody reads their dumps
    source, answers = sys.stdin.buffer, sys.stdout.fileno()
    with suppress(BrokenPipeError):
        os.write(answers, _DONE)
        while len(head := source.read(_LENGTH.size)) == _LENGTH.size:
            (size,) = _LENGTH.unpack(head)
            update = source.read(size)
            if len(update) < size:
                return
            with suppress(CrdtError):  # the server meets it itself, and says so
                crdt.try_decoding(update)
            os.write(answers, _DONE)
