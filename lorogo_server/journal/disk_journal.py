"""Journal of one worker: accepted updates, written to the disk before their ACKs (docs/JOURNAL.md)."""

import asyncio
import errno
import functools
import shutil
import stat
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import xxhash

from lorogo_log import (
    Directory,
    DiskFullError,
    FileStorage,
    Log,
    LogError,
    QueueFullError,
    Storage,
    TornError,
    WriteFailure,
)
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.journal import latency, records
from lorogo_protocol.journal.records import ANSWERS_KEY, AnswersRecord, DocumentRecord
from lorogo_server.journal import coverage
from lorogo_server.journal.coverage import CoverageEntry, JournalCoverage
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_HAS_STOPPED = ": the log has stopped: "  # message of lorogo_log
_IS_FULL = ": the disk is full: "
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class JournalStopped(LorogoError):
    """The journal does not accept records, now or until a restart. No update is ACKed meanwhile."""

    code = "journal-stopped"


class Journal(Protocol):
    """Storage of accepted updates beside the stream."""

    @property
    def durability(self) -> str:
        """Durability that an ACK reports."""

    async def put(self, document_id: str, record: DocumentRecord, time_ns: int) -> Awaitable[object]:
        """Queue a record, after waiting for space; return an awaitable that ends when the record is safe.

        Both raise JournalStopped.
        """

    def on_disk(self, done: Awaitable[object]) -> Awaitable[object]:
        """For a result of `put`: return an awaitable that ends when the local disk has the record."""

    def all_safe(self, document_id: str) -> Awaitable[object] | None:
        """Return an awaitable that ends when all local records of the document are safe; None: they are."""

    def covered(self, document_id: str) -> CoverageEntry:
        """Return the known coverage of the document."""

    def cover(self, document_id: str, covered: CoverageEntry) -> None:
        """Set the coverage of the document; only for safe records."""

    def stats(self) -> Mapping[str, object]:
        """Figures for operators."""


async def safe(done: Awaitable[object]) -> None:
    """Wait until the record is safe. Raises JournalStopped."""
    try:
        await done
    except LogError as error:
        raise JournalStopped(_stopped(error)) from error


def _stopped(error: LogError) -> str:
    waits = isinstance(error, DiskFullError)
    return f"the journal {'waits for room' if waits else 'has stopped'}: {reason(error)}"


def reason(error: Exception, folder: Path | None = None) -> str:
    """Return why a log stopped: the cause, and the folder unless the error names it."""
    where, _, _ = str(error).partition(_IS_FULL if isinstance(error, DiskFullError) else _HAS_STOPPED)
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if not isinstance(cause, OSError):
        return str(error).replace(_HAS_STOPPED, ": ")
    where = where if folder is None else str(folder)
    if cause.errno in _FULL:
        return f"no space left on the disk of {where}"
    return str(cause) if folder is not None else f"{where}: {cause.strerror or cause}"


