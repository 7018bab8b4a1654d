"""Upkeep of old journal segments: erase records, ship segments, expire segments, in that order.

One task does all three, so that they never overlap: an erasure rewrites segments, a rewritten segment is
shipped again, and a segment expires only after its shipment. If the archive fails, the task logs a warning
and retries with growing pauses.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from lorogo_log import Directory, FileStorage, LogError, Reader
from lorogo_log.recovery.sealed_segments import expire
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

_RUN_SECONDS = 5.0
_SEALING_SECONDS = 0.2  # pause while an erasure waits for a segment to be sealed
_TOMBSTONES_SECONDS = 3600.0
_ERASE_SECONDS = 60.0  # between checks for records written after an erasure
_BACK_OFF_SECONDS = 10.0
_BACK_OFF_SECONDS_MAX = 600.0


class SegmentUpkeep:
    """Maintains the old segments of one server's journal and of its journal replicas."""

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
        """Make an idle instance; `run()` is its task.

        `data` is this worker's folder if it is on a disk. `on_expired` gets the time before which records go.
        """
        self._journal = journal
        self._snapshots = snapshots
        self._settings = settings
        self._clock = clock
        self._server_id = server_id
        self._data = data
        self._on_expired = on_expired
        self._partition_archives: dict[int, PartitionArchive] = {}
        self._erasures = Erasures()
        self._erase_now = False
        self._logged: set[str] = set()  # logs whose errors were logged
        self._running = asyncio.Lock()
        self._wake = asyncio.Event()
        self._stopped = threading.Event()
        self._archive_problem = ""
        self._archive_waiting = 0
        self._archive_shipped = 0
        self._expired = 0
        self._ship_pause = 0.0  # after a failure
        self._not_before = 0.0  # time of the next attempt to ship
        self._next_rotation = clock.now() + settings.seal_seconds
        self._next_tombstones = 0.0
        self._next_erase = 0.0

    def erase(self, document_id: str) -> None:
        """Remove the records of a document as soon as possible, since this server erased it."""
        self._erasures.add([document_id])
        self._journal.uncover(document_id)
        self._erase_now = True
        self._wake.set()

    async def on_erased(self, document_id: str) -> None:
        """Handle another server's message that a document was erased, if its tombstone confirms it."""
        head = await self._snapshots.head(document_id)
        if head is not None and SnapshotMetadata.parse(head.facts).erased_ns:
            self.erase(document_id)

    def stats(self) -> Mapping[str, object]:
        """Statistics for operators."""
        archive = self._settings.archive
        return {
            "archive": (self._archive_problem or "open") if archive else "",
            "archive_waiting": self._archive_waiting,
            "archive_shipped": self._archive_shipped,
            "journal_expired": self._expired,
            "journal_erased": self._erasures.records,
        }

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while True:
                self._wake.clear()  # before the run: an erasure during the run needs another run
                await self.run_once()
                try:
                    async with asyncio.timeout(_SEALING_SECONDS if self._erase_now else _RUN_SECONDS):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            self._stopped.set()  # a copy under way in a thread ends at its next piece

    async def run_once(self) -> None:
        """Run all due parts once. An error of one part does not stop the others."""
        async with self._running:
            for part in (self._learn_tombstones, self._erase, self._rotate, self._ship, self._expire):
                if self._journal.stopped:
                    return
                try:
                    await part()
                except (LorogoError, LogError, OSError) as error:
                    log.warning("segment upkeep postponed", part=part.__name__.strip("_"), problem=str(error))

    # --- erase ------------------------------------------------------------------------------------

    async def _learn_tombstones(self) -> None:
        """Add erasures that happened while this server was away."""
        if self._clock.now() < self._next_tombstones:
            return
        self._next_tombstones = self._clock.now() + _BACK_OFF_SECONDS  # in case of an error
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
        self._erase_now = False  # an erasure during this run belongs to the next run
        if now:  # the open segment must be sealed before it can be cleaned
            for opened in self._journal.logs:
                name = await opened.rotate()
                infos = await asyncio.to_thread(opened.segments)
                sealed = sealed and all(info.sealed for info in infos if info.name == name)
        for directory in self._own():
            await self._clean(directory)
        for directory in await asyncio.to_thread(self._other_logs):
            try:
                await self._clean(directory)
            except (LogError, OSError) as error:  # a folder of another worker must not block the rest
                if directory.path not in self._logged:
                    self._logged.add(directory.path)
                    log.warning("cannot erase records in a log", log=directory.path, problem=str(error))
        self._erase_now = self._erase_now or not sealed

    async def _clean(self, directory: Directory) -> None:
        dropped = await asyncio.to_thread(self._erasures.clean, directory)
        if dropped:
            log.info("records erased", log=directory.path, records=dropped)

    def _own(self) -> list[Directory]:
        return [opened.core.directory for opened in self._journal.logs]

    def _other_logs(self) -> list[Directory]:
        """Return the journal replicas and the orphaned partitions; seal the latter so they can be cleaned."""
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
            if directory.path not in self._logged:
                self._logged.add(directory.path)
                log.warning("cannot seal an orphaned partition", log=directory.path, problem=str(error))
            return True  # its sealed segments can still be cleaned

    def _unused(self) -> dict[int, Directory]:
        return {} if self._data is None else orphaned_partitions.unused(self._data, len(self._journal.logs))

    def _partitions(self) -> dict[int, Directory]:
        """Return this worker's partitions, open and unused ones."""
        return dict(enumerate(self._own())) | self._unused()

    # --- ship -------------------------------------------------------------------------------------

    async def _rotate(self) -> None:
        """Seal the open segments: only sealed segments are shipped and expire."""
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
            pause = self._ship_pause = min(
                max(_BACK_OFF_SECONDS, 2 * self._ship_pause), _BACK_OFF_SECONDS_MAX
            )
            self._not_before = self._clock.now() + pause
            self._archive_problem = f"behind: {error}"
            self._partition_archives.clear()  # list the archive again
            log.warning("cannot ship segments to the archive", problem=str(error), again_seconds=pause)
            return
        if self._archive_problem:
            log.info("shipping to the archive resumed")
        self._ship_pause, self._archive_problem = 0.0, ""

    def _ship_all(self) -> None:
        """Ship all segments; runs in a thread."""
        partitions = self._partitions()
        if not self._partition_archives:
            archive = ArchiveStorage(self._settings.archive)
            archive.try_out(self._server_id)  # test the archive before relying on it
            self._partition_archives = {
                number: PartitionArchive(archive, self._server_id, f"{number:02d}") for number in partitions
            }
            for directory in self._unused().values():
                self._seal(directory)
        work = [
            (self._partition_archives[number], directory, info.name)
            for number, directory in partitions.items()
            if number in self._partition_archives
            for info in to_ship(self._partition_archives[number], Reader(directory))
        ]
        self._archive_waiting = len(work)
        for partition_archive, directory, name in work:
            if partition_archive.put(directory, name, stopped=self._stopped.is_set):
                self._archive_shipped += 1
            self._archive_waiting -= 1
        if self._erasures:
            for number, partition_archive in self._partition_archives.items():
                if number in partitions:
                    self._erasures.clean_archive(partition_archive, partitions[number])

    # --- expire -----------------------------------------------------------------------------------

    async def _expire(self) -> None:
        settings = self._settings
        if not settings.retention:
            return
        for number, directory in (await asyncio.to_thread(self._partitions)).items():
            partition_archive = self._partition_archives.get(number)
            if settings.archive and partition_archive is None:
                return  # unknown which segments are shipped
            before = await asyncio.to_thread(self._expire_before, directory, partition_archive)
            if before is None:
                continue
            # Before the removal, so that a crash causes duplicate records instead of missing ones.
            self._on_expired(before)
            self._journal.uncover()
            if not await self._journal.save_coverage():
                return  # the next start would assume that the removed records still exist
            if number < len(self._journal.logs):
                removed = await self._journal.logs[number].expire(before=before)
            else:
                removed = await asyncio.to_thread(expire, directory, before=before)
            self._expired += len(removed)
            log.info("journal segments expired", log=directory.path, segments=len(removed))

    def _expire_before(self, directory: Directory, partition_archive: PartitionArchive | None) -> int | None:
        """Return the time before which segments of one log may be removed; reads the disk."""
        return expire_before(
            Reader(directory).segments(),
            now_ns=self._clock.wall_ns(),
            keep_seconds=self._settings.journal_keep_seconds,
            keep_bytes=self._settings.journal_keep_bytes,
            shipped=(lambda _: True) if partition_archive is None else partition_archive.has,
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
