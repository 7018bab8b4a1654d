"""Split the changes in a document's history at the borders of updates. Pure.

Loro merges consecutive edits of one peer into long changes. A row here is the part of a change that one
update contained, so it has one time of acceptance. Changes from a snapshot have none.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from lorogo_pipeline.decode.replay import DocumentReplay
from lorogo_pipeline.tables.schemas import CHANGES
from lorogo_pipeline.tables.table_rows import bucket_of
from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import Replica


class UpdateSpan(NamedTuple):
    """A range of one peer's operations, and the update that contained it."""

    first: int
    end: int
    accepted_ns: int
    log_id: str


class Op(NamedTuple):
    """Consecutive operations of one kind on one container."""

    counter: int
    length: int
    container: str
    kind: str


@dataclass(slots=True)
class HistoryChange:
    """Consecutive operations of one peer."""

    peer: str
    first: int
    lamport: int
    client_seconds: int
    message: str | None
    ops: list[Op] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.ops[-1].counter + self.ops[-1].length if self.ops else self.first


def change_rows(replayed: DocumentReplay, buckets: int) -> list[dict[str, Any]]:
    """Return the rows of CHANGES of one document. Raises CrdtError."""
    if replayed.replica is None:
        return []
    brought = _brought(replayed)
    bucket = bucket_of(replayed.document_id, buckets)
    return [
        _row(replayed.document_id, bucket, change, part, ops)
        for change in changes(replayed.replica)
        for part, ops in _parts(change, brought.get(change.peer, []))
    ]


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=CHANGES)


def changes(replica: Replica) -> Iterator[HistoryChange]:
    """Yield every change in the replica's history; oldest first for each peer."""
    body = json.loads(crdt.history_json(replica))
    peers = body.get("peers")
    for raw in body["changes"]:
        counter, peer = _id(raw["id"], peers)
        change = HistoryChange(peer, counter, int(raw["lamport"]), int(raw["timestamp"]), raw.get("msg"))
        change.ops = [
            Op(
                int(op["counter"]),
                _length(op["content"]),
                _container(op["container"], peers),
                op["content"]["type"],
            )
            for op in raw["ops"]
        ]
        yield change


def _id(text: str, peers: list[str] | None) -> tuple[int, str]:
    counter, _, peer = text.partition("@")
    return int(counter), peers[int(peer)] if peers else peer


def _container(text: str, peers: list[str] | None) -> str:
    """`cid:root-NAME:Kind`, or `cid:COUNTER@PEER:Kind` with the peer's own number."""
    if text.startswith("cid:root-") or not peers:
        return text
    inside, _, kind = text.removeprefix("cid:").rpartition(":")
    counter, peer = _id(inside, peers)
    return f"cid:{counter}@{peer}:{kind}"


def _length(op: dict[str, Any]) -> int:
    """Return the number of counters of an operation."""
    match op["type"]:
        case "insert" if "text" in op:
            return len(op["text"])
        case "insert" if isinstance(op.get("value"), list) and "pos" in op:
            return len(op["value"])
        case "delete" if "len" in op:
            return abs(int(op["len"]))
        case _:
            return 1


def _brought(replayed: DocumentReplay) -> dict[str, list[UpdateSpan]]:
    """Return by peer the ranges of each update, in order; the first update with an operation counts."""
    found: dict[str, list[UpdateSpan]] = {}
    for update in replayed.updates:
        for span in update.spans or ():
            part = UpdateSpan(span["first"], span["end"], update.accepted_ns, update.log_id or "")
            _bring(found.setdefault(span["peer"], []), part)
    return found


def _bring(parts: list[UpdateSpan], new: UpdateSpan) -> None:
    """Insert the parts of `new` that no other part covers; the list stays sorted and disjoint."""
    place = bisect_right(parts, new.first, key=lambda part: part.first)
    first = max(new.first, parts[place - 1].end) if place else new.first
    while first < new.end:
        behind = parts[place] if place < len(parts) else None
        end = new.end if behind is None else min(new.end, behind.first)
        if first < end:
            parts.insert(place, new._replace(first=first, end=end))
            place += 1
        if behind is None:
            return
        first = behind.end
        place += 1


def _parts(change: HistoryChange, brought: list[UpdateSpan]) -> Iterator[tuple[UpdateSpan, list[Op]]]:
    """Split the change at the borders of updates."""
    at, ops = change.first, iter(change.ops)
    op = next(ops, None)
    while op is not None:
        part = _at(brought, at, change.end)
        taken: list[Op] = []
        while op is not None and op.counter < part.end:
            here = part.end - op.counter
            if here < op.length:
                taken.append(op._replace(length=here))
                op = op._replace(counter=op.counter + here, length=op.length - here)
            else:
                taken.append(op)
                op = next(ops, None)
        yield part if part.first == at else part._replace(first=at), taken
        at = part.end


def _at(brought: list[UpdateSpan], counter: int, end: int) -> UpdateSpan:
    """Return the update of an operation, or an unknown range up to the next known one."""
    place = bisect_right(brought, counter, key=lambda part: part.first) - 1
    if place >= 0 and counter < brought[place].end:
        found = brought[place]
        return found if found.end <= end else found._replace(end=end)
    behind = brought[place + 1].first if place + 1 < len(brought) else end
    return UpdateSpan(counter, min(end, behind), 0, "")


def _row(
    document_id: str, bucket: int, change: HistoryChange, part: UpdateSpan, ops: Iterable[Op]
) -> dict[str, Any]:
    counts: Counter[tuple[str, str]] = Counter()
    inserted = deleted = 0
    for op in ops:
        counts[op.container, op.kind] += op.length
        if op.container.endswith(_SEQUENCES):
            inserted += op.length if op.kind == "insert" else 0
            deleted += op.length if op.kind == "delete" else 0
    return {
        "document_id": document_id,
        "peer": change.peer,
        "counter_first": part.first,
        "counter_end": part.end,
        "lamport": change.lamport + part.first - change.first,
        "client_time": change.client_seconds * 1_000_000 if 0 < change.client_seconds < _YEAR_9999 else None,
        "accepted_at": part.accepted_ns // 1000 if part.accepted_ns else None,
        "log_id": part.log_id or None,
        "message": change.message,
        "ops": sum(counts.values()),
        "inserted": inserted,
        "deleted": deleted,
        "by_kind": [
            {"container": container, "kind": kind, "ops": count}
            for (container, kind), count in sorted(counts.items())
        ],
        "bucket": bucket,
    }


_SEQUENCES = (
    ":Text",
    ":List",
    ":MovableList",
)  # containers with characters or items; not map keys or tree nodes
_YEAR_9999 = 253_402_300_800  # a client's clock may have any value; a timestamp may not
