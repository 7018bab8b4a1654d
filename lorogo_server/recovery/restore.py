"""One document rebuilt from what journals say of it: decided here, read and stored elsewhere.

Records of several journals are merged: the same update counts once, whatever wrote it down. They are
applied in the order of their times, and what depends on something that is not there yet waits for it:
Loro knows. What remains at the end is told with its reason.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lorogo_protocol.errors import CrdtError, HistoryTrimmed
from lorogo_protocol.journal.records import (
    BaseRecord,
    DeletedRecord,
    DocumentRecord,
    ErasedRecord,
    MalformedRecord,
    RestoredRecord,
    UpdateRecord,
)
from lorogo_protocol.loro.crdt import Applied, CrdtPanic, Replica
from lorogo_protocol.messages.digest import digest
from lorogo_server.intake import history
from lorogo_server.intake.history import History

MISSING = "it builds on changes that are in none of these journals"
TRIMMED = "it builds on history that was trimmed, and no journal here has it"
NO_BASE = "the snapshot that the document was loaded from is not here: it is in the journal of another server"
UNREADABLE = "it is no record of a journal"
DAMAGED = "its bytes do not match its digest"
_ANY_TIME = 1 << 62  # a base is dated by whoever loaded it, not by NATS: its lease tells
_STARTS_MAX = 4  # shallow bases that are tried as the beginning

Fetch = Callable[[int], DocumentRecord | None]  # the record at a place; None: of a kind that we do not know


@dataclass(frozen=True, slots=True)
class Item:
    """A record that was found: when it was made, what it is, and where its bytes are."""

    time_ns: int
    place: int
    is_base: bool = False


@dataclass(slots=True)
class Gathered:
    """Everything that the journals say of one document; bytes are fetched when they are needed."""

    contents: list[Item] = field(default_factory=list)  # updates once each, and bases with content
    vectors: list[bytes] = field(default_factory=list)  # of every base: the document must include them
    updates: int = 0
    repeated: int = 0
    later: int = 0  # records after the wanted time
    generation: int = 0
    epoch: int = 0
    deletions: dict[int, tuple[int, int]] = field(default_factory=dict)  # generation -> when, by which lease
    past: tuple[int, int] = (0, 0)  # what was written up to that lease, or time, is a former life's
    erased_ns: int = 0
    left: Counter[str] = field(default_factory=Counter)

    @property
    def deleted_ns(self) -> int:
        """When its newest generation was deleted; 0 if it was not."""
        return self.deletions.get(self.generation, (0, 0))[0]

    @property
    def deleted_by(self) -> int:
        """The lease of whoever deleted it then: a server whose journal has a later life contradicts it."""
        return self.deletions.get(self.generation, (0, 0))[1]


def gather(places: Iterable[tuple[int, int]], fetch: Fetch, *, at_ns: int | None = None) -> Gathered:
    """Look at every record once: `places` are (time, place). Records after `at_ns` count only as erasures.

    Of an update that is there more than once the oldest record dates it: one that was brought back from a
    journal was stored anew.
    """
    found = Gathered()
    updates: dict[tuple[str, str], int] = {}  # and the place of each
    latest: dict[int, tuple[int, int]] = {}  # of each content: lease and time of its last record
    damaged: set[tuple[str, str]] = set()
    bases: dict[str, int] = {}  # by digest, the place of each
    vectors: dict[bytes, int] = {}  # of bases, with the highest lease of each
    for time_ns, place in sorted(places):
        try:
            record = fetch(place)
        except MalformedRecord as error:
            found.left[f"{UNREADABLE}: {error}"] += 1
            continue
        match record:
            case ErasedRecord(erased_ns):
                found.erased_ns = max(found.erased_ns, erased_ns)
                continue
            case UpdateRecord() | BaseRecord():
                found.epoch = max(found.epoch, record.epoch)
            case _:
                pass
        if at_ns is not None and time_ns > at_ns:
            found.later += 1
            continue
        match record:
            case UpdateRecord():
                found.generation = max(found.generation, record.generation)
                identity = (record.log_id, record.digest)
                if identity in updates:
                    found.repeated += 1
                    latest[updates[identity]] = (record.lease, time_ns)
                elif digest(record.payload) != record.digest:
                    damaged.add(identity)  # another journal may have it whole
                else:
                    updates[identity] = place
                    latest[place] = (record.lease, time_ns)
                    found.updates += 1
                    found.contents.append(Item(time_ns, place))
            case BaseRecord():
                found.generation = max(found.generation, record.generation)
                vectors[record.vector] = max(record.lease, vectors.get(record.vector, 0))
                if record.snapshot_digest in bases:
                    latest[bases[record.snapshot_digest]] = (record.lease, _ANY_TIME)
                elif digest(record.content) == record.snapshot_digest:
                    bases[record.snapshot_digest] = place
                    latest[place] = (record.lease, _ANY_TIME)
                    found.contents.append(Item(time_ns, place, is_base=True))
            case DeletedRecord(lease, generation, deleted_ns):
                found.generation = max(found.generation, generation)
                death = (deleted_ns, lease)
                found.deletions[generation] = max(death, found.deletions.get(generation, (0, 0)))
            case RestoredRecord(_, generation, past, past_ns):
                found.generation = max(found.generation, generation)
                found.past = max(found.past, (past, past_ns))
            case None:
                pass
    if lost := len(damaged - updates.keys()):
        found.left[DAMAGED] += lost
    past, past_ns = found.past
    if past:
        vectors = {vector: lease for vector, lease in vectors.items() if lease > past}
        alive = {place for place, (lease, time_ns) in latest.items() if lease > past and time_ns > past_ns}
        found.contents = [item for item in found.contents if item.place in alive]
    found.vectors = sorted(vectors)
    found.contents.sort(key=lambda item: (item.time_ns, not item.is_base, item.place))
    return found


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A document as the journals have it."""

    replica: Replica
    snapshot: bytes
    dated: str
    applied: int  # updates
    left: dict[str, int]  # why -> how many


