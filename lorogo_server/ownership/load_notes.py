"""Notes of one server about its loads: documents that it loads now, and failed loads.

A process that the kernel kills for lack of memory cannot report which document it was loading. So each load
is noted on the disk before it begins. A document that was the only load at the end of a process has a
*lone end*; two or more lone ends count as failures of the document, one may be chance
(docs/decisions/0022). The end of a process with several loads is a *shared end* of each; it does not count
as a failure. A document with several shared ends is loaded alone, so that the next end has one cause.

    DATA/journal/loads    JSON: {"format": 1, "loading": [id, ...], "records": {id: [...], ...}}

The file is replaced atomically but not synced: it survives a kill of the process. After a power failure it
may be old, empty or absent; then fewer failures are known, and no healthy document is set to ERROR.
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
_LONE_ENDS_MIN = 2  # lone ends that count as failures
_SHARED_ENDS_MIN = 4  # shared ends after which a document is loaded alone
_RECORDS_MAX = 10_000  # the oldest are dropped


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """Loads of one document on this server since the document was last UP or DOWN."""

    failures: int = 0
    trace_id: str = ""  # of the last failure
    lone_ends: int = 0
    restarts: int = 0  # of the retry count
    shared_ends: int = 0

    def with_lone_end(self) -> "LoadRecord":
        """Return the record with one more lone end; the first one counts together with the second."""
        lone = self.lone_ends + 1
        new = {1: 0, _LONE_ENDS_MIN: _LONE_ENDS_MIN}.get(lone, 1)
        return replace(self, lone_ends=lone, failures=self.failures + new)


_NOTHING = LoadRecord()


class LoadNotes:
    """Notes of one server; without `open()` they are in memory only."""

    def __init__(self) -> None:
        self._loading: set[str] = set()
        self._records: dict[str, LoadRecord] = {}
        self._directory: Directory | None = None
        self._spawn: Callable[[Work], None] | None = None
        self._saving = asyncio.Lock()
        self._changed = False  # since the last save
        self._entry = asyncio.Lock()  # loads begin in the order of the calls
        self._ended = asyncio.Event()

    async def open(self, directory: Directory, spawn: Callable[[Work], None]) -> None:
        """Read the notes of the previous process, and record its lone or shared ends."""
        self._directory, self._spawn = directory, spawn
        loading, self._records = await asyncio.to_thread(_read, directory)
        if len(loading) == 1:
            (document_id,) = loading
            self._put(document_id, self._of(document_id).with_lone_end())
            lone = self._of(document_id).lone_ends
            log.warning(
                "the previous process ended while loading only this document",
                document=document_id,
                times=lone,
            )
        else:
            for document_id in loading:
                record = self._of(document_id)
                self._put(document_id, replace(record, shared_ends=record.shared_ends + 1))
        if loading:
            self._changed = True
            await self.save()  # otherwise the next start would count the same end again

    def failures(self, document_id: str) -> Failures:
        """Return the failures of the document that this server knows."""
        record = self._of(document_id)
        return Failures(record.failures, record.trace_id)

    async def begin(self, document_id: str, failures: Failures) -> None:
        """Wait until a load may begin, and write its note to the disk.

        `failures` are those of the document so far. The caller must call `end`, also after an exception.
        """
        async with self._entry:
            alone = self._loads_alone(document_id)
            while self._loading and (alone or any(map(self._loads_alone, self._loading))):
                self._ended.clear()
                await self._ended.wait()
            self._loading.add(document_id)
            if alone:
                log.warning(
                    "loading a document alone: processes ended during its loads", document=document_id
                )
        if failures.count:
            self._put(
                document_id,
                replace(self._of(document_id), failures=failures.count, trace_id=failures.trace_id),
            )
        self._changed = True
        await self.save()

    def end(self, document_id: str) -> None:
        """Note the end of a load, successful or not."""
        self._loading.discard(document_id)
        self._ended.set()
        self._save_soon()

    def failed(self, document_id: str, failures: Failures) -> None:
        """Note a failed load, which `failures` includes."""
        record = replace(self._of(document_id), failures=failures.count, trace_id=failures.trace_id)
        self._put(document_id, record)
        self._save_soon()

    def forget(self, document_id: str) -> None:
        """Drop the record, since the document is UP or a new series of attempts begins."""
        if self._records.pop(document_id, None) is not None:
            self._save_soon()

    def restarted(self, document_id: str) -> int:
        """Note a restart of the retry count; return the number of earlier restarts."""
        record = self._of(document_id)
        self._put(document_id, replace(record, restarts=record.restarts + 1))
        self._save_soon()
        return record.restarts

    async def save(self) -> None:
        """Write changed notes; loads that begin or end meanwhile share the next write."""
        if self._directory is None:
            return
        async with self._saving:
            if not self._changed:
                return  # the write that this one waited for had the changes
            self._changed = False
            try:
                await asyncio.to_thread(
                    replace_file, self._directory, _NAME, _encode(self._loading, self._records), sync=False
                )
            except (OSError, LogError) as error:
                log.warning("cannot write the notes of loads", problem=str(error))

    def _of(self, document_id: str) -> LoadRecord:
        return self._records.get(document_id, _NOTHING)

    def _put(self, document_id: str, record: LoadRecord) -> None:
        self._records.pop(document_id, None)
        self._records[document_id] = record
        while len(self._records) > _RECORDS_MAX:
            del self._records[next(iter(self._records))]

    def _save_soon(self) -> None:
        self._changed = True
        if self._spawn is not None:
            self._spawn(self.save())

    def _loads_alone(self, document_id: str) -> bool:
        return self._of(document_id).shared_ends >= _SHARED_ENDS_MIN


def _encode(loading: set[str], records: dict[str, LoadRecord]) -> bytes:
    rows = {document_id: astuple(record) for document_id, record in records.items()}
    return json.dumps({"format": _FORMAT, "loading": sorted(loading), "records": rows}).encode()


def _read(directory: Directory) -> tuple[set[str], dict[str, LoadRecord]]:
    """Read the notes in a directory; return empty ones if the file is missing or damaged."""
    try:
        notes = json.loads(read_file(directory, _NAME))
        if notes["format"] != _FORMAT:
            return set(), {}
        return set(notes["loading"]), {name: LoadRecord(*row) for name, row in notes["records"].items()}
    except (OSError, LogError, ValueError, KeyError, TypeError, AttributeError):
        return set(), {}
