"""The coordinator's door: streams what is durable to its replicas, and waits until enough of them have it.

```python
async with Log.open(path) as log, Coordinator(log, port=7400) as coordinator:
    sequence = await log.append(value)
    await coordinator.wait(sequence, replicas=2, timeout=5.0)          # on the disks of two replicas
    coordinator.stats()
```

Replicas connect to it (`lorogo_log.replication.replica.Replica`). Each has a queue bounded in bytes: one
that is slow loses its queue, learns from HEAD that it is behind, and fetches. It slows nobody.

Many partitions on one port: `server = SegmentServer(port=7400)`, and `server=server` for each coordinator
and replica of the process. With `secret=...` on all sides, who does not know it gets nothing.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from lorogo_log import limits
from lorogo_log.checks import seconds, shared_secret, whole
from lorogo_log.errors import LogClosedError, LogError, StaleEpochError
from lorogo_log.format import names
from lorogo_log.log import Log
from lorogo_log.replication.replica_follower import ConnectedReplica, ReplicaInfo
from lorogo_log.replication.replica_repair import Repairer
from lorogo_log.replication.replica_rules import Piece
from lorogo_log.replication.replica_tail import Tail, TailLost
from lorogo_log.replication.replica_waiters import Waiters
from lorogo_log.storage.replica_state import ensure_state, save_state
from lorogo_log.transfer import wire
from lorogo_log.transfer.catalog import log_end
from lorogo_log.transfer.segment_transfer import SegmentServer, ServedLog
from lorogo_log.transfer.wire import (
    HeadMessage,
    Hello,
    PeerError,
    RefusedMessage,
    ReplicaAck,
    WireKind,
    WireRefusal,
)
from lorogo_log.transfer.wire_socket import Address
from lorogo_log.transfer.wire_stream import MessageStream
from lorogo_log.write.queue import Waiting

QUEUE_BYTES = 32 << 20
HEAD_SECONDS = 1.0
SILENCE_SECONDS = 10.0
#: So long a connection may take to show that it lives when another one comes with the same id.
TWIN_SECONDS = 2.0
_TROUBLES_MAX = 64
_TWIN = b"a copy"
_OWN = b"own"  # in place of a replica's id: trouble with the log itself
_ANSWERS = frozenset({WireKind.ACK, WireKind.REFUSED})


class _Woken:
    """Sets an event of a loop after every batch of a writer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
        self._loop = loop
        self._event = event

    def wake(self, waiting: list[Waiting], first_sequence: int, error: LogError | None) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._event.set)


@dataclass(frozen=True, slots=True)
class CoordinatorStats:
    """A coordinator in numbers."""

    epoch: int
    durable_sequence: int
    replicas: tuple[ReplicaInfo, ...]
    waiters: int
    #: a newer coordinator's epoch: this one has been replaced
    fenced: int | None
    #: replicas that were refused or that refused
    refused: int
    #: what ended the last connection that ended, or why it was refused; None once that replica is back
    trouble: str | None