def rebuild(found: Gathered, fetch: Fetch, *, now_ns: int) -> Rebuilt:
    """The document, as whole as these records can make it. Raises CrdtPanic if Loro cannot hold it at all.

    From nothing first: where the journals go back to the beginning that gives the whole history. Else
    from a snapshot whose own history was trimmed, the newest first; the best attempt counts.
    """
    best = _attempt(found, fetch, None, now_ns)
    if best.missing:
        shallow = [item for item in found.contents if item.is_base and _is_shallow(fetch, item)]
        for start in shallow[::-1][:_STARTS_MAX]:
            other = _attempt(found, fetch, start, now_ns)
            if other.missing < best.missing:
                best = other
            if not best.missing:
                break
    left = found.left + best.left
    return Rebuilt(best.replica, best.snapshot, best.dated, best.applied, dict(left))


@dataclass(slots=True)
class _Attempt:
    replica: Replica
    snapshot: bytes
    dated: str
    applied: int
    left: Counter[str]

    @property
    def missing(self) -> int:
        return self.left.total()


def _attempt(found: Gathered, fetch: Fetch, start: Item | None, now_ns: int) -> _Attempt:
    """Try until Loro takes it: after a panic, again without the update that did it."""
    skip: dict[int, str] = {}
    checked = False
    while True:
        building = _Building(fetch, checked=checked)
        items = found.contents if start is None else [start, *found.contents]
        try:
            building.take([item for item in items if item.place not in skip])
            snapshot = building.replica.snapshot()
        except _Poison as poison:
            skip[poison.place] = poison.why
            continue
        except CrdtPanic:
            if checked:
                raise
            checked = True  # a forged update shows only at an export: look for it one by one
            continue
        replica = building.replica
        left = building.left + Counter(f"Loro cannot hold it: {why}" for why in skip.values())
        left.update(NO_BASE for vector in found.vectors if not replica.includes(vector))
        building.history.thin(now_ns)
        versions = building.history.versions(replica.frontiers())
        return _Attempt(replica, snapshot, history.encode(versions), building.applied, left)


class _Poison(Exception):
    """Loro panicked on the record at that place: the replica must not be used any more."""

    def __init__(self, place: int, why: str) -> None:
        super().__init__(why)
        self.place = place
        self.why = why


class _Building:
    """A replica that takes records in any order."""

    def __init__(self, fetch: Fetch, *, checked: bool) -> None:
        self._fetch = fetch
        self._checked = checked
        self._empty = True
        self.replica = Replica(lazy=not checked)
        self.history = History()
        self.applied = 0
        self.left: Counter[str] = Counter()

    def take(self, items: Sequence[Item]) -> None:
        """Apply all that can be applied; note what cannot."""
        waiting = list(items)
        while waiting:
            again: list[Item] = []
            for item in waiting:
                try:
                    if not self._apply(item):
                        again.append(item)
                except CrdtPanic as error:
                    raise _Poison(item.place, str(error)) from error
                except HistoryTrimmed:
                    self.left[TRIMMED] += 1
                except CrdtError as error:
                    self.left[f"it does not decode: {error}"] += 1
            if len(again) == len(waiting):
                break
            waiting = again
        self.left.update(NO_BASE if item.is_base else MISSING for item in waiting)

    def _apply(self, item: Item) -> bool:
        """Whether the whole record is in the document now."""
        payload = content(self._fetch(item.place))
        ended = self.history.before_apply(item.time_ns, self.replica.frontiers)
        if item.is_base and self._empty:  # a trimmed snapshot goes only into an empty document
            self.replica = Replica.from_snapshot(payload, lazy=not self._checked)
            new = True
        else:
            result = self.replica.apply(payload)
            if not isinstance(result, Applied):
                return False
            new = result.new
        if self._checked:
            self.replica.fork()
        if new:
            self.history.after_apply(ended, item.time_ns, 0)
        self.applied += not item.is_base
        self._empty = False
        return True


def content(record: DocumentRecord | None) -> bytes:
    """The Loro bytes of an update or a base."""
    match record:
        case UpdateRecord():
            return record.payload
        case BaseRecord():
            return record.content
        case _:
            raise AssertionError(f"{record} has no content")


def _is_shallow(fetch: Fetch, item: Item) -> bool:
    try:
        return bool(Replica.from_snapshot(content(fetch(item.place)), lazy=True).trimmed() != b"\x00")
    except CrdtError:
        return False
