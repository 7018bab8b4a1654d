"""What a snapshot's metadata says: the position it covers, the trim line, dated versions, tombstone."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass

from lorogo_protocol.errors import MalformedMessage

FORMAT = "1"
_METADATA_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class IncarnationCutoff:
    """Up to where the WAL belongs to a life before a restore.

    It was purged up to there, but a lagging replica may still have it, with updates that were refused.
    """

    epoch: int = 0
    sequence: int = 0
    time_ns: int = 0  # of the message there: a WAL made anew counts from 1 again

    def below(self, epoch: int, sequence: int, time_ns: int) -> bool:
        """Whether a message at that place, stored then, is of the past."""
        return epoch == self.epoch and sequence <= self.sequence and time_ns <= self.time_ns

    def __str__(self) -> str:
        return f"{self.epoch}:{self.sequence}:{self.time_ns}"

    @classmethod
    def parse(cls, text: str) -> "IncarnationCutoff":
        """From its string, or ValueError."""
        epoch, sequence, time_ns = map(int, text.split(":"))
        return cls(epoch, sequence, time_ns)


NO_FLOOR = IncarnationCutoff()


@dataclass(frozen=True, slots=True)
class SnapshotMetadata:
    """The facts beside the bytes; the defaults are those of a document without a snapshot."""

    sequence: int = 0  # everything of the WAL up to here is in it (for people and for `head`)
    epoch: int = 0
    frontiers: bytes = b""
    trim: bytes = b"\x00"  # version vector before which history is gone
    dated: str = "[]"
    lease: int = 0
    generation: int = 0
    deleted_ns: int = 0  # by NATS's clock, as updates are dated
    deleted_by: int = 0  # the lease of whoever deleted it; `lease` is its last owner's. 0: not known
    erased_ns: int = 0  # deleted with `--purge`: every server removes what it has of it, and keeps this
    floor: IncarnationCutoff = NO_FLOOR
    # What owners up to that lease wrote, or up to that time, is a former life's and stays gone; 0: of none.
    past: int = 0
    past_ns: int = 0

    @property
    def deleted(self) -> bool:
        return self.deleted_ns > 0

    def render(self, bytes_max: int = _METADATA_BYTES_MAX) -> dict[str, str]:
        """As strings, for the object's metadata.

        Metadata is one message. What only informs is left out where it would not fit: the older half
        of the dated versions, again and again, then the heads and the trim line.
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
            "sequence": str(self.sequence),
            "epoch": str(self.epoch),
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
        if self.floor != NO_FLOOR:
            out["floor"] = str(self.floor)
        if self.past:
            out["past"], out["past_ns"] = str(self.past), str(self.past_ns)
        return out

    @classmethod
    def parse(cls, metadata: Mapping[str, str]) -> "SnapshotMetadata":
        """From an object's metadata, or MalformedMessage."""
        version = metadata.get("format", "")
        if version != FORMAT:
            raise MalformedMessage(f"the snapshot has format {version!r}, this server reads {FORMAT!r}")
        try:
            return cls(
                sequence=int(metadata.get("sequence", "0")),
                epoch=int(metadata.get("epoch", "0")),
                frontiers=base64.b64decode(metadata.get("frontiers", ""), validate=True),
                trim=base64.b64decode(metadata.get("trim", ""), validate=True),
                dated=metadata.get("dated", "[]"),
                lease=int(metadata.get("lease", "0")),
                generation=int(metadata.get("generation", "0")),
                deleted_ns=int(metadata.get("deleted_ns", "0")),
                deleted_by=int(metadata.get("deleted_by", "0")),
                erased_ns=int(metadata.get("erased_ns", "0")),
                floor=IncarnationCutoff.parse(metadata["floor"]) if "floor" in metadata else NO_FLOOR,
                past=int(metadata.get("past", "0")),
                past_ns=int(metadata.get("past_ns", "0")),
            )
        except ValueError as error:
            raise MalformedMessage(f"the snapshot's facts do not parse: {error}") from None


def _length(strings: Mapping[str, str]) -> int:
    return sum(len(value) for value in strings.values())
