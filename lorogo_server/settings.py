"""Settings of the server: one frozen dataclass, checked when it is made.

A field made by `count`, `seconds` and so on is also a setting of files, variables and flags
(lorogo_protocol/setting.py, docs/SETTINGS.md); other fields are for programs only.
"""

from dataclasses import dataclass, field

from lorogo_protocol import limits
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.ids import is_token
from lorogo_protocol.setting import choice, count, seconds, size, text, wrong

DAY_SECONDS = 24 * 3600.0
_SEAL_SECONDS_MIN = 60.0
DURABILITIES = ("stream", "journal", "replicated")


class InvalidSettings(LorogoError):
    """A setting is invalid; the message names it and has the reason."""

    code = "invalid-settings"


def check_archive(url: str) -> None:
    """Raise ValueError unless it looks like a URL."""
    if "://" not in url:
        raise ValueError("must be a URL, as in file:///backup/lorogo")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSettings:
    """The settings of one server process; the defaults are those of docs/PROTOCOL.md."""

    server_id: str = ""  # empty: a new id for this process

    # Durability and the journal
    durability: str = choice(
        "journal",
        "Copies of an update before its ACK: the stream, also this server's disk, also other servers' disks.",
        one_of=DURABILITIES,
    )
    journal_partitions: int = count(1, "Logs of the journal.", at_most=64)
    journal_segment_bytes: int = size(
        128 * limits.MIB, "Size at which a journal segment is sealed.", at_least=limits.MIB
    )
    journal_keep_seconds: float = seconds(
        0.0,
        "Remove journal segments that are completely older; segments are sealed at least daily.",
        meanings={0: "keep them for ever"},
    )
    journal_keep_bytes: int = size(
        0,
        "Remove a partition's oldest segments above this size; a segment has an eighth of it, or 1 MiB.",
        meanings={0: "no limit"},
    )
    journal_host: str = "127.0.0.1"  # address for replication: the server listens on it and announces it
    journal_port: int = 0  # 0: any
    journal_advertise: str = text("", "Host announced to other servers instead of journal_listen.")
    journal_place: str = ""  # failure domain: its servers hold no replicas of each other; empty: the folder's
    journal_secret: str = field(default="", repr=False)  # of all servers; empty: the network is private
    archive: str = text(
        "", "URL for copies of sealed journal segments: file:///..., s3://...", check=check_archive
    )
    archive_every_seconds: float = seconds(300.0, "Longest time before a segment is sealed and archived.")
    journal_replicas: int = count(
        1, "Other servers that store an update before its ACK, with durability replicated.", at_most=16
    )
    revocations_wait_seconds: float = seconds(
        3.0,
        "Longest wait for other servers to restore an incomplete list of revoked tokens.",
        meanings={0: "do not wait"},
    )
    reconcile_every_seconds: float = seconds(300.0, "Interval between comparisons of journals and stream.")
    answers_every_seconds: float = seconds(60.0, "Interval between ACK metrics records in the journal.")

    # Protocol constants: equal for all servers and clients, so operators cannot set them
    renew_seconds: float = limits.RENEW_SECONDS
    lease_seconds: float = limits.LEASE_SECONDS
    stale_seconds: float = limits.STALE_SECONDS
    retries_max: int = limits.RETRIES_MAX

    # Updates and documents
    update_bytes_max: int = size(
        limits.UPDATE_BYTES_MAX, "Largest accepted update.", at_most=limits.UPDATE_BYTES_MAX
    )
    document_bytes_max: int = size(
        limits.DOCUMENT_BYTES_MAX,
        "Largest document: snapshot and updates since.",
        meanings={0: "no limit"},
    )
    unfinished_bytes_max: int = size(
        limits.UNFINISHED_BYTES_MAX,
        "Memory for a document's incomplete updates; four times update_bytes_max if that is set.",
    )
    unfinished_total_bytes_max: int = size(
        4 * limits.UNFINISHED_BYTES_MAX,
        "Memory for incomplete updates and calls, per worker.",
    )
    unfinished_seconds: float = seconds(
        limits.UNFINISHED_SECONDS, "Time from the first to the last chunk of an update."
    )
    pending_bytes_max: int = size(
        limits.PENDING_BYTES_MAX,
        "Memory of a load for updates with missing dependencies; above it, the load reads again.",
    )
    pending_updates_max: int = count(
        limits.PENDING_UPDATES_MAX,
        "Number of a document's updates with missing dependencies that stay in the WAL.",
    )
    pending_seconds: float = seconds(
        limits.PENDING_SECONDS, "Time that an update with missing dependencies stays in the WAL."
    )
    accepted_inline_bytes_max: int = size(
        limits.ACCEPTED_INLINE_BYTES_MAX,
        "Larger accepted updates are announced without content; clients sync.",
    )
    presence_seconds: float = seconds(limits.PRESENCE_SECONDS, "Presence expires after this time.")

    # Loading and unloading
    documents_max: int = count(50_000, "Open documents per worker.")
    loads_max: int = count(16, "Concurrent loads per worker.")
    load_seconds_max: float = seconds(300.0, "Timeout of a load.")
    recover_seconds_max: float = seconds(
        30.0,
        "After a data loss of NATS: longest wait for all journals.",
    )
    idle_seconds: float = seconds(300.0, "Unload an unused document after this time.")
    stop_seconds: float = seconds(20.0, "Timeout for closing documents at a stop.")

    # History and snapshots
    history_seconds: float = seconds(
        limits.HISTORY_SECONDS, "Age of the oldest readable version.", meanings={0: "no history"}
    )
    compact_every_seconds: float = seconds(
        DAY_SECONDS, "Longest time between compactions of an edited document."
    )
    compact_wal_bytes: int = size(16 * limits.MIB, "Compact a document when its WAL exceeds this size.")
    compact_idle_bytes: int = size(
        256 * limits.KIB,
        "Also compact such a WAL after a load, before an unload and at a stop.",
    )
    deleted_keep_seconds: float = seconds(30 * DAY_SECONDS, "Time to restore a deleted document.")
    snapshot_bytes_max: int = size(1024 * limits.MIB, "Largest snapshot that is loaded.")

    # JetStream
    replicas: int = choice(1, "JetStream replicas of each stream.", one_of=(1, 3, 5))
    wal_bytes_max: int = size(
        0,
        "Limit of the WAL; the fitted limit is half of what JetStream can reserve, 8 GiB at most.",
        meanings={0: "fits JetStream's storage", -1: "no limit"},
    )
    kept_presence_bytes_max: int = size(
        limits.KEPT_PRESENCE_BYTES_MAX,
        "Limit of the stored presence of all documents; JetStream reserves it.",
        meanings={-1: "no limit"},
    )

    @property
    def segment_bytes(self) -> int:
        """Size of a segment; smaller with a limit of the journal, because only whole segments expire."""
        if not self.journal_keep_bytes:
            return self.journal_segment_bytes
        return max(limits.MIB, min(self.journal_segment_bytes, self.journal_keep_bytes // 8))

    @property
    def seal_seconds(self) -> float:
        """Longest time before a segment is sealed; 0: only a full segment is sealed."""
        due = [self.archive_every_seconds] if self.archive else []
        if self.journal_keep_seconds:
            due.append(max(_SEAL_SECONDS_MIN, min(DAY_SECONDS, self.journal_keep_seconds / 8)))
        return min(due, default=0.0)

    @property
    def retention(self) -> bool:
        """True if old segments of the journal expire."""
        return self.journal_keep_seconds > 0 or self.journal_keep_bytes > 0

    def __post_init__(self) -> None:
        for problem in wrong(self):
            raise InvalidSettings(problem)
        problems = [
            (not self.server_id or is_token(self.server_id), "server_id must be a nanoid-like token"),
            (0 <= self.journal_port < 65536, "journal_port must be a port, or 0 for any"),
            (bool(self.journal_host), "journal_host must be an address of this machine"),
            (
                0 < self.renew_seconds < self.lease_seconds < self.stale_seconds,
                "renew_seconds < lease_seconds < stale_seconds must hold",
            ),
            (self.retries_max >= 0, "retries_max must not be negative"),
            (
                self.unfinished_bytes_max <= self.unfinished_total_bytes_max,
                "unfinished_total_bytes_max must not be below unfinished_bytes_max (per document)",
            ),
            (
                self.update_bytes_max <= self.unfinished_bytes_max,
                "unfinished_bytes_max must not be below update_bytes_max: it holds at least one update",
            ),
        ]
        for good, problem in problems:
            if not good:
                raise InvalidSettings(problem)
