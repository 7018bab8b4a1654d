"""Metadata of a stored snapshot: covered WAL position, trim line, dated versions, tombstone."""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lorogo_protocol.errors import CrdtError, MalformedMessage
from lorogo_protocol.journal.incarnation import (
    ENDED_MAX,
    DocumentTerms,
    Ends,
    Tombstone,
    lineage,
)
from lorogo_protocol.loro import crdt
from lorogo_protocol.position import NOWHERE, Position

FORMAT = "2"
_METADATA_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class SnapshotMetadata:
    """Metadata stored beside the snapshot's bytes; the defaults stand for a document without a snapshot."""

    position: Position = NOWHERE  # of the last update in the snapshot (for operators and for `head`)
    frontiers: bytes = b""
    trim: bytes = b"\x00"  # version vector before which history is gone
    dated: str = "[]"
    lease: int = 0
    generation: int = 0
    # Terms of the document's incarnations (lorogo_protocol/journal/incarnation.py).
    term: str = ""  # of the last owner that claimed the snapshot
    ancestors: tuple[str, ...] = ()  # of that term, nearest first
    founded: tuple[str, ...] = ()  # terms that a fork, an import or a restore began, the last first
    tombstone: str = ""  # id of the last deletion that no restore undid; also of an earlier incarnation
    ended: tuple[str, ...] = ()  # terms that it ended
    ended_ns: int = 0  # time of that deletion
    undone: tuple[str, ...] = ()  # deletions that restores undid, the last first
    vector: bytes = b""  # version vector of the content that it ended; empty: unknown
    deleted_ns: int = 0  # by NATS's clock, like the times of updates; 0: the document lives
    erased_ns: int = 0  # deleted with `--purge`: every server removes its records, except the tombstone
    # Last position of the earlier incarnation. The restore purged the WAL up to it, but a lagging JetStream
    # replica may still have those messages, among them refused updates.
    cutoff: Position = NOWHERE

    @property
    def deleted(self) -> bool:
        return self.deleted_ns > 0

    @property
    def ends(self) -> Ends:
        """Ends of the operations that the last deletion ended; empty: none, or unknown."""
        try:
            return crdt.counters(self.vector) if self.vector else {}
        except CrdtError:
            return {}

    def claimed(self, term: str, lease: int) -> "SnapshotMetadata":
        """Return the metadata of an owner's claim: its term continues the one before."""
        ancestors = self.ancestors if term == self.term else lineage(self.term, *self.ancestors)
        return replace(self, term=term, ancestors=ancestors, lease=lease)

    def founded_by(self, term: str) -> "SnapshotMetadata":
        """Return the metadata of a document that this term began."""
        return replace(self, founded=lineage(term, *self.founded))

    def merged(self, other: "SnapshotMetadata") -> "SnapshotMetadata":
        """Return the metadata of this document after it took in the content of another snapshot."""
        return replace(
            self,
            generation=max(self.generation, other.generation),
            tombstone=self.tombstone or other.tombstone,
            ended=lineage(*self.ended, *other.ended, most=ENDED_MAX),
            ended_ns=max(self.ended_ns, other.ended_ns),
            vector=self.vector or other.vector,
            undone=lineage(*self.undone, *other.undone),
            founded=lineage(*self.founded, *other.founded),
        )

    def deleted_as(
        self, tombstone: str, vector: bytes, deleted_ns: int, known: Iterable[str] = ()
    ) -> "SnapshotMetadata":
        """Return the metadata of a deletion: it ends the term, its ancestors, and those ended before.

        Founded terms are named first: they live without an operation that the vector could show as ended, and
        may be older than the oldest ancestor. `known`: living terms in the journals of the deleting server.
        """
        return replace(
            self,
            tombstone=tombstone,
            ended=lineage(self.term, *self.founded, *self.ancestors, *known, *self.ended, most=ENDED_MAX),
            ended_ns=deleted_ns,
            vector=vector,
            deleted_ns=deleted_ns,
        )

    def restored(self, term: str, lease: int, cutoff: Position) -> "SnapshotMetadata":
        """Return the metadata that undo the deletion under a new term."""
        return replace(
            self,
            term=term,
            ancestors=lineage(self.term, *self.ancestors),
            founded=lineage(term, *self.founded),
            tombstone="",
            ended=(),
            ended_ns=0,
            undone=lineage(self.tombstone, *self.undone),
            vector=b"",
            deleted_ns=0,
            generation=self.generation + 1,
            lease=lease,
            cutoff=cutoff,
        )

    def add_to(self, terms: DocumentTerms) -> None:
        """Add the facts to those of the journals."""
        terms.generation = max(terms.generation, self.generation)
        if self.term:
            terms.descend(self.term, self.ancestors)
        for term in self.founded:
            terms.found(term)
        terms.undo(self.undone)
        if self.tombstone:
            stone = Tombstone(
                frozenset(self.ended), self.lease, self.generation, self.ended_ns, self.erased_ns
            )
            terms.end(self.tombstone, stone, self.vector)

    def render(self, bytes_max: int = _METADATA_BYTES_MAX) -> dict[str, str]:
        """Return the object's metadata as strings.

        Metadata is one message. If it is too large, optional parts are left out: repeatedly the older half
        of the dated versions, then the heads, the trim line and the vector.
        """
        out = self._strings()
        while _length(out) > bytes_max and out["dated"] != "[]":
            versions = json.loads(out["dated"])
            out["dated"] = json.dumps(versions[len(versions) // 2 + 1 :], separators=(",", ":"))
        if _length(out) > bytes_max:
            out["frontiers"], out["trim"] = "", base64.b64encode(b"\x00").decode()
            out.pop("vector", None)
        return out

    def _strings(self) -> dict[str, str]:
        out = {
            "format": FORMAT,
            "position": str(self.position),
            "frontiers": base64.b64encode(self.frontiers).decode(),
            "trim": base64.b64encode(self.trim).decode(),
            "dated": self.dated,
            "lease": str(self.lease),
            "generation": str(self.generation),
        }
        if self.deleted:
            out["deleted_ns"] = str(self.deleted_ns)
        ids = {"term": (self.term,), "ancestors": self.ancestors, "tombstone": (self.tombstone,)}
        ids |= {"founded": self.founded, "ended": self.ended, "undone": self.undone}
        out |= {name: ",".join(some) for name, some in ids.items() if any(some)}
        if self.vector:
            out["vector"] = base64.b64encode(self.vector).decode()
        if self.ended_ns:
            out["ended_ns"] = str(self.ended_ns)
        if self.erased_ns:
            out["erased_ns"] = str(self.erased_ns)
        if self.cutoff != NOWHERE:
            out["cutoff"] = str(self.cutoff)
        return out

    @classmethod
    def parse(cls, metadata: Mapping[str, str]) -> "SnapshotMetadata":
        """Parse an object's metadata. Raises MalformedMessage."""
        version = metadata.get("format", "")
        if version != FORMAT:
            raise MalformedMessage(f"the snapshot has format {version!r}, this server reads {FORMAT!r}")
        try:
            return cls(
                position=Position.parse(metadata.get("position", "0:0:0")),
                frontiers=base64.b64decode(metadata.get("frontiers", ""), validate=True),
                trim=base64.b64decode(metadata.get("trim", ""), validate=True),
                dated=metadata.get("dated", "[]"),
                lease=int(metadata.get("lease", "0")),
                generation=int(metadata.get("generation", "0")),
                ended_ns=int(metadata.get("ended_ns", "0")),
                deleted_ns=int(metadata.get("deleted_ns", "0")),
                vector=base64.b64decode(metadata.get("vector", ""), validate=True),
                term=metadata.get("term", ""),
                ancestors=_ids(metadata.get("ancestors", "")),
                founded=_ids(metadata.get("founded", "")),
                tombstone=metadata.get("tombstone", ""),
                ended=_ids(metadata.get("ended", "")),
                undone=_ids(metadata.get("undone", "")),
                erased_ns=int(metadata.get("erased_ns", "0")),
                cutoff=Position.parse(metadata.get("cutoff", "0:0:0")),
            )
        except ValueError as error:
            raise MalformedMessage(f"the snapshot's metadata does not parse: {error}") from None


def _ids(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _length(strings: Mapping[str, str]) -> int:
    return sum(len(value) for value in strings.values())
