"""Helpers for tests of replication: small logs, equal files, servers that do wrong."""

from __future__ import annotations

import hashlib
import random
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from lorogo_log import Log, LogOptions
from lorogo_log.replication.replica import LogReplica
from lorogo_log.transfer.wire_socket import Address

SEGMENT = 64 << 10
OPTIONS = LogOptions(segment_bytes=SEGMENT)
_RNG = random.Random(4)


def items(count: int = 20, size: int = 200) -> list[tuple[bytes, bytes]]:
    return [(b"doc-%d" % (number % 5), _RNG.randbytes(size)) for number in range(count)]


async def grow(log: Log, batches: int, count: int = 20, size: int = 200) -> int:
    """Append batches; the last sequence."""
    last = 0
    for _ in range(batches):
        last = (await log.append_many(items(count, size)))[-1]
    return last


def hashes(path: Path) -> dict[str, str]:
    """Every segment's name and the hash of its file."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(path.glob("*.seg"))}


def copy_of(path: Path, coordinator: Address, **more: object) -> LogReplica:
    settings: dict[str, object] = {"options": OPTIONS, "timeout": 5.0, "backoff_seconds": 0.01} | more
    return LogReplica(path, coordinator, backoff_seconds_max=0.1, jitter=lambda: 0.0, **settings)  # type: ignore[arg-type]


class Proxy:
    """Between a replica and a coordinator: `change` sees each chunk that the coordinator sends."""

    def __init__(self, target: Address) -> None:
        self.target = target
        #: gives the chunk to pass on; None cuts the connection
        self.change: Callable[[bytes], bytes | None] = lambda chunk: chunk
        self.connections = 0
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._listener.getsockname()[:2]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(self._listener)
        self.cut()
        for thread in self._threads:
            thread.join(5)

    def cut(self) -> None:
        """End every connection."""
        for sock in list(self._open):
            self._end(sock)

    @staticmethod
    def _end(sock: socket.socket) -> None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.target, timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            self.connections += 1
            self._open += [near, far]
            for source, sink, watched in ((near, far, False), (far, near, True)):
                thread = threading.Thread(target=self._pass, args=(source, sink, watched), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass(self, source: socket.socket, sink: socket.socket, watched: bool) -> None:
        try:
            while chunk := source.recv(16 << 10):
                changed = self.change(chunk) if watched else chunk
                if changed is None:
                    break
                sink.sendall(changed)
        except OSError:
            pass
        self._end(source)
        self._end(sink)
