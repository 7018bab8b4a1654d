"""What an audit found, for people and for programs."""

from collections import Counter
from dataclasses import dataclass

from lorogo_pipeline.audit.difference import Difference


@dataclass(frozen=True, order=True, slots=True)
class Skipped:
    """A document that was not compared, or not all of it, and why."""

    document_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of one audit."""

    documents: int  # that the journals or the server know
    equal: int  # in which nothing differs
    ahead: int  # of these: the server went on while the journals were read, or has more than was replayed
    asked: int  # whose owners were asked; the others were read as a fresh load would read them
    differences: tuple[Difference, ...]  # the worst first
    skipped: tuple[Skipped, ...]
    seconds: float

    @property
    def clean(self) -> bool:
        """Whether everything was compared, and nothing differs: exit 0, else 1."""
        return not self.differences and not self.skipped

    @property
    def kinds(self) -> dict[str, int]:
        """How many differences there are of each kind, the worst kind first."""
        return dict(Counter(one.kind.value for one in self.differences))

    @property
    def sentence(self) -> str:
        """One line for people."""
        if self.clean:
            return f"{self.documents} documents are on the server what they are in the journals"
        parts = [f"{count} {kind}" for kind, count in self.kinds.items()]
        if self.skipped:
            parts.append(f"{len(self.skipped)} not compared")
        return f"{self.equal} of {self.documents} documents are equal; {', '.join(parts)}"

    def to_json(self) -> dict[str, object]:
        """For programs."""
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
