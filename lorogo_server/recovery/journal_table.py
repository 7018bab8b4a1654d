"""Contents of the journals, per document, folded from their records; pure.

The journals are read once, from the end of the last reading. This table is compared with NATS: a document
without changes since it was last found complete costs nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgpack
import xxhash

from lorogo_protocol.journal.incarnation import (
    DocumentTerms,
    Ends,
    Incarnation,
    Tombstone,
    operations,
)
from lorogo_protocol.journal.records import BaseRecord, DocumentRecord

_FORMAT = 6  # another one is not read: the journals are read from their beginning
_CHECK_BYTES = 8
_BROKERS_MAX = 16
_REJECTED_MAX = 10_000
_NEVER = (-1, -1)

BasePlace = tuple[str, int, int]  # journal, sequence and extent of a base with content


@dataclass(slots=True)
class JournalledDocument:
    """One document, as the journals and the metadata of its snapshot describe it."""

    terms: DocumentTerms = field(default_factory=DocumentTerms)
    bases: dict[str, BasePlace] = field(default_factory=dict)  # the largest of each term
    # The stored snapshot's revision and the WAL's messages when it was last found complete, and when.
    complete: tuple[int, int] = _NEVER
    complete_ns: int = 0

    @property
    def incarnation(self) -> Incarnation:
        """The document that all records describe."""
        return self.terms.incarnation()

    @property
    def ends(self) -> Ends:
        """Ends of the operations that the document must have."""
        return self.incarnation.ends

    @property
    def base(self) -> BasePlace:
        """The largest base of the content; an empty journal name: none."""
        has = self.incarnation.has
        return max((at for term, at in self.bases.items() if has(term)), key=_extent, default=("", 0, 0))

    def add(self, record: DocumentRecord, journal: str, sequence: int) -> None:
        """Add a record of a journal; neither order nor repetition matters."""
        self.terms.add(record)
        if isinstance(record, BaseRecord) and record.content:
            extent = sum(operations(record).values())
            if extent > self.bases.get(record.term, ("", 0, 0))[2]:
                self.bases[record.term] = (journal, sequence, extent)
        if self.terms.changed:
            self.forget()

    def forget(self) -> None:
        """Compare the document with NATS again."""
        self.complete = _NEVER


def _extent(place: BasePlace) -> int:
    return place[2]


@dataclass(slots=True)
class JournalProgress:
    """Progress of reading one journal."""

    log_id: bytes = b""
    settled: int = 0  # where the next reading begins
    seen: int = 0  # where a reading ended
    seen_ns: int = 0


class JournalTable:
    """Every document in the journals, and the progress of reading them."""

    def __init__(self) -> None:
        self.rows: dict[str, JournalledDocument] = {}
        self.readings: dict[str, JournalProgress] = {}
        self.rejected: dict[tuple[str, str, str], None] = {}  # (document, log id, digest), oldest first
        self.epoch = 1  # of the WAL that it was last compared with
        self.brokers: list[str] = []  # nats-servers that it was compared with, the newest last
        self.snapshots = (0, 0)  # when their stream was made, and its last sequence
        self.highest = 0  # the highest lease that a record names

    def fold(self, document_id: str, record: DocumentRecord, journal: str, sequence: int) -> None:
        """Add a record; neither order nor repetition matters."""
        row = self.rows.get(document_id)
        if row is None:
            row = self.rows[document_id] = JournalledDocument()
        self.highest = max(self.highest, record.lease)
        row.add(record, journal, sequence)

    def forget_complete(self) -> None:
        """Compare every document again, since the stream changed."""
        for row in self.rows.values():
            row.forget()

    def reject(self, document_id: str, log_id: str, digest: str) -> bool:
        """Note an update that can never be accepted again; return False if it was noted before."""
        key = (document_id, log_id, digest)
        if key in self.rejected:
            return False
        self.rejected[key] = None
        while len(self.rejected) > _REJECTED_MAX:
            del self.rejected[next(iter(self.rejected))]
        return True

    def met(self, broker_id: str) -> bool:
        """Return True if this run of a nats-server is known; note it."""
        known = broker_id in self.brokers
        if not known:
            self.brokers = [*self.brokers[1 - _BROKERS_MAX :], broker_id]
        return known

    # --- progress ---------------------------------------------------------------------------------

    def forget_readings(self, there: Iterable[str]) -> None:
        """Read a journal that is absent now from its beginning when it returns."""
        known = set(there)
        self.readings = {place: reading for place, reading in self.readings.items() if place in known}

    def begin(self, journal: str, log_id: bytes) -> int:
        """Return the sequence to read a journal from; 0 for another log than at the last reading."""
        reading = self.readings.get(journal)
        if reading is None or reading.log_id != log_id:
            reading = self.readings[journal] = JournalProgress(log_id)
        return reading.settled

    def ended(self, journal: str, at: int, now_ns: int, young_ns: int) -> None:
        """Note that the journal was read up to a sequence.

        The next reading begins where a reading ended `young_ns` ago: a crash may cut the end of a log that
        another process writes, and its sequences are used again.
        """
        reading = self.readings[journal]
        if now_ns - reading.seen_ns >= young_ns or now_ns < reading.seen_ns:
            reading.settled, reading.seen, reading.seen_ns = reading.seen, at, now_ns

    # --- on disk ----------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Encode as a checksum followed by msgpack."""
        body: bytes = msgpack.packb(
            [
                _FORMAT,
                self.epoch,
                self.snapshots,
                self.brokers,
                [(place, r.log_id, r.settled, r.seen, r.seen_ns) for place, r in self.readings.items()],
                [(name, *_packed(row)) for name, row in self.rows.items()],
                list(self.rejected),
                self.highest,
            ]
        )
        return bytes(xxhash.xxh64(body).digest()) + body


