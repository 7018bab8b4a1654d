"""(3) Every ACK is true: the update is on the owner's disk before.

With an ACK of durability `journal`, or a receipt of a call, the update's operations are synced in the journal
of its server. So are a tombstone before its deletion is answered, updates before they are purged whole from
the WAL, and, before the first UP, the loaded content: the snapshot, and every update ACKed before the
document was taken. The platter shows what a crash at that very moment would leave. Content on it stays on it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Up
from tests.simulation import events as ev
from tests.simulation.checks.acked import RECEIPTS
from tests.simulation.checks.checker import Kinds, Rest, Violation
from tests.simulation.platter import Platter

if TYPE_CHECKING:
    from tests.simulation.record import Record

_STREAMS = (subjects.WAL_STREAM, subjects.SNAPSHOT_STREAM)


class AnswersAreOnDisk:
    name = "on-disk"
    wants: Kinds = (ev.Acked, ev.Answered, ev.StatusStored, ev.WalRemoved)

    def __init__(self, record: "Record", platters: Mapping[str, Platter], *, damaged: bool) -> None:
        """`platters`: of every server; `damaged`: something else may take from them."""
        self._record = record
        self._platters = platters
        self._damaged = damaged
        self._taken: dict[tuple[str, int], int] = {}  # documents and tokens: when, until they are UP

    def look(self, event: ev.Event) -> None:
        match event:
            case ev.Acked(update=ev.Update() as update, durability="journal"):
                self._require(event.line, update, "ACKed")
            case ev.Answered(reason="") if event.asked.verb == "delete":
                self._buried(event)
            case ev.Answered(reason="") if event.asked.verb in RECEIPTS:
                self._receipt(event)
            case ev.StatusStored(entry=entry, document=document):
                if entry.server and not entry.lease and not isinstance(entry.status, Up):
                    self._taken[document, entry.revision] = event.number  # an UP: it gets back what it serves
                elif isinstance(entry.status, Up) and event.line in self._platters:
                    self._came_up(event)
            case ev.WalRemoved(how="purge"):
                self._purged(event)
            case _:
                pass

    async def at_rest(self, world: Rest) -> None:
        if self._damaged:
            return
        for server, platter in self._platters.items():
            now_there = platter.reread()
            for document in world.documents:
                once, now = platter.of(document), now_there.of(document)
                if once.tombstones - now.tombstones or not _reaches(now.ends, once.ends):
                    raise Violation(self.name, f"the journal of {server} has lost what it had", document)

    def _require(self, line: str, update: ev.Update, what: str) -> None:
        platter = self._platters.get(line)
        if platter is not None and not ev.covers(platter.of(update.document).ends, update.spans or ()):
            words = f"{line} {what} {update.words}, and its journal does not have it on the disk"
            raise Violation(self.name, words, update.document)

    def _buried(self, event: ev.Answered) -> None:
        document, platter = event.asked.document, self._platters.get(event.line)
        if platter is not None and event.facts.get("deleted_ns") not in platter.of(document).tombstones:
            words = (
                f"{event.line} answered a deletion, and its journal does not have the tombstone on the disk"
            )
            raise Violation(self.name, words, document)

    def _receipt(self, event: ev.Answered) -> None:
        sequence = event.facts.get("sequence")
        update = self._record.wal.at(event.asked.document, sequence if isinstance(sequence, int) else 0)
        # A change that changes nothing gets a receipt of what was there.
        if event.facts.get("durability") == "journal" and update is not None and update.line == event.line:
            self._require(event.line, update, f"answered a {event.asked.verb} with")

    def _came_up(self, event: ev.StatusStored) -> None:
        document, record = event.document, self._record
        taken = self._taken.pop((document, event.entry.token), 0)
        head = record.snapshots.heads.get(document)
        if not taken or (head is not None and head.facts.deleted):
            return
        kept = self._platters[event.line].of(document)
        if head is not None and head.ends is not None and not _reaches(kept.ends, head.ends):
            words = f"{event.line} writes UP, and its journal does not have what is stored on the disk"
            raise Violation(self.name, words, document)
        if record.lost_since(0, document, *_STREAMS):
            return  # what an update builds on may be gone, until a journal brings it back
        for update in record.wal.all():
            if update.document != document or not 0 < update.acked < taken:
                continue
            if record.forgiven(document, update.number):
                continue
            if any(kept.ends.get(peer, 0) < first for peer, first, _ in update.spans or ()):
                continue  # what it builds on was lost before: it waits, until that is brought back
            self._require(event.line, update, "came UP without")

    def _purged(self, event: ev.WalRemoved) -> None:
        head = self._record.snapshots.heads.get(event.document)
        if head is not None and head.facts.deleted:
            return
        wal = self._record.wal
        for update in wal.of(event.document, event.messages):
            if (update.accepted or update.acked) and wal.was_whole(update, event.messages):
                self._require(event.line, update, "purged")


def _reaches(ends: ev.Ends, wanted: ev.Ends) -> bool:
    return all(ends.get(peer, 0) >= end for peer, end in wanted.items())
