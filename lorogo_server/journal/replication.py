"""Replicas of the journal on other servers' disks: durability `replicated` (docs/JOURNAL.md).

Every server serves its journal to other servers, and keeps replicas of some of their journals. The servers
do not negotiate: each computes the replicas from the list of running servers (`chosen`), with the same
result. A started replica is kept: a server that joins adds replicas and removes none.
"""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Generator, Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import xxhash

from lorogo_log import Coordinator, LogClosedError, LogError, LogOptions, LogReplica, SegmentServer, Storage
from lorogo_protocol.journal.records import DocumentRecord
from lorogo_server.journal.coverage import CoverageEntry
from lorogo_server.journal.disk_journal import DiskJournal, JournalStopped
from lorogo_server.settings import ServerSettings
from lorogo_transport.errors import TransportError
from lorogo_transport.ports import Bus
from lorogo_transport.rpc.discovery import FoundServer, find_servers
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_UPDATE_SECONDS_MAX = 2.0
_WAIT_SECONDS = 10.0
_LOGGED_MAX = 1000
_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104  # compared, not bound
PartitionKey = tuple[str, int]  # a server and a partition of its journal


def _why(error: OSError | LogError) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return "the port is in use; choose another in --journal-listen, or omit it with several workers"
    return str(error)


def chosen(server_id: str, others: Iterable[str], count: int) -> list[str]:
    """Return the servers that replicate a server's journal; every server computes the same result."""
    ranked = sorted(others, key=lambda other: xxhash.xxh64_intdigest(f"{server_id} {other}".encode()))
    return [other for other in ranked if other != server_id][:count]


