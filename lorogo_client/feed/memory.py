"""The delivered changes of a feed, per document, so that none is delivered twice. Pure.

docs/decisions/0010 has the reasons.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import xxhash

from lorogo_client.feed.items import Deleted, Erased, FeedItem, Gap, Restored, Update
from lorogo_protocol.errors import CrdtError
from lorogo_protocol.journal.pages import EVERYTHING, FeedStart, PageEntry
from lorogo_protocol.journal.records import (
    BaseRecord,
    DeletedRecord,
    ErasedRecord,
    Span,
    TermKind,
    TermRecord,
    UpdateRecord,
)
from lorogo_protocol.limits import DOCUMENT_ID_CHARS_MAX
from lorogo_protocol.loro import crdt

DOCUMENTS_MAX = 100_000
_ODD_MAX = 64


class FeedDecision(Enum):
    """The decision on a record."""

    GIVE = "give"
    PASS = "pass"  # delivered before, or never to be delivered
    HOLD = "hold"  # a change before it is missing: other journals may have it


@dataclass(slots=True)
class DeliveredChanges:
    """The delivered changes of one document."""

    whole: bool  # delivered from its beginning, so that a hole is a gap
    stage: int = 0  # twice the generation, plus one when deleted
    erased_ns: int = 0
    counters: dict[int, int] = field(default_factory=dict)  # by peer: end counter (exclusive)
    odd: list[int] = field(default_factory=list)  # hashes of the last few updates without spans


def whole(value: object) -> int:
    """Check for an unsigned 64-bit number. Raises TypeError, ValueError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"a number was expected, not {type(value).__name__}")
    if not 0 <= value < 1 << 64:
        raise ValueError("a number has more than 64 bits, or is below zero")
    return value


