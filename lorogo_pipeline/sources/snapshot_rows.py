"""Snapshots as rows: the options, the shares of tasks, and the columns of a row. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

import xxhash

from lorogo_pipeline.sources import options as source_options
from lorogo_pipeline.tables.row_batches import Row
from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.limits import MIB
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.stores.snapshots import SnapshotDamaged, SnapshotHead

PARTITION_BYTES = 256 * MIB
PARTITIONS_MAX = 1024
WINDOW_HEADS = 16
WINDOW_BYTES = 32 * MIB  # plus one snapshot, if that is larger
_NAMES = ("nats", "documents", "payload", "damaged")
_FAIL, _SKIP = "fail", "skip"


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """Options of the reader."""

    nats: str = source_options.NATS
    documents: tuple[str, ...] = ()  # none: all
    payload: bool = True
    fail: bool = True  # at a damaged snapshot; otherwise its row has a problem

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SnapshotOptions":
        """Parse Spark's options. Raises BadSourceOption, InvalidDocumentId."""
        source_options.check_names(options, _NAMES, "lorogo.snapshots")
        return cls(
            nats=options.get("nats", source_options.NATS),
            documents=source_options.documents(options),
            payload=source_options.flag(options, "payload", default=True),
            fail=source_options.one_of(options, "damaged", (_FAIL, _SKIP)) == _FAIL,
        )


@dataclass(frozen=True, slots=True)
class DocumentShare:
    """The documents of one task, by the hash of their ids: each document has exactly one task."""

    index: int = 0
    of: int = 1

    def has(self, document_id: str) -> bool:
        return xxhash.xxh64_intdigest(document_id.encode()) % self.of == self.index


def shares(stream_bytes: int, options: SnapshotOptions) -> list[DocumentShare]:
    """Return one share, or one for every `PARTITION_BYTES` to transfer."""
    moves = options.payload and not options.documents
    count = min(max(1, -(-stream_bytes // PARTITION_BYTES)), PARTITIONS_MAX) if moves else 1
    return [DocumentShare(index, count) for index in range(count)]


class FetchWindow:
    """Heads whose snapshots are fetched together, bounded by number and bytes."""

    __slots__ = ("_bytes", "_heads")

    def __init__(self) -> None:
        self._heads: list[SnapshotHead] = []
        self._bytes = 0

    def add(self, head: SnapshotHead) -> list[SnapshotHead]:
        """Add a head; return the heads to fetch before it if the window is full."""
        full = len(self._heads) >= WINDOW_HEADS or self._bytes + head.size > WINDOW_BYTES
        due = self.take() if self._heads and full else []
        self._heads.append(head)
        self._bytes += head.size
        return due

    def take(self) -> list[SnapshotHead]:
        """Return the heads and empty the window."""
        heads, self._heads, self._bytes = self._heads, [], 0
        return heads


def whole_row(head: SnapshotHead, data: bytes | None) -> Row:
    """Return the row of an intact snapshot (or of one that was not read)."""
    return _head_row(head) | {"payload": data}


def damaged_row(damage: SnapshotDamaged, head: SnapshotHead | None) -> Row:
    """Return the row of a damaged snapshot: with `problem`, without payload."""
    row = {"document_id": damage.document_id, "erased": False} if head is None else _head_row(head)
    return row | {"problem": damage.reason}


def _head_row(head: SnapshotHead) -> dict[str, object]:
    row: dict[str, object] = {
        "document_id": head.document_id,
        "revision": head.revision,
        "size": head.size,
        "digest": head.digest,
        "erased": False,
    }
    try:
        facts = SnapshotMetadata.parse(head.facts)
    except MalformedMessage as error:
        return row | {"problem": str(error)}
    return row | {
        "deleted_at": facts.deleted_ns // 1000 if facts.deleted else None,
        "erased": facts.erased_ns > 0,
        "generation": facts.generation,
        "lease": facts.lease,
        "epoch": facts.position.epoch,
        "sequence": facts.position.sequence,
        "frontiers": facts.frontiers,
        "trim": facts.trim,
    }
