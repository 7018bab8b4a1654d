"""Fetching sealed segments, several at once: into `.part` files, resumed after a break, checked whole.

Threads and blocking sockets; `close()` from any thread ends everything that waits.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

from lorogo_log.errors import DamageError, FormatError, LogClosedError, LogError
from lorogo_log.format import names
from lorogo_log.replication.replica_check import verify_part
from lorogo_log.replication.replica_rules import WantedSegment
from lorogo_log.storage.disk import Directory, File, write_all
from lorogo_log.transfer.segment_transfer import SegmentClient
from lorogo_log.transfer.wire import SegmentEntry
from lorogo_log.transfer.wire_socket import Address

PARALLEL = 4
TRIES = 5


class Parts(Protocol):
    """Where `.part` files are made."""

    @property
    def directory(self) -> Directory: ...
    def resume(self, entry: SegmentEntry, have: SegmentEntry | None) -> int: ...
    def part(self, entry: SegmentEntry) -> File: ...
    def discard(self, entry: SegmentEntry) -> None: ...


class Fetcher:
    """Fetches segments of one log from any of its sources."""

    def __init__(
        self,
        sources: Callable[[], Sequence[Address]],
        *,
        log_id: Callable[[], bytes],
        timeout: float = 30.0,
        parallel: int = PARALLEL,
        tries: int = TRIES,
        backoff_seconds: float = 0.05,
        secret: bytes | None = None,
        partition: int = 0,
    ) -> None:
        self._secret = secret
        self._partition = partition
        self._sources = sources
        self._log_id = log_id
        self._timeout = timeout
        self._parallel = parallel
        self._tries = tries
        self._backoff = backoff_seconds
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._clients: set[SegmentClient] = set()
        #: what came over the network, and how often a fetch had to go on or begin again
        self.fetched_bytes = 0
        self.resumed = 0
        self.restarted = 0

    def close(self) -> None:
        """End every fetch."""
        self._closed.set()
        with self._lock:
            clients = list(self._clients)
        for client in clients:
            client.close()

    def client(self, address: Address) -> SegmentClient:
        """A connection that `close()` ends."""
        if self._closed.is_set():
            raise LogClosedError("the replica is closed")
        client = SegmentClient(
            address,
            timeout=self._timeout,
            log_id=self._log_id(),
            partition=self._partition,
            secret=self._secret,
        )
        with self._lock:
            self._clients.add(client)
        if self._closed.is_set():
            client.close()
        return client

    def release(self, client: SegmentClient) -> None:
        """A connection is done with."""
        with self._lock:
            self._clients.discard(client)
        client.close()

    def fetch_all(
        self, parts: Parts, wanted: Sequence[WantedSegment], install: Callable[[SegmentEntry], None]
    ) -> None:
        """Fetch in parallel, install in order (so that a crash never leaves a gap)."""
        pool = ThreadPoolExecutor(self._parallel, thread_name_prefix="lorogo-log-fetch")
        waiting: deque[tuple[WantedSegment, Future[None]]] = deque()
        left = deque(wanted)
        try:
            while left or waiting:
                while left and len(waiting) <= self._parallel:
                    one = left.popleft()
                    waiting.append((one, pool.submit(self.fetch, parts, one)))
                done, future = waiting.popleft()
                future.result()  # each step of a fetch has its own deadline
                install(done.entry)
        finally:
            for _, future in waiting:
                future.cancel()
            if waiting:
                self._stop_clients()
            pool.shutdown(wait=True, cancel_futures=True)

    def _stop_clients(self) -> None:
        with self._lock:
            clients = list(self._clients)
        for client in clients:
            client.close()

    def fetch(self, parts: Parts, wanted: WantedSegment) -> None:
        """One segment into its `.part` file, checked; from one source after another."""
        error: Exception = LogError("there is no source to fetch from")
        for attempt in range(self._tries):
            sources = self._sources()
            if self._closed.is_set():
                raise LogClosedError("the replica is closed")
            try:
                if sources:
                    # spread over the sources: each segment begins with another
                    turn = wanted.entry.first_offset // max(1, wanted.entry.position)
                    self._once(parts, wanted, sources[(turn + attempt) % len(sources)])
                    return
            except (OSError, struct.error, LogError) as failed:
                error = failed
                if isinstance(failed, (DamageError, FormatError)):
                    # what came (or what was here of it) is not the segment: begin from nothing
                    parts.discard(wanted.entry)
                    wanted = WantedSegment(wanted.entry)
                    self.restarted += 1
                else:
                    self.resumed += 1
            if self._closed.wait(self._backoff * 2**attempt):
                raise LogClosedError("the replica is closed")
        raise error

    def _once(self, parts: Parts, wanted: WantedSegment, source: Address) -> None:
        entry = wanted.entry
        at = parts.resume(entry, wanted.have)
        if at < entry.size:
            file = parts.part(entry)
            client = None
            try:
                client = self.client(source)
                name = entry.name + names.PART

                def write(view: memoryview, position: int) -> None:
                    write_all(file, [view], position, name)
                    self.fetched_bytes += len(view)

                while at < entry.size:
                    came = client.fetch(entry, at=at, size=entry.size - at, write=write)
                    if not came:
                        raise FormatError(f"{entry.name} is shorter there than was said")
                    at += came
            finally:
                file.close()
                if client is not None:
                    self.release(client)
        verify_part(parts.directory, entry)


def fetch_into(directory: Directory) -> Parts:
    """Parts without a local beginning: for repair, where what is here is not trusted."""
    return _Fresh(directory)


class _Fresh:
    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    @property
    def directory(self) -> Directory:
        return self._directory

    def resume(self, entry: SegmentEntry, have: SegmentEntry | None) -> int:
        name = entry.name + names.PART
        try:
            file = self._directory.open(name)
        except FileNotFoundError:
            file = self._directory.create(name)
        try:
            size = file.size()
        finally:
            file.close()
        if size > entry.size:
            self._directory.remove(name)
            return self.resume(entry, have)
        return size

    def part(self, entry: SegmentEntry) -> File:
        return self._directory.open(entry.name + names.PART, write=True)

    def discard(self, entry: SegmentEntry) -> None:
        with suppress(FileNotFoundError):
            self._directory.remove(entry.name + names.PART)