class FeedMemory:
    """The delivered changes of all documents of a feed."""

    def __init__(self, start: FeedStart = EVERYTHING, *, documents_max: int = DOCUMENTS_MAX) -> None:
        self.start = start
        self.forgot = False  # a document was evicted: its changes might repeat
        self._documents_max = documents_max
        self._documents: dict[str, DeliveredChanges] = {}  # the most recently used is at the end

    def __len__(self) -> int:
        return len(self._documents)

    def look(self, entry: PageEntry) -> FeedDecision:
        """Decide on a record; changes nothing."""
        given = self._documents.get(entry.document) or DeliveredChanges(self._is_whole())
        record = entry.record
        match record:
            case UpdateRecord():
                if _known(given, record) or _before(record) < given.stage:
                    return FeedDecision.PASS  # the latter: by an owner that missed the deletion
                if given.stage < _before(record) or (given.whole and any(_holes(given, record))):
                    return FeedDecision.HOLD
                return FeedDecision.GIVE
            case BaseRecord():
                return FeedDecision.HOLD if any(_lacks(given, record)) else FeedDecision.PASS
            case TermRecord(kind=kind) if kind is not TermKind.RESTORED:
                return FeedDecision.PASS
            case DeletedRecord() | TermRecord():
                if given.stage > _before(record):
                    return FeedDecision.PASS
                return FeedDecision.GIVE if given.stage == _before(record) else FeedDecision.HOLD
            case ErasedRecord(erased_ns=erased_ns):
                return FeedDecision.GIVE if erased_ns > given.erased_ns else FeedDecision.PASS

    def give(self, entry: PageEntry) -> FeedItem:
        """Return the record as an item, and count it as delivered."""
        given, record, document = self._of(entry.document), entry.record, entry.document
        match record:
            case UpdateRecord():
                _join(given, ((peer, end) for peer, _, end in record.spans))
                if not record.spans:
                    given.odd = [*given.odd, _name(record)][-_ODD_MAX:]
                return Update(
                    document,
                    record.sequence,
                    record.epoch,
                    entry.time_ns,
                    record.log_id,
                    record.digest,
                    record.lease,
                    record.generation,
                    record.spans,
                    record.payload,
                )
            case DeletedRecord(generation=generation, deleted_ns=deleted_ns):
                given.stage = 2 * generation + 1
                return Deleted(document, record.lease, generation, deleted_ns)
            case TermRecord(generation=generation):
                given.stage = 2 * generation
                return Restored(document, record.lease, generation, entry.time_ns)
            case ErasedRecord(erased_ns=erased_ns):
                given.erased_ns = erased_ns
                return Erased(document, erased_ns)
            case BaseRecord():
                raise AssertionError("a base is never delivered")

    def skip_missing(self, entry: PageEntry, *, away: bool) -> Gap | None:
        """Continue without the missing changes before a held record; return the gap to report, if any.

        A feed that started in the middle cannot distinguish changes older than its start from missing ones.
        It accepts the first base without a gap, unless an absent server (`away`) may have had changes after
        the start. A base that covers the WAL up to the start makes the document whole.
        """
        given, record = self._of(entry.document), entry.record
        match record:
            case BaseRecord():
                missing = tuple(_lacks(given, record))
            case UpdateRecord():
                missing = tuple(_holes(given, record)) if given.whole else ()
            case _:
                missing = ()
        if isinstance(record, UpdateRecord | DeletedRecord | TermRecord):
            given.stage = max(given.stage, _before(record))
        _join(given, ((peer, end) for peer, _, end in missing))
        report = bool(missing) and given.whole
        if isinstance(record, BaseRecord):
            start, covers = self.start, (record.epoch, record.sequence)
            begun = (start.epoch, start.sequence)
            report = report or (bool(missing) and away and covers > begun)
            by_sequence = bool(start.sequence) or start.everything
            given.whole = given.whole or (by_sequence and covers >= begun)
        lease = 0 if isinstance(record, ErasedRecord) else record.lease
        return Gap(entry.document, lease, entry.time_ns, missing) if report else None

    # --- serialisation ----------------------------------------------------------------------------

    def encode(self) -> list[object]:
        """Return a value for msgpack."""
        rows = [
            [document, given.whole, given.stage, given.erased_ns, given.counters, given.odd]
            for document, given in self._documents.items()
        ]
        return [self.forgot, rows]

    @classmethod
    def decode(cls, value: Any, start: FeedStart) -> "FeedMemory":
        """Parse the value of `encode()`. Raises ValueError, TypeError, AttributeError."""
        forgot, rows = value
        memory = cls(start)
        memory.forgot = bool(forgot)
        if not isinstance(rows, list) or len(rows) > memory._documents_max:
            raise ValueError(f"more than {memory._documents_max} documents")
        for document, known, stage, erased_ns, counters, odd in rows:
            if not isinstance(document, str) or len(document) > DOCUMENT_ID_CHARS_MAX or len(odd) > _ODD_MAX:
                raise ValueError("a document has a name that is too long, or too many updates")
            numbers = {whole(peer): whole(end) for peer, end in counters.items()}
            given = DeliveredChanges(
                bool(known), whole(stage), whole(erased_ns), numbers, list(map(whole, odd))
            )
            memory._documents[document] = given
        return memory

    def _of(self, document: str) -> DeliveredChanges:
        given = self._documents.pop(document, None) or DeliveredChanges(self._is_whole())
        self._documents[document] = given
        if len(self._documents) > self._documents_max:
            del self._documents[next(iter(self._documents))]
            self.forgot = True
        return given

    def _is_whole(self) -> bool:
        """True if an unknown document has no delivered changes."""
        return self.start.everything and not self.forgot


def _known(given: DeliveredChanges, record: UpdateRecord) -> bool:
    if not record.spans:
        return _name(record) in given.odd
    counters = given.counters
    return all(end <= counters.get(peer, 0) for peer, _, end in record.spans)


def _before(record: UpdateRecord | DeletedRecord | TermRecord) -> int:
    """Return the document's stage before the record."""
    stage = 2 * record.generation
    return stage - 1 if isinstance(record, TermRecord) else stage


def _holes(given: DeliveredChanges, record: UpdateRecord) -> Iterator[Span]:
    """Yield undelivered changes of the update's peers before its own."""
    for peer, first, _ in record.spans:
        have = given.counters.get(peer, 0)
        if have < first:
            yield peer, have, first


def _lacks(given: DeliveredChanges, record: BaseRecord) -> Iterator[Span]:
    """Yield undelivered changes in a base."""
    try:
        named = crdt.counters(record.vector)
    except CrdtError:
        return  # an unreadable base must not stop the feed; later updates show the holes
    for peer, end in sorted(named.items()):
        have = given.counters.get(peer, 0)
        if have < end:
            yield peer, have, end


def _join(given: DeliveredChanges, ends: Iterable[tuple[int, int]]) -> None:
    for peer, end in ends:
        if end > given.counters.get(peer, 0):
            given.counters[peer] = end


def _name(record: UpdateRecord) -> int:
    return xxhash.xxh64_intdigest(f"{record.log_id} {record.digest}".encode())
