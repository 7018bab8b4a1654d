"""Journal records: one per event of a document, or of the server (docs/JOURNAL.md).

Pure: converts records to lists for msgpack and back; `lorogo_log` reads and writes files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.ids import is_token
from lorogo_protocol.journal.latency import COUNTS_MAX

LAYOUT = 2
ANSWERS_KEY = b"-answers"  # instead of a document id, which cannot start with `-`
REASONS_MAX = 256  # in one record; the protocol has some twenty
Span = tuple[int, int, int]  # peer, first counter, counter after the last


class MalformedRecord(LorogoError):
    """A journal record is malformed; the message has the reason."""

    code = "malformed-record"


class UnsupportedRecord(MalformedRecord):
    """A journal record has the layout of an unreleased version, which this one does not read."""

    code = "unsupported-record"


class TermKind(StrEnum):
    """Origin of a term: the acquisition of a document by one owner (docs/decisions/0023)."""

    ACQUIRED = "acquired"
    CREATED = "created"  # by fork or import: the term lives without an accepted update
    RESTORED = "restored"  # by `doc restore`: the term lives without an accepted update


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """An update was accepted."""

    epoch: int
    sequence: int
    log_id: str
    digest: str
    lease: int
    generation: int
    spans: tuple[Span, ...]
    payload: bytes
    term: str = ""


@dataclass(frozen=True, slots=True)
class BaseRecord:
    """The document was loaded or created from a snapshot; `content` is empty if the journal covers it."""

    epoch: int
    sequence: int
    lease: int
    generation: int
    snapshot_digest: str
    vector: bytes
    frontiers: bytes
    content: bytes
    term: str = ""


@dataclass(frozen=True, slots=True)
class TermRecord:
    """An owner names its term, the terms that it continues, and the deletions that it knows as undone."""

    term: str
    ancestors: tuple[str, ...]  # nearest first
    kind: TermKind
    undoes: tuple[str, ...]  # ids of tombstones
    lease: int
    generation: int


@dataclass(frozen=True, slots=True)
class DeletedRecord:
    """A tombstone was stored, or was found in NATS."""

    tombstone: str
    ends: tuple[str, ...]  # the terms that the deleting owner knew
    lease: int
    generation: int
    deleted_ns: int
    vector: bytes = b""  # version vector of the deleted content; empty: unknown


@dataclass(frozen=True, slots=True)
class ErasedRecord:
    """The document is erased: all its other records are removed."""

    tombstone: str
    ends: tuple[str, ...]
    lease: int
    generation: int
    erased_ns: int
    vector: bytes = b""


@dataclass(frozen=True, slots=True)
class AnswersRecord:
    """ACK metrics of a server for a period; its key is ANSWERS_KEY."""

    server: str
    since_ns: int
    until_ns: int
    acked: int
    latency_counts: tuple[int, ...]  # [i]: ACKs that took less than 2^i microseconds, and at least half of it
    reasons: Mapping[str, int]  # NACKs, by reason


DocumentRecord = UpdateRecord | BaseRecord | TermRecord | DeletedRecord | ErasedRecord
Record = DocumentRecord | AnswersRecord


def encode(record: Record) -> list[object]:
    """Return the list that is packed with msgpack."""
    match record:
        case UpdateRecord():
            return [
                "u",
                LAYOUT,
                record.epoch,
                record.sequence,
                record.log_id,
                record.digest,
                record.lease,
                record.generation,
                record.spans,
                record.payload,
                record.term,
            ]
        case BaseRecord():
            return [
                "b",
                LAYOUT,
                record.epoch,
                record.sequence,
                record.lease,
                record.generation,
                record.snapshot_digest,
                record.vector,
                record.frontiers,
                record.content,
                record.term,
            ]
        case TermRecord():
            return [
                "t",
                LAYOUT,
                record.term,
                record.ancestors,
                record.kind.value,
                record.undoes,
                record.lease,
                record.generation,
            ]
        case DeletedRecord(tombstone, ends, lease, generation, deleted_ns, vector):
            return ["d", LAYOUT, tombstone, ends, lease, generation, deleted_ns, vector]
        case ErasedRecord(tombstone, ends, lease, generation, erased_ns, vector):
            return ["e", LAYOUT, tombstone, ends, lease, generation, erased_ns, vector]
        case AnswersRecord():
            return [
                "s",
                LAYOUT,
                record.server,
                record.since_ns,
                record.until_ns,
                record.acked,
                record.latency_counts,
                dict(record.reasons),
            ]
        case _:
            assert_never(record)


def decode(value: object) -> Record | None:
    """Decode a record; return None if this version does not know its kind. Raises MalformedRecord."""
    if not isinstance(value, list | tuple) or len(value) < 2:
        raise MalformedRecord("a journal record is an array that begins with kind and layout")
    kind, layout, *fields = value
    if not isinstance(layout, int) or layout < 1:
        raise MalformedRecord(f"layout {layout!r} does not exist")
    if layout < LAYOUT:
        raise UnsupportedRecord(
            f"the record has layout {layout}, written before version 0.1 was released; this version reads"
            f" layout {LAYOUT}: start with an empty data folder, and copy the documents with"
            " `lorogo doc export` and `lorogo doc import`"
        )
    if layout > LAYOUT:
        return None
    match kind:
        case "u":
            taken = _take(fields, _UPDATE)
            taken[6] = _spans(taken[6])
            return UpdateRecord(*taken)
        case "b":
            return BaseRecord(*_take(fields, _BASE))
        case "t":
            term, ancestors, origin, undoes, lease, generation = _take(fields, _TERM)
            if origin not in set(TermKind):
                raise MalformedRecord(f"a term of kind {origin!r} does not exist")
            return TermRecord(term, _ids(ancestors), TermKind(origin), _ids(undoes), lease, generation)
        case "d" | "e":
            tombstone, ends, *rest = _take(fields, _TOMBSTONE)
            made = DeletedRecord if kind == "d" else ErasedRecord
            return made(tombstone, _ids(ends), *rest)
        case "s":
            return _answers(*_take(fields, _ANSWERS))
        case _:
            return None


def decode_document(value: object) -> DocumentRecord | None:
    """Decode a record about a document; return None for records about the server as well."""
    record = decode(value)
    return None if isinstance(record, AnswersRecord) else record


_UPDATE = (int, int, str, str, int, int, (list, tuple), bytes, str)
_BASE = (int, int, int, int, str, bytes, bytes, bytes, str)
_TERM = (str, (list, tuple), str, (list, tuple), int, int)
_TOMBSTONE = (str, (list, tuple), int, int, int, bytes)
_ANSWERS = (str, int, int, int, (list, tuple), dict)


def _take(fields: list[object], kinds: Sequence[type | tuple[type, ...]]) -> list[Any]:
    if len(fields) < len(kinds):
        raise MalformedRecord(f"{len(kinds)} fields are needed, {len(fields)} are present")
    taken = fields[: len(kinds)]
    for place, (field, kind) in enumerate(zip(taken, kinds, strict=True)):
        if not isinstance(field, kind) or isinstance(field, bool):
            raise MalformedRecord(f"field {place} is of type {type(field).__name__}")
        if isinstance(field, int) and field < 0:
            raise MalformedRecord(f"field {place} is negative")
    return taken


def _ids(raw: Sequence[object]) -> tuple[str, ...]:
    if not all(isinstance(one, str) and one for one in raw):
        raise MalformedRecord("terms and tombstones are named by ids")
    return tuple(str(one) for one in raw)


def _spans(raw: object) -> tuple[Span, ...]:
    assert isinstance(raw, list | tuple)
    spans: list[Span] = []
    for one in raw:
        if not isinstance(one, list | tuple) or len(one) != 3 or not all(type(n) is int for n in one):
            raise MalformedRecord("a span is three numbers: peer, first, end")
        peer, first, end = one
        if not 0 <= first < end:
            raise MalformedRecord(f"the span from {first} to {end} is empty")
        spans.append((peer, first, end))
    return tuple(spans)


def _answers(
    server: str,
    since_ns: int,
    until_ns: int,
    acked: int,
    counts: Sequence[object],
    reasons: dict[object, object],
) -> AnswersRecord:
    if not is_token(server):
        raise MalformedRecord("answers name a server by its id")
    if since_ns > until_ns:
        raise MalformedRecord(f"answers from {since_ns} until {until_ns} end before they begin")
    latencies = tuple(number for number in counts if type(number) is int and number >= 0)
    if len(latencies) != len(counts) or len(counts) > COUNTS_MAX:
        raise MalformedRecord(f"latency counts are at most {COUNTS_MAX} numbers, none of them negative")
    if sum(latencies) != acked:
        raise MalformedRecord(f"the latency counts have {sum(latencies)} ACKs, the total is {acked}")
    nacked = {
        reason: count
        for reason, count in reasons.items()
        if isinstance(reason, str) and reason and type(count) is int and count > 0
    }
    if len(nacked) != len(reasons) or len(reasons) > REASONS_MAX:
        raise MalformedRecord(f"reasons must be at most {REASONS_MAX} codes with counts above 0")
    return AnswersRecord(server, since_ns, until_ns, acked, latencies, nacked)
