"""Journals on other servers' disks: durability `replicated` (docs/JOURNAL.md).

Every server of the fleet serves its journal to others, and keeps copies of some of theirs. Who copies
whom is not agreed upon: each server works it out from who is there now (`chosen`), and all come to the
same answer. A copy once begun is kept: a server that joins adds copies, it takes none away.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import xxhash

from lorogo_log import Coordinator, LogClosedError, LogError, LogOptions, LogReplica, SegmentServer, Storage
from lorogo_protocol.records import DocumentRecord
from lorogo_server.journal.coverage import CoverageEntry
from lorogo_server.journal.disk_journal import DiskJournal, JournalStopped
from lorogo_server.settings import ServerSettings
from lorogo_transport.errors import TransportError
from lorogo_transport.ports import Bus
from lorogo_transport.rpc.discovery import FoundServer, find_servers
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_LOOK_SECONDS_MAX = 2.0
_WAIT_SECONDS = 10.0
_TOLD_MAX = 1000
_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104  # compared, not bound
Place = tuple[str, int]  # a server and a partition of its journal


def chosen(server_id: str, others: Iterable[str], count: int) -> list[str]:
    """Which of the others keep a copy of that server's journal; every server finds the same."""
    ranked = sorted(others, key=lambda other: xxhash.xxh64_intdigest(f"{server_id} {other}".encode()))
    return [other for other in ranked if other != server_id][:count]


