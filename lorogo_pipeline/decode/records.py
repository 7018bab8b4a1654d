"""Convert frames of a journal to rows of the schema RECORDS: pure, Arrow to Arrow.

The types of every field are checked; a record that does not parse becomes a row of kind `malformed` with the
reason. Every wanted record becomes a row. Updates are parsed by column (packed_updates), everything else
record by record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from lorogo_log.format.arrow import record_batches
from lorogo_log.format.batch import Batch
from lorogo_pipeline.decode import packed_updates
from lorogo_pipeline.decode.packed_updates import PackedUpdates
from lorogo_pipeline.decode.segments import JournalFilter
from lorogo_pipeline.tables.schemas import RECORDS, TIME
from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import (
    AnswersRecord,
    BaseRecord,
    DeletedRecord,
    ErasedRecord,
    MalformedRecord,
    TermKind,
    TermRecord,
    UpdateRecord,
)
from lorogo_protocol.messages.digest import digest

#: kind, spans, epoch, sequence, log id, digest, lease, generation, term, bytes, digest ok, payload, vector,
#: frontiers, problem
_Fields = tuple[Any, ...]
_UPDATE = ["u", records.LAYOUT]
_INT_MAX = (1 << 63) - 1
_TOO_LARGE = "a number exceeds 63 bits"
_WHY_MAX = 200  # characters of a reason, which may quote a long value

_SPAN = RECORDS.field("spans").type.value_type
_PLAIN = ("epoch", "sequence", "log_id", "digest", "lease", "generation", "term", "bytes", "digest_ok")
_JOIN_BYTES = 4 << 20  # of a journal, decoded at once: each batch has a fixed cost
_WIDE = ("payload", "vector", "frontiers", "problem")


def record_rows(
    batches: Iterable[Batch], log: str, wanted: JournalFilter, *, payload: bool = True
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted records of a segment's frames as rows."""
    for batch in record_batches(batches, join_bytes=_JOIN_BYTES):
        chosen = _chosen(batch, wanted)
        if chosen.num_rows:
            yield _rows(chosen, log, payload=payload)


def _chosen(batch: pa.RecordBatch, wanted: JournalFilter) -> pa.RecordBatch:
    masks = []
    times = batch["time"].view(pa.int64())
    if wanted.keys is not None:
        masks.append(pc.is_in(batch["key"], pa.array(sorted(wanted.keys), pa.binary())))
    if wanted.since_ns is not None:
        masks.append(pc.greater_equal(times, wanted.since_ns))
    if wanted.until_ns is not None:
        masks.append(pc.less_equal(times, wanted.until_ns))
    for mask in masks[1:]:
        masks[0] = pc.and_(masks[0], mask)
    return batch.filter(masks[0]) if masks else batch


def _rows(batch: pa.RecordBatch, log: str, *, payload: bool) -> pa.RecordBatch:
    updates, places = packed_updates.read(batch["value"])
    if not len(places):
        return _rows_one_by_one(batch, log, payload=payload)
    if len(places) == batch.num_rows:
        return _update_rows(batch, log, updates, payload=payload)
    others = np.setdiff1d(np.arange(batch.num_rows), places, assume_unique=True)
    mixed = pa.concat_batches(
        [
            _update_rows(batch.take(pa.array(places)), log, updates, payload=payload),
            _rows_one_by_one(batch.take(pa.array(others)), log, payload=payload),
        ]
    )
    return mixed.take(pa.array(np.argsort(np.concatenate([places, others]), kind="stable")))


