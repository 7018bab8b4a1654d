"""The result of an audit."""

from collections import Counter
from dataclasses import dataclass

from lorogo_pipeline.audit.difference import Difference


@dataclass(frozen=True, order=True, slots=True)
class Skipped:
    """A document that was not fully compared, and the reason."""

    document_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of one audit."""

    documents: int  # in the journals or on the server
    equal: int  # without differences
    ahead: int  # of these: the server has updates beyond the replayed ones
    asked: int  # read from their owners; the others from snapshot and WAL
    differences: tuple[Difference, ...]  # most severe first
    skipped: tuple[Skipped, ...]
    seconds: float

    @property
    def clean(self) -> bool:
        """True if everything was compared and nothing differs: exit 0, else 1."""
        return not self.differences and not self.skipped

    @property
    def kinds(self) -> dict[str, int]:
        """Return the number of differences by kind, most severe first."""
        return dict(Counter(one.kind.value for one in self.differences))

    @property
    def sentence(self) -> str:
        """The result as one sentence."""
        if self.clean:
            return f"{self.documents} documents match their journals"
        parts = [f"{count} {kind}" for kind, count in self.kinds.items()]
        if self.skipped:
            parts.append(f"{len(self.skipped)} not compared")
        return f"{self.equal} of {self.documents} documents are equal; {', '.join(parts)}"

    def to_json(self) -> dict[str, object]:
        """The result as JSON values."""
        return {
            "clean": self.clean,
            "documents": self.documents,
            "equal": self.equal,
            "ahead": self.ahead,
            "asked": self.asked,
            "kinds": self.kinds,
            "differences": [one.to_json() for one in self.differences],
            "skipped": [{"document": one.document_id, "reason": one.reason} for one in self.skipped],
            "seconds": round(self.seconds, 3),
        }
