"""What stands in a journal: one record per fact about a document (docs/JOURNAL.md).

Pure: a record becomes a list for msgpack and comes back; reading and writing files is the log's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lorogo_protocol.errors import LorogoError

LAYOUT = 1
Span = tuple[int, int, int]  # peer, first counter, the counter behind the last


class MalformedRecord(LorogoError):
    """A journal record that cannot be what it says; the sentence says why."""

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
    """The document was loaded, or made, from a snapshot; `content` is empty if the journal covers it."""

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


@dataclass(frozen=True, slots=True)
class ErasedRecord:
    """The document is erased: every other record of it goes; older records do not say by whom."""

    erased_ns: int
    lease: int = 0
    generation: int = 0


Record = UpdateRecord | BaseRecord | DeletedRecord | RestoredRecord | ErasedRecord


def encode(record: Record) -> list[object]:
    """As it is packed."""
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
            return ["r", LAYOUT, record.lease, record.generation]
        case ErasedRecord():
            return ["e", LAYOUT, record.erased_ns, record.lease, record.generation]


def decode(value: object) -> Record | None:
    """The record; None for a kind that this version does not know. Raises MalformedRecord."""
    if not isinstance(value, list | tuple) or len(value) < 2:
        raise MalformedRecord("a journal record is an array that begins with kind and layout")
    kind, layout, *fields = value
    if not isinstance(layout, int) or layout < LAYOUT:
        raise MalformedRecord(f"layout {layout!r} was never written")
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
            return ErasedRecord(*_take([*fields, 0, 0] if len(fields) == 1 else fields, _ERASED))
        case _:
            return None


_UPDATE = (int, int, str, str, int, int, (list, tuple), bytes)
_BASE = (int, int, int, int, str, bytes, bytes, bytes)
_DELETED = (int, int, int)
_RESTORED = (int, int)
_ERASED = (int, int, int)  # the last two came later


def _take(fields: list[object], kinds: Sequence[type | tuple[type, ...]]) -> list[Any]:
    if len(fields) < len(kinds):
        raise MalformedRecord(f"{len(kinds)} fields are needed, {len(fields)} are there")
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
            raise MalformedRecord(f"a span from {first} to {end} holds nothing")
        spans.append((peer, first, end))
    return tuple(spans)
