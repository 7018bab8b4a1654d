"""One connection of a replica to its coordinator: hear, apply, catch up, acknowledge, until it ends."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from lorogo_log import limits
from lorogo_log.errors import StaleEpochError
from lorogo_log.replication.replica_catchup import Round, catch_up_round
from lorogo_log.replication.replica_fetch import Fetcher
from lorogo_log.replication.replica_rules import Apply, CatchUp, Piece, ReplicaBehind, unpack_pieces
from lorogo_log.replication.replica_store import ReplicaStore
from lorogo_log.transfer import wire
from lorogo_log.transfer.wire import HeadMessage, PeerError, RefusedMessage, ReplicaAck, Welcome, WireKind
from lorogo_log.transfer.wire_socket import Address
from lorogo_log.transfer.wire_stream import MessageStream

#: Frames that wait for the replica's own disk; above it the connection is not read.
APPLY_BYTES = 16 << 20
_STREAM = frozenset({WireKind.FRAMES, WireKind.HEAD, WireKind.REFUSED})
_IDLE_ROUNDS = 8
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What a session is told by its replica."""

    timeout: float
    silence_seconds: float
    parallel: int
    buffer_bytes: int | None
    audit_seconds: float
    secret: bytes | None


class SessionOwner(Protocol):
    """What a session needs of its replica."""

    sources: tuple[Address, ...]

    @property
    def store(self) -> ReplicaStore: ...
    @property
    def options(self) -> SessionOptions: ...
    def notify(self) -> None: ...
    def count(self, *, streamed: int = 0, rounds: int = 0, aside: int = 0) -> None: ...
    async def on_disk(self, work: Callable[[], _T]) -> _T: ...


class ReplicaSession:
    """One connection to a coordinator, from WELCOME to its end."""

    def __init__(
        self, replica: SessionOwner, stream: MessageStream, address: Address, welcome: Welcome
    ) -> None:
        options = replica.options
        self._silence = options.silence_seconds
        self._audit_seconds = options.audit_seconds
        bound = options.buffer_bytes or min(welcome.segment_bytes, limits.SEGMENT_BYTES)
        self._loop = asyncio.get_running_loop()
        self._replica = replica
        self._store = replica.store
        self._stream = stream
        self._address = address
        self.rules = CatchUp(self._store.head.end_offset, bound)
        self.rules.head(welcome.end_offset)
        self.fetcher = Fetcher(
            lambda: (address, *replica.sources),
            log_id=lambda: welcome.log_id,
            timeout=options.timeout,
            parallel=options.parallel,
            secret=options.secret,
            partition=welcome.partition,
        )
        #: our log is known to be a beginning of the coordinator's
        self.proven = False
        #: there is a hole behind this sequence, which cannot be filled now: nothing above it is acknowledged
        self.covered: int | None = None
        #: why there is one
        self.waiting = ""
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

    @property
    def caught_up(self) -> bool:
        """Frames are taken as they come, and everything before them is held."""
        whole = self.covered is None and self._store.sound_to() is None
        return self.proven and not self.rules.behind and whole

    @property
    def held(self) -> int:
        """The last sequence that is acknowledged, or would be."""
        return self._ack().sequence

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hear())
            group.create_task(self._apply())
            group.create_task(self._catch_up())
            group.create_task(self._audit())

    async def _hear(self) -> None:
        while True:
            header, body = await self._stream.receive(self._silence, _STREAM)
            if header.kind is WireKind.FRAMES:
                self._replica.count(streamed=len(body))
                self._take(unpack_pieces(body))
                while self._queue_bytes > APPLY_BYTES:
                    self._room.clear()
                    async with asyncio.timeout(limits.CLOSE_SECONDS):
                        await self._room.wait()
                continue
            match wire.unpack(header, body):
                case HeadMessage(_, end_offset, epoch):
                    self._check_epoch(epoch)
                    if self.rules.head(end_offset):
                        self._behind.set()
                    # also while the disk is busy: the coordinator must hear that this side lives
                    await self._stream.send(wire.message(self._ack()), self._silence)
                    self._replica.notify()  # a repair may have ended
                case RefusedMessage() as refused:
                    raise refused.error

    def _take(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            match self.rules.frame(piece):
                case Apply():
                    self._put(piece)
                case ReplicaBehind():
                    self._behind.set()

    def _check_epoch(self, epoch: int) -> None:
        if epoch < self._epoch:
            raise StaleEpochError(f"the coordinator went back from epoch {self._epoch} to {epoch}")
        if epoch > wire.EPOCH_MAX:
            raise PeerError(f"epoch {epoch} is above every bound")
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

    def _ack(self) -> ReplicaAck:
        """What was synced when the last piece of work was done; nothing before it is proven.

        Never above a hole or a known damage: everything up to the sequence can be read here.
        """
        sequence, end_offset = self._synced if self.proven else (0, 0)
        sound = [limit for limit in (self.covered, self._store.sound_to()) if limit is not None]
        if sound and min(sound) < sequence:
            sequence, end_offset = min(sound), 0
        return ReplicaAck(
            sequence,
            end_offset,
            self._store.epoch,
            self.proven and not self.rules.behind and not sound,
            bool(sound) or bool(self.waiting),
        )

    async def _audit(self) -> None:
        """Look now and then whether what was here still is, and whether a hole can be filled by now."""
        while True:
            await asyncio.sleep(self._audit_seconds)
            vanished = await asyncio.to_thread(self._store.vanished)
            if vanished:  # nothing is acknowledged before it is known what is left
                self.covered = 0
                self._answer = True
                self._work.set()
            if self.covered is not None:
                self.rules.lost()
                self._behind.set()

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
                self.covered, self.waiting = done.covered, done.trouble
                self._replica.count(rounds=1, aside=done.round is Round.ASIDE)
                at = self._store.head.end_offset
                proven = done.round not in {Round.ASIDE, Round.AGAIN}
                if proven and (ready := self.rules.fetched(at)) is not None:
                    for piece in ready:
                        self._put(piece)
                self._progressed((self._store.core.writer.durable, at), proven)
                if done.round is Round.BLOCKED and self.rules.behind:
                    await asyncio.sleep(min(1.0, self._audit_seconds))
                    continue
                idle = 0 if at != before or done.round is Round.ASIDE else idle + 1
                if idle and self.rules.behind:
                    if idle > _IDLE_ROUNDS:
                        raise PeerError("the coordinator has not what is missing here")
                    await self._pause(0.01 * 2**idle)

    async def _pause(self, seconds: float) -> None:
        """Wait before the next round; less if more comes meanwhile."""
        self._behind.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
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
