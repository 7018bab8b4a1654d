"""Replay updates into documents: a pure function from Arrow batches to Arrow batches.

The input is sorted by document; one document is in memory at a time. Spark workers or a plain loop call it.
`as_of` is the server's time of acceptance: clients' clocks are not trusted.

The common case imports all updates of a document at once, in the order of acceptance. All other cases (a
journal that begins with a snapshot, a gap, a forged update) go to the code that restores documents from
journals (lorogo_server.recovery.restore), which recovers more and reports what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from lorogo_pipeline.decode import content
from lorogo_pipeline.tables.schemas import DOCUMENTS, UPDATES
from lorogo_pipeline.tables.table_rows import bucket_of
from lorogo_protocol.errors import CrdtError
from lorogo_protocol.journal.records import BaseRecord, DocumentRecord, UpdateRecord
from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import Replica
from lorogo_server.journal.record_sorter import decode
from lorogo_server.recovery import restore
from lorogo_server.values.document_value import TooDeep

#: columns of a record that the replay needs
INPUT = pa.schema(
    [
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("accepted_ns", pa.int64(), nullable=False),
        pa.field("epoch", pa.int64()),
        pa.field("sequence", pa.int64()),
        pa.field("generation", pa.int64()),
        pa.field("term", pa.string()),
        pa.field("log_id", pa.string()),
        pa.field("digest", pa.string()),
        pa.field("digest_ok", pa.bool_()),
        pa.field("bytes", pa.int64()),
        pa.field("spans", UPDATES.field("spans").type),
        pa.field("vector", pa.binary()),
        pa.field("payload", pa.binary()),
    ]
)
_ROWS_OUT = 256  # documents in one output batch
_BYTES_OUT = 16 << 20
UNREADABLE = "Loro cannot load it"


class ReplayRow(NamedTuple):
    """One record of one document, in the order of INPUT without the document."""

    kind: str
    accepted_ns: int
    epoch: int | None
    sequence: int | None
    generation: int | None
    term: str | None
    log_id: str | None
    digest: str | None
    digest_ok: bool | None
    size: int | None
    spans: list[dict[str, Any]] | None
    vector: bytes | None
    payload: bytes | None

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key: the order of acceptance."""
        return self.accepted_ns, self.epoch or 0, self.sequence or 0