class Coordinator:
    """Serves one log to its replicas."""

    def __init__(
        self,
        log: Log,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        queue_bytes: int = QUEUE_BYTES,
        replicas_max: int = 16,
        timeout: float = 30.0,
        head_seconds: float = HEAD_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
        repairer: Repairer | None = None,
        secret: bytes | None = None,
        server: SegmentServer | None = None,
    ) -> None:
        self._log = log
        self._host, self._port = host, port
        self._queue_bytes = queue_bytes
        self._max = replicas_max
        self._timeout = timeout
        self._head_seconds = head_seconds
        self._silence = silence_seconds
        self._repairer = repairer
        self._followers: dict[bytes, ConnectedReplica] = {}
        self._waiters = Waiters(self._have)
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._offset = 0  # up to here frames were put into the queues
        self._secret = shared_secret(secret)
        #: a server for many logs, which its owner closes; None: one of its own
        self._shared = server
        self._server: SegmentServer | None = None
        self._served: ServedLog | None = None
        #: where the first frame of this epoch ends: who has not got it may still hold another history
        self._announced = 0
        self._refused = 0
        self._troubles: dict[bytes, str] = {}  # by replica, the latest last
        self._closed = False
        self._ending: asyncio.Task[None] | None = None
        #: a newer coordinator's epoch, if a replica told of one: this one has been replaced
        self.fenced: int | None = None

    async def __aenter__(self) -> Self:
        loop = self._loop = asyncio.get_running_loop()
        core = self._core = self._log.core
        if not core.options.sync.waits:
            raise ValueError(
                "a coordinator sends what is on its disk: open its log with Sync.group() or Sync.always()"
            )
        async with AsyncExitStack() as undo:
            node = await asyncio.to_thread(self._announce)
            self._tail = Tail(core)
            self._reading = ThreadPoolExecutor(1, thread_name_prefix="lorogo-log-tail")
            undo.callback(self._reading.shutdown, wait=False)
            undo.push_async_callback(loop.run_in_executor, self._reading, self._tail.close)
            self._woken = _Woken(loop, self._wake)
            core.writer.watch(self._woken)
            undo.callback(core.writer.unwatch, self._woken)
            server = self._shared
            if server is None:
                server = SegmentServer(
                    host=self._host, port=self._port, timeout=self._timeout, secret=self._secret
                )
                undo.push_async_callback(asyncio.to_thread, server.close)
            self._server = server
            self._served = server.serve(core, self._on_follow, node)
            undo.push_async_callback(asyncio.to_thread, server.leave, self._served)
            if self._repairer is not None:
                self._repairer.sources = self.sources
                self._repairer.start(core)
                undo.push_async_callback(asyncio.to_thread, self._repairer.close)
            self._own(self._pump())
            self._undo = undo.pop_all()
        return self

    def _announce(self) -> bytes:
        """Before anybody is welcomed: this epoch is this opening's, on the disk, as state and as a frame."""
        core = self._core
        state = ensure_state(core.directory, os.urandom)
        epoch = core.writer.epoch
        if state.epoch > epoch or (state.epoch == epoch and state.incarnation != core.incarnation):
            raise StaleEpochError(
                f"{core.directory.path}: epoch {state.epoch} was promised to another coordinator:"
                f" open the log with an epoch above it, not with {epoch}"
            )
        if epoch > wire.EPOCH_MAX:
            raise ValueError(f"a coordinator's epoch is at most {wire.EPOCH_MAX}, not {epoch}")
        mine = replace(
            state,
            epoch=epoch,
            incarnation=core.incarnation,
            node=state.replica_id,
            log_id=core.writer.engine.log_id,
        )
        if mine != state:
            save_state(core.directory, mine)
        self._announced = core.writer.announce().result(limits.CLOSE_SECONDS)
        return state.replica_id

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every connection. The log stays open. Again: nothing, or the rest of a cancelled close."""
        if self._server is None:
            return
        self._closed = True
        if self._ending is None or self._ending.cancelled():
            self._ending = self._loop.create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._waiters.refuse(LogClosedError, "the coordinator is closed")
        await self._undo.aclose()

    @property
    def address(self) -> Address:
        """Where replicas connect."""
        assert self._server is not None
        return self._server.address

    def replicas(self) -> list[ReplicaInfo]:
        """The replicas that are connected."""
        return [follower.info() for follower in list(self._followers.values())]

    def sources(self) -> list[Address]:
        """Where segments can be fetched from: the replicas that serve, those that are furthest first."""
        infos = sorted(self.replicas(), key=lambda info: -info.end_offset)
        return [info.address for info in infos if info.address is not None]

    @property
    def sent_bytes(self) -> int:
        """Bytes of segments that were sent with `sendfile`."""
        return self._server.sent_bytes if self._server else 0

    def stats(self) -> CoordinatorStats:
        """The coordinator in numbers."""
        return CoordinatorStats(
            self._core.writer.epoch,
            self._core.writer.durable,
            tuple(self.replicas()),
            len(self._waiters),
            self.fenced,
            self._refused,
            self.trouble,
        )

    async def wait(self, sequence: int, *, replicas: int = 1, timeout: float = 10.0) -> None:
        """Return when so many connected replicas have this record, and all before it, on their disks.

        Raises TimeoutError, LogClosedError, or StaleEpochError when a newer coordinator has taken over.
        """
        await self.replicated(sequence, count=replicas, timeout=timeout)

    async def replicated(self, sequence: int, *, count: int = 1, timeout: float = 10.0) -> None:
        """As `wait`."""
        sequence = whole("sequence", sequence, least=0)
        count = whole("replicas", count, least=0)
        seconds("timeout", timeout)
        self._check_fence()
        if self._closed:
            raise LogClosedError("the coordinator is closed")
        try:
            await self._waiters.wait(sequence, count, timeout)
        except TimeoutError:
            raise TimeoutError(self._lacking(sequence, count, timeout)) from None

    def replicated_through(self, count: int) -> int:
        """The last record that so many connected replicas have on their disks, with all before it; or 0."""
        followers = [
            one.ack.sequence
            for one in self._followers.values()
            if one.acked and one.ack.end_offset >= self._announced
        ]
        return sorted(followers, reverse=True)[count - 1] if 0 < count <= len(followers) else 0

    def _lacking(self, sequence: int, count: int, timeout: float) -> str:
        """Why a wait was in vain."""
        last = self._core.writer.durable
        if sequence > last:
            return f"record {sequence} is not written yet after {timeout} s: the log ends at {last}"
        connected = len(self._followers)
        text = f"{self._have(sequence)} of {count} replicas have record {sequence} after {timeout} s"
        if connected < count:
            return f"{text}: {connected} connected" + (f" ({self.trouble})" if self.trouble else "")
        return f"{text}: {connected} connected, and not that far yet"

    @property
    def trouble(self) -> str | None:
        """What ended the last connection, or why it was refused; None once that replica is back."""
        return next(reversed(self._troubles.values()), None)

    def _blame(self, who: bytes, what: str) -> None:
        self._troubles.pop(who, None)
        self._troubles[who] = what
        while len(self._troubles) > _TROUBLES_MAX:
            del self._troubles[next(iter(self._troubles))]

    def _check_fence(self) -> None:
        if self.fenced is not None:
            raise StaleEpochError(
                f"epoch {self._core.writer.epoch} is older than {self.fenced}: another coordinator took over"
            )

    def _have(self, sequence: int) -> int:
        return sum(
            one.acked and one.ack.sequence >= sequence and one.ack.end_offset >= self._announced
            for one in self._followers.values()
        )

    # -- the stream -------------------------------------------------------------------------------

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pump(self) -> None:
        """Read each new frame once and put it into every replica's queue."""
        stale = True  # nobody listened: the tail is not where the end is
        pause = 0.0
        while True:
            await self._wake.wait()
            self._wake.clear()
            more = True
            while more:
                if not self._followers:
                    stale = True
                    break
                pieces: list[Piece] = []
                skipped = True
                try:
                    if stale:
                        await self._loop.run_in_executor(self._reading, self._tail.seek_end)
                        stale = False
                    else:
                        pieces = await self._loop.run_in_executor(self._reading, self._tail.read)
                        skipped = self._tail.skipped
                    pause = 0.0
                    self._troubles.pop(_OWN, None)
                except Exception as error:  # noqa: BLE001 - only the end of the log ends its stream
                    writer = self._core.writer
                    if writer.failed is not None or writer.closed:
                        self._blame(_OWN, f"nothing is streamed any more: {error}")
                        return
                    if not isinstance(error, TailLost):
                        self._blame(_OWN, f"the end of the log cannot be read: {error}")
                    stale = True
                    pause = min(self._head_seconds, 2 * pause + 0.01)
                    await asyncio.sleep(pause)  # a file that is gone is not looked for in a circle
                self._offset = self._tail.offset
                more = bool(pieces) or skipped
                if more:
                    for follower in self._followers.values():
                        follower.put(pieces, skipped=skipped)

    def _on_follow(self, sock: socket.socket, hello: Hello) -> None:
        """Called by the server's thread."""
        try:
            self._loop.call_soon_threadsafe(self._own_follower, sock, hello)
        except RuntimeError:
            sock.close()

    def _own_follower(self, sock: socket.socket, hello: Hello) -> None:
        if self._closed:
            sock.close()
        else:
            self._own(self._follow(sock, hello))

    async def _follow(self, sock: socket.socket, hello: Hello) -> None:
        stream = await MessageStream.adopt(sock)
        try:
            await self._converse(stream, hello)
        except Exception as error:  # noqa: BLE001 - gone, or whatever it sent: its connection ends, nothing else
            self._blame(hello.replica_id, f"{hello.name or stream.peer}: {error}")
        finally:
            stream.abort()

    def _judge(self, hello: Hello) -> RefusedMessage | None:
        """Why a replica cannot follow. The server has seen that it asks for this log and this partition."""
        epoch, engine = self._core.writer.epoch, self._core.writer.engine
        if hello.replica_id == bytes(16):
            return RefusedMessage(WireRefusal.BAD_REQUEST, "a replica needs an id")
        if hello.epoch > wire.EPOCH_MAX:
            return RefusedMessage(WireRefusal.BAD_REQUEST, f"epoch {hello.epoch} is above every bound")
        if hello.epoch > epoch:
            if hello.log_id != engine.log_id:
                # one that has no log yet can have promised nothing about this one
                return RefusedMessage(
                    WireRefusal.WRONG_LOG, f"a new replica, and it says epoch {hello.epoch}"
                )
            self._fence(hello.epoch)
            return RefusedMessage(WireRefusal.STALE_EPOCH, f"epoch {epoch} is older than {hello.epoch}")
        if self.fenced is not None:
            return RefusedMessage(WireRefusal.STALE_EPOCH, f"epoch {epoch} is older than {self.fenced}")
        if hello.epoch == epoch and hello.incarnation not in {bytes(16), self._core.incarnation}:
            return RefusedMessage(
                WireRefusal.CONFLICT, f"another coordinator of epoch {epoch} was promised to"
            )
        if len(self._followers) >= self._max and hello.replica_id not in self._followers:
            return RefusedMessage(WireRefusal.BUSY, f"{self._max} replicas are connected")
        return None

    async def _refuse(self, stream: MessageStream, hello: Hello, refused: RefusedMessage) -> None:
        self._refused += 1
        # what a copy is refused for is not the trouble of the one whose id it has
        who = _TWIN if hello.replica_id in self._followers else hello.replica_id
        self._blame(who, f"{hello.name or stream.peer} was refused: {refused.text}")
        await stream.send(wire.message(refused), self._silence)
        await stream.close()

    async def _twin(self, hello: Hello) -> RefusedMessage | None:
        """Why a replica cannot follow whose id another connection has: that one answers.

        A replica that came back before its old connection was found dead does not answer there any more.
        """
        first = self._followers.get(hello.replica_id)
        if first is None:
            return None
        first.heard.clear()
        first.tell = True
        first.more.set()
        try:
            async with asyncio.timeout(min(TWIN_SECONDS, self._silence / 2)):
                await first.heard.wait()
        except TimeoutError:
            return None
        if self._followers.get(hello.replica_id) is not first:
            return None
        name = f" ({first.hello.name})" if first.hello.name else ""
        return RefusedMessage(
            WireRefusal.CONFLICT,
            f"another replica with the same id is connected from {first.stream.peer}{name}:"
            f" one directory is a copy of the other, remove {names.REPLICA_STATE} in the copy",
        )

    async def _converse(self, stream: MessageStream, hello: Hello) -> None:
        # judged again behind the wait: it may have been fenced meanwhile
        refused = self._judge(hello) or await self._twin(hello) or self._judge(hello)
        if refused is not None:
            await self._refuse(stream, hello, refused)
            return
        assert self._served is not None
        await stream.send(wire.message(self._served.welcome()), self._silence)
        follower = ConnectedReplica(stream, hello, self._queue_bytes)
        before = self._followers.get(hello.replica_id)
        if before is not None:
            before.stream.abort()  # the same replica, back before its old connection was found dead
        self._followers[hello.replica_id] = follower
        self._wake.set()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send(follower))
                group.create_task(self._hear(follower))
        except* (OSError, PeerError, struct.error) as ended:
            self._blame(hello.replica_id, f"{hello.name or stream.peer}: {ended.exceptions[0]}")
        finally:
            follower.acked = False
            if self._followers.get(hello.replica_id) is follower:
                del self._followers[hello.replica_id]
            follower.heard.set()

    async def _send(self, follower: ConnectedReplica) -> None:
        stream = follower.stream
        while True:
            # taken before the queue is emptied: what HEAD speaks of is sent (or left out) before HEAD is
            offset, tell = self._offset, follower.tell
            head = HeadMessage(self._core.writer.durable + 1, offset, self._core.writer.epoch)
            while (data := follower.take()) is not None:
                await stream.send(data, self._silence)
            if tell:
                follower.tell = False
                await stream.send(wire.message(head), self._silence)
                continue
            follower.more.clear()
            if follower.queue_bytes or follower.tell:
                continue
            try:
                async with asyncio.timeout(self._head_seconds):
                    await follower.more.wait()
            except TimeoutError:
                follower.tell = True
                self._wake.set()  # a new epoch is a frame too, and nobody waits for it

    async def _hear(self, follower: ConnectedReplica) -> None:
        while True:
            header, body = await follower.stream.receive(self._silence, _ANSWERS)
            match wire.unpack(header, body):
                case ReplicaAck() as ack:
                    await self._believe(ack)
                    if not follower.acked:
                        self._troubles.pop(follower.hello.replica_id, None)  # it is back
                        self._troubles.pop(_TWIN, None)  # or a copy has an id of its own now
                    follower.ack, follower.acked = ack, True
                    follower.heard.set()
                    self._waiters.settle()
                case RefusedMessage(reason, text):
                    self._refused += 1
                    if reason is WireRefusal.STALE_EPOCH and follower.hello.epoch > self._core.writer.epoch:
                        self._fence(follower.hello.epoch)
                    raise PeerError(f"it refuses this coordinator: {text}")

    async def _believe(self, ack: ReplicaAck) -> None:
        """Nobody has what is not on this disk. Raises PeerError."""
        writer = self._core.writer
        if ack.epoch > writer.epoch:
            raise PeerError(f"an ACK of epoch {ack.epoch}, in epoch {writer.epoch}")
        if ack.sequence > writer.durable or ack.end_offset > writer.engine.head.end_offset:
            # it may be that the writer is just about to say so itself: ask it
            now = await asyncio.to_thread(log_end, self._core)
            if ack.sequence >= now.next_sequence or ack.end_offset > now.end_offset:
                raise PeerError("an ACK of what was never written")

    def _fence(self, epoch: int) -> None:
        if epoch > self._core.writer.epoch:
            self.fenced = epoch
            self._core.writer.replace(epoch)  # what is appended here now would be nobody's
            self._waiters.refuse(StaleEpochError, "a newer coordinator has taken over")
            for follower in self._followers.values():
                follower.stream.abort()  # what comes from here is nobody's log any more
