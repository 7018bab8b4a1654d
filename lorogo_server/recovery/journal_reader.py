"""Reads the journals on this disk into a table: this worker's, its replicas, and its siblings'."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from lorogo_log import Directory, Lock, LockedError, LogError, read_file, replace_file
from lorogo_protocol import ids
from lorogo_protocol.errors import InvalidDocumentId
from lorogo_server.context import ServerContext
from lorogo_server.journal import journal_scan
from lorogo_server.journal.disk_journal import DiskJournal
from lorogo_server.journal.journal_scan import JournalFolder, ScannedRecord
from lorogo_server.recovery import journal_table
from lorogo_server.recovery.journal_table import JournalTable
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_YOUNG_NS = 600 * 1_000_000_000
_TURN_SECONDS = 300.0
_TURN_POLL_SECONDS = 0.2
_TURN_FILE = "reconciling"
_TABLE_FILE = "reconciled"
_JOURNAL = "journal"  # the folder of a worker's own partitions
_DOUBTS_MAX = 64  # of other servers, for which the journals were read


class JournalReader:
    """Table of all documents in the journals of one data folder, and the reading that fills it."""

    def __init__(self, context: ServerContext, journal: DiskJournal, data: Path) -> None:
        self.table = JournalTable()
        self.damaged: set[str] = set()  # names of journals in which damage was found
        self.folders: dict[str, JournalFolder] = {}  # by name, at the last reading
        self._context = context
        self._journal = journal
        self._data = data
        self._reading = asyncio.Lock()
        self._read_for: deque[str] = deque(maxlen=_DOUBTS_MAX)
        self._written = b""
        self._log = log.bind(server=context.server_id)

    async def open(self) -> None:
        """Read the table that the last run wrote."""
        self.table = await asyncio.to_thread(_stored_table, self._journal.directory)
        self._note_tokens()

    async def read(self) -> None:
        """Fold the new records of every journal into the table. Raises OSError."""
        async with self._reading:
            folders = await asyncio.to_thread(self._find)
            self.table.forget_readings(folder.name for folder in folders)
            for folder in folders:
                await self._read_on(folder)
            self.folders = {folder.name: folder for folder in folders}
        self._note_tokens()

    async def read_for(self, doubt: str) -> None:
        """Read the journals, unless they were read since this doubt of a server began. Raises OSError."""
        if doubt not in self._read_for:
            await self.read()
            self._read_for.append(doubt)

    async def find(self) -> Mapping[str, JournalFolder]:
        """Return the journals on the disk by name."""
        return {folder.name: folder for folder in await asyncio.to_thread(self._find)}

    def own_journals(self) -> tuple[str, ...]:
        """Return the log ids of this server's partitions, hex."""
        return self._journal.ids()

    def sibling_journals(self) -> tuple[str, ...]:
        """Return the log ids of workers beside this one, which this server reads as well; blocks."""
        found: list[str] = []
        for folder in self._find():
            beside = folder.path.parent.name == _JOURNAL and folder.path.parent != self._journal.folder
            with contextlib.suppress(LogError, OSError):
                if beside and (log_id := folder.log_id()):
                    found.append(log_id.hex())
        return tuple(found)

    async def save(self) -> None:
        """Write the table, so that the next run does not read the journals from their beginning."""
        data = await asyncio.to_thread(self.table.encode)
        if data != self._written:
            await asyncio.to_thread(replace_file, self._journal.directory, _TABLE_FILE, data)
            self._written = data

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold the lock of the data folder: the next worker finds what this one has published."""
        home = self._data.parent if journal_scan.has_siblings(self._data) else self._data
        directory = await asyncio.to_thread(self._journal.disk.directory, home, create=True)
        lock: Lock | None = None
        try:
            with contextlib.suppress(TimeoutError):  # then both publish: some updates are in the WAL twice
                async with asyncio.timeout(_TURN_SECONDS):
                    while (lock := await _try_lock(directory)) is None:  # noqa: ASYNC110  # of another process
                        await asyncio.sleep(_TURN_POLL_SECONDS)
            yield
        finally:
            if lock is not None:
                lock.release()

    def _note_tokens(self) -> None:
        statuses = self._context.statuses
        statuses.highest = max(statuses.highest, self.table.highest)

    def _find(self) -> list[JournalFolder]:
        journal = self._journal
        found = journal_scan.places(self._data, len(journal.logs), journal.storage)
        own, on_damage = journal.folder, journal.found_damage
        return [
            replace(folder, damaged=self.damaged, on_damage=on_damage if folder.path.parent == own else None)
            for folder in found
        ]

    async def _read_on(self, folder: JournalFolder) -> None:
        try:
            log_id = await asyncio.to_thread(folder.log_id)
            first = self.table.begin(folder.name, log_id)
            found = journal_scan.entries(folder, from_sequence=first)
            async for window in journal_scan.portions(found, journal_scan.GLANCE_RECORDS):
                await asyncio.to_thread(self._fold, folder.name, window)
                first = window[-1].sequence + 1
        except LogError as error:
            self._log.error("cannot read a journal", journal=folder.name, problem=str(error))
            return
        self.table.ended(folder.name, first, self._context.clock.wall_ns(), _YOUNG_NS)

    def _fold(self, journal: str, window: Iterable[ScannedRecord]) -> None:
        for entry in window:
            with contextlib.suppress(InvalidDocumentId):
                ids.check_document_id(entry.document_id)
                self.table.fold(entry.document_id, entry.record, journal, entry.sequence)


def _stored_table(directory: Directory) -> JournalTable:
    try:
        return journal_table.decode(read_file(directory, _TABLE_FILE))
    except (OSError, LogError):
        return JournalTable()


async def _try_lock(directory: Directory) -> Lock | None:
    """Return the lock of the turn; None while another process holds it."""
    if await asyncio.to_thread(directory.locked, _TURN_FILE):
        return None
    try:
        # Not in a thread: after a cancellation no task would release it.
        return directory.lock(_TURN_FILE, exclusive=True, wait_seconds=0.0)
    except LockedError:
        return None