def _update_rows(batch: pa.RecordBatch, log: str, updates: PackedUpdates, *, payload: bool) -> pa.RecordBatch:
    """Build rows of updates from their columns."""
    count = batch.num_rows
    try:
        log_id, stated = updates.log_id.cast(pa.string()), updates.digest.cast(pa.string())
        term = updates.term.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8: a record is malformed
        return _rows_one_by_one(batch, log, payload=payload)
    hashes = pa.array(list(map(xxhash.xxh64_intdigest, updates.payload.to_pylist())), pa.uint64())
    peers = pa.array(updates.peers).cast(pa.string())
    spans = [peers, pa.array(updates.firsts), pa.array(updates.ends)]
    columns = {
        "kind": pa.repeat(pa.scalar("update", pa.string()), count),
        "epoch": pa.array(updates.epoch),
        "sequence": pa.array(updates.sequence),
        "log_id": log_id,
        "digest": stated,
        "lease": pa.array(updates.lease),
        "generation": pa.array(updates.generation),
        "term": term,
        "bytes": pc.binary_length(updates.payload).cast(pa.int64()),
        "digest_ok": pc.equal(hashes.cast(pa.string()), stated),  # the format of `digest`
        "payload": updates.payload if payload else pa.nulls(count, pa.binary()),
        "spans": pa.ListArray.from_arrays(
            pa.array(updates.span_offsets), pa.StructArray.from_arrays(spans, fields=list(_SPAN))
        ),
    }
    return _batch(batch, log, columns)


def _rows_one_by_one(batch: pa.RecordBatch, log: str, *, payload: bool) -> pa.RecordBatch:
    values = [_fields(value) for value in batch["value"].to_pylist()]
    try:
        return _columns(batch, log, values, payload=payload)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError):
        # a field has another type: check the records one by one
        return _columns(batch, log, [_checked(fields) for fields in values], payload=payload)


def _fields(value: bytes) -> _Fields:
    """Parse one record; spans and the size of numbers are not checked yet."""
    try:
        fields = msgpack.unpackb(value)
        if fields.__class__ is list and fields[:2] == _UPDATE and fields[1].__class__ is int:
            _, _, epoch, sequence, log_id, stated, lease, generation, spans, payload, term = fields[:11]
            if (
                payload.__class__ is bytes
                and log_id.__class__ is stated.__class__ is term.__class__ is str
                and epoch.__class__ is sequence.__class__ is lease.__class__ is generation.__class__ is int
                and epoch >= 0 <= sequence
                and lease >= 0 <= generation
                and spans.__class__ is list
            ):
                head = ("update", spans, epoch, sequence, log_id, stated, lease, generation, term)
                return (*head, len(payload), digest(payload) == stated, payload, None, None, None)
        return _other(value, fields)
    except (ValueError, TypeError, IndexError, KeyError, msgpack.UnpackException, MalformedRecord) as error:
        return _malformed(str(error) or type(error).__name__)


def _other(value: bytes, fields: Any) -> _Fields:
    """Parse a record that is not an update in the usual form. Raises MalformedRecord."""
    head: _Fields
    match records.decode(fields):
        case None:
            why = f"kind {fields[0]!r}, layout {fields[1]!r}"
            return ("unknown", None, *[None] * 9, None, None, None, why[:_WHY_MAX])
        case UpdateRecord() as it:
            spans = [list(span) for span in it.spans]
            size, right = len(it.payload), digest(it.payload) == it.digest
            head = (
                "update",
                spans,
                it.epoch,
                it.sequence,
                it.log_id,
                it.digest,
                it.lease,
                it.generation,
                it.term,
            )
            return (*head, size, right, it.payload, None, None, None)
        case BaseRecord() as it:
            right = not it.content or digest(it.content) == it.snapshot_digest
            digest_ = it.snapshot_digest
            head = ("base", None, it.epoch, it.sequence, None, digest_, it.lease, it.generation, it.term)
            return (*head, len(it.content), right, it.content, it.vector, it.frontiers, None)
        case TermRecord() as it:
            kind = "restored" if it.kind is TermKind.RESTORED else "term"
            return _fact(kind, it.term, it, value)
        case DeletedRecord() as it:
            return _fact("deleted", it.tombstone, it, value)
        case ErasedRecord() as it:
            return _fact("erased", it.tombstone, it, value)
        case AnswersRecord() as it:  # about a server, not a document: its bytes are kept
            if max(it.until_ns, it.acked, sum(it.reasons.values())) > _INT_MAX:
                return _malformed(_TOO_LARGE)
            return ("answers", None, *[None] * 7, len(value), None, value, None, None, None)


