"""Rebuilds one document from its journal records; other modules read and store.

Records of several journals are merged by id, so a repeated update counts once. They are applied in the order
of their times; an update with missing dependencies waits. The report names the rest with its reason.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lorogo_protocol.errors import CrdtError, HistoryTrimmed
from lorogo_protocol.journal.incarnation import DocumentTerms, Tombstone
from lorogo_protocol.journal.records import (
    BaseRecord,
    DeletedRecord,
    DocumentRecord,
    ErasedRecord,
    MalformedRecord,
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
_STARTS_MAX = 4  # shallow bases that are tried as the beginning

Fetch = Callable[[int], DocumentRecord | None]  # the record at a place; None: of an unknown kind


@dataclass(frozen=True, slots=True)
class Item:
    """A record: its time, its kind, and the place of its bytes."""

    time_ns: int
    place: int
    is_base: bool = False


@dataclass(slots=True)
class Gathered:
    """All records of one document; bytes are fetched when they are needed."""

    contents: list[Item] = field(default_factory=list)  # updates once each, and bases with content
    vectors: list[bytes] = field(default_factory=list)  # of every base: the document must include them
    updates: int = 0
    repeated: int = 0
    later: int = 0  # records after the wanted time
    epoch: int = 0
    terms: DocumentTerms = field(default_factory=DocumentTerms)
    left: Counter[str] = field(default_factory=Counter)

    @property
    def tombstone(self) -> Tombstone | None:
        """The deletion of the document; None: it lives."""
        incarnation = self.terms.incarnation()
        return self.terms.tombstones[incarnation.tombstone] if incarnation.deleted else None

    @property
    def deleted_ns(self) -> int:
        """Time of the deletion; 0: the document lives."""
        return 0 if self.tombstone is None else self.tombstone.deleted_ns

    @property
    def erased_ns(self) -> int:
        """Time of the erasure; 0: the document lives, or is only deleted."""
        return 0 if self.tombstone is None else self.tombstone.erased_ns


def gather(places: Iterable[tuple[int, int]], fetch: Fetch, *, at_ns: int | None = None) -> Gathered:
    """Read every record once: `places` are (time, place). Of records after `at_ns` only erasures count.

    The oldest record of an update dates it: recovery publishes updates again, with new times.
    """
    found = Gathered()
    terms = found.terms
    places_of: dict[tuple[str, ...], int] = {}  # by identity of the content
    terms_of: dict[int, set[str]] = {}  # by place
    damaged: set[tuple[str, ...]] = set()
    vectors: dict[bytes, set[str]] = {}  # of bases, and the terms that loaded them
    for time_ns, place in sorted(places):
        try:
            record = fetch(place)
        except MalformedRecord as error:
            found.left[f"{UNREADABLE}: {error}"] += 1
            continue
        if record is None:
            continue
        if isinstance(record, UpdateRecord | BaseRecord):
            found.epoch = max(found.epoch, record.epoch)
        if at_ns is not None and time_ns > at_ns and not isinstance(record, ErasedRecord):
            found.later += 1
            if isinstance(record, DeletedRecord):
                terms.undo((record.tombstone,))  # else a server would delete what is restored
            continue
        terms.add(record)
        match record:
            case UpdateRecord():
                identity: tuple[str, ...] = (record.log_id, record.digest)
                is_base = False
            case BaseRecord():
                vectors.setdefault(record.vector, set()).add(record.term)
                identity, is_base = (record.snapshot_digest,), True
            case _:
                continue
        if identity in places_of:
            found.repeated += not is_base
            terms_of[places_of[identity]].add(record.term)
        elif digest(content(record)) == identity[-1]:
            places_of[identity] = place
            terms_of[place] = {record.term}
            found.updates += not is_base
            found.contents.append(Item(time_ns, place, is_base=is_base))
        elif not is_base:
            damaged.add(identity)  # another journal may have it whole
    if lost := len(damaged - places_of.keys()):
        found.left[DAMAGED] += lost
    has = terms.incarnation().has
    found.vectors = sorted(vector for vector, of in vectors.items() if any(map(has, of)))
    found.contents = [item for item in found.contents if any(map(has, terms_of[item.place]))]
    found.contents.sort(key=lambda item: (item.time_ns, not item.is_base, item.place))
    return found


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A document as the journals describe it."""

    replica: Replica
    snapshot: bytes
    dated: str
    applied: int  # updates
    left: dict[str, int]  # number by reason


def rebuild(found: Gathered, fetch: Fetch, *, now_ns: int) -> Rebuilt:
    """Return the document with as much as these records allow. Raises CrdtPanic if Loro cannot hold it.

    The first attempt begins with an empty document: journals from its beginning give the whole history.
    Others begin with a snapshot whose history was trimmed, the newest first; the best attempt counts.
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
    """Try until Loro accepts it: after a panic, again without the update that caused it."""
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
            checked = True  # a forged update shows only at an export: export after each update
            continue
        replica = building.replica
        left = building.left + Counter(f"Loro cannot hold it: {why}" for why in skip.values())
        left.update(NO_BASE for vector in found.vectors if not replica.includes(vector))
        building.history.thin(now_ns)
        versions = building.history.versions(replica.frontiers())
        return _Attempt(replica, snapshot, history.encode(versions), building.applied, left)


class _Poison(Exception):
    """Loro panicked on the record at that place; the replica is broken."""

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
        """Apply every record that can be applied; note the others."""
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
        """Apply a record; return False if its dependencies are missing."""
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
    """Return the Loro bytes of an update or a base."""
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
