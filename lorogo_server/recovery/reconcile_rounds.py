"""Rounds over the journals, in their order: what the stream lost of some documents is brought back.

What one journal holds may build on what another holds: they are read again as long as that helps.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping

from lorogo_log import LogError
from lorogo_protocol.journal.incarnation import Ends, includes
from lorogo_server.context import ServerContext
from lorogo_server.journal import journal_scan
from lorogo_server.journal.journal_scan import JournalFolder, ScannedRecord
from lorogo_server.recovery.journal_table import JournalledDocument
from lorogo_server.recovery.reconcile_repair import ReconcileFindings, Repair, RepairOutcome, covered
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_ROUNDS_MAX = 5
_KEYS_MAX = 8  # so few documents are looked up by key, more are found in one reading


class ReconcileRounds:
    """Those of one pass, and what they came to."""

    def __init__(
        self,
        context: ServerContext,
        rows: Mapping[str, JournalledDocument],
        repair: Repair,
        found: ReconcileFindings,
        leave_out: Callable[[str, Exception], Awaitable[None]],
        *,
        before_each: Callable[[], Awaitable[object]],
        whole: Callable[[str], None],
    ) -> None:
        """`leave_out` reports a document that cannot be repaired; raises if the fault is not its own.

        `before_each` is awaited before each portion of a document. `whole` is called when the document
        includes all that the journals hold of it.
        """
        self.changed: set[str] = set()  # documents of which something was published or stored
        self.waiting: set[str] = set()  # documents with updates that build on what is nowhere yet
        self.failed: set[str] = set()  # documents of which not everything could be tried
        self.ends: dict[str, Ends] = {}  # of those that were looked at, as a fresh load sees them now
        self._context = context
        self._rows = rows
        self._repair = repair
        self._found = found
        self._leave_out = leave_out
        self._before_each = before_each
        self._whole = whole
        self._log = log.bind(server=context.server_id)

    async def run(self, lost: Collection[str], places: Mapping[str, JournalFolder]) -> None:
        """Bring back all that the journals hold of those documents. Raises TransportError, OSError."""
        left = set(lost)
        await self._bases(lost, places)
        for _ in range(_ROUNDS_MAX):
            before = self._found.republished
            waiting: set[str] = set()
            for place in places.values():
                async for window in self._records(place, left):
                    for name, entries in window.items():
                        mended = await self._mend(name, entries)
                        if mended is not None and mended.waiting:
                            waiting.add(name)
            left = waiting
            if not left or self._found.republished == before:
                break
        self.waiting = left

    async def _bases(self, lost: Collection[str], places: Mapping[str, JournalFolder]) -> None:
        """The greatest snapshot of each first: what it holds need not be published one by one."""
        for name in lost:
            place, sequence, _ = self._rows[name].base
            if place not in places:
                continue
            record = await asyncio.to_thread(journal_scan.lookup, places[place], sequence)
            if record is not None:
                now_ns = self._context.clock.wall_ns()
                await self._mend(name, [ScannedRecord(name, record, now_ns, sequence, 0)])

    async def _mend(self, name: str, entries: list[ScannedRecord]) -> RepairOutcome | None:
        have = self.ends.get(name)
        if have is not None and all(covered(entry, have) for entry in entries):
            return None
        await self._before_each()
        try:
            mended = await self._repair.mend(name, entries, self._rows[name])
        except Exception as error:  # noqa: BLE001  # told; the others must not wait for it
            await self._leave_out(name, error)
            self.failed.add(name)
            return None
        if mended.unjudged:
            self.failed.add(name)
        if mended.published or mended.stored:
            self.changed.add(name)
        self.ends[name] = mended.ends
        self._found.republished += mended.published
        if includes(mended.ends, self._rows[name].ends):
            self._whole(name)
        if mended.published:
            self._log.info("published again", document=name, updates=mended.published)
        return mended

    async def _records(
        self, place: JournalFolder, names: set[str]
    ) -> AsyncIterator[dict[str, list[ScannedRecord]]]:
        """The records of those documents in a journal, in portions, by document."""
        if len(names) <= _KEYS_MAX:
            scans = [journal_scan.entries(place, key=name) for name in sorted(names)]
        else:
            scans = [journal_scan.entries(place, wanted=names.__contains__)]
        try:
            for scan in scans:
                async for window in journal_scan.portions(scan):
                    grouped: dict[str, list[ScannedRecord]] = {}
                    for entry in window:
                        grouped.setdefault(entry.document_id, []).append(entry)
                    yield grouped
        except LogError as error:
            self._log.error("a journal cannot be read", journal=place.name, problem=str(error))
            self.failed |= names  # what was not read may hold what they miss