def decode(data: bytes) -> JournalTable:
    """Decode a table; return an empty one if the bytes are damaged or of another version."""
    table = JournalTable()
    check, body = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
    if len(check) != _CHECK_BYTES or xxhash.xxh64(body).digest() != check:
        return table
    unpacked: list[Any] = msgpack.unpackb(body, strict_map_key=False)
    if unpacked[0] != _FORMAT:
        return table
    _, table.epoch, snapshots, table.brokers, readings, rows, rejected, table.highest = unpacked
    table.snapshots = (snapshots[0], snapshots[1])
    table.readings = {place: JournalProgress(*rest) for place, *rest in readings}
    table.rows = {name: _unpacked(*rest) for name, *rest in rows}
    table.rejected = dict.fromkeys((document, log_id, digest) for document, log_id, digest in rejected)
    return table


def _packed(row: JournalledDocument) -> tuple[Any, ...]:
    terms = row.terms
    return (
        {term: sorted(parents) for term, parents in terms.parents.items()},
        sorted(terms.founded),
        terms.operations,
        [(name, sorted(one.ends), *_numbers(one)) for name, one in terms.tombstones.items()],
        terms.vectors,
        sorted(terms.undone),
        terms.generation,
        row.bases,
        row.complete,
        row.complete_ns,
    )


def _numbers(one: Tombstone) -> tuple[int, ...]:
    return one.lease, one.generation, one.deleted_ns, one.erased_ns


def _unpacked(
    parents: dict[str, list[str]],
    founded: list[str],
    ends: dict[str, Ends],
    tombstones: list[Any],
    vectors: dict[str, Ends],
    undone: list[str],
    generation: int,
    bases: dict[str, list[Any]],
    complete: list[int],
    complete_ns: int,
) -> JournalledDocument:
    terms = DocumentTerms()
    terms.parents = {term: set(some) for term, some in parents.items()}
    terms.founded, terms.undone, terms.vectors = set(founded), set(undone), vectors
    terms.operations, terms.generation = ends, generation
    terms.tombstones = {name: Tombstone(frozenset(of), *numbers) for name, of, *numbers in tombstones}
    places = {term: (at[0], at[1], at[2]) for term, at in bases.items()}
    terms.incarnation()  # not changed since it was complete
    return JournalledDocument(terms, places, (complete[0], complete[1]), complete_ns)
