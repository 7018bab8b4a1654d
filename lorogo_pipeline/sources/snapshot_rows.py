"""Snapshots as rows: the options, which task reads which, and what a row says. Pure."""

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
WINDOW_BYTES = 32 * MIB  # and one snapshot more, if it is larger
_NAMES = ("nats", "documents", "payload", "damaged")
_FAIL, _SKIP = "fail", "skip"


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """What the reader was asked for."""

    nats: str = source_options.NATS
    documents: tuple[str, ...] = ()  # none: all
    payload: bool = True
    fail: bool = True  # at a damaged one; else a row that says so

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SnapshotOptions":
        """From Spark's options. Raises BadSourceOption, InvalidDocumentId."""
        source_options.check_names(options, _NAMES, "lorogo.snapshots")
        return cls(
            nats=options.get("nats", source_options.NATS),
            documents=source_options.documents(options),
            payload=source_options.flag(options, "payload", default=True),
            fail=source_options.one_of(options, "damaged", (_FAIL, _SKIP)) == _FAIL,
        )


@dataclass(frozen=True, slots=True)
class DocumentShare:
    """The documents of one task, by the hash of their ids: whatever changes meanwhile, each has one task."""

    index: int = 0
    of: int = 1

    def has(self, document_id: str) -> bool:
        return xxhash.xxh64_intdigest(document_id.encode()) % self.of == self.index


def shares(stream_bytes: int, options: SnapshotOptions) -> list[DocumentShare]:
    """One task, or as many as there are `PARTITION_BYTES` to move."""
    moves = options.payload and not options.documents
    count = min(max(1, -(-stream_bytes // PARTITION_BYTES)), PARTITIONS_MAX) if moves else 1
    return [DocumentShare(index, count) for index in range(count)]


class FetchWindow:
    """Heads whose bytes may be fetched together: few, and not too much of them."""

    __slots__ = ("_bytes", "_heads")

    def __init__(self) -> None:
        self._heads: list[SnapshotHead] = []
        self._bytes = 0

    def add(self, head: SnapshotHead) -> list[SnapshotHead]:
        """Keep a head; what is to be fetched first, if there is no room for it."""
        full = len(self._heads) >= WINDOW_HEADS or self._bytes + head.size > WINDOW_BYTES
        due = self.take() if self._heads and full else []
        self._heads.append(head)
        self._bytes += head.size
        return due

    def take(self) -> list[SnapshotHead]:
        """What was kept."""
        heads, self._heads, self._bytes = self._heads, [], 0
        return heads


def whole_row(head: SnapshotHead, data: bytes | None) -> Row:
    """The row of a snapshot that is as it was written (or was not looked at)."""
    return _head_row(head) | {"payload": data}


def damaged_row(damage: SnapshotDamaged, head: SnapshotHead | None) -> Row:
    """The row of a damaged one; `problem` says why, and there is no payload."""
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
        "epoch": facts.epoch,
        "sequence": facts.sequence,
        "frontiers": facts.frontiers,
        "trim": facts.trim,
    }
