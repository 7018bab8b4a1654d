"""Options, progress and report of fleet compaction."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

from lorogo_protocol.errors import LorogoError
from lorogo_server import ServerSettings
from lorogo_server.settings import DAY_SECONDS

HOME = "worker-compact"  # below DATA, beside a server's workers, which then retain its journal


class InvalidOptions(LorogoError):
    """An invalid option; the message has its name and the reason."""

    code = "invalid-settings"


class FleetStopped(LorogoError):
    """The job cannot continue; its finished work is complete. The message has the remedy."""

    code = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetOptions:
    """The documents to compact, and the load that the job may cause."""

    data: Path  # the job's own folder is data/worker-compact: server id, journal
    cold_seconds: float = DAY_SECONDS  # since the newest message of a document
    messages_min: int = 1  # documents with at most this many messages are skipped
    bytes_min: int = 64 * 1024  # a single purge needs more than this, or than messages_min
    batch_documents: int = 500  # owned at once, until their common purge
    concurrency: int = 16  # documents loaded and stored at once
    documents: tuple[str, ...] = ()  # only these; empty: all
    dry_run: bool = False  # survey only
    settings: ServerSettings = field(default_factory=ServerSettings)  # of the job as a server

    def __post_init__(self) -> None:
        problems = [
            (self.cold_seconds >= 0, "cold_seconds must not be negative"),
            (self.messages_min >= 1, "messages_min must be at least 1: the newest message always stays"),
            (self.bytes_min >= 0, "bytes_min must not be negative"),
            (1 <= self.batch_documents <= 50_000, "batch_documents must be 1 to 50,000"),
            (1 <= self.concurrency <= 256, "concurrency must be 1 to 256"),
            (
                self.settings.durability != "stream",
                "the job needs a journal: durability must be journal or replicated",
            ),
        ]
        for good, problem in problems:
            if not good:
                raise InvalidOptions(problem)

    @property
    def home(self) -> Path:
        """The folder of the job's server id and journal."""
        return self.data / HOME


@dataclass(frozen=True, slots=True)
class FleetProgress:
    """The state of a running job."""

    stage: str  # looking, compacting, purging, waiting
    done: int
    total: int


@dataclass(slots=True)
class FleetReport:
    """The result of a run."""

    documents: int = 0  # with messages in the WAL
    cold: int = 0
    compacted: int = 0
    skipped: dict[str, int] = field(default_factory=dict)  # by reason
    failures: list[tuple[str, str]] = field(default_factory=list)  # document, what happened
    bytes_before: int = 0  # of the stream
    bytes_after: int = 0
    messages_before: int = 0
    messages_after: int = 0
    snapshot_bytes: int = 0
    prefix_purges: int = 0
    prefix_messages: int = 0
    single_purges: int = 0
    single_messages: int = 0
    left_documents: int = 0  # compacted, but too small for a single purge
    left_messages: int = 0

    def skip(self, reason: str) -> None:
        """Count a skipped document."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1

    def fail(self, document_id: str, problem: str) -> None:
        """Record a document that was not compacted; none of its messages are purged."""
        self.failures.append((document_id, problem))

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)
