"""Notes of one server about its loads: which documents it loads now, and which failed.

A process that is killed for want of memory cannot say which document it was loading. So each load is
noted on the disk before it begins. A document that was the only load at the end of a process has a
*lone end*; two or more lone ends count as failures of the document, one may be chance
(docs/decisions/0022). The end of a process with several loads is a *shared end* of each; it counts as no
failure. A document with several shared ends is loaded alone, so that the next end has one cause.

    DATA/journal/loads    JSON: {"format": 1, "loading": [id, ...], "records": {id: [...], ...}}

The file is replaced whole and not synced: a kill leaves it as it was written. After a power cut it may
be old, empty or absent; then fewer failures are known, and no healthy document is given up.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace

from lorogo_log import Directory, LogError, read_file, replace_file
from lorogo_protocol.lease import Failures
from lorogo_transport.tasks import Work
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_NAME = "loads"
_FORMAT = 1
_LONE_ENDS_MIN = 2  # that count
_SHARED_ENDS_MIN = 4  # from here on a document is loaded alone
_RECORDS_MAX = 10_000  # the oldest are dropped


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """What this server knows about the loads of one document since the document was UP or DOWN."""

    failures: int = 0
    trace_id: str = ""  # of the last failure
    lone_ends: int = 0
    restarts: int = 0  # of the retry count
    shared_ends: int = 0

    def with_lone_end(self) -> "LoadRecord":
        """After one more lone end; the first counts together with the second."""
        lone = self.lone_ends + 1
        new = {1: 0, _LONE_ENDS_MIN: _LONE_ENDS_MIN}.get(lone, 1)
        return replace(self, lone_ends=lone, failures=self.failures + new)


_NOTHING = LoadRecord()


class LoadNotes:
    """The notes of one server; without `open()` they live in memory only."""

    def __init__(self) -> None:
        self._loading: set[str] = set()
        self._records: dict[str, LoadRecord] = {}
        self._directory: Directory | None = None
        self._spawn: Callable[[Work], None] | None = None
        self._saving = asyncio.Lock()
        self._changes = self._saved = 0
        self._scheduled = False  # a save is about to begin
        self._entry = asyncio.Lock()  # loads begin in the order in which they ask
        self._alone = ""  # the document that is loaded alone now
        self._ended = asyncio.Event()

    async def open(self, directory: Directory, spawn: Callable[[Work], None]) -> None:
        """Read the notes of the last process in this directory, and judge how it ended."""
        self._directory, self._spawn = directory, spawn
        loading, self._records = await asyncio.to_thread(_read, directory)
        if len(loading) == 1:
            (document_id,) = loading
            self._put(document_id, self._of(document_id).with_lone_end())
            lone = self._of(document_id).lone_ends
            log.warning(
                "the last process ended while it loaded this document alone", document=document_id, times=lone
            )
        else:
            for document_id in loading:
                record = self._of(document_id)
                self._put(document_id, replace(record, shared_ends=record.shared_ends + 1))
        if loading:
            self._changes += 1
            await self.save()  # or the next start would judge the same end again

    def failures(self, document_id: str) -> Failures:
        """The failures of this document that this server knows."""
        record = self._of(document_id)
        return Failures(record.failures, record.trace_id)

    async def begin(self, document_id: str, failures: Failures) -> None:
        """Note a load when it may begin; the note is written when this returns.

        `failures`: of the document so far. Whatever comes of this, `end` must follow.
        """
        async with self._entry:
            alone = self._of(document_id).shared_ends >= _SHARED_ENDS_MIN
            while self._alone or (alone and self._loading):
                self._ended.clear()
                await self._ended.wait()
            self._loading.add(document_id)
            if alone:
                self._alone = document_id
                log.warning(
                    "a document is loaded alone: processes ended within its loads", document=document_id
                )
        if failures.count:
            self._put(
                document_id,
                replace(self._of(document_id), failures=failures.count, trace_id=failures.trace_id),
            )
        self._changes += 1
        await self.save()

    def end(self, document_id: str) -> None:
        """The load is over, however it ended."""
        self._loading.discard(document_id)
        if self._alone == document_id:
            self._alone = ""
        self._ended.set()
        self._changed()

    def failed(self, document_id: str, failures: Failures) -> None:
        """The load ran and failed; `failures` includes it."""
        record = replace(self._of(document_id), failures=failures.count, trace_id=failures.trace_id)
        self._put(document_id, record)
        self._changed()

    def forget(self, document_id: str) -> None:
        """The document is UP, or a new series of attempts begins."""
        if self._records.pop(document_id, None) is not None:
            self._changed()

    def restarted(self, document_id: str) -> int:
        """Note that the retry count restarts; returns how often it did before."""
        record = self._of(document_id)
        self._put(document_id, replace(record, restarts=record.restarts + 1))
        self._changed()
        return record.restarts

    async def save(self) -> None:
        """Write what changed; loads that begin or end meanwhile share the next write."""
        self._scheduled = False
        if self._directory is None:
            return
        wanted = self._changes
        async with self._saving:
            if self._saved >= wanted:
                return
            self._saved = self._changes
            try:
                await asyncio.to_thread(
                    replace_file, self._directory, _NAME, _encode(self._loading, self._records), sync=False
                )
            except (OSError, LogError) as error:
                log.warning("the note of a load could not be written", problem=str(error))

    def _of(self, document_id: str) -> LoadRecord:
        return self._records.get(document_id, _NOTHING)

    def _put(self, document_id: str, record: LoadRecord) -> None:
        self._records.pop(document_id, None)
        self._records[document_id] = record
        while len(self._records) > _RECORDS_MAX:
            del self._records[next(iter(self._records))]

    def _changed(self) -> None:
        self._changes += 1
        if self._spawn is not None and not self._scheduled:
            self._scheduled = True
            self._spawn(self.save())


def _encode(loading: set[str], records: dict[str, LoadRecord]) -> bytes:
    rows = {document_id: astuple(record) for document_id, record in records.items()}
    return json.dumps({"format": _FORMAT, "loading": sorted(loading), "records": rows}).encode()


def _read(directory: Directory) -> tuple[set[str], dict[str, LoadRecord]]:
    """The notes in a directory; none if there are none, or if they are damaged."""
    try:
        notes = json.loads(read_file(directory, _NAME))
        if notes["format"] != _FORMAT:
            return set(), {}
        return set(notes["loading"]), {name: LoadRecord(*row) for name, row in notes["records"].items()}
    except (OSError, LogError, ValueError, KeyError, TypeError, AttributeError):
        return set(), {}
