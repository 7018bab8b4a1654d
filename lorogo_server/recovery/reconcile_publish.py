"""Publishes lost updates of one document into the WAL, many small ones as one message.

A message costs its publisher, NATS and every load far more than a keystroke does. So consecutive updates
that the scratch copy accepted are published as one update with all their operations, under an id of its own.
A sender that repeats one of them is answered by its operations (`Replica.apply`). An update is published
alone, under its own id, if it is large, if it was early, if the scratch copy is broken, or if a merged one
was refused before.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from typing import Self

from lorogo_protocol.journal.records import UpdateRecord
from lorogo_protocol.loro.crdt import Replica
from lorogo_protocol.messages import chunks, subjects
from lorogo_protocol.messages.digest import digest
from lorogo_server.context import ServerContext
from lorogo_transport.ports import Stream

_PUBLISH_TRIES = 2
_FLIGHT_MESSAGES = 256  # unconfirmed: edits of clients wait behind no more
_FLIGHT_BYTES = 4 * 1024 * 1024
# Of a merged update: far below the limits of a new update (limits.py), since a peer has at least one
# operation, and a mark has two.
_MERGED_OPERATIONS_MAX = 1000
_MERGED_BYTES_MAX = 32 * 1024

Parts = Sequence[chunks.Chunk]  # of one update


class Publisher:
    """Publishes accepted updates of one document; `confirmed()` returns when the stream has all."""

    def __init__(self, context: ServerContext, document_id: str, chunk_bytes_max: int) -> None:
        self._context = context
        self._document_id = document_id
        self._chunk_bytes_max = chunk_bytes_max
        self._flight = PublishWindow(context.wal, subjects.wal(document_id))
        self._waiting: list[Parts] = []  # applied to the replica, not published yet
        self._operations = self._bytes = 0  # of the waiting updates
        self._replica = Replica()
        self._published = b""  # the replica's version vector before the waiting updates
        self._refused: Collection[tuple[str, str]] = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._flight.cancel()

    def begin(self, replica: Replica, refused: Collection[tuple[str, str]]) -> None:
        """Publish what this replica accepts from now on; `refused`: (log id, digest) of rejected updates."""
        assert not self._waiting, "the waiting updates are in another replica"
        self._replica, self._refused = replica, refused

    async def make_room(self, update: UpdateRecord) -> None:
        """Publish waiting updates if the next one cannot be merged with them."""
        operations = sum(end - first for _, first, end in update.spans)
        if (
            not operations
            or self._operations + operations > _MERGED_OPERATIONS_MAX
            or self._bytes + len(update.payload) > _MERGED_BYTES_MAX
        ):
            await self.publish()
        if not self._waiting:
            self._published = self._replica.version().vector
        self._operations += operations or _MERGED_OPERATIONS_MAX
        self._bytes += len(update.payload)

    def add(self, parts: Parts) -> None:
        """Publish an update with the next ones; the replica has applied it, after `make_room`."""
        self._waiting.append(parts)

    async def publish(self) -> None:
        """Publish waiting updates, as one if possible. Raises TransportError."""
        if len(self._waiting) > 1:
            content = self._replica.updates_since(self._published)
            log_id = f"merged-{digest(content)}"
            merged = list(chunks.split(content, log_id, chunk_bytes_max=self._chunk_bytes_max, again=True))
            if (log_id, merged[-1].digest) not in self._refused:
                self._waiting = [merged]
        await self.publish_each()

    async def publish_each(self) -> None:
        """Publish each waiting update under its own id. Raises TransportError."""
        waiting, self._waiting = self._waiting, []
        self._operations = self._bytes = 0
        await self._context.vouchers.give(self._document_id, [parts[-1].digest for parts in waiting])
        for parts in waiting:
            await self._send(parts)

    async def confirmed(self) -> None:
        """Publish waiting updates; return when the stream has confirmed all. Raises TransportError."""
        await self.publish()
        await self._flight.confirmed()

    async def _send(self, parts: Parts) -> None:
        """Publish all chunks; once more, if an owner may have dropped the first before it got the last."""
        flight, clock = self._flight, self._context.clock
        if len(parts) == 1:
            await flight.send(parts[0])
            return
        for _ in range(_PUBLISH_TRIES):
            await flight.confirmed()
            began = clock.now()
            for part in parts:
                await flight.send(part)
            await flight.confirmed()
            if clock.now() - began < self._context.settings.unfinished_seconds / 2:
                return


class PublishWindow:
    """Publishes chunks of one document to the WAL, in order, with a bounded number of them unconfirmed."""

    def __init__(self, wal: Stream, subject: str) -> None:
        self._wal = wal
        self._subject = subject
        self._unconfirmed: deque[tuple[asyncio.Task[int], int]] = deque()
        self._bytes = 0

    async def cancel(self) -> None:
        """Cancel every wait for a confirmation."""
        tasks = [task for task, _ in self._unconfirmed]
        self._unconfirmed.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def send(self, part: chunks.Chunk) -> None:
        """Send one chunk when there is room for it. Raises TransportError of an earlier chunk."""
        size = len(part.data)
        while self._unconfirmed and (
            len(self._unconfirmed) >= _FLIGHT_MESSAGES or self._bytes + size > _FLIGHT_BYTES
        ):
            await self._confirm_first()
        append = self._wal.append(self._subject, part.data, headers=part.headers())
        self._unconfirmed.append((asyncio.create_task(append), size))
        self._bytes += size

    async def confirmed(self) -> None:
        """Return when the stream has confirmed everything that was sent. Raises TransportError."""
        while self._unconfirmed:
            await self._confirm_first()

    async def _confirm_first(self) -> None:
        task, size = self._unconfirmed[0]
        await task
        self._unconfirmed.popleft()
        self._bytes -= size
