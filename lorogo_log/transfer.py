"""Segments between processes: a server that sends them with `sendfile`, and a client that fetches them.

```python
with SegmentServer(core, log_id) as server:            # coordinator and replicas alike
    ...
with SegmentClient(address, timeout=10) as client:     # anywhere else
    entries = client.catalog()
    client.fetch(entries[0], at=0, write=...)          # goes on where it was after any break
    client.lookup(17)
```

Threads and plain sockets: the kernel copies, and what blocks is a thread that nobody waits for. No asyncio.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

from lorogo_log import limits, wire
from lorogo_log.batch import Record
from lorogo_log.core import BlockingLog
from lorogo_log.errors import DamageError, FormatError, LogError, NotFoundError
from lorogo_log.format import SEGMENT_HEADER_BYTES, SegmentHeader, unpack_segment_header
from lorogo_log.names import segment_name
from lorogo_log.reader import Reader
from lorogo_log.replica_catalog import catalog
from lorogo_log.segment import Segment
from lorogo_log.wire import (
    Catalog,
    Data,
    Entry,
    Fetch,
    Hello,
    Kind,
    Lookup,
    PeerError,
    Purpose,
    Reason,
    Refused,
    RefusedError,
    Segments,
    Welcome,
)
from lorogo_log.wire_socket import (
    Address,
    ask,
    connect,
    expect,
    receive_body,
    receive_exactly,
    receive_header,
    receive_into,
    send,
    send_file,
)

CONNECTIONS_MAX = 64
_BUFFER_BYTES = 1 << 20

#: Takes a connection that wants to follow the log: from then on it is the taker's.
OnFollow = Callable[[socket.socket, Hello], None]


class SegmentServer:
    """Answers catalogs, fetches and lookups from one log, on a port of its own."""

    def __init__(
        self,
        core: BlockingLog,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        timeout: float = 30.0,
        connections_max: int = CONNECTIONS_MAX,
        on_follow: OnFollow | None = None,
    ) -> None:
        self._core = core
        self._timeout = timeout
        self._max = connections_max
        self._on_follow = on_follow
        # without `forward`: two damaged sides must not ask each other in a circle
        self._reader = Reader(
            core.directory, durable=lambda: core.writer.durable, on_damage=core.reader.report
        )
        self._lock = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._closing = False
        self._listener = socket.create_server((host, port))
        self.address: Address = self._listener.getsockname()[:2]
        #: bytes of segments sent so far
        self.sent_bytes = 0
        self._thread = threading.Thread(target=self._accept, name="lorogo-log-serve", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, wait_seconds: float = limits.LOCK_SECONDS) -> None:
        """End all connections and threads. Again: nothing."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
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

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                if self._closing:
                    return
                continue  # a connection that was gone before it was taken
            sock.settimeout(self._timeout)
            thread = threading.Thread(target=self._serve, args=(sock,), name="lorogo-log-peer", daemon=True)
            with self._lock:
                full = self._closing or len(self._open) >= self._max
                if not full:
                    self._open[sock] = thread
            if full:
                with suppress(OSError):
                    send(sock, Refused(Reason.BUSY, "too many connections"))
                sock.close()
            else:
                thread.start()

    def _serve(self, sock: socket.socket) -> None:
        kept = False
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            kept = self._converse(sock)
        except (OSError, PeerError, struct.error):
            pass  # the peer is gone or broke the protocol: its connection ends, and nothing else
        except LogError as error:
            with suppress(OSError):
                send(sock, Refused(Reason.STOPPED, str(error)))
        finally:
            with self._lock:
                self._open.pop(sock, None)
            if not kept:
                sock.close()

    def _converse(self, sock: socket.socket) -> bool:
        """True if the connection was given away."""
        header = receive_header(sock)
        if header is None:
            return False
        if header.kind is not Kind.HELLO:
            raise PeerError("the first message is not HELLO")
        hello = Hello.unpack(receive_body(sock, header))
        engine = self._core.writer.engine
        if hello.log_id not in {bytes(16), engine.log_id}:
            send(sock, Refused(Reason.WRONG_LOG, "this is another log"), header.number)
            return False
        if hello.purpose is Purpose.FOLLOW:
            if self._on_follow is None:
                send(sock, Refused(Reason.BAD_REQUEST, "this one is no coordinator"), header.number)
                return False
            self._on_follow(sock, hello)
            return True
        send(sock, self.welcome(), header.number)
        while (header := receive_header(sock)) is not None:
            if header.kind not in {Kind.CATALOG, Kind.FETCH, Kind.LOOKUP}:
                raise PeerError(f"{header.kind.name} is not a request")
            request = wire.unpack(header, receive_body(sock, header))
            match request:
                case Catalog(from_offset):
                    self._segments(sock, from_offset, header.number)
                case Fetch():
                    self._send_segment(sock, request, header.number)
                case Lookup(sequence):
                    self._record(sock, sequence, header.number)
        return False

    def welcome(self) -> Welcome:
        """Whose log this is and where it stands."""
        core = self._core
        head = core.writer.engine.head
        return Welcome(
            core.writer.engine.log_id,
            core.writer.engine.partition,
            core.writer.epoch,
            head.next_sequence,
            head.end_offset,
            core.options.segment_bytes,
        )

    def _segments(self, sock: socket.socket, from_offset: int, number: int) -> None:
        entries = catalog(self._core, from_offset)
        some = tuple(entries[: wire.ENTRIES_MAX])
        send(sock, Segments(some, len(entries) > len(some)), number)

    def _send_segment(self, sock: socket.socket, request: Fetch, number: int) -> None:
        name = segment_name(request.first_sequence, request.first_time)
        try:
            segment = Segment.open(self._core.directory, name)
        except (FileNotFoundError, DamageError, FormatError) as error:
            reason = Reason.NOT_FOUND if isinstance(error, FileNotFoundError) else Reason.DAMAGED
            send(sock, Refused(reason, f"{name} cannot be sent"), number)
            return
        try:
            end = self._end(segment)
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
                        raise OSError("the file is shorter than it was")
                    sock.sendall(chunk)
                    at += len(chunk)
            self.sent_bytes += size
        finally:
            segment.close()

    def _end(self, segment: Segment) -> int:
        """How much of a file may be sent: all of a sealed one, what is durable of an open one."""
        if segment.footer is not None:
            return segment.file.size()
        durable = self._core.writer.engine.head.end_offset - segment.header.first_offset
        return min(segment.file.size(), durable + SEGMENT_HEADER_BYTES)

    def _record(self, sock: socket.socket, sequence: int, number: int) -> None:
        try:
            record = self._reader.lookup(sequence)
        except NotFoundError as error:
            send(sock, Refused(Reason.NOT_FOUND, str(error)), number)
        except DamageError as error:
            send(sock, Refused(Reason.DAMAGED, error.reason), number)
        else:
            sock.sendall(wire.pack(Kind.RECORD, wire.pack_record(record), number))


