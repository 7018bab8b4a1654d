"""Metadata of a stored snapshot: covered WAL position, trim line, dated versions, tombstone."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass

from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.position import NOWHERE, Position

FORMAT = "1"
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
    deleted_ns: int = 0  # by NATS's clock, like the times of updates
    deleted_by: int = 0  # lease of the owner that deleted it; `lease` is its last owner's. 0: unknown
    erased_ns: int = 0  # deleted with `--purge`: every server removes its records, except the tombstone
    # Last position of the earlier incarnation. The restore purged the WAL up to it, but a lagging JetStream
    # replica may still have those messages, among them refused updates.
    cutoff: Position = NOWHERE
    # Records of owners up to that lease, or up to that time, belong to an earlier incarnation; 0: none.
    past: int = 0
    past_ns: int = 0

    @property
    def deleted(self) -> bool:
        return self.deleted_ns > 0

    def render(self, bytes_max: int = _METADATA_BYTES_MAX) -> dict[str, str]:
        """Return the object's metadata as strings.

        Metadata is one message. If it is too large, optional parts are left out: repeatedly the older half
        of the dated versions, then the heads and the trim line.
        """
        out = self._strings()
        while _length(out) > bytes_max and out["dated"] != "[]":
            versions = json.loads(out["dated"])
            out["dated"] = json.dumps(versions[len(versions) // 2 + 1 :], separators=(",", ":"))
        if _length(out) > bytes_max:
            out["frontiers"], out["trim"] = "", base64.b64encode(b"\x00").decode()
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
        if self.deleted_by:
            out["deleted_by"] = str(self.deleted_by)
        if self.erased_ns:
            out["erased_ns"] = str(self.erased_ns)
        if self.cutoff != NOWHERE:
            out["cutoff"] = str(self.cutoff)
        if self.past:
            out["past"], out["past_ns"] = str(self.past), str(self.past_ns)
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
                deleted_ns=int(metadata.get("deleted_ns", "0")),
                deleted_by=int(metadata.get("deleted_by", "0")),
                erased_ns=int(metadata.get("erased_ns", "0")),
                cutoff=Position.parse(metadata.get("cutoff", "0:0:0")),
                past=int(metadata.get("past", "0")),
                past_ns=int(metadata.get("past_ns", "0")),
            )
        except ValueError as error:
            raise MalformedMessage(f"the snapshot's metadata does not parse: {error}") from None


def _length(strings: Mapping[str, str]) -> int:
    return sum(len(value) for value in strings.values())
