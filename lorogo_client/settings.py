"""The client's settings: one frozen value, checked when it is made."""

from dataclasses import dataclass
from typing import Literal

from lorogo_protocol import limits


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Timeouts and memory bounds of a client."""

    connect_seconds: float = 5.0  # for the first connection to NATS
    open_seconds: float = 30.0  # for a session to become usable; open() can override it
    call_seconds: float = 30.0  # for a call to a document's owner; the call can override it
    close_seconds: float = 5.0  # how long leaving a session waits for missing ACKs

    # With a local store: how long connect() and open() wait for the network before they continue without it,
    # and how long the disk may take before the store fails.
    store_open_seconds: float = 1.0
    store_seconds: float = 10.0

    reply_seconds: float = limits.REPLY_SECONDS  # without a reply: find the owner, resend
    doubt_seconds: float = 1.0  # without a reply: ping once, to detect a dead owner early
    ping_seconds: float = 0.5
    init_seconds: float = 1.0  # then send another init: NATS may have chosen a paused server
    stale_seconds: float = limits.STALE_SECONDS
    retry_seconds_min: float = 0.05
    retry_seconds_max: float = 5.0
    head_grace_seconds: float = 0.25  # a renewal may overtake the updates that its head covers

    chunk_bytes_max: int = limits.CHUNK_BYTES_MAX
    update_bytes_max: int = limits.UPDATE_BYTES_MAX
    unsent_bytes_max: int = 64 * limits.MIB  # of unsent edits
    in_flight_updates_max: int = 256
    in_flight_bytes_max: int = 8 * limits.MIB
    confirmed_chunks_min: int = 8  # JetStream confirms each chunk of updates with more chunks
    updates_per_second: float | None = (
        None  # of one document; faster updates wait, with a burst of one second
    )
    bytes_per_second: float | None = None
    changes_max: int = 1024  # unread changes() of one reader before it gets Lagged

    # A relay pings an owner after this silence, and after a lost owner waits this long for a new one
    # before it notifies its members: they notice a killed server within the sum of both.
    relay_silence_seconds: float = 1.5
    relay_grace_seconds: float = 1.0

    feed_page_bytes: int = limits.MIB  # read ahead of one journal by a feed; about twice that is buffered
    feed_wait_seconds: float = 20.0  # long poll: how long a server may hold a feed's page request
    feed_search_seconds: float = 5.0  # between two searches for new servers
    feed_patience_seconds: float = 10.0  # for an absent server, before the feed reports a Gap without it

    # With a token: how many documents that it grants only by a pattern may be open, each on a connection of
    # its own, and how long an unused one of these connections stays open.
    documents_open_max: int = 100
    idle_link_seconds: float = 5.0

    presence_seconds: float = limits.PRESENCE_SECONDS
    presence_bytes_max: int = limits.AWARENESS_BYTES_MAX

    # "client": the client writes the STARTING status itself. "server": it sends an empty init to servers,
    # and needs no access to the status bucket. With a token it is always "server".
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