@dataclass(slots=True)
class DocumentReplay:
    """A document rebuilt from its records."""

    document_id: str
    replica: Replica | None  # None: Loro cannot load it
    last_ns: int  # when its newest record other than a base was accepted
    updates: list[ReplayRow] = field(default_factory=list)  # usable ones, in order
    generation: int = 0
    deleted: bool = False
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Options of a replay."""

    as_of_ns: int | None  # ignore records accepted later; None: use all
    buckets: int
    snapshots: bool = True


def replay(batches: Iterable[pa.RecordBatch], options: ReplayOptions) -> Iterator[pa.RecordBatch]:
    """Replay records of INPUT, sorted by document; yield rows of DOCUMENTS."""
    rows: list[dict[str, Any]] = []
    size = 0
    for document_id, records in by_document(batches):
        replayed = replay_document(document_id, records, options.as_of_ns)
        if replayed is None:
            continue
        row = document_row(replayed, options)
        rows.append(row)
        size += len(row["snapshot"] or b"") + len(row["json"] or "")
        if len(rows) >= _ROWS_OUT or size >= _BYTES_OUT:
            yield pa.RecordBatch.from_pylist(rows, schema=DOCUMENTS)
            rows, size = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=DOCUMENTS)


def by_document(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, list[ReplayRow]]]:
    """Group records by document; batches are sorted by document and may lack columns."""
    current, rows = None, list[ReplayRow]()
    for batch in batches:
        if not batch.num_rows:
            continue
        there = set(batch.schema.names)
        nothing = [None] * batch.num_rows
        columns = [batch[name].to_pylist() if name in there else nothing for name in INPUT.names[1:]]
        found = list(map(_row, zip(*columns, strict=True)))
        runs = pc.run_end_encode(batch["document_id"])
        start = 0
        for document_id, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            if document_id != current:
                if current is not None:
                    yield current, rows
                current, rows = document_id, []
            rows += found[start:end]
            start = end
    if current is not None:
        yield current, rows


#: like `_make`, without a Python call for every record
_row = cast("Callable[[tuple[Any, ...]], ReplayRow]", partial(tuple.__new__, ReplayRow))


def replay_document(
    document_id: str, records: list[ReplayRow], as_of_ns: int | None = None
) -> DocumentReplay | None:
    """Replay the records of one document; None if it was erased or did not exist yet."""
    if any(row.kind == "erased" for row in records):
        return None  # erased now: no past state is shown either
    there = records if as_of_ns is None else [row for row in records if row.accepted_ns <= as_of_ns]
    rows = sorted(there, key=lambda row: row.order)
    if not rows:
        return None
    updates = [row for row in rows if row.kind == "update" and row.digest_ok]
    if updates and all(row.kind in {"update", "term"} and row.digest_ok is not False for row in rows):
        replica = _import_all(updates)
        if replica is not None:
            generation = max(row.generation or 0 for row in rows)
            return DocumentReplay(document_id, replica, updates[-1].accepted_ns, updates, generation)
    return _rebuild(document_id, rows)


def _import_all(rows: list[ReplayRow]) -> Replica | None:
    try:
        return crdt.replayed([row.payload or b"" for row in rows])
    except CrdtError:
        return None


def _rebuild(document_id: str, rows: list[ReplayRow]) -> DocumentReplay:
    """Restore the document as recovery from journals does, and report what is missing."""
    found = restore.gather([(row.accepted_ns, place) for place, row in enumerate(rows)], _fetch(rows))
    updates = [row for row in rows if row.kind == "update" and row.digest_ok]
    dated = [row.accepted_ns for row in rows if row.kind not in {"base", "term"}]
    last_ns = max(dated, default=rows[-1].accepted_ns)
    deleted, generation = found.tombstone is not None, found.terms.generation
    replayed = DocumentReplay(document_id, None, last_ns, updates, generation, deleted)
    try:
        rebuilt = restore.rebuild(found, _fetch(rows), now_ns=last_ns)
    except CrdtError as error:
        replayed.problems.append(f"{UNREADABLE}: {error}")
    else:
        replayed.replica = rebuilt.replica  # also of a deleted document: `changes` needs its history
        replayed.problems += [f"{why} ({count})" for why, count in sorted(rebuilt.left.items())]
    if replayed.deleted:
        replayed.problems.clear()  # a deleted document has no content
    return replayed


def _fetch(rows: list[ReplayRow]) -> restore.Fetch:
    def fetch(place: int) -> DocumentRecord | None:
        row = rows[place]
        epoch, sequence, generation = row.epoch or 0, row.sequence or 0, row.generation or 0
        digest, payload, term = row.digest or "", row.payload or b"", row.term or ""
        match row.kind:
            case "update":
                log_id = row.log_id or ""
                return UpdateRecord(epoch, sequence, log_id, digest, 0, generation, (), payload, term)
            case "base":
                vector = row.vector or crdt.nothing_known()
                return BaseRecord(epoch, sequence, 0, generation, digest, vector, b"", payload, term)
            case "term" | "deleted" | "restored":
                return decode(payload)
            case _:
                return None

    return fetch


def document_row(replayed: DocumentReplay, options: ReplayOptions) -> dict[str, Any]:
    """Return the row of DOCUMENTS."""
    updates, problems = replayed.updates, list(replayed.problems)
    row: dict[str, Any] = {
        "document_id": replayed.document_id,
        "as_of": (replayed.last_ns if options.as_of_ns is None else options.as_of_ns) // 1000,
        "latest": options.as_of_ns is None,
        "state": "deleted" if replayed.deleted else "live",
        "generation": replayed.generation,
        "updates": len(updates),
        "update_bytes": sum(update.size or 0 for update in updates),
        "first_at": updates[0].accepted_ns // 1000 if updates else None,
        "last_at": updates[-1].accepted_ns // 1000 if updates else None,
        "version": [],
        "chars": 0,
        "snapshot_bytes": 0,
        "snapshot": None,
        "json": None,
        "bucket": bucket_of(replayed.document_id, options.buckets),
    }
    if replayed.replica is not None and not replayed.deleted:
        try:
            row |= _state(replayed.replica, snapshots=options.snapshots)
        except (CrdtError, TooDeep) as error:
            problems.append(f"{UNREADABLE}: {error}")
    row["complete"] = not problems
    row["problem"] = "; ".join(problems) or None
    return row


def _state(replica: Replica, *, snapshots: bool) -> dict[str, Any]:
    value = content.read(replica)
    version = replica.version()
    written = content.canonical(value)
    text = content.text(value)
    snapshot = replica.snapshot() if snapshots else None
    return {
        "version": [{"peer": str(peer), "end": end} for peer, end in crdt.vector_items(version.vector)],
        "vector": version.vector,
        "frontiers": version.frontiers,
        "json": written,
        "content_hash": content.hash_of(written),
        "text": text,
        "chars": len(text),
        "snapshot": snapshot,
        "snapshot_bytes": len(snapshot or b""),
    }
