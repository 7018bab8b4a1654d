"""Segments between processes: a server that sends them with `sendfile`, and a client that fetches them.

```python
with SegmentServer(core) as server:                    # coordinator and replicas alike
    ...
with SegmentClient(address, timeout=10) as client:     # anywhere else
    entries = client.catalog()
    client.fetch(entries[0], at=0, write=...)          # continues where it was after any interruption
    client.lookup(17)
```

Threads and plain sockets: the kernel copies, and a blocked call blocks only its own thread. No asyncio.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

from lorogo_log import limits
from lorogo_log.checks import shared_secret
from lorogo_log.core import BlockingLog
from lorogo_log.errors import DamageError, FormatError, LogError, NotFoundError
from lorogo_log.format.batch import Record
from lorogo_log.format.layout import SEGMENT_HEADER_BYTES, SegmentHeader, unpack_segment_header
from lorogo_log.format.names import segment_name
from lorogo_log.reader import Reader
from lorogo_log.storage.segment import Segment
from lorogo_log.transfer import wire
from lorogo_log.transfer.catalog import catalog
from lorogo_log.transfer.wire import (
    Catalog,
    Data,
    Fetch,
    Hello,
    Lookup,
    PeerError,
    Purpose,
    RefusedError,
    RefusedMessage,
    SegmentEntry,
    SegmentList,
    Welcome,
    WireKind,
    WireRefusal,
)
from lorogo_log.transfer.wire_socket import (
    PIECE_BYTES,
    Address,
    challenge_client,
    connect,
    greet,
    receive,
    receive_exactly,
    receive_into,
    receive_response,
    request_message,
    send,
    send_file,
)

_log = logging.getLogger(__name__)
CONNECTIONS_MAX = 64
#: Timeout for the HELLO of a new connection.
GREETING_SECONDS = 10.0
#: Pause after an error of accept (no file descriptors left).
ACCEPT_PAUSE_SECONDS = 1.0
_BUFFER_BYTES = PIECE_BYTES
_REQUESTS = frozenset({WireKind.CATALOG, WireKind.FETCH, WireKind.LOOKUP})

#: Takes over a connection that follows the log, and closes it.
OnFollow = Callable[[socket.socket, Hello], None]


class ServedLog:
    """One log of a server."""

    def __init__(self, core: BlockingLog, on_follow: OnFollow | None, node: bytes) -> None:
        self.core = core
        self.on_follow = on_follow
        self.node = node
        # without `forward`: two damaged sides must not query each other endlessly
        self.reader = Reader(
            core.directory, durable=lambda: core.writer.durable, on_damage=core.reader.report
        )

    def welcome(self) -> Welcome:
        """Return the WELCOME of this log: its identity, and its end."""
        core = self.core
        head = core.writer.engine.head
        return Welcome(
            core.writer.engine.log_id,
            core.writer.engine.partition,
            core.writer.epoch,
            head.next_sequence,
            head.end_offset,
            core.options.segment_bytes,
            *core.prior,
            core.incarnation,
            self.node,
        )


class SegmentServer:
    """Answers catalogs, fetches and lookups on one port, for one log or for many (by partition)."""

    def __init__(
        self,
        core: BlockingLog | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        timeout: float = 30.0,
        connections_max: int = CONNECTIONS_MAX,
        on_follow: OnFollow | None = None,
        secret: bytes | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._timeout = timeout
        self._max = connections_max
        self._secret = shared_secret(secret)
        self._random = random_bytes
        self._lock = threading.Lock()
        self._logs: dict[int, ServedLog] = {}
        self._open: dict[socket.socket, threading.Thread] = {}
        self._of: dict[socket.socket, ServedLog] = {}
        self._closing = threading.Event()
        if core is not None:
            self.serve(core, on_follow)
        self._listener = socket.create_server((host, port))
        self.address: Address = self._listener.getsockname()[:2]
        #: bytes of segments sent since the start
        self.sent_bytes = 0
        self._thread = threading.Thread(target=self._accept, name="lorogo-log-serve", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def serve(
        self, core: BlockingLog, on_follow: OnFollow | None = None, node: bytes = bytes(16)
    ) -> ServedLog:
        """Serve this log, too. One log per partition."""
        partition = core.writer.engine.partition
        with self._lock:
            if partition in self._logs:
                raise ValueError(f"partition {partition} is already served")
            served = self._logs[partition] = ServedLog(core, on_follow, node)
        return served

    def leave(self, served: ServedLog) -> None:
        """Stop serving this log, and end its connections. Idempotent."""
        with self._lock:
            self._logs = {number: one for number, one in self._logs.items() if one is not served}
            mine = {sock: self._open.get(sock) for sock, one in self._of.items() if one is served}
        for sock in mine:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in mine.values():
            if thread is not None:
                thread.join(limits.LOCK_SECONDS)

    def close(self, wait_seconds: float = limits.LOCK_SECONDS) -> None:
        """End all connections and threads. Idempotent."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
            connections = dict(self._open)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in connections:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(wait_seconds)
        for thread in connections.values():
            thread.join(wait_seconds)

    def welcome(self, partition: int = 0) -> Welcome:
        """Return the WELCOME of a partition."""
        return self._logs[partition].welcome()

    def _accept(self) -> None:
        pause = 0.0
        while not self._closing.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                # the connection ended before accept; or no file descriptors are left, which may last
                pause = min(ACCEPT_PAUSE_SECONDS, pause * 2 + 0.01)
                self._closing.wait(pause)
                continue
            pause = 0.0
            sock.settimeout(self._timeout)
            thread = threading.Thread(target=self._serve, args=(sock,), name="lorogo-log-peer", daemon=True)
            with self._lock:
                full = self._closing.is_set() or len(self._open) >= self._max
                if not full:
                    self._open[sock] = thread
            if full:
                with suppress(OSError):
                    sock.settimeout(ACCEPT_PAUSE_SECONDS)
                    send(sock, RefusedMessage(WireRefusal.BUSY, "too many connections"))
                sock.close()
            else:
                thread.start()

    def _serve(self, sock: socket.socket) -> None:
        kept = False
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            kept = self._answer_requests(sock)
        except (OSError, PeerError, struct.error):
            pass  # the peer left or broke the protocol: only its connection ends
        except LogError as error:
            with suppress(OSError):
                send(sock, RefusedMessage(WireRefusal.STOPPED, str(error)))
        except Exception:  # noqa: BLE001 - on any input, only the connection ends
            _log.exception("a connection ended")
        finally:
            with self._lock:
                self._open.pop(sock, None)
                self._of.pop(sock, None)
            if not kept:
                sock.close()

    def _requested_log(self, hello: Hello) -> ServedLog | None:
        """Return the requested log, by id and partition; without them, the only log."""
        with self._lock:
            served = self._logs.get(hello.partition)
            if served is None and len(self._logs) == 1 and hello.purpose is Purpose.FETCH:
                served = next(iter(self._logs.values()))
        if served is None or hello.log_id not in {bytes(16), served.core.writer.engine.log_id}:
            return None
        return served

    def _answer_requests(self, sock: socket.socket) -> bool:
        """Answer requests; return True if the connection was handed over to a follower."""
        sock.settimeout(min(self._timeout, GREETING_SECONDS))
        came = receive(sock, frozenset({WireKind.HELLO}))
        if came is None:
            return False
        header, body = came
        hello = Hello.unpack(body)
        if self._secret is not None and not challenge_client(
            sock, hello, self._secret, header.number, self._random(wire.NONCE_BYTES)
        ):
            return False
        sock.settimeout(self._timeout)
        served = self._requested_log(hello)
        if served is None:
            send(sock, RefusedMessage(WireRefusal.WRONG_LOG, "this is another log"), header.number)
            return False
        if hello.purpose is Purpose.FOLLOW:
            if served.on_follow is None:
                send(
                    sock,
                    RefusedMessage(WireRefusal.BAD_REQUEST, "this server is not a coordinator"),
                    header.number,
                )
                return False
            served.on_follow(sock, hello)
            return True
        with self._lock:
            self._of[sock] = served
        send(sock, served.welcome(), header.number)
        while (came := receive(sock, _REQUESTS)) is not None:
            header, body = came
            request = wire.unpack(header, body)
            match request:
                case Catalog(from_offset):
                    self._segments(served, sock, from_offset, header.number)
                case Fetch():
                    self._send_segment(served, sock, request, header.number)
                case Lookup(sequence):
                    self._record(served, sock, sequence, header.number)
        return False

    def _segments(self, served: ServedLog, sock: socket.socket, from_offset: int, number: int) -> None:
        entries = catalog(served.core, from_offset)
        some = tuple(entries[: wire.ENTRIES_MAX])
        send(sock, SegmentList(some, len(entries) > len(some)), number)

    def _send_segment(self, served: ServedLog, sock: socket.socket, request: Fetch, number: int) -> None:
        name = segment_name(request.first_sequence, request.first_time)
        try:
            segment = Segment.open(served.core.directory, name)
        except (FileNotFoundError, DamageError, FormatError) as error:
            reason = WireRefusal.NOT_FOUND if isinstance(error, FileNotFoundError) else WireRefusal.DAMAGED
            send(sock, RefusedMessage(reason, f"{name} cannot be sent"), number)
            return
        try:
            end = _sendable(served.core, segment)
            size = min(request.size, max(0, end - request.position))
            send(sock, Data(request.position, size), number)
            fileno = getattr(segment.file, "fileno", None)
            if fileno is not None:
                send_file(sock, fileno(), request.position, size)
            else:  # a storage without files
                at = request.position
                while at < request.position + size:
                    chunk = segment.file.pread(min(_BUFFER_BYTES, request.position + size - at), at)
                    if not chunk:
                        raise OSError("the file was truncated")
                    sock.sendall(chunk)  # (each chunk has the full timeout)
                    at += len(chunk)
            self.sent_bytes += size
        finally:
            segment.close()

    def _record(self, served: ServedLog, sock: socket.socket, sequence: int, number: int) -> None:
        try:
            record = served.reader.lookup(sequence)
        except NotFoundError as error:
            send(sock, RefusedMessage(WireRefusal.NOT_FOUND, str(error)), number)
        except DamageError as error:
            send(sock, RefusedMessage(WireRefusal.DAMAGED, error.reason), number)
        else:
            body = wire.pack_record(record)
            if len(body) > wire.RECORD_BYTES_MAX:
                send(sock, RefusedMessage(WireRefusal.BAD_REQUEST, "too large: fetch its segment"), number)
            else:
                sock.sendall(wire.pack(WireKind.RECORD, body, number))


