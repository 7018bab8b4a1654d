"""Arrow schemas of the tables, their version, and their conversion to Spark.

    records     output of the source `lorogo.journal`: one row per record of a journal
    updates     every accepted update, once
    events      the other records of a document: bases, deletions, restorations, erasures
    changes     size, author and time of each change
    documents   the state of every document as of a time
    answers     ACK latencies and NACK reasons of servers, by the minute

A change that old readers cannot read raises VERSION; a new column at the end does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

VERSION = 1

TIME = pa.timestamp("us", tz="UTC")
_SPANS = pa.list_(
    pa.struct(
        [
            pa.field("peer", pa.string(), nullable=False),  # a u64: Spark has no unsigned 64-bit type
            pa.field("first", pa.int64(), nullable=False),
            pa.field("end", pa.int64(), nullable=False),
        ]
    )
)


def _field(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


RECORDS = pa.schema(
    [
        _field("document_id", pa.string()),
        # update, base, term, deleted, restored, erased, answers, unknown, malformed
        _field("kind", pa.string()),
        _field("accepted_at", TIME),
        _field("accepted_ns", pa.int64()),
        _field("log", pa.string()),  # id and partition of the log
        _field("log_sequence", pa.int64()),
        pa.field("epoch", pa.int64()),
        pa.field("sequence", pa.int64()),
        pa.field("log_id", pa.string()),
        pa.field("digest", pa.string()),
        pa.field("lease", pa.int64()),
        pa.field("generation", pa.int64()),
        pa.field("term", pa.string()),  # of the owner that accepted it
        pa.field("spans", _SPANS),
        pa.field("bytes", pa.int64()),
        pa.field("digest_ok", pa.bool_()),
        pa.field("payload", pa.binary()),
        pa.field("vector", pa.binary()),
        pa.field("frontiers", pa.binary()),
        pa.field("problem", pa.string()),
    ]
)

UPDATES = pa.schema(
    [
        _field("document_id", pa.string()),
        _field("log_id", pa.string()),
        _field("digest", pa.string()),
        _field("epoch", pa.int64()),
        _field("sequence", pa.int64()),
        _field("accepted_at", TIME),
        _field("accepted_ns", pa.int64()),
        pa.field("lease", pa.int64()),
        pa.field("generation", pa.int64()),
        pa.field("term", pa.string()),  # of the owner that accepted it; null: from the stream
        _field("peers", pa.list_(pa.string())),
        _field("spans", _SPANS),
        _field("bytes", pa.int64()),
        pa.field("changes", pa.int64()),  # null: it does not decode
        _field("ops", pa.int64()),
        _field("digest_ok", pa.bool_()),
        _field("source", pa.string()),  # journal, stream
        _field("bucket", pa.int32()),
        _field("identity", pa.int64()),  # xxh64 of document, log id and digest
        _field("payload", pa.binary()),
    ]
)

EVENTS = pa.schema(
    [
        _field("document_id", pa.string()),
        _field("kind", pa.string()),  # base, term, deleted, restored, erased
        _field("accepted_at", TIME),
        _field("accepted_ns", pa.int64()),
        pa.field("epoch", pa.int64()),
        pa.field("sequence", pa.int64()),
        _field("lease", pa.int64()),
        _field("generation", pa.int64()),
        pa.field("digest", pa.string()),  # of a base's snapshot; else the id of the term or tombstone
        pa.field("term", pa.string()),
        pa.field("vector", pa.binary()),
        pa.field("frontiers", pa.binary()),
        _field("bytes", pa.int64()),
        _field("bucket", pa.int32()),
        _field("identity", pa.int64()),
        pa.field("content", pa.binary()),
    ]
)

CHANGES = pa.schema(
    [
        _field("document_id", pa.string()),
        _field("peer", pa.string()),
        _field("counter_first", pa.int64()),
        _field("counter_end", pa.int64()),
        _field("lamport", pa.int64()),
        pa.field("client_time", TIME),  # the client's clock; null if not recorded
        pa.field("accepted_at", TIME),  # null: part of a snapshot, not of an update
        pa.field("log_id", pa.string()),  # of the update that contained it
        pa.field("message", pa.string()),
        _field("ops", pa.int64()),
        _field("inserted", pa.int64()),  # characters and list items
        _field("deleted", pa.int64()),
        pa.field(
            "by_kind",
            pa.list_(
                pa.struct(
                    [
                        pa.field("container", pa.string(), nullable=False),
                        pa.field("kind", pa.string(), nullable=False),
                        pa.field("ops", pa.int64(), nullable=False),
                    ]
                )
            ),
            nullable=False,
        ),
        _field("bucket", pa.int32()),
    ]
)

DOCUMENTS = pa.schema(
    [
        _field("document_id", pa.string()),
        _field("as_of", TIME),  # --as-of; of the latest state: when its last record was accepted
        _field("latest", pa.bool_()),
        _field("state", pa.string()),  # live, deleted
        _field("generation", pa.int64()),
        _field("complete", pa.bool_()),  # False: see `problem`
        pa.field("problem", pa.string()),
        _field("updates", pa.int64()),
        _field("update_bytes", pa.int64()),
        pa.field("first_at", TIME),
        pa.field("last_at", TIME),
        _field("version", pa.list_(pa.struct([("peer", pa.string()), ("end", pa.int64())]))),
        pa.field("vector", pa.binary()),
        pa.field("frontiers", pa.binary()),
        pa.field("content_hash", pa.string()),  # SHA-256 of the JSON with sorted keys
        pa.field("json", pa.string()),
        pa.field("text", pa.string()),  # every text in it, one after another
        _field("chars", pa.int64()),
        _field("snapshot_bytes", pa.int64()),
        _field("bucket", pa.int32()),
        pa.field("snapshot", pa.binary()),
    ]
)

ANSWERS = pa.schema(
    [
        _field("server", pa.string()),
        _field("since", TIME),
        _field("until", TIME),
        _field("acked", pa.int64()),
        _field("refused", pa.int64()),
        _field("latency_us", pa.list_(pa.int64())),  # [i]: ACKs that took 2^(i-1) to 2^i microseconds
        pa.field(
            "reasons",
            pa.list_(
                pa.struct(
                    [
                        pa.field("reason", pa.string(), nullable=False),
                        pa.field("count", pa.int64(), nullable=False),
                    ]
                )
            ),
            nullable=False,
        ),
        _field("bucket", pa.int32()),
        _field("identity", pa.int64()),
    ]
)

TABLES = {
    "updates": UPDATES,
    "events": EVENTS,
    "changes": CHANGES,
    "documents": DOCUMENTS,
    "answers": ANSWERS,
}


def spark_schema(schema: pa.Schema) -> StructType:
    """Convert an Arrow schema to Spark's."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - heavy, and not needed by readers

    return from_arrow_schema(schema)


# Output of the source `lorogo.snapshots`: the current snapshot of each document.
SNAPSHOTS = pa.schema(
    [
        _field("document_id", pa.string()),
        pa.field("revision", pa.int64()),  # null: the metadata does not parse
        pa.field("size", pa.int64()),
        pa.field("digest", pa.string()),  # as the ObjectStore writes it
        pa.field("deleted_at", TIME),  # null: not deleted
        _field("erased", pa.bool_()),
        pa.field("generation", pa.int64()),
        pa.field("lease", pa.int64()),
        pa.field("epoch", pa.int64()),
        pa.field("sequence", pa.int64()),  # of the WAL: the snapshot includes everything up to here
        pa.field("frontiers", pa.binary()),
        pa.field("trim", pa.binary()),  # version vector: history before it was removed
        pa.field("payload", pa.binary()),
        pa.field("problem", pa.string()),  # description of the damage
    ]
)