def _fact(kind: str, name: str, it: TermRecord | DeletedRecord | ErasedRecord, value: bytes) -> _Fields:
    """Return the fields of a record about terms: its bytes are kept, and its id stands for a digest."""
    head = (kind, None, None, None, None, name, it.lease, it.generation, None)
    return (*head, len(value), None, value, None, None, None)


def _checked(fields: _Fields) -> _Fields:
    """Return the fields, or a malformed row if the record does not decode or a column cannot store it."""
    kind, spans, epoch, sequence, log_id, stated, lease, generation, term, _, _, payload, *_ = fields
    numbers = [epoch, sequence, lease, generation]
    try:
        if kind == "update":
            numbered = [epoch, sequence, log_id, stated, lease, generation, spans, payload, term]
            records.decode(["u", records.LAYOUT, *numbered])
            numbers += [end for _, _, end in spans]
    except (MalformedRecord, TypeError, ValueError) as error:
        return _malformed(str(error))
    if any(number is not None and number > _INT_MAX for number in numbers):
        return _malformed(_TOO_LARGE)
    return fields


def _malformed(why: str) -> _Fields:
    return ("malformed", None, *[None] * 9, None, None, None, why[:_WHY_MAX])


def _columns(batch: pa.RecordBatch, log: str, rows: Sequence[_Fields], *, payload: bool) -> pa.RecordBatch:
    kinds, spans, *rest = zip(*rows, strict=True)
    columns = {
        name: pa.array(column, RECORDS.field(name).type)
        for name, column in zip(_PLAIN + _WIDE, rest, strict=True)
    }
    if not payload:
        kept = {"answers", "term", "deleted", "restored", "erased"}  # facts, not content
        keep = [value if kind in kept else None for kind, value in zip(kinds, rest[9], strict=True)]
        columns["payload"] = pa.array(keep, pa.binary())
    columns |= {"kind": pa.array(kinds, pa.string()), "spans": span_column(spans)}
    return _batch(batch, log, columns)


def _batch(batch: pa.RecordBatch, log: str, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """Build rows of RECORDS from the log's columns and the record's columns; the rest is null."""
    count, times = batch.num_rows, batch["time"]
    columns = {
        "document_id": _texts(batch["key"]),
        "accepted_at": times.cast(TIME, safe=False),
        "accepted_ns": times.view(pa.int64()),
        "log": pa.repeat(pa.scalar(log, pa.string()), count),
        "log_sequence": batch["sequence"].view(pa.int64()),
        **columns,
    }
    return pa.RecordBatch.from_arrays(
        [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in RECORDS],
        schema=RECORDS,
    )


def span_column(spans: Sequence[Sequence[Sequence[int]] | None]) -> pa.ListArray:
    """Build a column from lists of (peer, first, end); peers are unsigned 64 bits, so they become text."""
    offsets: list[int | None] = []
    peers: list[str] = []
    firsts: list[int] = []
    ends: list[int] = []
    for one in spans:
        offsets.append(None if one is None else len(peers))
        for peer, first, end in one or ():
            if not peer.__class__ is first.__class__ is end.__class__ is int:
                raise TypeError("a span must be three integers: peer, first, end")
            if not 0 <= first < end:
                raise ValueError("a span is empty")
            peers.append(str(peer))
            firsts.append(first)
            ends.append(end)
    offsets.append(len(peers))
    columns = [pa.array(peers, pa.string()), pa.array(firsts, pa.int64()), pa.array(ends, pa.int64())]
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.StructArray.from_arrays(columns, fields=list(_SPAN))
    )


def _texts(keys: pa.Array) -> pa.Array:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())
