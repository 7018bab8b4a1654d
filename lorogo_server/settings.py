"""What an operator may choose, in one frozen place, checked once at the door."""

from dataclasses import dataclass, field

from lorogo_protocol import limits
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.ids import is_token

DAY_SECONDS = 24 * 3600.0
_SEAL_SECONDS_MIN = 60.0
DURABILITIES = ("stream", "journal", "replicated")


class InvalidSettings(LorogoError):
    """A setting that cannot work; says which and why."""

    code = "invalid-settings"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSettings:
    """The settings of one server process; the defaults are those of docs/PROTOCOL.md."""

    server_id: str = ""  # empty: a new one for this process
    durability: str = "journal"
    journal_partitions: int = 1
    journal_segment_bytes: int = 128 * limits.MIB
    journal_keep_seconds: float = 0.0  # 0: for ever
    journal_keep_bytes: int = 0  # 0: without a limit
    journal_host: str = (
        "127.0.0.1"  # where other servers copy the journal from: listened on, and told to them
    )
    journal_port: int = 0  # 0: any
    journal_advertise: str = ""  # the host that others are told, if it is another
    journal_place: str = ""  # servers of one place keep no copies for each other; empty: that of the folder
    journal_secret: str = field(
        default="", repr=False
    )  # shared by all servers; empty: the network is private
    archive: str = ""  # an fsspec URL to which sealed segments are copied
    archive_every_seconds: float = 300.0  # a segment is sealed at least so often, to be copied
    journal_replicas: int = 1  # other servers that must have an update; durability "replicated" only
    reconcile_every_seconds: float = 300.0
    answers_every_seconds: float = 60.0  # the journal is told how senders were answered

    renew_seconds: float = limits.RENEW_SECONDS
    lease_seconds: float = limits.LEASE_SECONDS
    stale_seconds: float = limits.STALE_SECONDS
    retries_max: int = limits.RETRIES_MAX

    update_bytes_max: int = limits.UPDATE_BYTES_MAX
    document_bytes_max: int = limits.DOCUMENT_BYTES_MAX  # 0: without a limit
    unfinished_bytes_max: int = limits.UNFINISHED_BYTES_MAX
    unfinished_total_bytes_max: int = 4 * limits.UNFINISHED_BYTES_MAX  # of all documents, calls included
    unfinished_seconds: float = limits.UNFINISHED_SECONDS
    pending_bytes_max: int = limits.PENDING_BYTES_MAX
    pending_updates_max: int = limits.PENDING_UPDATES_MAX
    pending_seconds: float = limits.PENDING_SECONDS
    accepted_inline_bytes_max: int = limits.ACCEPTED_INLINE_BYTES_MAX
    presence_seconds: float = limits.PRESENCE_SECONDS

    documents_max: int = 50_000
    loads_max: int = 16
    load_seconds_max: float = 300.0
    idle_seconds: float = 300.0
    stop_seconds: float = 20.0

    history_seconds: float = limits.HISTORY_SECONDS
    compact_every_seconds: float = DAY_SECONDS
    compact_wal_bytes: int = 16 * limits.MIB  # of one document
    compact_idle_bytes: int = 256 * limits.KIB  # worth a snapshot when a document is unloaded
    deleted_keep_seconds: float = 30 * DAY_SECONDS
    snapshot_bytes_max: int = 1024 * limits.MIB

    replicas: int = 1
    wal_bytes_max: int = -1
    kept_presence_bytes_max: int = limits.KEPT_PRESENCE_BYTES_MAX  # of all documents; -1: no limit

    @property
    def segment_bytes(self) -> int:
        """How large a segment grows: whole ones expire, so a limit needs several of them."""
        if not self.journal_keep_bytes:
            return self.journal_segment_bytes
        return max(limits.MIB, min(self.journal_segment_bytes, self.journal_keep_bytes // 8))

    @property
    def seal_seconds(self) -> float:
        """How often a segment is sealed however little is in it; 0: only when it is full."""
        due = [self.archive_every_seconds] if self.archive else []
        if self.journal_keep_seconds:
            due.append(max(_SEAL_SECONDS_MIN, min(DAY_SECONDS, self.journal_keep_seconds / 8)))
        return min(due, default=0.0)

    @property
    def retention(self) -> bool:
        """Whether old segments of the journal expire."""
        return self.journal_keep_seconds > 0 or self.journal_keep_bytes > 0

    def __post_init__(self) -> None:
        problems = [
            (not self.server_id or is_token(self.server_id), "server_id must be a nanoid-like token"),
            (self.durability in DURABILITIES, f"durability must be one of {', '.join(DURABILITIES)}"),
            (1 <= self.journal_partitions <= 64, "journal_partitions must be 1 to 64"),
            (self.journal_segment_bytes >= limits.MIB, "journal_segment_bytes must be at least 1 MiB"),
            (
                self.journal_keep_seconds >= 0 and self.journal_keep_bytes >= 0,
                "journal_keep_seconds and journal_keep_bytes must not be negative",
            ),
            (1 <= self.journal_replicas <= 16, "journal_replicas must be 1 to 16"),
            (0 <= self.journal_port < 65536, "journal_port must be a port, or 0 for any"),
            (bool(self.journal_host), "journal_host must be an address of this machine"),
            (not self.archive or "://" in self.archive, "archive must be a URL, as in file:///backup/lorogo"),
            (self.archive_every_seconds > 0, "archive_every_seconds must be positive"),
            (self.reconcile_every_seconds > 0, "reconcile_every_seconds must be positive"),
            (self.answers_every_seconds > 0, "answers_every_seconds must be positive"),
            (
                0 < self.renew_seconds < self.lease_seconds < self.stale_seconds,
                "renew_seconds < lease_seconds < stale_seconds must hold",
            ),
            (self.retries_max >= 0, "retries_max must not be negative"),
            (
                0 < self.update_bytes_max <= limits.UPDATE_BYTES_MAX,
                f"update_bytes_max must be positive, and not above the wire's {limits.UPDATE_BYTES_MAX}",
            ),
            (
                self.unfinished_bytes_max <= self.unfinished_total_bytes_max,
                "unfinished_total_bytes_max must hold what one document may have unfinished",
            ),
            (self.document_bytes_max >= 0, "document_bytes_max must be positive, or 0 for no limit"),
            (
                self.update_bytes_max <= self.unfinished_bytes_max,
                "unfinished_bytes_max must hold at least one update",
            ),
            (self.loads_max > 0 and self.documents_max > 0, "loads_max and documents_max must be positive"),
            (self.idle_seconds > 0, "idle_seconds must be positive"),
            (self.history_seconds >= 0, "history_seconds must not be negative"),
            (self.replicas in (1, 3, 5), "replicas must be 1, 3 or 5"),
            (self.wal_bytes_max == -1 or self.wal_bytes_max > 0, "wal_bytes_max must be positive, or -1"),
            (
                self.kept_presence_bytes_max == -1 or self.kept_presence_bytes_max > 0,
                "kept_presence_bytes_max must be positive, or -1",
            ),
        ]
        for good, problem in problems:
            if not good:
                raise InvalidSettings(problem)
