"""What the journals hold, per document: the far ends of its changes, and whether it lives. Pure.

The journals are read once, from where the last reading ended. What is compared with the stream is this
table: a document of which nothing changed since it was last found complete costs nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack
import xxhash

from lorogo_protocol.errors import CrdtError
from lorogo_protocol.journal.records import (
    BaseRecord,
    DeletedRecord,
    DocumentRecord,
    ErasedRecord,
    RestoredRecord,
    UpdateRecord,
)
from lorogo_protocol.loro import crdt

Ends = dict[int, int]  # of each peer, the counter behind its last change

_FORMAT = 5  # another one is not read, but the journals are, anew
_CHECK_BYTES = 8
_BROKERS_MAX = 16
_REJECTED_MAX = 10_000
_NEVER = (-1, -1)


def includes(have: Mapping[int, int], wanted: Mapping[int, int]) -> bool:
    """Whether everything up to those ends is in it: a version has no holes."""
    return all(have.get(peer, 0) >= end for peer, end in wanted.items())


@dataclass(slots=True)
class JournalledDocument:
    """One document, as the journals tell of it."""

    ends: Ends = field(default_factory=dict)
    generation: int = 0
    deleted_ns: int = 0  # in that generation; 0: it lives
    deleted_lease: int = 0
    erased_ns: int = 0  # what is older must not come back
    base: tuple[str, int, int] = ("", 0, 0)  # journal, sequence and extent of the greatest base with content
    # The stored snapshot's revision and the WAL's messages when it was last found complete, and when.
    complete: tuple[int, int] = _NEVER
    complete_ns: int = 0
    floor: int = 0  # the lease of a deletion that it has outlived, its tombstone being lost; 0: of none
    floor_ns: int = 0  # when that was
    edited: int = 0  # the lease of whoever accepted the last update, or restored it after that
    edited_ns: int = 0  # when that was, by NATS's clock
    undone: int = 0  # the lease of the last restore
    undone_ns: int = 0
    outlived: bool = False  # a deletion was told of after edits of a later owner: it must be read again
    # Leases of this life, by what they accepted after the floor: what they loaded is of it, too, if older.
    late: frozenset[int] = frozenset()

    def past(self, record: DocumentRecord, time_ns: int) -> bool:
        """Whether it went with the life before this one.

        Updates are dated by NATS, and must be later by lease and date; bases by whoever loaded them.
        But what an owner of this life found in the WAL, others' edits may build on: it is of this life.
        """
        match record:
            case UpdateRecord():
                before = record.lease <= self.floor or time_ns <= self.floor_ns
                return bool(self.floor) and before and record.lease not in self.late
            case BaseRecord():
                return bool(self.floor) and record.lease <= self.floor
            case _:
                return False

    def survives_erasure(self, lease: int, time_ns: int) -> bool:
        """Whether a base of that lease, and of that time by its owner's clock, is later than an erasure."""
        return not self.erased_ns or (time_ns > self.erased_ns and lease > self.deleted_lease)

    def forsakes(self, record: DocumentRecord, time_ns: int) -> bool:
        """Whether it went with the life before this one, and nothing of this one builds on it."""
        match record:
            case UpdateRecord() if self.past(record, time_ns):
                return not includes(self.ends, reaches(record))
            case BaseRecord() if self.past(record, time_ns):
                return not includes(self.ends, _ends(record.vector))
            case _:
                return False

    def edit(self, lease: int, time_ns: int) -> None:
        """An owner with that lease accepted an update, or restored it, then."""
        self.edited_ns, self.edited = max((self.edited_ns, self.edited), (time_ns, lease))
        if self.floor and lease > self.floor and time_ns > self.floor_ns and lease not in self.late:
            self.late |= {lease}
            self.outlived = True  # what it had loaded was passed over

    def begin_after(self, lease: int, time_ns: int) -> None:
        """What owners up to that lease wrote, or up to that time, is a former life's."""
        if lease > self.floor or time_ns > self.floor_ns:
            self.floor, self.floor_ns = max(lease, self.floor), max(time_ns, self.floor_ns)
            self.late = frozenset(late for late in self.late if late > self.floor)
            self.outlived = True
            self.forget()

    def forget(self) -> None:
        """Compare it again."""
        self.complete = _NEVER

    def extend(self, ends: Mapping[int, int]) -> None:
        """The journals hold changes up to there."""
        for peer, end in ends.items():
            if end > self.ends.get(peer, 0):
                self.ends[peer] = end
                self.forget()

    def lives(self, generation: int, lease: int, time_ns: int) -> None:
        """Something happened to it in that generation, then, under that lease.

        A life that begins after NATS lost all is of generation 0: a deletion that is later by lease and
        time stands, whatever its generation.
        """
        if generation > self.generation:
            self.generation = generation
            if not (self.deleted_lease > lease and self.deleted_ns > time_ns):
                self.deleted_ns = self.deleted_lease = 0
            self.forget()

    def restored(self, lease: int, time_ns: int) -> None:
        """What that owner, or one before it, had deleted before then is undone; a later deletion stands."""
        self.undone_ns, self.undone = max((self.undone_ns, self.undone), (time_ns, lease))
        if self.deleted_ns and self._undid(self.deleted_lease, self.deleted_ns):
            self.deleted_ns = self.deleted_lease = 0
            self.forget()

    def _undid(self, lease: int, deleted_ns: int) -> bool:
        return not self.erased_ns and self.undone >= lease and self.undone_ns > deleted_ns

    def reborn(self, generation: int, lease: int, time_ns: int) -> None:
        """An owner with that lease accepted an update then: if it was deleted before, it has a new life.

        Its tombstone was lost, and somebody opened it. What it held before stays gone, what is ACKed since
        must be able to come back. An erased document stays what it is.
        """
        if (
            not self.deleted_ns
            or self.erased_ns
            or generation > self.generation  # it was restored
            or lease <= self.deleted_lease
            or time_ns <= self.deleted_ns
        ):
            return
        self.floor, self.floor_ns = self.deleted_lease, self.deleted_ns
        self.deleted_ns = self.deleted_lease = 0
        self.ends, self.base, self.late = {}, ("", 0, 0), frozenset()
        self.forget()

    def dies(self, generation: int, deleted_ns: int, lease: int) -> None:
        """It was deleted in that generation; if it was erased after that, by the later of two owners."""
        if self.floor and 0 < lease <= self.floor and deleted_ns <= self.floor_ns:
            return
        if self._undid(lease, deleted_ns):
            self.generation = max(generation, self.generation)
            return
        earlier = 0 < lease < self.edited and deleted_ns < self.edited_ns
        later = lease > self.edited and deleted_ns > self.edited_ns
        if generation >= self.generation and not self.erased_ns and earlier:
            self.generation = generation
            self.begin_after(lease, deleted_ns)
        elif generation > self.generation or (
            not self.deleted_ns and (generation == self.generation or later)
        ):
            self.generation = max(generation, self.generation)
            self.deleted_ns, self.deleted_lease = deleted_ns, lease
            self.forget()
        elif generation == self.generation and (lease > self.deleted_lease or deleted_ns < self.deleted_ns):
            self.deleted_ns = min(deleted_ns, self.deleted_ns)
            self.deleted_lease = max(lease, self.deleted_lease)
            self.forget()


