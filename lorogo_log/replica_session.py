"""One connection of a replica to its coordinator: hear, apply, catch up, acknowledge, until it ends."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from lorogo_log import limits, wire
from lorogo_log.errors import StaleEpochError
from lorogo_log.replica_catchup import Round, catch_up_round
from lorogo_log.replica_fetch import Fetcher
from lorogo_log.replica_rules import Apply, Behind, CatchUp, Piece, unpack_pieces
from lorogo_log.replica_store import ReplicaStore
from lorogo_log.wire import Ack, Head, Kind, PeerError, Refused, Welcome
from lorogo_log.wire_socket import Address
from lorogo_log.wire_stream import Stream

#: Frames that wait for the replica's own disk; above it the connection is not read.
APPLY_BYTES = 16 << 20
_STREAM = frozenset({Kind.FRAMES, Kind.HEAD, Kind.REFUSED})
_IDLE_ROUNDS = 8
_T = TypeVar("_T")


class Owner(Protocol):
    """What a session needs of its replica."""

    sources: tuple[Address, ...]

    @property
    def store(self) -> ReplicaStore: ...
    @property
    def options(self) -> tuple[float, float, int]: ...
    def notify(self) -> None: ...
    def count(self, *, streamed: int = 0, rounds: int = 0, aside: int = 0) -> None: ...
    async def on_disk(self, work: Callable[[], _T]) -> _T: ...


class Session:
    """One connection to a coordinator, from WELCOME to its end."""

    def __init__(
        self, replica: Owner, stream: Stream, address: Address, welcome: Welcome, buffer_bytes: int
    ) -> None:
        timeout, self._silence, parallel = replica.options
        self._loop = asyncio.get_running_loop()
        self._replica = replica
        self._store = replica.store
        self._stream = stream
        self._address = address
        self.rules = CatchUp(self._store.head.end_offset, buffer_bytes)
        self.rules.head(welcome.end_offset)
        self.fetcher = Fetcher(
            lambda: (address, *replica.sources),
            log_id=lambda: welcome.log_id,
            timeout=timeout,
            parallel=parallel,
        )
        #: our log is known to be a beginning of the coordinator's
        self.proven = False
        self._synced = (0, 0)
        self._epoch = welcome.epoch
        self._queue: deque[Piece] = deque()
        self._queue_bytes = 0
        self._answer = False
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._room = asyncio.Event()
        self._behind = asyncio.Event()
        self._behind.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hear())
            group.create_task(self._apply())
            group.create_task(self._catch_up())

    async def _hear(self) -> None:
        while True:
            header, body = await self._stream.receive(self._silence, _STREAM)
            if header.kind is Kind.FRAMES:
                self._replica.count(streamed=len(body))
                self._take(unpack_pieces(body))
                while self._queue_bytes > APPLY_BYTES:
                    self._room.clear()
                    async with asyncio.timeout(limits.CLOSE_SECONDS):
                        await self._room.wait()
                continue
            match wire.unpack(header, body):
                case Head(_, end_offset, epoch):
                    self._check_epoch(epoch)
                    if self.rules.head(end_offset):
                        self._behind.set()
                    # also while the disk is busy: the coordinator must hear that this side lives
                    await self._stream.send(wire.message(self._ack()), self._silence)
                case Refused() as refused:
                    raise refused.error

    def _take(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            match self.rules.frame(piece):
                case Apply():
                    self._put(piece)
                case Behind():
                    self._behind.set()

    def _check_epoch(self, epoch: int) -> None:
        if epoch < self._epoch:
            raise StaleEpochError(f"the coordinator went back from epoch {self._epoch} to {epoch}")
        self._epoch = epoch

    def _put(self, piece: Piece) -> None:
        self._queue.append(piece)
        self._queue_bytes += piece.size
        self._idle.clear()
        self._work.set()

    async def _apply(self) -> None:
        """All frames that wait, with one sync; then one ACK."""
        while True:
            await self._work.wait()
            self._work.clear()
            if self._queue:
                pieces = list(self._queue)
                self._queue.clear()
                self._synced = await self._replica.on_disk(partial(self._write, pieces))
                self._queue_bytes -= sum(piece.size for piece in pieces)
                self._room.set()
                self._answer = True
                if self._queue:
                    self._work.set()
                else:
                    self._idle.set()
                self._replica.notify()
            if self._answer:
                self._answer = False
                await self._stream.send(wire.message(self._ack()), self._silence)

    def _write(self, pieces: Sequence[Piece]) -> tuple[int, int]:
        """On the disk's thread: what is synced after it."""
        return self._store.apply(pieces), self._store.head.end_offset

    def _ack(self) -> Ack:
        """What was synced when the last piece of work was done; nothing before it is proven."""
        sequence, end_offset = self._synced if self.proven else (0, 0)
        return Ack(sequence, end_offset, self._store.epoch, self.proven and not self.rules.behind)

    async def _catch_up(self) -> None:
        """Whenever frames are missing: fetch, round after round, until the buffer (or the end) is reached."""
        while True:
            await self._behind.wait()
            self._behind.clear()
            idle = 0
            while self.rules.behind:
                await self._idle.wait()
                before = self._store.head.end_offset
                done = await self._replica.on_disk(
                    partial(
                        catch_up_round,
                        self._store,
                        self.fetcher,
                        self._address,
                        until=lambda: self.rules.buffer_start,
                        progress=self._progress,
                    )
                )
                self._replica.count(rounds=1, aside=done is Round.ASIDE)
                at = self._store.head.end_offset
                proven = done not in {Round.ASIDE, Round.AGAIN}
                if proven and (ready := self.rules.fetched(at)) is not None:
                    for piece in ready:
                        self._put(piece)
                self._progressed((self._store.core.writer.durable, at), proven)
                idle = 0 if at != before or done is Round.ASIDE else idle + 1
                if idle and self.rules.behind:
                    if idle > _IDLE_ROUNDS:
                        raise PeerError("the coordinator has not what is missing here")
                    with suppress(TimeoutError):  # more may come meanwhile
                        async with asyncio.timeout(0.01 * 2**idle):
                            await self._behind.wait()

    def _progress(self) -> None:
        """Called by the disk's thread when something fetched is in its place."""
        synced = (self._store.core.writer.durable, self._store.head.end_offset)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._progressed, synced)

    def _progressed(self, synced: tuple[int, int], proven: bool = True) -> None:
        self._synced = synced
        self.proven |= proven  # the segments were compared before anything was fetched
        self._answer = True
        self._work.set()
        self._replica.notify()
