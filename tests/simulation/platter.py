"""Content of a machine's journal if its power failed at this moment."""

from dataclasses import dataclass, field

from crc32c import crc32c

from lorogo_log.format.batch import Batch
from lorogo_log.format.layout import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    FrameHeader,
    unpack_frame_header,
)
from lorogo_log.format.names import PREPARED, SEGMENT
from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import (
    BaseRecord,
    DeletedRecord,
    ErasedRecord,
    MalformedRecord,
    UpdateRecord,
)
from lorogo_protocol.loro import crdt
from tests.simulation.disk import SimStorage
from tests.simulation.inode import Inode


@dataclass(slots=True)
class Kept:
    """Content of one document on the platter."""

    ends: dict[int, int] = field(default_factory=dict)  # of each peer, the counter behind its last operation
    tombstones: set[int] = field(default_factory=set)  # when it was deleted, or erased

    def reach(self, ends: dict[int, int]) -> None:
        for peer, end in ends.items():
            self.ends[peer] = max(end, self.ends.get(peer, 0))


class Platter:
    """The records that are synced, under names that are synced: each is read once, as it comes."""

    def __init__(self, disk: SimStorage, journal: str) -> None:
        self._disk = disk
        self._journal = journal
        self._read: dict[Inode, int] = {}  # up to where
        self._documents: dict[str, Kept] = {}

    def of(self, document: str) -> Kept:
        """Return the present and former content of a document."""
        held = self._disk.folders.get(self._journal)
        if held is not None:
            for name, inode in held.folder.durable.items():
                if SEGMENT.fullmatch(name) or PREPARED.fullmatch(name):
                    self._read_on(inode)
        return self._documents.get(document, Kept())

    def reread(self) -> "Platter":
        """The same, read from the beginning: what was there once and is gone is not in it."""
        return Platter(self._disk, self._journal)

    def _read_on(self, inode: Inode) -> None:
        at = self._read.get(inode, SEGMENT_HEADER_BYTES)
        while (found := _frame(inode.durable, at)) is not None:
            header, body = found
            batch = Batch(header, memoryview(body))
            for row in batch.chosen:
                self._fold(batch.columns.key(row).decode("ascii", "replace"), batch.record(row).value)
            at += header.frame_bytes
        self._read[inode] = at

    def _fold(self, document: str, value: object) -> None:
        try:
            record = records.decode_document(value)
        except MalformedRecord:
            return
        kept = self._documents.setdefault(document, Kept())
        match record:
            case UpdateRecord(spans=spans, payload=payload):
                kept.reach({peer: end for peer, _, end in spans or crdt.spans(payload)})
            case BaseRecord(vector=vector):
                kept.reach(dict(crdt.counters(vector)))
            case DeletedRecord(deleted_ns=when) | ErasedRecord(erased_ns=when):
                kept.tombstones.add(when)
            case _:
                pass


def _frame(data: bytearray, at: int) -> tuple[FrameHeader, bytes] | None:
    """The whole frame that stands there."""
    head = bytes(data[at : at + FRAME_HEADER_BYTES])
    try:
        header = unpack_frame_header(head)
    except ValueError:
        return None
    body = bytes(data[at + FRAME_HEADER_BYTES : at + header.frame_bytes])
    whole = len(body) == header.frame_bytes - FRAME_HEADER_BYTES and crc32c(body) == header.body_checksum
    return (header, body) if whole else None
