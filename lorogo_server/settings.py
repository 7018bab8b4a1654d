"""What an operator may choose, in one frozen place, checked once at the door.

A field that is made by `count`, `seconds` and so on is a setting of files, variables and flags, too
(lorogo_protocol/setting.py, docs/SETTINGS.md); the others are for programs.
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
    """A setting that cannot work; says which and why."""

    code = "invalid-settings"


def check_archive(url: str) -> None:
    """Raise ValueError unless it looks like a URL."""
    if "://" not in url:
        raise ValueError("must be a URL, as in file:///backup/lorogo")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSettings:
    """The settings of one server process; the defaults are those of docs/PROTOCOL.md."""

    server_id: str = ""  # empty: a new one for this process

    # What an ACK waits for, and the journal
    durability: str = choice(
        "journal",
        "What an ACK waits for: the stream, this server's disk, or others' too.",
        one_of=DURABILITIES,
    )
    journal_partitions: int = count(1, "Logs that the journal is spread over.", at_most=64)
    journal_segment_bytes: int = size(
        128 * limits.MIB, "How large a file of the journal grows.", at_least=limits.MIB
    )
    journal_keep_seconds: float = seconds(
        0.0,
        "Drop segments of the journal that are wholly older (sealed daily).",
        meanings={0: "keep them for ever"},
    )
    journal_keep_bytes: int = size(
        0,
        "Drop the oldest segments of a partition above this; each has an eighth, 1 MiB at least.",
        meanings={0: "no limit"},
    )
    journal_host: str = (
        "127.0.0.1"  # where other servers copy the journal from: listened on, and told to them
    )
    journal_port: int = 0  # 0: any
    journal_advertise: str = text("", "The host that other servers are told, if it is another.")
    journal_place: str = ""  # servers of one place keep no copies for each other; empty: that of the folder
    journal_secret: str = field(
        default="", repr=False
    )  # shared by all servers; empty: the network is private
    archive: str = text(
        "", "Copy sealed segments of the journal there: file:///..., s3://...", check=check_archive
    )
    archive_every_seconds: float = seconds(
        300.0, "With an archive: a segment is sealed at least so often, to be copied."
    )
    journal_replicas: int = count(
        1, "Other servers that must have an update, too, with durability replicated.", at_most=16
    )
    revocations_wait_seconds: float = seconds(
        3.0,
        "With keys: if NATS has no complete list of revoked tokens, wait so long for other servers to bring"
        " back theirs.",
        meanings={0: "do not wait"},
    )
    reconcile_every_seconds: float = seconds(300.0, "Journals and the stream are compared so often.")
    answers_every_seconds: float = seconds(60.0, "The journal is told so often how senders were answered.")

    # Of the protocol: the same for all servers and clients, so no operator chooses them
    renew_seconds: float = limits.RENEW_SECONDS
    lease_seconds: float = limits.LEASE_SECONDS
    stale_seconds: float = limits.STALE_SECONDS
    retries_max: int = limits.RETRIES_MAX

    # Updates and documents
    update_bytes_max: int = size(
        limits.UPDATE_BYTES_MAX, "Limit of one update.", at_most=limits.UPDATE_BYTES_MAX
    )
    document_bytes_max: int = size(
        limits.DOCUMENT_BYTES_MAX,
        "Limit of one document: its snapshot and what was accepted since.",
        meanings={0: "no limit"},
    )
    unfinished_bytes_max: int = size(
        limits.UNFINISHED_BYTES_MAX,
        "Chunks of a document whose updates are not whole; if update_bytes_max is given, four times that.",
    )
    unfinished_total_bytes_max: int = size(
        4 * limits.UNFINISHED_BYTES_MAX, "The same of all documents of a worker, calls included."
    )
    unfinished_seconds: float = seconds(limits.UNFINISHED_SECONDS, "An update has so long to become whole.")
    pending_bytes_max: int = size(
        limits.PENDING_BYTES_MAX, "Updates of a document that wait for others they build on."
    )
    pending_updates_max: int = count(limits.PENDING_UPDATES_MAX, "How many of them.")
    pending_seconds: float = seconds(limits.PENDING_SECONDS, "How long they wait.")
    accepted_inline_bytes_max: int = size(
        limits.ACCEPTED_INLINE_BYTES_MAX, "Larger accepted updates are announced only, and readers sync."
    )
    presence_seconds: float = seconds(
        limits.PRESENCE_SECONDS, "Presence that is not renewed goes after this."
    )

    # Loading and unloading
    documents_max: int = count(50_000, "Documents open at once, per worker.")
    loads_max: int = count(16, "Documents loaded at once, per worker.")
    load_seconds_max: float = seconds(300.0, "A load that takes longer has failed.")
    recover_seconds_max: float = seconds(
        30.0,
        "After NATS lost data: a document waits so long for the journals of all servers before it is UP.",
    )
    idle_seconds: float = seconds(300.0, "Unload documents that nobody used for so long.")
    stop_seconds: float = seconds(20.0, "How long a stop may take, before what is left is given up.")

    # History and snapshots
    history_seconds: float = seconds(
        limits.HISTORY_SECONDS, "How far back versions can be reached.", meanings={0: "no history"}
    )
    compact_every_seconds: float = seconds(DAY_SECONDS, "A document is compacted at least so often.")
    compact_wal_bytes: int = size(16 * limits.MIB, "Compact a document whose WAL is larger.")
    compact_idle_bytes: int = size(
        256 * limits.KIB,
        "A WAL of so much is worth a snapshot: when its document is unloaded, when the server stops, and when"
        " it was loaded so.",
    )
    deleted_keep_seconds: float = seconds(
        30 * DAY_SECONDS, "What a deleted document was is kept so long, and can be restored."
    )
    snapshot_bytes_max: int = size(1024 * limits.MIB, "Stored snapshots above this are not loaded.")

    # JetStream
    replicas: int = choice(1, "Copies that JetStream keeps.", one_of=(1, 3, 5))
    wal_bytes_max: int = size(
        0,
        "Limit of the WAL; one that fits is half of what JetStream can set aside, 8 GiB at most.",
        meanings={0: "fits JetStream's storage", -1: "no limit"},
    )
    kept_presence_bytes_max: int = size(
        limits.KEPT_PRESENCE_BYTES_MAX,
        "Limit of the presence that is kept, of all documents; JetStream sets it aside.",
        meanings={-1: "no limit"},
    )

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
                "unfinished_total_bytes_max must not be below unfinished_bytes_max, which is of one document",
            ),
            (
                self.update_bytes_max <= self.unfinished_bytes_max,
                "unfinished_bytes_max must not be below update_bytes_max: it holds at least one update",
            ),
        ]
        for good, problem in problems:
            if not good:
                raise InvalidSettings(problem)
