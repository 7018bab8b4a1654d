"""(1) No ACKed update is ever missing.

A published ACK names an update, whose operations are in a fresh load at the end. So are those of calls whose
answer is a receipt, and a fork is there as it was made. Two things end the promise: the document was deleted
after the update came (and not restored whole), or the ACK had durability `stream` and the broker lost
messages after it. A tombstone from before the update, lost and restored, ends none.
"""

from typing import TYPE_CHECKING

from lorogo_protocol.messages import subjects
from lorogo_server.snapshot_metadata import SnapshotMetadata
from tests.simulation import events as ev
from tests.simulation.checks.checker import Kinds, Rest, Violation

if TYPE_CHECKING:
    from tests.simulation.record import Record

RECEIPTS = ("patch", "revert", "import")  # calls that are answered with one
_STREAMS = (subjects.WAL_STREAM, subjects.SNAPSHOT_STREAM)


class NothingAckedIsMissing:
    name = "acked"
    wants: Kinds = (ev.Acked, ev.Answered, ev.SnapshotStored)

    def __init__(self, record: "Record") -> None:
        self._record = record
        self._acked: dict[int, ev.Update] = {}  # by identity
        self._forks: list[tuple[int, str, ev.Ends]] = []
        self._generations: dict[str, tuple[int, int]] = {}  # the newest restored, and when that was answered
        self._buried: dict[tuple[str, int, int, int], int] = {}  # each tombstone: when it was first stored

    def look(self, event: ev.Event) -> None:
        match event:
            case ev.Acked(update=ev.Update() as update):
                self._note(update)
            case ev.Answered(reason="") as answered:
                self._answered(answered)
            case ev.SnapshotStored(head=ev.Head(facts=facts) as head, number=number) if facts.deleted:
                self._buried.setdefault(_tombstone(head.document, facts), number)
            case _:
                pass

    def _note(self, update: ev.Update) -> None:
        if update.spans is None:
            raise Violation(self.name, f"{update.words} is ACKed, and Loro cannot read it", update.document)
        self._acked[id(update)] = update

    def _answered(self, answered: ev.Answered) -> None:
        asked, facts = answered.asked, answered.facts
        if asked.verb in RECEIPTS:
            update = self._record.wal.at(asked.document, _number(facts.get("sequence")))
            # A change that changes nothing gets a receipt of what was there.
            if update is not None and update.line == answered.line:
                update.acked = update.acked or answered.number
                update.firm |= facts.get("durability") != "stream"
                self._note(update)
        elif asked.verb == "fork":
            target = str(facts.get("document"))
            head = self._record.snapshots.heads.get(target)
            if head is None or head.ends is None:
                raise Violation(self.name, "a fork is answered, and no snapshot of it is stored", target)
            self._forks.append((answered.number, target, head.ends))
        elif asked.verb == "restore":
            generation = _number(facts.get("generation"))
            self._generations[asked.document] = (generation, answered.number)

    async def at_rest(self, world: Rest) -> None:
        record = self._record
        for update in self._acked.values():
            if update.firm or not record.lost_since(update.acked, update.document, *_STREAMS):
                await self._find(world, update)
        for number, target, ends in self._forks:
            found = await record.fresh_ends(world, target)
            if found is not None and not record.forgiven(target, number):
                spans = tuple((peer, 0, end) for peer, end in ends.items())
                if not ev.covers(found, spans):
                    raise Violation(self.name, "a fork does not hold what it was made of", target)
        for document, (generation, number) in self._generations.items():
            loaded = await record.fresh(world, document)
            lost = record.lost_since(number, document, subjects.SNAPSHOT_STREAM)
            if loaded.facts.generation < generation and not lost:
                words = f"generation {generation} was restored, and {loaded.facts.generation} is stored"
                raise Violation(self.name, words, document)

    async def _find(self, world: Rest, update: ev.Update) -> None:
        ends = await self._record.fresh_ends(world, update.document)
        if ends is None:  # deleted: another checker judges whether a call requested it
            loaded = await self._record.fresh(world, update.document)
            if update.number > self._buried.get(_tombstone(update.document, loaded.facts), update.number):
                words = f"{update.words} was ACKed (event {update.acked}), and an older tombstone buries it"
                raise Violation(self.name, words, update.document)
            return
        assert update.spans is not None
        if ev.covers(ends, update.spans) or self._record.forgiven(update.document, update.number):
            return
        missing = [f"{first}..{end}@{peer}" for peer, first, end in update.spans if ends.get(peer, 0) < end]
        words = f"{update.words} was ACKed (event {update.acked}) and is missing: {', '.join(missing)}"
        raise Violation(self.name, words, update.document)


def _tombstone(document: str, facts: SnapshotMetadata) -> tuple[str, int, int, int]:
    """Identity of a deletion."""
    return document, facts.generation, facts.deleted_ns, facts.erased_ns


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