class SegmentClient:
    """One connection to a SegmentServer. For one thread at a time; `close()` from any."""

    def __init__(self, address: Address, *, timeout: float, log_id: bytes = bytes(16)) -> None:
        self._number = 0
        self._sock = connect(address, timeout)
        with ExitStack() as undo:
            undo.callback(self._sock.close)
            self.welcome = ask(self._sock, Hello(Purpose.FETCH, log_id), Welcome)
            undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; whoever waits on it gets an OSError or PeerError."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _next(self) -> int:
        self._number += 1
        return self._number

    def catalog(self, from_offset: int = 0) -> list[Entry]:
        """The other side's segments that end behind an offset."""
        result: list[Entry] = []
        while True:
            some = ask(self._sock, Catalog(from_offset), Segments, self._next())
            if some.more and (not some.entries or some.entries[-1].end_offset <= from_offset):
                raise PeerError("a catalog that does not go on")
            result += some.entries
            if not some.more:
                return result
            from_offset = some.entries[-1].end_offset

    def fetch(self, entry: Entry, *, at: int, size: int, write: Callable[[memoryview, int], None]) -> int:
        """Bytes of a segment's file from `at` on, written piece by piece as they come; how many came."""
        request = Fetch(entry.first_sequence, entry.first_time, at, size)
        data = ask(self._sock, request, Data, self._next())
        if data.position != at or data.size > size:
            raise PeerError("other bytes than were asked for")
        buffer = memoryview(bytearray(min(_BUFFER_BYTES, max(1, data.size))))
        done = 0
        while done < data.size:
            view = buffer[: min(len(buffer), data.size - done)]
            receive_into(self._sock, view)
            write(view, at + done)
            done += len(view)
        return done

    def read(self, entry: Entry, *, at: int, size: int) -> bytes:
        """Bytes of a segment's file, in memory."""
        request = Fetch(entry.first_sequence, entry.first_time, at, size)
        data = ask(self._sock, request, Data, self._next())
        if data.position != at or data.size > size:
            raise PeerError("other bytes than were asked for")
        return bytes(receive_exactly(self._sock, data.size))

    def segment_header(self, entry: Entry) -> SegmentHeader:
        """The header of a segment there."""
        try:
            return unpack_segment_header(self.read(entry, at=0, size=SEGMENT_HEADER_BYTES))
        except ValueError as error:
            raise PeerError(str(error)) from None

    def lookup(self, sequence: int) -> Record | None:
        """One record of the other side, verified there; None if it has none."""
        number = self._next()
        send(self._sock, Lookup(sequence), number)
        try:
            _, body = expect(self._sock, number, Kind.RECORD)
        except RefusedError as refused:
            if refused.reason is Reason.NOT_FOUND:
                return None
            raise
        record = wire.unpack_record(body)
        if record.sequence != sequence:
            raise PeerError("another record than was asked for")
        return record
