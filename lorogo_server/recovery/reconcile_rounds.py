"""Rounds over the journals, in their order: bring back what the stream lost of some documents.

Updates of one journal may depend on updates of another: rounds repeat while they publish something.
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
_KEYS_MAX = 8  # documents that are read by key; more are found in one scan


class ReconcileRounds:
    """Rounds of one pass, and their results."""

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
        """`leave_out` reports a document that cannot be repaired; raises if NATS or a disk fails.

        `before_each` is awaited before each portion of a document. `whole` is called when the document
        includes everything that the journals have of it.
        """
        self.changed: set[str] = set()  # documents of which something was published or stored
        self.waiting: set[str] = set()  # documents with updates whose dependencies are missing
        self.failed: set[str] = set()  # documents of which not everything could be tried
        self.ends: dict[str, Ends] = {}  # of each repaired document, by its last load
        self._context = context
        self._rows = rows
        self._repair = repair
        self._found = found
        self._leave_out = leave_out
        self._before_each = before_each
        self._whole = whole
        self._log = log.bind(server=context.server_id)

    async def run(self, lost: Collection[str], places: Mapping[str, JournalFolder]) -> None:
        """Bring back everything that the journals have of these documents. Raises TransportError, OSError."""
        left = set(lost)
        await self._bases(lost, places)
        for _ in range(_ROUNDS_MAX):
            before = self._found.republished
            waiting: set[str] = set()
            for place in places.values():
                async for window in self._records(place, left):
                    for name, entries in window.items():
                        outcome = await self._repair_document(name, entries)
                        if outcome is not None and outcome.waiting:
                            waiting.add(name)
            left = waiting
            if not left or self._found.republished == before:
                break
        self.waiting = left

    async def _bases(self, lost: Collection[str], places: Mapping[str, JournalFolder]) -> None:
        """Store the largest base of each document first: its updates need no message of their own."""
        for name in lost:
            place, sequence, _ = self._rows[name].base
            if place not in places:
                continue
            record = await asyncio.to_thread(journal_scan.lookup, places[place], sequence)
            if record is not None:
                now_ns = self._context.clock.wall_ns()
                await self._repair_document(name, [ScannedRecord(name, record, now_ns, sequence, 0)])

    async def _repair_document(self, name: str, entries: list[ScannedRecord]) -> RepairOutcome | None:
        have = self.ends.get(name)
        if have is not None and all(covered(entry, have) for entry in entries):
            return None
        await self._before_each()
        try:
            outcome = await self._repair.repair(name, entries, self._rows[name])
        except Exception as error:  # noqa: BLE001  # logged; the others must not wait for it
            await self._leave_out(name, error)
            self.failed.add(name)
            return None
        if outcome.unjudged:
            self.failed.add(name)
        if outcome.published or outcome.stored:
            self.changed.add(name)
        self.ends[name] = outcome.ends
        self._found.republished += outcome.published
        if includes(outcome.ends, self._rows[name].ends):
            self._whole(name)
        if outcome.published:
            self._log.info("published again", document=name, updates=outcome.published)
        return outcome

    async def _records(
        self, place: JournalFolder, names: set[str]
    ) -> AsyncIterator[dict[str, list[ScannedRecord]]]:
        """Yield the records of these documents in a journal, in portions, by document."""
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
            self._log.error("cannot read a journal", journal=place.name, problem=str(error))
            self.failed |= names  # the unread part may have what they lack
