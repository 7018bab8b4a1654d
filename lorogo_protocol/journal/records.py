"""Journal records: one per event of a document, or of the server (docs/JOURNAL.md).

Pure: converts records to lists for msgpack and back; `lorogo_log` reads and writes files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.ids import is_token
from lorogo_protocol.journal.latency import COUNTS_MAX

LAYOUT = 1
ANSWERS_KEY = b"-answers"  # instead of a document id, which cannot start with `-`
REASONS_MAX = 256  # in one record; the protocol has some twenty
Span = tuple[int, int, int]  # peer, first counter, counter after the last


class MalformedRecord(LorogoError):
    """A journal record is malformed; the message has the reason."""

    code = "malformed-record"


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


@dataclass(frozen=True, slots=True)
class DeletedRecord:
    """A tombstone was stored."""

    lease: int
    generation: int
    deleted_ns: int


@dataclass(frozen=True, slots=True)
class RestoredRecord:
    """A deletion was undone; the generation is the new one."""

    lease: int
    generation: int
    # Records of owners up to that lease or time belong to an earlier incarnation; 0: there is none.
    past: int = 0
    past_ns: int = 0


@dataclass(frozen=True, slots=True)
class ErasedRecord:
    """The document is erased: all its other records are removed."""

    erased_ns: int
    lease: int = 0
    generation: int = 0


@dataclass(frozen=True, slots=True)
class AnswersRecord:
    """ACK metrics of a server for a period; its key is ANSWERS_KEY."""

    server: str
    since_ns: int
    until_ns: int
    acked: int
    latency_counts: tuple[int, ...]  # [i]: ACKs that took less than 2^i microseconds, and at least half of it
    reasons: Mapping[str, int]  # NACKs, by reason


DocumentRecord = UpdateRecord | BaseRecord | DeletedRecord | RestoredRecord | ErasedRecord
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
            ]
        case DeletedRecord():
            return ["d", LAYOUT, record.lease, record.generation, record.deleted_ns]
        case RestoredRecord():
            return ["r", LAYOUT, record.lease, record.generation, record.past, record.past_ns]
        case ErasedRecord():
            return ["e", LAYOUT, record.erased_ns, record.lease, record.generation]
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
    if not isinstance(layout, int) or layout < LAYOUT:
        raise MalformedRecord(f"layout {layout!r} does not exist")
    if layout > LAYOUT:
        return None
    match kind:
        case "u":
            epoch, sequence, log_id, digest, lease, generation, spans, payload = _take(fields, _UPDATE)
            return UpdateRecord(epoch, sequence, log_id, digest, lease, generation, _spans(spans), payload)
        case "b":
            return BaseRecord(*_take(fields, _BASE))
        case "d":
            return DeletedRecord(*_take(fields, _DELETED))
        case "r":
            return RestoredRecord(*_take(fields, _RESTORED))
        case "e":
            return ErasedRecord(*_take(fields, _ERASED))
        case "s":
            return _answers(*_take(fields, _ANSWERS))
        case _:
            return None


def decode_document(value: object) -> DocumentRecord | None:
    """Decode a record about a document; return None for records about the server as well."""
    record = decode(value)
    return None if isinstance(record, AnswersRecord) else record


_UPDATE = (int, int, str, str, int, int, (list, tuple), bytes)
_BASE = (int, int, int, int, str, bytes, bytes, bytes)
_DELETED = (int, int, int)
_RESTORED = (int, int, int, int)
_ERASED = (int, int, int)
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