class _Mark:
    """Replication progress of one partition: one wait on the coordinator serves all waiting ACKs."""

    def __init__(self, coordinator: Coordinator, count: int) -> None:
        self.lacking = ""  # why replication does not progress
        self._coordinator = coordinator
        self._count = count
        self._waiting: dict[asyncio.Future[None], int] = {}  # waiters with their sequences
        self._watching: asyncio.Task[None] | None = None

    async def reach(self, sequence: int) -> None:
        """Wait until enough replicas have that record and all before it. Raises LogError."""
        if sequence <= self._coordinator.replicated_through(self._count):
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[done] = sequence
        if self._watching is None or self._watching.done():
            self._watching = asyncio.ensure_future(self._watch())
        try:
            await done
        finally:
            self._waiting.pop(done, None)

    async def close(self) -> None:
        """Cancel all waits."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        self._end(LogClosedError("the journal is closed"))

    async def _watch(self) -> None:
        """Wait for the lowest sequence, then wake every waiter whose record is replicated."""
        while self._waiting:
            first = min(self._waiting.values())
            try:
                await self._coordinator.wait(first, replicas=self._count, timeout=_WAIT_SECONDS)
            except TimeoutError as error:
                if not self.lacking:
                    log.warning("ACKs wait for journal replicas", problem=str(error))
                self.lacking = str(error)
                continue
            except LogError as error:
                self._end(error)
                return
            if self.lacking:
                log.info("journal replication resumed")
                self.lacking = ""
            through = max(first, self._coordinator.replicated_through(self._count))
            for done in [done for done, sequence in self._waiting.items() if sequence <= through]:
                del self._waiting[done]
                if not done.done():
                    done.set_result(None)

    def _end(self, error: LogError) -> None:
        waiting, self._waiting = self._waiting, {}
        for done in waiting:
            if not done.done():
                done.set_exception(error)


class _Replicated:
    """Awaitable that ends when a record is on the local disk and the replicas; works only when awaited."""

    __slots__ = ("_mark", "disk")

    def __init__(self, mark: _Mark, disk: Awaitable[object]) -> None:
        self.disk = disk
        self._mark = mark

    def __await__(self) -> Generator[object, None, None]:
        return self._wait().__await__()

    async def _wait(self) -> None:
        sequence = await self.disk
        assert isinstance(sequence, int)
        await self._mark.reach(sequence)


class ReplicatedJournal:
    """A journal whose records are safe once N other servers have them as well."""

    durability = "replicated"

    def __init__(self, disk: DiskJournal, settings: ServerSettings) -> None:
        self._disk = disk
        self._count = settings.journal_replicas
        self._host, self._port = settings.journal_host, settings.journal_port
        self._advertise = settings.journal_advertise
        self._secret = settings.journal_secret.encode() or None
        self._coordinators: list[Coordinator] = []
        self._exits = AsyncExitStack()
        self._marks: list[_Mark] = []  # one for each partition
        self.address = ""

    async def open(self) -> None:
        """Serve the partitions of an open journal. Raises JournalStopped."""
        async with AsyncExitStack() as exits:
            try:
                server = await asyncio.to_thread(
                    SegmentServer, host=self._host, port=self._port, secret=self._secret
                )
                exits.push_async_callback(asyncio.to_thread, server.close)
                for partition in self._disk.logs:
                    coordinator = Coordinator(partition, server=server, secret=self._secret)
                    self._coordinators.append(await exits.enter_async_context(coordinator))
                    self._marks.append(_Mark(coordinator, self._count))
            except (OSError, LogError) as error:
                where = f"{self._host}:{self._port}"
                raise JournalStopped(f"cannot serve the journal on {where}: {_why(error)}") from error
            host = self._advertise or (socket.gethostname() if self._host in _EVERYWHERE else self._host)
            self.address = f"{host}:{server.address[1]}"
            self._exits = exits.pop_all()

    async def close(self) -> None:
        """Stop serving; call it before the journal is closed. Idempotent."""
        for mark in self._marks:
            await mark.close()
        await self._exits.aclose()
        self._coordinators.clear()

    async def put(self, document_id: str, record: DocumentRecord, time_ns: int) -> Awaitable[object]:
        done = await self._disk.put(document_id, record, time_ns)
        return _Replicated(self._marks[self._disk.partition(document_id)], done)

    def on_disk(self, done: Awaitable[object]) -> Awaitable[object]:
        return done.disk if isinstance(done, _Replicated) else done

    def all_safe(self, document_id: str) -> Awaitable[object] | None:
        number = self._disk.partition(document_id)
        end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        end.set_result(self._disk.end(number))
        return _Replicated(self._marks[number], end)

    @property
    def lacking(self) -> str:
        """Reason for which ACKs wait; empty if replication works."""
        return next((mark.lacking for mark in self._marks if mark.lacking), "")

    def covered(self, document_id: str) -> CoverageEntry:
        return self._disk.covered(document_id)

    def cover(self, document_id: str, covered: CoverageEntry) -> None:
        self._disk.cover(document_id, covered)

    def stats(self) -> Mapping[str, object]:
        replicas = {info.name for one in self._coordinators for info in one.replicas() if info.caught_up}
        return {
            **self._disk.stats(),
            "journal_replicas": sorted(replicas),
            "journal_replicas_wanted": self._count,
            "journal_lacking": self.lacking,
        }


class JournalReplicas:
    """This server's replicas of other servers' journals; `run()` maintains them."""

    def __init__(
        self,
        server_id: str,
        bus: Bus,
        folder: Path,
        settings: ServerSettings,
        *,
        storage: Storage | None = None,
    ) -> None:
        self.failure_domain = settings.journal_place  # empty: the server sets it
        self._alone = False  # all other servers are in this failure domain
        self._server_id = server_id
        self._bus = bus
        self._folder = folder
        self._settings = settings
        self._storage = storage
        self._replicas: dict[PartitionKey, LogReplica] = {}
        self._addresses: dict[PartitionKey, str] = {}
        self._logged: set[tuple[str, str]] = set()  # logged problems: server and reason

    async def run(self) -> None:
        """Find the running servers and replicate the assigned journals, until cancelled."""
        try:
            while True:
                try:
                    await self.update(await find_servers(self._bus))
                except TransportError as error:
                    log.debug("cannot find servers", problem=str(error))
                await asyncio.sleep(min(_UPDATE_SECONDS_MAX, self._settings.renew_seconds))
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop all replicas; the files stay."""
        replicas, self._replicas = list(self._replicas.values()), {}
        await asyncio.gather(*(replica.close() for replica in replicas), return_exceptions=True)

    async def update(self, found: list[FoundServer]) -> None:
        """Start the assigned replicas, and reconnect to servers with a new address."""
        members = [server for server in found if server.journal_address]
        self._warn_if_alone(members)
        for server in members:
            if server.server_id == self._server_id or _same_domain(server.journal_place, self.failure_domain):
                continue  # a replica in the same failure domain is lost with the original
            others = [
                other.server_id
                for other in members
                if not _same_domain(server.journal_place, other.journal_place)
            ]
            mine = chosen(server.server_id, others, server.journal_replicas)
            for number in range(len(server.journals)):
                key = (server.server_id, number)
                if key in self._replicas:
                    self._follow(key, server.journal_address)
                elif self._server_id in mine:
                    await self._begin(key, server.journal_address)
        self._log_problems()

    def _log_problems(self) -> None:
        """Log why a replica does not progress (a wrong secret, for example), once per server and reason."""
        for (server_id, _), why in self._problems().items():
            if (server_id, why) not in self._logged and len(self._logged) < _LOGGED_MAX:
                self._logged.add((server_id, why))
                log.warning("a server's journal is not replicated", server=server_id, problem=why)

    def _problems(self) -> dict[PartitionKey, str]:
        found = {}
        for key, replica in self._replicas.items():
            stats = replica.stats()
            if why := stats.failed or stats.full or (None if stats.connected else stats.trouble):
                found[key] = why
        return found

    def _warn_if_alone(self, members: list[FoundServer]) -> None:
        """Warn once if ACKs wait because all other servers share this failure domain."""
        others = [one.journal_place for one in members if one.server_id != self._server_id]
        alone = bool(others) and all(_same_domain(domain, self.failure_domain) for domain in others)
        if alone and not self._alone:
            log.warning(
                "no other server counts as a replica: all are in the same failure domain",
                failure_domain=self.failure_domain,
                servers=len(others),
            )
        self._alone = alone

    def _follow(self, key: PartitionKey, address: str) -> None:
        if self._addresses[key] != address:
            self._addresses[key] = address
            self._replicas[key].follow(_parsed(address))

    async def _begin(self, key: PartitionKey, address: str) -> None:
        server_id, number = key
        secret = self._settings.journal_secret.encode() or None
        try:
            replica = LogReplica(
                self._folder / server_id / f"{number:02d}",
                _parsed(address),
                name=self._server_id,
                host=self._settings.journal_host,
                options=LogOptions(partition=number, segment_bytes=self._settings.segment_bytes),
                storage=self._storage,
                secret=secret,
            )
            await replica.__aenter__()
        except (OSError, LogError, ValueError) as error:
            log.warning(
                "cannot replicate a server's journal",
                server=server_id,
                partition=number,
                problem=str(error),
            )
            return
        self._replicas[key], self._addresses[key] = replica, address
        log.info("replicating a journal", server=server_id, partition=number, address=address)

    def stats(self) -> Mapping[str, object]:
        """Return the servers whose journals are replicated here, and problems with them."""
        of = sorted({server for server, _ in self._replicas})
        troubles = {f"{server}/{number:02d}": why for (server, number), why in self._problems().items()}
        return {"copies": of, "copies_trouble": troubles}


def _same_domain(one: str, other: str) -> bool:
    """Return True if two failure domains are the same; an unknown one differs from all others."""
    return bool(one) and one == other


def _parsed(address: str) -> tuple[str, int]:
    """Split an address into host and port. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"{address!r} is not host:port")
    return host, int(port)
