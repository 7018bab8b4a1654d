"""Cleaning of a store: removes records that a snapshot has replaced, in a thread."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from lorogo_client.store.stored_document import CopyIndex
from lorogo_log import Log, LogError
from lorogo_log import Record as Stored
from lorogo_transport.tasks import Tasks
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

OBSOLETE_BYTES_MIN = 1024 * 1024
_SEAL_SECONDS = 10.0


class Cleaner:
    """Counts obsolete bytes, and cleans when they exceed the bytes in use."""

    def __init__(self, log_: Log, indexes: Mapping[str, CopyIndex]) -> None:
        self.cleanings = 0
        self._log = log_
        self._indexes = indexes
        self._obsolete = 0
        self._wake = asyncio.Event()
        self._quiet = asyncio.Lock()  # no document is read while segments are replaced
        self._tasks = Tasks(self._broke)

    def start(self) -> None:
        self._tasks.spawn(self._run(), name="store cleaner")

    async def close(self) -> None:
        await self._tasks.close()

    def obsolete(self, bytes_: int) -> None:
        """Count bytes that became obsolete."""
        self._obsolete += bytes_
        if self._due():
            self._wake.set()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Hold off cleaning while the body runs."""
        async with self._quiet:
            yield

    def _due(self) -> bool:
        if self._obsolete < OBSOLETE_BYTES_MIN:
            return False
        return self._obsolete > sum(index.bytes for index in self._indexes.values())

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._due():
                continue
            counted = self._obsolete
            try:
                async with self._quiet:
                    await self._clean()
            except (LogError, OSError, TimeoutError) as error:
                # harmless: the next attempt follows when as many bytes are obsolete again
                log.warning("cannot clean the store", problem=str(error))
            self._obsolete -= counted

    async def _clean(self) -> None:
        """Rotate the current segment, wait until it is sealed, and drop obsolete records."""
        name = await self._log.rotate()
        if name is not None:
            await asyncio.to_thread(self._sealed, name)
        bases = {document.encode(): index.base for document, index in self._indexes.items()}
        gone = {
            document.encode(): index.base
            for document, index in self._indexes.items()
            if index.outline.forgotten and not self._log.core.damage
        }

        def drop(_path: str, record: Stored) -> bool:
            # the ForgottenMark is dropped last: segments are cleaned oldest first
            return record.sequence < bases.get(record.key, 0) or record.sequence == gone.get(record.key)

        cleaned = await self._log.clean(drop)
        self.cleanings += 1
        log.debug("store cleaned", dropped=cleaned.dropped, removed=len(cleaned.removed))

    def _sealed(self, name: str) -> None:
        """Poll in a thread until the log's thread has sealed the segment; the log has no event for it."""
        deadline = time.monotonic() + _SEAL_SECONDS
        while not any(one.sealed for one in self._log.segments() if one.name == name):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} was not sealed in {_SEAL_SECONDS:g} s")
            time.sleep(0.01)

    def _broke(self, error: Exception) -> None:
        log.error("store cleaner failed; the store grows until it is reopened", exc_info=error)
