"""What a server does with its old segments: erase, ship, expire; in that order, and never in anybody's way.

One task, so that the three never meet: what is erased is rewritten, what is rewritten is shipped again,
and nothing expires that is not shipped. An archive that is away is told and tried again, later and later.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from lorogo_log import Directory, FileStorage, LogError, Reader
from lorogo_log.maintenance.sealed_segments import expire
from lorogo_protocol.errors import LorogoError
from lorogo_server.journal import orphaned_partitions
from lorogo_server.journal.archive import ArchiveError, ArchiveStorage
from lorogo_server.journal.disk_journal import DiskJournal
from lorogo_server.journal.erasures import Erasures
from lorogo_server.journal.retention import expire_before
from lorogo_server.journal.shipment import PartitionArchive, to_ship
from lorogo_server.settings import ServerSettings
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.clock import Clock
from lorogo_transport.stores.snapshots import SnapshotStore
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_LOOK_SECONDS = 5.0
_SEALING_SECONDS = 0.2  # until a segment is sealed that an erasure waits for
_TOMBSTONES_SECONDS = 3600.0
_ERASE_SECONDS = 60.0  # between looks for records that came after an erasure
_BACK_OFF_SECONDS = 10.0
_BACK_OFF_SECONDS_MAX = 600.0


class SegmentUpkeep:
    """The old segments of one server's journal, and of the replicas beside it."""

    def __init__(
        self,
        journal: DiskJournal,
        snapshots: SnapshotStore,
        settings: ServerSettings,
        clock: Clock,
        *,
        server_id: str,
        data: Path | None = None,
        on_expired: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`data`: this worker's folder, if it is on the disk; `on_expired` hears before when records go."""
        self._journal = journal
        self._snapshots = snapshots
        self._settings = settings
        self._clock = clock
        self._server_id = server_id
        self._data = data
        self._on_expired = on_expired
        self._shelves: dict[int, PartitionArchive] = {}
        self._erasures = Erasures()
        self._erase_now = False
        self._told: set[str] = set()  # logs that could not be cleaned
        self._sealing = False
        self._looking = asyncio.Lock()
        self._wake = asyncio.Event()
        self._stopped = threading.Event()
        self._archive_problem = ""
        self._archive_waiting = 0
        self._archive_shipped = 0
        self._expired = 0
        self._failures = 0
        self._not_before = 0.0  # of the archive's next attempt
        self._next_rotation = clock.now() + settings.seal_seconds
        self._next_tombstones = 0.0
        self._next_erase = 0.0

    def erase(self, document_id: str) -> None:
        """A document was erased here and now: its records go as soon as possible."""
        self._erasures.add([document_id])
        self._journal.uncover(document_id)
        self._erase_now = True
        self._wake.set()

    async def heard(self, document_id: str) -> None:
        """Somebody says that a document was erased: its tombstone tells."""
        head = await self._snapshots.head(document_id)
        if head is not None and SnapshotMetadata.parse(head.facts).erased_ns:
            self.erase(document_id)

    def stats(self) -> Mapping[str, object]:
        """Figures for operators."""
        archive = self._settings.archive
        return {
            "archive": (self._archive_problem or "open") if archive else "",
            "archive_waiting": self._archive_waiting,
            "archive_shipped": self._archive_shipped,
            "journal_expired": self._expired,
            "journal_erased": self._erasures.records,
        }

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                self._wake.clear()  # before: what comes during a look wants another
                await self.look()
                try:
                    async with asyncio.timeout(_SEALING_SECONDS if self._sealing else _LOOK_SECONDS):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            self._stopped.set()  # a copy under way in a thread ends at its next piece

    async def look(self) -> None:
        """Do once what is due. An error of one part does not keep the others."""
        async with self._looking:
            for part in (self._learn_tombstones, self._erase, self._rotate, self._ship, self._expire):
                if self._journal.stopped:
                    return
                try:
                    await part()
                except (LorogoError, LogError, OSError) as error:
                    log.warning("old segments: postponed", part=part.__name__.strip("_"), problem=str(error))

    # --- erasing ----------------------------------------------------------------------------------

    async def _learn_tombstones(self) -> None:
        """Erasures that happened while this server was away."""
        if self._clock.now() < self._next_tombstones:
            return
        self._next_tombstones = self._clock.now() + _BACK_OFF_SECONDS  # if it fails
        erased = [
            head.document_id
            async for head in self._snapshots.list()
            if head.facts.get("erased_ns") and SnapshotMetadata.parse(head.facts).erased_ns
        ]
        if self._erasures.add(erased):
            for document_id in erased:
                self._journal.uncover(document_id)
            self._erase_now = True
        self._next_tombstones = self._clock.now() + _TOMBSTONES_SECONDS

    async def _erase(self) -> None:
        if not self._erasures or not (self._erase_now or self._clock.now() >= self._next_erase):
            return
        self._next_erase = self._clock.now() + _ERASE_SECONDS
        sealed, now = True, self._erase_now
        self._erase_now = False  # what comes while this is going on counts for the next look
        if now:  # what is being written must be sealed before it can be cleaned
            for opened in self._journal.logs:
                name = await opened.rotate()
                infos = await asyncio.to_thread(opened.segments)
                sealed = sealed and all(info.sealed for info in infos if info.name == name)
        for directory in self._own():
            await self._clean(directory)
        for directory in await asyncio.to_thread(self._others):
            try:
                await self._clean(directory)
            except (LogError, OSError) as error:  # a folder that is not ours holds up nothing
                if directory.path not in self._told:
                    self._told.add(directory.path)
                    log.warning("a log is not cleaned", log=directory.path, problem=str(error))
        self._sealing = not sealed
        self._erase_now = self._erase_now or not sealed

    async def _clean(self, directory: Directory) -> None:
        dropped = await asyncio.to_thread(self._erasures.clean, directory)
        if dropped:
            log.info("erased", log=directory.path, records=dropped)

    def _own(self) -> list[Directory]:
        return [opened.core.directory for opened in self._journal.logs]

    def _others(self) -> list[Directory]:
        """Copies of others' journals, and what nobody writes to: sealed, so that it can be cleaned."""
        data = self._data
        if data is None:
            return []
        left = [*self._unused().values(), *orphaned_partitions.abandoned(data)]
        held = [directory for directory in left if not self._seal(directory)]
        left = [directory for directory in left if directory not in held]
        return [*left, *_logs_below(data / "replicas"), *orphaned_partitions.copies_beside(data)]

    def _seal(self, directory: Directory) -> bool:
        try:
            return orphaned_partitions.seal(directory)
        except (LogError, OSError) as error:
            if directory.path not in self._told:
                self._told.add(directory.path)
                log.warning(
                    "a log that nobody writes to is not sealed", log=directory.path, problem=str(error)
                )
            return True  # what is sealed in it can be cleaned

    def _unused(self) -> dict[int, Directory]:
        return {} if self._data is None else orphaned_partitions.unused(self._data, len(self._journal.logs))

    def _partitions(self) -> dict[int, Directory]:
        """This worker's partitions: those that are open, and those that are not any more."""
        return dict(enumerate(self._own())) | self._unused()

    # --- shipping ---------------------------------------------------------------------------------

    async def _rotate(self) -> None:
        """Seal what was written since: for the archive, and because only whole segments expire."""
        every = self._settings.seal_seconds
        if not every or self._clock.now() < self._next_rotation:
            return
        self._next_rotation = self._clock.now() + every
        for opened in self._journal.logs:
            await opened.rotate()

    async def _ship(self) -> None:
        if not self._settings.archive or self._clock.now() < self._not_before:
            return
        try:
            await asyncio.to_thread(self._ship_all)
        except ArchiveError as error:
            pause = min(_BACK_OFF_SECONDS * 2.0 ** min(self._failures, 16), _BACK_OFF_SECONDS_MAX)
            self._failures += 1
            self._not_before = self._clock.now() + pause
            self._archive_problem = f"behind: {error}"
            self._shelves.clear()  # ask anew what is there
            log.warning("the archive does not take segments", problem=str(error), again_seconds=pause)
            return
        if self._archive_problem:
            log.info("the archive takes segments again")
        self._failures, self._archive_problem = 0, ""

    def _ship_all(self) -> None:
        """In a thread."""
        partitions = self._partitions()
        if not self._shelves:
            archive = ArchiveStorage(self._settings.archive)
            archive.try_out(self._server_id)  # before there is something that it must not lose
            self._shelves = {
                number: PartitionArchive(archive, self._server_id, f"{number:02d}") for number in partitions
            }
            for directory in self._unused().values():
                self._seal(directory)
        work = [
            (self._shelves[number], directory, info.name)
            for number, directory in partitions.items()
            if number in self._shelves
            for info in to_ship(self._shelves[number], Reader(directory))
        ]
        self._archive_waiting = len(work)
        for shelf, directory, name in work:
            if shelf.put(directory, name, stopped=self._stopped.is_set):
                self._archive_shipped += 1
            self._archive_waiting -= 1
        if self._erasures:
            for number, shelf in self._shelves.items():
                if number in partitions:
                    self._erasures.clean_archive(shelf, partitions[number])

    # --- expiring ---------------------------------------------------------------------------------

    async def _expire(self) -> None:
        settings = self._settings
        if not settings.retention:
            return
        for number, directory in (await asyncio.to_thread(self._partitions)).items():
            shelf = self._shelves.get(number)
            if settings.archive and shelf is None:
                return  # nobody knows what is shipped
            before = await asyncio.to_thread(
                expire_before_of, directory, settings, self._clock.wall_ns(), shelf
            )
            if before is None:
                continue
            # before it happens, so that a crash costs writing something twice, and not leaving it out
            self._on_expired(before)
            self._journal.uncover()
            if not await self._journal.save_coverage():
                return  # the next start would believe that what goes now is still there
            if number < len(self._journal.logs):
                removed = await self._journal.logs[number].expire(before=before)
            else:
                removed = await asyncio.to_thread(expire, directory, before=before)
            self._expired += len(removed)
            log.info("journal segments expired", log=directory.path, segments=len(removed))


def expire_before_of(
    directory: Directory, settings: ServerSettings, now_ns: int, shelf: PartitionArchive | None
) -> int | None:
    """The time before which segments of one log may go; reads the disk."""
    return expire_before(
        Reader(directory).segments(),
        now_ns=now_ns,
        keep_seconds=settings.journal_keep_seconds,
        keep_bytes=settings.journal_keep_bytes,
        shipped=(lambda _: True) if shelf is None else shelf.has,
    )


def _logs_below(folder: Path) -> list[Directory]:
    if not folder.is_dir():
        return []
    storage = FileStorage()
    return [
        storage.directory(partition, create=False)
        for server in sorted(folder.iterdir())
        if server.is_dir()
        for partition in sorted(server.iterdir())
        if partition.is_dir()
    ]