class _Mark:
    """How far one partition is on other disks: one wait for all who ask, however many updates there are."""

    def __init__(self, coordinator: Coordinator, count: int) -> None:
        self.lacking = ""  # why it goes no further
        self._coordinator = coordinator
        self._count = count
        self._waiting: dict[asyncio.Future[None], int] = {}  # those who wait now, with their sequences
        self._watching: asyncio.Task[None] | None = None

    async def reach(self, sequence: int) -> None:
        """Return when enough others have that record and all before it. Raises LogError."""
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
        """Let nobody wait any longer."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        self._end(LogClosedError("the journal is closed"))

    async def _watch(self) -> None:
        """Wait for the first of those who wait, and wake all who need not wait any more."""
        while self._waiting:
            first = min(self._waiting.values())
            try:
                await self._coordinator.wait(first, replicas=self._count, timeout=_WAIT_SECONDS)
            except TimeoutError as error:
                if not self.lacking:
                    log.warning("ACKs wait for replicas of the journal", problem=str(error))
                self.lacking = str(error)
                continue
            except LogError as error:
                self._end(error)
                return
            if self.lacking:
                log.info("the journal is replicated again")
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
    """Done when a record is on our disk and on others'; costs nothing while nobody waits for it."""

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
    """A journal whose records are safe when N other servers have them, too."""

    durability = "replicated"

    def __init__(self, disk: DiskJournal, settings: ServerSettings) -> None:
        self._disk = disk
        self._count = settings.journal_replicas
        self._host, self._port = settings.journal_host, settings.journal_port
        self._advertise = settings.journal_advertise
        self._secret = settings.journal_secret.encode() or None
        self._coordinators: list[Coordinator] = []
        self._exits = AsyncExitStack()
        self._marks: list[_Mark] = []  # of each partition
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
                raise JournalStopped(f"the journal cannot be served on {where}: {error}") from error
            host = self._advertise or (socket.gethostname() if self._host in _EVERYWHERE else self._host)
            self.address = f"{host}:{server.address[1]}"
            self._exits = exits.pop_all()

    async def close(self) -> None:
        """Serve it no more; before the journal itself is closed. Safe twice."""
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
        """Why ACKs wait."""
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
    """This server's copies of other servers' journals; `run()` keeps them going."""

    def __init__(
        self,
        server_id: str,
        bus: Bus,
        folder: Path,
        settings: ServerSettings,
        *,
        storage: Storage | None = None,
        find: Callable[[Bus], Awaitable[list[FoundServer]]] = find_servers,
    ) -> None:
        self.place = settings.journal_place  # where our disk is; the server finds out, if it is not set
        self._alone = False  # the others are all at our place
        self._server_id = server_id
        self._bus = bus
        self._folder = folder
        self._settings = settings
        self._storage = storage
        self._find = find
        self._replicas: dict[Place, LogReplica] = {}
        self._addresses: dict[Place, str] = {}
        self._told: set[tuple[str, str]] = set()  # troubles, by server and reason

    async def run(self) -> None:
        """Look who is there, and copy those that are ours to copy; until cancelled."""
        try:
            while True:
                try:
                    await self.look(await self._find(self._bus))
                except TransportError as error:
                    log.debug("could not look for servers", problem=str(error))
                await asyncio.sleep(min(_LOOK_SECONDS_MAX, self._settings.renew_seconds))
        finally:
            await self.close()

    async def close(self) -> None:
        """Let go of every copy; the files stay."""
        replicas, self._replicas = list(self._replicas.values()), {}
        await asyncio.gather(*(replica.close() for replica in replicas), return_exceptions=True)

    async def look(self, found: list[FoundServer]) -> None:
        """Begin the copies that are ours, and follow servers that moved."""
        members = [server for server in found if server.journal_address]
        self._tell_if_alone(members)
        for server in members:
            if server.server_id == self._server_id or _together(server.journal_place, self.place):
                continue  # a copy beside the original is lost with it
            others = [
                other.server_id
                for other in members
                if not _together(server.journal_place, other.journal_place)
            ]
            mine = chosen(server.server_id, others, server.journal_replicas)
            for number in range(len(server.journals)):
                place = (server.server_id, number)
                if place in self._replicas:
                    self._follow(place, server.journal_address)
                elif self._server_id in mine:
                    await self._begin(place, server.journal_address)
        self._tell_troubles()

    def _tell_troubles(self) -> None:
        """Why a copy does not go on (a wrong secret, say): once per server and reason."""
        for (server_id, _), why in self._troubles().items():
            if (server_id, why) not in self._told and len(self._told) < _TOLD_MAX:
                self._told.add((server_id, why))
                log.warning("another server's journal is not copied", server=server_id, problem=why)

    def _troubles(self) -> dict[Place, str]:
        found = {}
        for place, replica in self._replicas.items():
            stats = replica.stats()
            if why := stats.failed or stats.full or (None if stats.connected else stats.trouble):
                found[place] = why
        return found

    def _tell_if_alone(self, members: list[FoundServer]) -> None:
        """Say once why ACKs wait though there are other servers."""
        others = [one.journal_place for one in members if one.server_id != self._server_id]
        alone = bool(others) and all(_together(place, self.place) for place in others)
        if alone and not self._alone:
            log.warning(
                "every other server keeps its journal at the same place: none of them counts as a replica",
                place=self.place,
                servers=len(others),
            )
        self._alone = alone

    def _follow(self, place: Place, address: str) -> None:
        if self._addresses[place] != address:
            self._addresses[place] = address
            self._replicas[place].follow(_parsed(address))

    async def _begin(self, place: Place, address: str) -> None:
        server_id, number = place
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
                "another server's journal cannot be copied",
                server=server_id,
                partition=number,
                problem=str(error),
            )
            return
        self._replicas[place], self._addresses[place] = replica, address
        log.info("copying a journal", server=server_id, partition=number, address=address)

    def stats(self) -> Mapping[str, object]:
        """Whose journals are here, and what is wrong with them."""
        of = sorted({server for server, _ in self._replicas})
        troubles = {f"{server}/{number:02d}": why for (server, number), why in self._troubles().items()}
        return {"copies": of, "copies_trouble": troubles}


def _together(one: str, other: str) -> bool:
    """Whether two servers keep their data at one place; who does not say is elsewhere."""
    return bool(one) and one == other


def _parsed(address: str) -> tuple[str, int]:
    """Host and port. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"{address!r} is not host:port")
    return host, int(port)
