"""The replica's door: follows a coordinator, keeps the same bytes, and serves them.

```python
async with Replica("copy", coordinator=("10.0.0.1", 7400)) as replica:
    await replica.caught_up(timeout=60)
    replica.lookup(17)
    replica.stats()                                # where it stands, and what keeps it from going on
```

It connects again by itself, with backoff, whatever came from the other side. It acknowledges a record only
when it holds, on its disk, that record and every one before it that the coordinator's log still offers.
Nobody appends to it. To take over: close it, and open its directory with `Log.open(path)`: the epoch is
above everything that was promised here. `docs/LOG_REPLICATION.md`, "Taking over", says which replica may.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from lorogo_log import limits
from lorogo_log.checks import shared_secret
from lorogo_log.core import BlockingLog, LogOptions
from lorogo_log.errors import DiskFullError, LogClosedError, LogFailedError, StaleEpochError
from lorogo_log.format.batch import Record
from lorogo_log.replication.replica_check import ConflictError
from lorogo_log.replication.replica_fetch import PARALLEL
from lorogo_log.replication.replica_repair import Repairer
from lorogo_log.replication.replica_session import ReplicaSession, SessionOptions
from lorogo_log.replication.replica_store import ReplicaStore
from lorogo_log.storage.disk import Storage
from lorogo_log.transfer import wire
from lorogo_log.transfer.segment_transfer import SegmentServer
from lorogo_log.transfer.wire import Hello, Purpose, RefusedMessage, Welcome, WireRefusal
from lorogo_log.transfer.wire_socket import Address
from lorogo_log.transfer.wire_stream import MessageStream

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ReplicaStats:
    """A replica in numbers."""

    sequence: int
    end_offset: int
    epoch: int
    connected: bool
    caught_up: bool
    buffered_bytes: int
    #: how often the buffer went above its bound and was dropped
    drops: int
    rounds: int
    sessions: int
    fetched_bytes: int
    streamed_bytes: int
    aside: int
    #: why the last connection ended, or could not begin
    trouble: str | None
    #: a hole that cannot be filled now: nothing behind it is acknowledged
    waiting: str | None
    #: the epoch of the last frame here
    log_epoch: int
    #: names of what was put aside because a newer coordinator's history won
    diverged: tuple[str, ...]
    failed: str | None
    #: why nothing is taken now: it goes on by itself when its disk has room
    full: str | None = None


class LogReplica:
    """One replica of one log."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        coordinator: Address | Sequence[Address],
        *,
        name: str = "",
        host: str = "127.0.0.1",
        port: int = 0,
        storage: Storage | None = None,
        options: LogOptions | None = None,
        buffer_bytes: int | None = None,
        sources: Sequence[Address] = (),
        parallel: int = PARALLEL,
        timeout: float = 30.0,
        silence_seconds: float = 10.0,
        audit_seconds: float = 5.0,
        secret: bytes | None = None,
        server: SegmentServer | None = None,
        backoff_seconds: float = 0.05,
        backoff_seconds_max: float = 5.0,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        if len(name.encode()) > wire.NAME_BYTES_MAX:
            raise ValueError(f"a replica's name has at most {wire.NAME_BYTES_MAX} bytes")
        self._path = path
        #: other replicas that sealed segments may be fetched from, beside the coordinator
        self.sources = tuple(sources)
        self._name = name
        self._host, self._port = host, port
        self._storage = storage
        self._options = options or LogOptions()
        self._buffer_bytes = buffer_bytes
        self._parallel = parallel
        self._timeout = timeout
        self._silence = silence_seconds
        self._audit = audit_seconds
        self._secret = shared_secret(secret)
        #: a server for many logs, which its owner closes; None: one of its own
        self._shared = server
        self._backoff, self._backoff_max = backoff_seconds, backoff_seconds_max
        self._jitter = jitter
        self._addresses: tuple[Address, ...] = ()
        self.follow(coordinator)
        self._repairer = Repairer(lambda: (*self._addresses, *self.sources), timeout=timeout, secret=secret)
        self._store: ReplicaStore | None = None
        self._server: SegmentServer | None = None
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._session: ReplicaSession | None = None
        self._changed = asyncio.Event()
        self._rounds = self._sessions = self._fetched = self._streamed = self._aside = self._drops = 0
        #: why the last session ended
        self.trouble: Exception | None = None
        #: the error that stopped this replica's own log, for good
        self.failed: LogFailedError | None = None

    def follow(self, coordinator: Address | Sequence[Address]) -> None:
        """Whom to follow from the next connection on: one address, or several to try in turn."""
        self._addresses = addresses(coordinator)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as undo:
            self._disk = ThreadPoolExecutor(1, thread_name_prefix="lorogo-log-replica")
            undo.callback(self._disk.shutdown, wait=False)
            opening = asyncio.ensure_future(
                self._on_disk(
                    partial(
                        ReplicaStore,
                        self._path,
                        self._options,
                        storage=self._storage,
                        on_damage=self._repairer.damaged,
                        forward=self._repairer.forward,
                    )
                )
            )
            try:
                store = await asyncio.shield(opening)
            except asyncio.CancelledError:
                # the thread opens it all the same: what nobody wants any more must not hold the lock
                opening.add_done_callback(_close_unwanted)
                raise
            self._store = store
            undo.push_async_callback(self._on_disk, store.close)
            server = self._shared
            if server is None:
                server = SegmentServer(
                    host=self._host, port=self._port, timeout=self._timeout, secret=self._secret
                )
                undo.push_async_callback(asyncio.to_thread, server.close)
            self._server = server
            served = server.serve(store.core, node=store.state.replica_id)
            undo.push_async_callback(asyncio.to_thread, server.leave, served)
            self._repairer.start(store.core)
            undo.push_async_callback(asyncio.to_thread, self._repairer.close)
            self._task = self._loop.create_task(self._run())
            self._undo = undo.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop following and serving, seal, let others open. Again: nothing, or what a cancelled one left."""
        if self._task is None:
            return
        if self._ending is None or self._ending.cancelled():
            self._ending = self._loop.create_task(self._end(self._task))
        await asyncio.shield(self._ending)

    async def _end(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self._undo.aclose()

    async def _on_disk(self, work: Callable[[], _T]) -> _T:
        return await self._loop.run_in_executor(self._disk, work)

    # -- what is here -----------------------------------------------------------------------------

    @property
    def store(self) -> ReplicaStore:
        if self._store is None:
            raise LogClosedError("the replica is not open: use `async with`")
        return self._store

    @property
    def core(self) -> BlockingLog:
        """The log, for reading."""
        return self.store.core

    @property
    def address(self) -> Address:
        """Where this replica serves its segments."""
        assert self._server is not None
        return self._server.address

    @property
    def sequence(self) -> int:
        """The last sequence on this disk."""
        return self.core.writer.durable

    @property
    def next_epoch(self) -> int:
        """The epoch to take over with: above every one that was promised or seen here."""
        return self.store.state.next_epoch(self.store.head.epoch)

    def lookup(self, sequence: int) -> Record:
        """One record, verified."""
        return self.core.lookup(sequence)

    def stats(self) -> ReplicaStats:
        """The replica in numbers."""
        session = self._session
        return ReplicaStats(
            sequence=self.sequence,
            end_offset=self.store.head.end_offset,
            epoch=self.store.epoch,
            connected=session is not None,
            caught_up=session is not None and session.caught_up,
            buffered_bytes=session.rules.buffered_bytes if session else 0,
            drops=self._drops + (session.rules.drops if session else 0),
            rounds=self._rounds,
            sessions=self._sessions,
            fetched_bytes=self._fetched + (session.fetcher.fetched_bytes if session else 0),
            streamed_bytes=self._streamed,
            aside=self._aside,
            trouble=f"{self.trouble}" or type(self.trouble).__name__ if self.trouble else None,
            waiting=self._waiting(session),
            log_epoch=self.store.head.epoch,
            diverged=tuple(self.store.diverged),
            failed=str(self.failed) if self.failed else None,
            full=str(full) if (full := self.core.writer.full) else None,
        )

    def _waiting(self, session: ReplicaSession | None) -> str | None:
        if (sound := self.store.sound_to()) is not None:
            return f"damage here behind record {sound}: it is being repaired"
        if session is None or (session.covered is None and not session.waiting):
            return None
        return session.waiting or f"what comes after record {session.covered} is missing here"

    async def caught_up(self, timeout: float) -> None:
        """Return when frames are taken as they come, and nothing before them is missing or damaged here."""
        await self._until(lambda: self.stats().caught_up, timeout, "the replica has not caught up")

    async def has(self, sequence: int, timeout: float) -> None:
        """Return when this sequence is on this disk, and everything before it that is offered."""
        await self._until(lambda: self._held() >= sequence, timeout, f"record {sequence} has not come")

    def _held(self) -> int:
        """What is acknowledged; without a connection, what is on the disk before the first damage."""
        if self._session is not None:
            return self._session.held
        sound = self.store.sound_to()
        return self.sequence if sound is None else min(sound, self.sequence)

    async def repaired(self, timeout: float) -> bool:
        """Whether all damage reported so far was repaired within the time."""
        return await asyncio.to_thread(self._repairer.wait, timeout)

    async def _until(self, true: Callable[[], bool], timeout: float, what: str) -> None:
        try:
            async with asyncio.timeout(timeout):
                while not true():
                    if self.failed is not None:
                        raise self.failed
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"{what} after {timeout} s; last trouble: {self.trouble}") from None

    def notify(self) -> None:
        """Something changed: let those who wait look."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # -- life -------------------------------------------------------------------------------------

    async def _run(self) -> None:
        attempt = 0
        while True:
            address = self._addresses[attempt % len(self._addresses)]
            before = self.store.head.end_offset
            if self.core.writer.full is not None:
                await asyncio.sleep(limits.FULL_SECONDS)
                continue
            try:
                await self._one_session(address)
            except* LogFailedError as failed:
                self.failed = next(one for one in _leaves(failed) if isinstance(one, LogFailedError))
            except* Exception as errors:  # noqa: BLE001 - whatever comes from a peer, a replica goes on
                self.trouble = _leaves(errors)[0]
                _log.info("replica %s: %s: %s", self._name, type(self.trouble).__name__, self.trouble)
            self.notify()
            if self.failed is not None:
                return
            attempt = 0 if self.store.head.end_offset > before else attempt + 1
            pause = min(self._backoff_max, self._backoff * 2 ** min(attempt, 16))
            await asyncio.sleep(pause * (0.5 + self._jitter() / 2))

    async def _one_session(self, address: Address) -> None:
        stream = await MessageStream.connect(*address, timeout=self._timeout)
        session: ReplicaSession | None = None
        try:
            welcome = await self._greet(stream)
            session = self._session = ReplicaSession(self, stream, address, welcome)
            self._sessions += 1
            try:
                await session.run()
            except* DiskFullError as full:
                with suppress(OSError, TimeoutError):
                    await self._refuse(stream, RefusedMessage(WireRefusal.STOPPED, str(_leaves(full)[0])))
                raise
        finally:
            stream.abort()
            self._session = None
            if session is not None:
                session.fetcher.close()
                self._fetched += session.fetcher.fetched_bytes
                self._drops += session.rules.drops
                # nobody else may touch the log before the disk's thread is done
                await asyncio.shield(self._on_disk(lambda: None))

    async def _greet(self, stream: MessageStream) -> Welcome:
        store = self.store
        head = store.head
        hello = Hello(
            Purpose.FOLLOW,
            store.log_id,
            store.state.replica_id,
            store.core.writer.engine.partition,
            store.epoch,
            head.next_sequence,
            head.end_offset,
            self.address[1],
            self._name,
            store.state.incarnation if store.state.epoch == store.epoch else bytes(16),
            os.urandom(wire.NONCE_BYTES),
        )
        welcome = await stream.greet(hello, self._secret, self._silence)
        try:
            await self._on_disk(partial(store.accept, welcome))
        except (StaleEpochError, ConflictError) as refused:
            stale = isinstance(refused, StaleEpochError)
            reason = WireRefusal.STALE_EPOCH if stale else WireRefusal.CONFLICT
            await self._refuse(stream, RefusedMessage(reason, str(refused)))
            raise
        return welcome

    async def _refuse(self, stream: MessageStream, refused: RefusedMessage) -> None:
        """Send the coordinator the reason for which this replica stops."""
        await stream.send(wire.message(refused), self._silence)
        await stream.finish()

    # -- told by the session ----------------------------------------------------------------------

    def count(self, *, streamed: int = 0, rounds: int = 0, aside: int = 0) -> None:
        """Numbers for `stats()`."""
        self._streamed += streamed
        self._rounds += rounds
        self._aside += aside

    async def on_disk(self, work: Callable[[], _T]) -> _T:
        """Run on the one thread that changes this replica's log."""
        return await self._on_disk(work)

    @property
    def options(self) -> SessionOptions:
        """For the session."""
        return SessionOptions(
            self._timeout, self._silence, self._parallel, self._buffer_bytes, self._audit, self._secret
        )


def addresses(given: Address | Sequence[Address]) -> tuple[Address, ...]:
    """One address or several, checked. Raises ValueError."""
    single = isinstance(given, tuple) and len(given) == 2 and not isinstance(given[0], tuple)
    several: list[object] = [given] if single or isinstance(given, (str, bytes)) else list(given)
    if not several:
        raise ValueError("a replica needs the address of a coordinator")
    found: list[Address] = []
    for one in several:
        match one:
            case (str(host), int(port)) if host and 0 < port < 1 << 16:
                found.append((host, port))
            case _:
                raise ValueError(f"{one!r} is no address: give (host, port) with a port of 1 to 65535")
    return tuple(found)


def _close_unwanted(opening: asyncio.Future[ReplicaStore]) -> None:
    """Give back a store whose opener was cancelled, in a thread of its own: closing waits for the disk."""
    if not opening.cancelled() and opening.exception() is None:
        threading.Thread(target=opening.result().close, name="lorogo-log-close", daemon=True).start()


def _leaves(group: BaseExceptionGroup[Exception]) -> list[Exception]:
    found: list[Exception] = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            found += _leaves(error)
        else:
            found.append(error)
    return found
