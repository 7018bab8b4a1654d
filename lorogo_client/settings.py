"""The client's settings: one frozen value, checked when it is made."""

from dataclasses import dataclass
from typing import Literal

from lorogo_protocol import limits


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How patient a client is, and how much it keeps in memory."""

    connect_seconds: float = 5.0  # for the first connection to NATS
    open_seconds: float = 30.0  # for a session to be usable, unless open() says otherwise
    call_seconds: float = 30.0  # for a call to a document's owner, unless it says otherwise
    close_seconds: float = 5.0  # how long leaving a session waits for what is not ACKed yet

    # With a local store: how long connect() and open() wait for the network before they go on without it,
    # and how long the disk may take before the store is given up.
    store_open_seconds: float = 1.0
    store_seconds: float = 10.0

    reply_seconds: float = limits.REPLY_SECONDS  # without an answer: find the owner, send again
    doubt_seconds: float = 1.0  # without an answer: ping once, so that a dead owner shows early
    ping_seconds: float = 0.5
    init_seconds: float = 1.0  # then NATS is asked to choose again: a paused server is chosen too
    stale_seconds: float = limits.STALE_SECONDS
    retry_seconds_min: float = 0.05
    retry_seconds_max: float = 5.0
    head_grace_seconds: float = 0.25  # a renewal may overtake the updates that it tells of

    chunk_bytes_max: int = limits.CHUNK_BYTES_MAX
    update_bytes_max: int = limits.UPDATE_BYTES_MAX
    unsent_bytes_max: int = 64 * limits.MIB  # edits that wait for a connection
    in_flight_updates_max: int = 256
    in_flight_bytes_max: int = 8 * limits.MIB
    confirmed_chunks_min: int = 8  # updates with more chunks than this wait for JetStream, chunk by chunk
    updates_per_second: float | None = (
        None  # of one document; what comes faster waits, a second's worth does not
    )
    bytes_per_second: float | None = None
    changes_max: int = 1024  # unread changes() of one reader, before it is told that it lags

    # A relay pings an owner that was not heard for so long, and gives a lost one so long to be replaced
    # before its members are told: a killed server shows within the sum of both.
    relay_silence_seconds: float = 1.5
    relay_grace_seconds: float = 1.0

    feed_page_bytes: int = limits.MIB  # of one journal, read ahead by a feed; about twice that is kept
    feed_wait_seconds: float = 20.0  # how long a server may keep a feed's question open
    feed_search_seconds: float = 5.0  # between two looks for new servers
    feed_patience_seconds: float = 10.0  # for a server that is away, before a Gap is told without it

    # With a token: how many documents that only a pattern of it covers may be open, each on a connection of
    # its own, and how long such a connection is kept after its last use.
    documents_open_max: int = 100
    idle_link_seconds: float = 5.0

    presence_seconds: float = limits.PRESENCE_SECONDS
    presence_bytes_max: int = limits.AWARENESS_BYTES_MAX

    # "client": the client moves the status to STARTING itself. "server": it asks with an empty init,
    # and needs no rights on the status bucket. With a token it is always "server".
    start: Literal["client", "server"] = "client"

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, int | float) and value <= 0:
                raise ValueError(f"{name} must be above 0, not {value!r}")
        if self.start not in ("client", "server"):
            raise ValueError(f"start must be 'client' or 'server', not {self.start!r}")
        if self.retry_seconds_min > self.retry_seconds_max:
            raise ValueError("retry_seconds_min must not be above retry_seconds_max")
        if self.doubt_seconds > self.reply_seconds:
            raise ValueError("doubt_seconds must not be above reply_seconds")
        if self.update_bytes_max > limits.UPDATE_BYTES_MAX:
            raise ValueError(f"update_bytes_max must not be above {limits.UPDATE_BYTES_MAX}")