def _sendable(core: BlockingLog, segment: Segment) -> int:
    """Return the number of bytes to send: all of a sealed file, the durable part of an open one."""
    if segment.footer is not None:
        return segment.file.size()
    durable = core.writer.engine.head.end_offset - segment.header.first_offset
    return max(0, min(segment.file.size(), durable + SEGMENT_HEADER_BYTES))


class SegmentClient:
    """One connection to a SegmentServer. For one thread at a time; `close()` from any."""

    def __init__(
        self,
        address: Address,
        *,
        timeout: float,
        log_id: bytes = bytes(16),
        partition: int = 0,
        secret: bytes | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._number = 0
        shared_secret(secret)
        self._sock = connect(address, timeout)
        with ExitStack() as undo:
            undo.callback(self._sock.close)
            hello = Hello(Purpose.FETCH, log_id, partition=partition, nonce=random_bytes(wire.NONCE_BYTES))
            self.welcome = greet(self._sock, hello, secret)
            if log_id not in {bytes(16), self.welcome.log_id}:
                raise PeerError("the peer serves another log than requested")
            undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; a thread that waits on it gets an OSError or PeerError."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _next(self) -> int:
        self._number += 1
        return self._number

    def catalog(self, from_offset: int = 0) -> list[SegmentEntry]:
        """Return the peer's segments that end behind an offset. Raises PeerError if they are not in order."""
        result: list[SegmentEntry] = []
        while True:
            some = request_message(self._sock, Catalog(from_offset), SegmentList, self._next())
            if some.more and (not some.entries or some.entries[-1].end_offset <= from_offset):
                raise PeerError("the catalog does not continue")
            if len(result) + len(some.entries) > wire.CATALOG_MAX:
                raise PeerError(f"the catalog has more than {wire.CATALOG_MAX} segments")
            for entry in some.entries:
                _check_entry(entry, result[-1] if result else None)
                result.append(entry)
            if not some.more:
                return result
            from_offset = some.entries[-1].end_offset

    def fetch(
        self, entry: SegmentEntry, *, at: int, size: int, write: Callable[[memoryview, int], None]
    ) -> int:
        """Fetch a segment's file from `at` on, pass each chunk to `write`; return the number of bytes."""
        request = Fetch(entry.first_sequence, entry.first_time, at, size)
        data = request_message(self._sock, request, Data, self._next())
        if data.position != at or data.size > size:
            raise PeerError("the peer sent other bytes than requested")
        buffer = memoryview(bytearray(min(_BUFFER_BYTES, max(1, data.size))))
        done = 0
        while done < data.size:
            view = buffer[: min(len(buffer), data.size - done)]
            receive_into(self._sock, view)
            write(view, at + done)
            done += len(view)
        return done

    def read(self, entry: SegmentEntry, *, at: int, size: int) -> bytes:
        """Return bytes of a segment's file."""
        request = Fetch(entry.first_sequence, entry.first_time, at, size)
        data = request_message(self._sock, request, Data, self._next())
        if data.position != at or data.size > size:
            raise PeerError("the peer sent other bytes than requested")
        return bytes(receive_exactly(self._sock, data.size))

    def segment_header(self, entry: SegmentEntry) -> SegmentHeader:
        """Return the header of a segment of the peer."""
        try:
            return unpack_segment_header(self.read(entry, at=0, size=SEGMENT_HEADER_BYTES))
        except ValueError as error:
            raise PeerError(str(error)) from None

    def lookup(self, sequence: int) -> Record | None:
        """Return one record of the peer, verified there; None if it has none."""
        number = self._next()
        send(self._sock, Lookup(sequence), number)
        try:
            _, body = receive_response(self._sock, number, WireKind.RECORD)
        except RefusedError as refused:
            if refused.reason is WireRefusal.NOT_FOUND:
                return None
            raise
        record = wire.unpack_record(body)
        if record.sequence != sequence:
            raise PeerError("the peer sent another record than requested")
        return record


def _check_entry(entry: SegmentEntry, before: SegmentEntry | None) -> None:
    """Raise PeerError unless the segment is valid and follows the previous one."""
    wrong = (
        entry.last_sequence > wire.SEQUENCE_MAX
        or entry.epoch > wire.EPOCH_MAX
        or not 0 <= entry.first_sequence <= entry.last_sequence + 1
        or entry.first_offset > entry.end_offset
        or max(entry.position, entry.size) > wire.FETCH_BYTES_MAX
    )
    if not (entry.sealed or entry.damaged):
        wrong |= entry.position != entry.end_offset - entry.first_offset + SEGMENT_HEADER_BYTES
    if entry.sealed:
        wrong |= entry.position > entry.size
    if before is not None:
        wrong |= entry.first_sequence <= max(before.first_sequence, before.last_sequence)
        wrong |= entry.end_offset < before.end_offset
    if wrong:
        raise PeerError(f"the catalog has an invalid segment: {entry.name}")
