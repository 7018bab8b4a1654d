"""Convert records to rows of the tables `updates`, `events` and `answers`: pure, Arrow to Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from lorogo_pipeline.tables.change_counts import change_counts
from lorogo_pipeline.tables.schemas import ANSWERS, EVENTS, UPDATES

_SIGN = 1 << 63
_EVENTS = ("base", "term", "deleted", "restored", "erased")
#: sort order that chooses among rows with one identity: (column, ascending), the first column decides. Two
#: journals may have the same time and sequence of an update: every column that can differ takes part, so
#: that the order of files does not matter
BEST = {
    "updates": (
        ("digest_ok", False),
        ("source", True),  # a journal before the stream: it contains accepted updates only
        ("accepted_ns", True),
        ("epoch", True),
        ("sequence", True),
        ("lease", True),
        ("generation", True),
        ("ops", False),
        ("bytes", False),
    ),
    "events": (
        ("bytes", False),
        ("accepted_ns", True),
        ("epoch", True),
        ("sequence", True),
        ("lease", True),
    ),
    "answers": (("acked", False), ("refused", False), ("until", False)),
}
#: columns of an identity: rows with equal values record the same fact
KEYS = {
    "updates": ("document_id", "log_id", "digest"),
    "events": ("document_id", "kind", "generation", "digest"),
    "answers": ("server", "since", "until"),
}
#: sort order of the rows of a file
ORDER = {
    "updates": ("document_id", "accepted_ns", "epoch", "sequence", "log_id"),
    "events": ("document_id", "accepted_ns", "kind", "generation", "digest"),
    "answers": ("server", "since"),
    "changes": ("document_id", "peer", "counter_first"),
    "documents": ("document_id",),
}


def bucket_of(document_id: str, buckets: int) -> int:
    """Return the bucket of a document."""
    return xxhash.xxh64_intdigest(document_id.encode()) % buckets


def rows_of(batch: pa.RecordBatch, buckets: int, *, source: str = "journal") -> dict[str, pa.RecordBatch]:
    """Convert a batch of RECORDS to the rows of each table; tables without rows are left out."""
    kinds = batch["kind"]
    found = {
        # an update that does not decode was never accepted; the stream holds it until its owner removes it
        "updates": _updates(
            _where(batch, pc.and_(pc.equal(kinds, "update"), pc.is_valid(batch["spans"]))), buckets, source
        ),
        "events": _events(_where(batch, pc.is_in(kinds, pa.array(_EVENTS))), buckets),
        "answers": _answers(_where(batch, pc.equal(kinds, "answers"))),
    }
    return {name: rows for name, rows in found.items() if rows.num_rows}


def by_bucket(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each bucket, in their order."""
    buckets = rows["bucket"].to_numpy()
    order = np.argsort(buckets.astype(np.uint16), kind="stable")
    there, starts = np.unique(buckets[order], return_index=True)
    sorted_rows = rows.take(pa.array(order))
    ends = [*starts[1:].tolist(), len(order)]
    for bucket, start, end in zip(there.tolist(), starts.tolist(), ends, strict=True):
        yield bucket, sorted_rows.slice(start, end - start)


def _where(batch: pa.RecordBatch, mask: pa.BooleanArray) -> pa.RecordBatch:
    """Filter rows; all or none are returned without a copy."""
    match mask.true_count:
        case 0:
            return batch.slice(0, 0)
        case count if count == batch.num_rows:
            return batch
        case _:
            return batch.filter(mask)


def _updates(batch: pa.RecordBatch, buckets: int, source: str) -> pa.RecordBatch:
    spans, count = batch["spans"], batch.num_rows
    flat = spans.flatten()
    offsets = pc.subtract(spans.offsets, spans.offsets[0]) if count else spans.offsets
    lengths = pc.subtract(flat.field("end"), flat.field("first"))
    totals = np.concatenate([[0], np.cumsum(lengths.to_numpy())])[offsets.to_numpy()]
    # rows of the stream may not be accepted yet, or never
    accepted = batch["digest_ok"].to_numpy(zero_copy_only=False).astype(bool) & (source == "journal")
    made = {
        "peers": pa.ListArray.from_arrays(offsets, flat.field("peer")),
        "spans": pa.ListArray.from_arrays(offsets, flat) if len(flat) else spans,
        "changes": change_counts(batch["payload"], accepted),
        "ops": pa.array(np.diff(totals).astype(np.int64)),
        "source": pa.repeat(pa.scalar(source, pa.string()), count),
        "bucket": _buckets(batch["document_id"], buckets),
        "identity": _identities([batch["document_id"], batch["log_id"], batch["digest"]]),
    }
    return _table(batch, UPDATES, made)


def _events(batch: pa.RecordBatch, buckets: int) -> pa.RecordBatch:
    # drop a snapshot with the wrong digest: another journal may have an intact one
    spoilt = pc.fill_null(pc.invert(batch["digest_ok"]), False)
    made = {
        "bytes": pc.if_else(spoilt, pa.scalar(0, pa.int64()), batch["bytes"]),
        "bucket": _buckets(batch["document_id"], buckets),
        "identity": _identities([batch[name] for name in KEYS["events"]]),
        "content": pc.if_else(spoilt, pa.scalar(None, pa.binary()), batch["payload"]),
    }
    return _table(batch, EVENTS, made)


def _answers(batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = [_answer(value) for value in batch["payload"].to_pylist()]
    kept = [row for row in rows if row is not None]
    return pa.RecordBatch.from_pylist(kept, schema=ANSWERS)


def _answer(value: bytes) -> dict[str, Any] | None:
    try:
        _, _, server, since, until, acked, latencies, reasons = msgpack.unpackb(value)[:8]
        refused = {str(reason): int(count) for reason, count in reasons.items()}
        return {
            "server": str(server),
            "since": int(since) // 1000,
            "until": int(until) // 1000,
            "acked": int(acked),
            "refused": sum(refused.values()),
            "latency_us": [int(count) for count in latencies],
            "reasons": [{"reason": reason, "count": count} for reason, count in sorted(refused.items())],
            "bucket": 0,
            "identity": identity(str(server), str(since), str(until)),
        }
    except (ValueError, TypeError, AttributeError):
        return None


def identity(*parts: str) -> int:
    """Hash the key columns of a row; rows with equal hashes are compared in full."""
    value: int = xxhash.xxh64_intdigest("\0".join(parts).encode(errors="surrogatepass"))
    return value - (value & _SIGN) * 2


def _identities(columns: Sequence[pa.Array]) -> pa.Array:
    if not len(columns[0]):
        return pa.array([], pa.int64())
    texts = [pc.fill_null(column.cast(pa.string()), "") for column in columns]
    joined = pc.binary_join_element_wise(*texts, "\0").cast(pa.binary())
    hashes = list(map(xxhash.xxh64_intdigest, joined.to_pylist()))
    return pa.array(hashes, pa.uint64()).view(pa.int64())


def _buckets(ids: pa.Array, buckets: int) -> pa.Array:
    encoded = ids.dictionary_encode()
    of = pa.array([bucket_of(one, buckets) for one in encoded.dictionary.to_pylist()], pa.int32())
    return of.take(encoded.indices)


def _table(batch: pa.RecordBatch, schema: pa.Schema, made: dict[str, pa.Array]) -> pa.RecordBatch:
    columns = [made[name] if name in made else batch[name] for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
