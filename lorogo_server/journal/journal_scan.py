"""Scans the journals on this disk, of any server, without a lock, for reconciliation.

All functions but `portions` block; call them in a thread.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lorogo_log import CorruptionError, FormatError, LogError, Reader, Storage, TornError
from lorogo_log.recovery.recovery import list_segments
from lorogo_log.storage.segment import Segment
from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import DocumentRecord, MalformedRecord
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

WINDOW_BYTES = 32 * 1024 * 1024
WINDOW_RECORDS = 10_000
GLANCE_RECORDS = 500  # window for a single pass: Python rarely returns memory to the system
_WORKER = "worker-"


@dataclass(frozen=True, slots=True)
class JournalFolder:
    """One journal: a `lorogo_log` directory. Its name identifies it across restarts."""

    name: str
    path: Path
    storage: Storage | None = None
    damaged: set[str] = field(default_factory=set, compare=False)  # receives the names of damaged journals
    on_damage: Callable[[LogError], None] | None = None  # called in the reading thread

    def reader(self) -> Reader:
        """Open a reader. Raises LogError."""
        return Reader.open(self.path, storage=self.storage, on_damage=self._damaged)

    def log_id(self) -> bytes:
        """Return the id of the log; empty while it has no segment."""
        directory = self.reader().directory
        for entry in list_segments(directory, prepared=True):
            try:
                segment = Segment.open(directory, entry.name)
            except (FileNotFoundError, CorruptionError):
                continue
            segment.close()
            return segment.header.log_id
        return b""

    def _damaged(self, damage: LogError) -> None:
        self.damaged.add(self.name)
        log.error(
            "journal damaged; the readable records are compared", journal=self.name, problem=str(damage)
        )
        if self.on_damage is not None and isinstance(damage, CorruptionError):
            self.on_damage(damage)


@dataclass(frozen=True, slots=True)
class ScannedRecord:
    """A record about a document, with its sequence in the journal."""

    document_id: str
    record: DocumentRecord
    time_ns: int
    sequence: int
    size: int


def places(data: Path, own: int, storage: Storage | None) -> list[JournalFolder]:
    """Return this worker's journal, its journal replicas, and those of sibling workers, running or not."""
    if storage is not None:  # in a test: without siblings
        return [
            JournalFolder(f"{number:02d}", data / "journal" / f"{number:02d}", storage)
            for number in range(own)
        ]
    homes = [data]
    if has_siblings(data):
        homes += sorted(home for home in data.parent.glob(f"{_WORKER}*") if home != data)
    found: list[JournalFolder] = []
    for home in homes:
        paths = sorted([*home.glob("journal/[0-9][0-9]"), *home.glob("replicas/*/[0-9][0-9]")])
        found += [JournalFolder(str(path.relative_to(data.parent)), path) for path in paths if path.is_dir()]
    return found


def has_siblings(data: Path) -> bool:
    """Return True if the folder belongs to one of several workers."""
    return data.name.startswith(_WORKER)


def entries(
    place: JournalFolder,
    *,
    from_sequence: int = 0,
    key: str = "",
    wanted: Callable[[str], bool] | None = None,
) -> Iterator[ScannedRecord]:
    """Yield a journal's records of documents; log and skip unreadable records. Raises LogError."""
    name = key.encode() or None
    reader = place.reader()
    try:
        for batch in reader.read(from_seq=from_sequence, key=name, damaged="skip"):
            columns = batch.columns
            for row in batch.chosen:
                document_id = columns.key(row).decode("ascii", "replace")
                if wanted is not None and not wanted(document_id):
                    continue
                stored = batch.record(row)
                try:
                    record = records.decode_document(stored.value)
                except (MalformedRecord, ValueError) as error:
                    log.warning("cannot read a journal record", journal=place.name, problem=str(error))
                    continue
                if record is not None:
                    yield ScannedRecord(
                        document_id, record, stored.time, stored.sequence, len(stored.payload)
                    )
    except TornError:
        return  # a half-written record at the end, which was never ACKed


def windows(found: Iterator[ScannedRecord], records_max: int | None = None) -> Iterator[list[ScannedRecord]]:
    """Group records into windows of bounded size."""
    window: list[ScannedRecord] = []
    size = 0
    for entry in found:
        window.append(entry)
        size += entry.size
        if size >= WINDOW_BYTES or len(window) >= (records_max or WINDOW_RECORDS):
            yield window
            window, size = [], 0
    if window:
        yield window


async def portions(
    found: Iterator[ScannedRecord], records_max: int | None = None
) -> AsyncIterator[list[ScannedRecord]]:
    """Group records into windows of bounded size, each read in a thread."""
    read = windows(found, records_max)
    while (window := await asyncio.to_thread(_next, read)) is not None:
        yield window


def _next(read: Iterator[list[ScannedRecord]]) -> list[ScannedRecord] | None:
    return next(read, None)


def lookup(place: JournalFolder, sequence: int) -> DocumentRecord | None:
    """Return one record; None if it is gone."""
    try:
        return records.decode_document(place.reader().lookup(sequence).value)
    except (LogError, FormatError, MalformedRecord, ValueError) as error:
        log.warning("cannot read a journal record", journal=place.name, sequence=sequence, problem=str(error))
        return None