@dataclass(slots=True)
class JournalProgress:
    """How far one journal was read."""

    log_id: bytes = b""
    settled: int = 0  # where the next reading begins
    seen: int = 0  # where a reading ended
    seen_ns: int = 0


class JournalTable:
    """Every document in the journals, and how far these were read."""

    def __init__(self) -> None:
        self.rows: dict[str, JournalledDocument] = {}
        self.readings: dict[str, JournalProgress] = {}
        self.rejected: dict[tuple[str, str, str], None] = {}  # (document, log id, digest), oldest first
        self.epoch = 1  # of the WAL that it was last compared with
        self.brokers: list[str] = []  # nats-servers that it was compared with, the newest last
        self.snapshots = (0, 0)  # when their stream was made, and its last sequence
        self.highest = 0  # the highest lease that a record names

    def fold(self, document_id: str, record: DocumentRecord, time_ns: int, place: str, sequence: int) -> None:
        """Take a record into account; the order does not matter, nor does once or twice.

        But for one thing: that a deleted document lives again is seen only behind its deletion.
        """
        row = self.rows.get(document_id)
        if row is None:
            row = self.rows[document_id] = JournalledDocument()
        self.highest = max(self.highest, record.lease)
        match record:
            case UpdateRecord() | BaseRecord() if row.past(record, time_ns):
                pass
            case UpdateRecord() if time_ns > row.erased_ns:
                row.reborn(record.generation, record.lease, time_ns)
                row.lives(record.generation, record.lease, time_ns)
                row.edit(record.lease, time_ns)
                row.extend(reaches(record))
            case BaseRecord() if row.survives_erasure(record.lease, time_ns):
                row.lives(record.generation, record.lease, time_ns)
                ends = _ends(record.vector)
                row.extend(ends)
                extent = sum(ends.values())
                if record.content and extent > row.base[2]:
                    row.base = (place, sequence, extent)
            case DeletedRecord():
                row.dies(record.generation, record.deleted_ns, record.lease)
            case RestoredRecord():
                row.lives(record.generation, record.lease, time_ns)
                if record.past:  # a load says what it found
                    row.begin_after(record.past, record.past_ns)
                else:
                    row.restored(record.lease, time_ns)
                    row.edit(record.lease, time_ns)
            case ErasedRecord() if record.erased_ns >= row.erased_ns:
                if record.erased_ns > row.erased_ns:
                    row.erased_ns = record.erased_ns
                    row.ends, row.base = {}, ("", 0, 0)
                row.dies(max(row.generation, record.generation), record.erased_ns, record.lease)
            case _:
                pass  # older than its erasure

    def forget_complete(self) -> None:
        """The stream is not what it was: compare every document again."""
        for row in self.rows.values():
            row.forget()

    def reject(self, document_id: str, log_id: str, digest: str) -> bool:
        """Note an update that can never come back; False if it was noted before."""
        key = (document_id, log_id, digest)
        if key in self.rejected:
            return False
        self.rejected[key] = None
        while len(self.rejected) > _REJECTED_MAX:
            del self.rejected[next(iter(self.rejected))]
        return True

    def met(self, broker_id: str) -> bool:
        """Whether that nats-server, in that life, is one that we know; from now on it is."""
        known = broker_id in self.brokers
        if not known:
            self.brokers = [*self.brokers[1 - _BROKERS_MAX :], broker_id]
        return known

    # --- how far ----------------------------------------------------------------------------------

    def forget_readings(self, there: Iterable[str]) -> None:
        """A journal that is away is read from its beginning when it is back: what it has was not tried."""
        known = set(there)
        self.readings = {place: reading for place, reading in self.readings.items() if place in known}

    def begin(self, place: str, log_id: bytes) -> int:
        """Where to read that journal from; of another log than before, from its beginning."""
        reading = self.readings.get(place)
        if reading is None or reading.log_id != log_id:
            reading = self.readings[place] = JournalProgress(log_id)
        return reading.settled

    def ended(self, place: str, at: int, now_ns: int, young_ns: int) -> None:
        """The journal was read up to there.

        It is read again from what was seen `young_ns` ago: the end of a log that another process writes
        may be torn off, and its sequences used again.
        """
        reading = self.readings[place]
        if now_ns - reading.seen_ns >= young_ns or now_ns < reading.seen_ns:
            reading.settled, reading.seen, reading.seen_ns = reading.seen, at, now_ns

    # --- kept -------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """As it is written: a checksum, then msgpack."""
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
    """The table in those bytes; an empty one if they are damaged or of another version."""
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
    return (
        row.ends,
        row.generation,
        row.deleted_ns,
        row.deleted_lease,
        row.erased_ns,
        row.base,
        row.complete,
        row.complete_ns,
        row.floor,
        row.floor_ns,
        row.edited,
        row.edited_ns,
        row.undone,
        row.undone_ns,
        row.outlived,
        sorted(row.late),
    )


def _unpacked(
    ends: Ends,
    generation: int,
    deleted_ns: int,
    deleted_lease: int,
    erased_ns: int,
    base: list[Any],
    complete: list[int],
    complete_ns: int,
    floor: int,
    floor_ns: int,
    edited: int,
    edited_ns: int,
    undone: int,
    undone_ns: int,
    outlived: bool,
    late: list[int],
) -> JournalledDocument:
    return JournalledDocument(
        ends,
        generation,
        deleted_ns,
        deleted_lease,
        erased_ns,
        (base[0], base[1], base[2]),
        (complete[0], complete[1]),
        complete_ns,
        floor,
        floor_ns,
        edited,
        edited_ns,
        undone,
        undone_ns,
        outlived,
        frozenset(late),
    )


def reaches(update: UpdateRecord) -> Ends:
    """The far ends of its changes."""
    return {peer: end for peer, _, end in update.spans or _spans(update.payload)}


def _ends(vector: bytes) -> Ends:
    try:
        return crdt.counters(vector)
    except CrdtError:
        return {}


def _spans(payload: bytes) -> tuple[tuple[int, int, int], ...]:
    try:
        return crdt.spans(payload)
    except CrdtError:
        return ()  # it was imported once, and cannot be read now: nothing can be said of it
