"""A connected replica, as its coordinator keeps it: a bounded queue, and what it has acknowledged."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from lorogo_log.replication.replica_rules import Piece
from lorogo_log.transfer import wire
from lorogo_log.transfer.wire import Hello, ReplicaAck, WireKind
from lorogo_log.transfer.wire_socket import Address
from lorogo_log.transfer.wire_stream import MessageStream

#: Small frames travel together up to this.
_MESSAGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A connected replica, as the coordinator sees it."""

    name: str
    replica_id: bytes
    #: where it serves segments; None: nowhere
    address: Address | None
    sequence: int
    end_offset: int
    caught_up: bool
    queue_bytes: int
    dropped_bytes: int
    #: it has a hole that it cannot fill now, and acknowledges nothing behind it
    waiting: bool = False


class ConnectedReplica:
    """One replica's connection: its bounded queue and what it has acknowledged."""

    def __init__(self, stream: MessageStream, hello: Hello, queue_bytes: int) -> None:
        self.stream = stream
        self.hello = hello
        self.ack = ReplicaAck(0, 0, 0, caught_up=False)
        self.acked = False
        self.heard = asyncio.Event()  # an ACK came, or the connection has ended
        self._queue: deque[Piece] = deque()
        self._max = queue_bytes
        self.queue_bytes = 0
        self.dropped_bytes = 0
        self.more = asyncio.Event()
        self.tell = True  # HEAD must be sent: first of all, and behind what was left out

    def put(self, pieces: Sequence[Piece], *, skipped: bool) -> None:
        """Send these next. What has no room is left out, and HEAD tells of it, as of what was `skipped`."""
        size = sum(piece.size for piece in pieces)
        if self.queue_bytes + size > self._max:
            self.dropped_bytes += self.queue_bytes
            self._queue.clear()
            self.queue_bytes = 0
            skipped = True
        if size <= self._max:
            self._queue.extend(pieces)
            self.queue_bytes += size
        else:
            self.dropped_bytes += size
        if skipped:
            self.tell = True
        self.more.set()

    def take(self) -> bytes | None:
        """The next FRAMES message; None if nothing waits."""
        parts: list[bytes | bytearray | memoryview] = []
        size = 0
        while self._queue and (not parts or size + self._queue[0].size <= _MESSAGE_BYTES):
            piece = self._queue.popleft()
            self.queue_bytes -= piece.size
            if piece.segment is not None:
                parts.append(piece.segment.pack())
            parts.append(piece.raw)
            size += piece.size
        return wire.pack(WireKind.FRAMES, b"".join(parts)) if parts else None

    def info(self) -> ReplicaInfo:
        port = self.hello.port
        return ReplicaInfo(
            self.hello.name,
            self.hello.replica_id,
            (self.stream.peer, port) if port else None,
            self.ack.sequence,
            self.ack.end_offset,
            self.ack.caught_up,
            self.queue_bytes,
            self.dropped_bytes,
            self.ack.waiting,
        )
