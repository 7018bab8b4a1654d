"""Keeping a store small: records that a snapshot has replaced are cleaned away, in a thread."""

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

USELESS_BYTES_MIN = 1024 * 1024
_SEAL_SECONDS = 10.0


class Cleaner:
    """Counts what is of no use any more, and cleans when that is more than what is."""

    def __init__(self, log_: Log, places: Mapping[str, CopyIndex]) -> None:
        self.cleanings = 0
        self._log = log_
        self._places = places
        self._useless = 0
        self._wake = asyncio.Event()
        self._quiet = asyncio.Lock()  # a copy is not read while segments are replaced
        self._tasks = Tasks(self._broke)

    def start(self) -> None:
        self._tasks.spawn(self._run(), name="store cleaner")

    async def close(self) -> None:
        await self._tasks.close()

    def useless(self, bytes_: int) -> None:
        """So many more bytes are replaced."""
        self._useless += bytes_
        if self._due():
            self._wake.set()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """No cleaning meanwhile."""
        async with self._quiet:
            yield

    def _due(self) -> bool:
        if self._useless < USELESS_BYTES_MIN:
            return False
        return self._useless > sum(place.bytes for place in self._places.values())

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._due():
                continue
            counted = self._useless
            try:
                async with self._quiet:
                    await self._clean()
            except (LogError, OSError, TimeoutError) as error:
                # nothing is lost by it: the next attempt is made when as much has come together again
                log.warning("the store could not be cleaned", problem=str(error))
            self._useless -= counted

    async def _clean(self) -> None:
        """Finish the segment that is written, wait until it is sealed, and drop what is replaced."""
        name = await self._log.rotate()
        if name is not None:
            await asyncio.to_thread(self._sealed, name)
        bases = {document.encode(): place.base for document, place in self._places.items()}
        gone = {
            document.encode(): place.base
            for document, place in self._places.items()
            if place.outline.forgotten and not self._log.core.damage
        }

        def drop(_path: str, record: Stored) -> bool:
            # a "forgotten" itself goes last: segments are cleaned from the oldest on
            return record.sequence < bases.get(record.key, 0) or record.sequence == gone.get(record.key)

        cleaned = await self._log.clean(drop)
        self.cleanings += 1
        log.debug("the store is cleaned", dropped=cleaned.dropped, removed=len(cleaned.removed))

    def _sealed(self, name: str) -> None:
        """Wait in a thread for the log's own thread; it has no other way to tell."""
        deadline = time.monotonic() + _SEAL_SECONDS
        while not any(one.sealed for one in self._log.segments() if one.name == name):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} was not sealed in {_SEAL_SECONDS:g} s")
            time.sleep(0.01)

    def _broke(self, error: Exception) -> None:
        log.error("the store's cleaner broke; the store grows until it is opened anew", exc_info=error)
