"""`lorogo` commands in real processes that import nothing: forked from one that has imported everything.

A test process starts one such server, at its first command. Each command is a child of it with its own
arguments, environment, folder and files, and ends as any Python program does: exit code, atexit, signals.
"""

import array
import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import lorogo_cli

_REQUEST_BYTES_MAX = 1 << 20
_START_SECONDS = 120.0
_WORD = 4  # bytes of a number on a connection: the pid, later the exit code


class Process:
    """A command that was started: as much of `subprocess.Popen` as tests use."""

    def __init__(self, connection: socket.socket, arguments: Sequence[str]) -> None:
        self.args = list(arguments)
        self.returncode: int | None = None
        self._connection = connection
        self.pid = self._number()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self.returncode = self._number()
        self._connection.close()

    def _number(self) -> int:
        data = self._connection.recv(_WORD, socket.MSG_WAITALL)
        assert len(data) == _WORD, "the process that starts commands has ended"
        return int.from_bytes(data, "big", signed=True)


_server: list[tuple[subprocess.Popen[bytes], str]] = []


def start(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], files: tuple[IO[Any], IO[Any], IO[Any]]
) -> Process:
    """Start `lorogo` with these arguments; `files` are its stdin, stdout and stderr."""
    if not _server:
        _server.append(_start_server())
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(_server[0][1])
    request = json.dumps({"arguments": list(arguments), "cwd": str(cwd), "env": dict(env)}).encode()
    assert len(request) < _REQUEST_BYTES_MAX
    numbers = array.array("i", [file.fileno() for file in files])
    connection.sendmsg(
        [len(request).to_bytes(_WORD, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)]
    )
    connection.sendall(request)
    return Process(connection, arguments)


def _start_server() -> tuple[subprocess.Popen[bytes], str]:
    folder = tempfile.TemporaryDirectory(prefix="lorogo-")
    path = f"{folder.name}/commands"
    root = Path(__file__).parents[2]
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.prefork", path],
        cwd=root,
        stdin=subprocess.PIPE,  # its end is ours
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert server.stdin is not None
    assert server.stdout is not None
    atexit.register(folder.cleanup)
    atexit.register(server.wait)
    atexit.register(server.stdin.close)
    assert select.select([server.stdout], [], [], _START_SECONDS)[0]
    with server.stdout as said:
        assert said.readline() == b"ready\n"
    return server, path


# ------------------------------------------------------------------------------------- the server


def _import_everything() -> None:
    for module in pkgutil.walk_packages(lorogo_cli.__path__, "lorogo_cli."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    assert threading.active_count() == 1, "a process with threads cannot be forked safely"
    gc.collect()
    gc.freeze()


def _serve(path: str) -> None:
    """Fork for each request; returns only in a child, which is then the command."""
    children: dict[int, socket.socket] = {}
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    listener, selector = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), selectors.DefaultSelector()
    with listener, selector:
        listener.bind(path)
        listener.listen(64)
        for one in (0, reading, listener.fileno()):
            selector.register(one, selectors.EVENT_READ)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if 0 in ready:  # the tests are over
                os._exit(0)
            if reading in ready:
                os.read(reading, 4096)
                _report_ended(children)
            if listener.fileno() in ready:
                connection, _ = listener.accept()
                request, files = _receive(connection)
                pid = os.fork()
                if not pid:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for other in (connection, *children.values()):
                        other.close()
                    os.close(reading)
                    os.close(writing)
                    _become(request, files)
                    return
                for file in files:
                    os.close(file)
                connection.sendall(pid.to_bytes(_WORD, "big", signed=True))
                children[pid] = connection


def _report_ended(children: dict[int, socket.socket]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with children.pop(pid) as connection:
            try:
                code = os.waitstatus_to_exitcode(status)
                connection.sendall(code.to_bytes(_WORD, "big", signed=True))
            except BrokenPipeError:
                pass  # the test does not wait for it


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    numbers = array.array("i")
    head, ancillary, _, _ = connection.recvmsg(
        _WORD, socket.CMSG_SPACE(3 * numbers.itemsize), socket.MSG_WAITALL
    )
    numbers.frombytes(ancillary[0][2])
    data = connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
    return json.loads(data), list(numbers)


def _become(request: dict[str, Any], files: list[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = [str(Path(__file__).parents[2] / "lorogo_cli" / "__main__.py"), *request["arguments"]]


if __name__ == "__main__":
    _import_everything()
    _serve(sys.argv[1])
    lorogo_cli.main()