def _folder_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder; skip files that are removed meanwhile."""
    total = 0
    for place in folder.rglob("*"):
        with suppress(FileNotFoundError):
            found = place.lstat()
            total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total


class NoJournal:
    """Durability `stream`: the stream is the only copy."""

    durability = "stream"

    def on_disk(self, done: Awaitable[object]) -> Awaitable[object]:
        return done

    def all_safe(self, document_id: str) -> Awaitable[object] | None:
        return None

    async def put(self, document_id: str, record: DocumentRecord, time_ns: int) -> Awaitable[object]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def covered(self, document_id: str) -> CoverageEntry:
        return coverage.NOTHING

    def cover(self, document_id: str, covered: CoverageEntry) -> None:
        pass

    def stats(self) -> Mapping[str, object]:
        return {}


class DiskJournal:
    """Partitions of `lorogo_log` in one folder, between `open()` and `close()`."""

    durability = "journal"

    def __init__(
        self,
        folder: Path,
        *,
        partitions: int = 1,
        segment_bytes: int = 128 << 20,
        queue_bytes: int = 64 << 20,
        storage: Storage | None = None,
        on_stop: Callable[[str], None] = lambda _: None,
        on_damage: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = folder
        self.directory: Directory  # of the small files beside the partitions; set by `open()`
        self.logs: list[Log] = []
        self.stopped = ""  # reason of a permanent stop
        self.full = ""  # reason of a temporary stop: the journal resumes when the disk has space
        self.damage: list[str] = []
        self.disk_bytes = 0  # size of the files at the last measurement
        self.disk_free_bytes: int | None = None  # None: not measured yet
        self.disk_size_bytes: int | None = None
        self._partitions = partitions
        self._segment_bytes = segment_bytes
        self._queue_bytes = queue_bytes
        self.storage = storage
        self.disk: Storage = storage or FileStorage()
        self._on_stop = on_stop
        self._full_partitions: set[int] = set()
        self._torn = False  # `open()` found a half-written record at the end of a partition
        self._on_damage = on_damage
        self._coverage = JournalCoverage(())
        self._saving = asyncio.Lock()  # an older coverage must not replace a newer one
        self._notes = range(0)  # consecutive last records in partition 0 that are about the server itself
        self._opened: list[Log] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        """Open every partition. Raises JournalStopped."""
        loop = self._loop = asyncio.get_running_loop()

        def failed(error: LogError) -> None:  # called by the log's threads
            loop.call_soon_threadsafe(self._stop, _stopped(error))

        def full(number: int, error: DiskFullError | None) -> None:
            loop.call_soon_threadsafe(self._filled, number, error)

        try:
            self.directory = await asyncio.to_thread(self.disk.directory, self.folder, create=True)
            for number in range(self._partitions):
                opened = Log.open(
                    self.folder / f"{number:02d}",
                    segment_bytes=self._segment_bytes,
                    queue_bytes=self._queue_bytes,
                    storage=self.storage,
                    partition=number,
                    durable_id=True,  # other servers identify the journal by its id
                    failure=WriteFailure.call(failed, full=functools.partial(full, number)),
                    on_damage=self.found_damage,
                )
                await opened.__aenter__()
                self._opened.append(opened)
        except (LogError, OSError) as error:
            await self.close()
            why = reason(error, self.folder)
            raise JournalStopped(f"cannot open the journal in {self.folder}: {why}") from error
        self.logs = list(self._opened)
        self._coverage = await asyncio.to_thread(coverage.read, self.directory, self._log_ids())
        if self.damage or self._torn:  # `open()` cut the tail, so a later start may not find the damage
            self._coverage.forget()
            await self.save_coverage()

    async def close(self) -> None:
        """Write the queued records and release the locks. Idempotent."""
        await self.save_coverage()
        opened, self._opened = self._opened, []
        for one in opened:
            try:
                await one.close()
            except LogError as error:
                log.warning("journal closed with an error", problem=str(error))
        self._stop("the journal is closed", quiet=True)

    # --- writing ----------------------------------------------------------------------------------

    async def put(self, document_id: str, record: DocumentRecord, time_ns: int) -> Awaitable[object]:
        if why := self.stopped or self.full:
            raise JournalStopped(why)
        into = self.logs[self.partition(document_id)]
        value, key = records.encode(record), document_id.encode()
        try:
            try:
                return into.append_nowait(value, key=key, ts=time_ns)
            except QueueFullError:
                sequence = await into.append(value, key=key, ts=time_ns)
        except LogError as error:
            raise JournalStopped(_stopped(error)) from error
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        done.set_result(sequence)
        return done

    def note(self, record: AnswersRecord) -> bool:
        """Queue a record about the server itself; return False if there is no space now."""
        if self.stopped or self.full or not self.logs:
            return False
        try:
            queued = self.logs[0].append_nowait(records.encode(record), key=ANSWERS_KEY, ts=record.until_ns)
        except LogError:
            return False
        queued.add_done_callback(self._noted)
        return True

    def _noted(self, queued: asyncio.Future[int]) -> None:
        if (
            not queued.cancelled() and queued.exception() is None
        ):  # otherwise the log has stopped and reports it
            at = queued.result()
            self._notes = range(self._notes.start if self._notes.stop == at else at, at + 1)

    def end(self, number: int) -> int:
        """Last sequence of a partition on the disk, without trailing notes, for which no ACK waits."""
        durable = self.logs[number].stats().durable_sequence
        return self._notes.start - 1 if number == 0 and self._notes.stop == durable + 1 else durable

    def on_disk(self, done: Awaitable[object]) -> Awaitable[object]:
        return done

    def all_safe(self, document_id: str) -> Awaitable[object] | None:
        return None

    def partition(self, document_id: str) -> int:
        """The partition of a document."""
        return 0 if self._partitions == 1 else xxhash.xxh64_intdigest(document_id.encode()) % self._partitions

    # --- coverage ---------------------------------------------------------------------------------

    def covered(self, document_id: str) -> CoverageEntry:
        return self._coverage.of(document_id)

    def cover(self, document_id: str, covered: CoverageEntry) -> None:
        self._coverage.set(document_id, covered)

    def uncover(self, document_id: str | None = None) -> None:
        """Forget the coverage of a document, or of all, since records were removed."""
        self._coverage.forget(document_id)

    async def save_coverage(self) -> bool:
        """Save the coverage for the next start; return False if the write failed.

        An old coverage only costs duplicate records, unless records are about to be removed.
        """
        async with self._saving:
            if not self.logs or not self._coverage.changed:
                return True
            self._coverage.changed = False
            data = self._coverage.encode()
            try:
                await asyncio.to_thread(coverage.write, self.directory, data)
            except OSError as error:
                self._coverage.changed = True
                log.warning("cannot write the journal coverage", problem=str(error))
                return False
            return True

    async def measure(self) -> None:
        """Measure the size of the files and the space on the disk; keep old values after an error."""
        if self.storage is None:
            with suppress(OSError):
                self.disk_bytes = await asyncio.to_thread(_folder_bytes, self.folder)
            with suppress(OSError):
                usage = await asyncio.to_thread(shutil.disk_usage, self.folder)
                self.disk_free_bytes, self.disk_size_bytes = usage.free, usage.total

    def ids(self) -> tuple[str, ...]:
        """Ids of the partitions' logs, which stay the same when another worker opens them."""
        return tuple(log_id.hex() for log_id in self._log_ids())

    def stats(self) -> Mapping[str, object]:
        stats = [opened.stats() for opened in self.logs]
        return {
            "journal": self.stopped or self.full or "open",
            "journal_records": sum(one.durable_sequence for one in stats),
            "journal_bytes": sum(one.end_offset for one in stats),
            "journal_disk_bytes": self.disk_bytes,
            "disk_free_bytes": self.disk_free_bytes,
            "disk_size_bytes": self.disk_size_bytes,
            "journal_waiting": sum(one.queue_records for one in stats),
            "journal_waiting_bytes": sum(one.queue_bytes for one in stats),
            "journal_sync_us_counts": latency.trimmed(latency.added(one.sync_us_counts for one in stats)),
            "journal_sync_us_sum": int(sum(one.sync_seconds for one in stats) * 1e6),
            "journal_damage": len(self.damage),
        }

    def _log_ids(self) -> tuple[bytes, ...]:
        return tuple(opened.core.writer.engine.log_id for opened in self.logs)

    def _stop(self, why: str, *, quiet: bool = False) -> None:
        if self.stopped:
            return
        self.stopped = why
        if not quiet:
            log.error("journal stopped", problem=why)
            self._on_stop(why)

    def _filled(self, number: int, error: DiskFullError | None) -> None:
        """Note that a partition's disk is full, or (None) has space; a full disk stops all partitions."""
        before = self.full
        if error is None:
            self._full_partitions.discard(number)
        else:
            self._full_partitions.add(number)
            self.full = self.full or _stopped(error)
        if not self._full_partitions:
            self.full = ""
        if self.stopped or bool(before) == bool(self.full):
            return
        if self.full:
            log.error("journal disk full", problem=self.full)
            self._on_stop(self.full)
        else:
            log.info("journal resumed: its disk has space again")

    def found_damage(self, error: LogError) -> None:
        """Report damage that a reader of the journal found; callable from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            report = self._cut_torn if isinstance(error, TornError) else self.damaged
            self._loop.call_soon_threadsafe(report, str(error))

    def _cut_torn(self, what: str) -> None:
        """Note that `open()` cut a half-written record. It was not ACKed; the saved coverage is discarded."""
        log.warning("journal had a half-written record at its end, which was cut", problem=what)
        self._torn = True

    def damaged(self, what: str) -> None:
        """Forget all coverage, since records are unreadable: documents are journalled again."""
        log.error("journal damaged; the readable records are served", problem=what)
        if what in self.damage:
            return  # known damage: records written since are intact
        self.damage.append(what)
        self._coverage.forget()
        self._on_damage()
