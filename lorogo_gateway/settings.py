"""The gateway's settings: one frozen value, checked when it is made."""

from dataclasses import dataclass, fields
from pathlib import Path

from lorogo_gateway import origins
from lorogo_gateway.limiting.addresses import check_network
from lorogo_protocol.limits import AWARENESS_BYTES_MAX, KIB, MIB, UPDATE_BYTES_MAX

_NO_BOUNDS = frozenset(
    {
        "host",
        "port",
        "read_only",
        "metrics_open",
        "origins",
        "host_names",
        "limit_loopback",
        "trusted_proxies",
        "tls_cert",
        "tls_key",
        "hsts_seconds",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Where it listens, how patient it is, and how much it keeps in memory."""

    host: str = "127.0.0.1"
    port: int = 8080  # 0: any that is free
    read_only: bool = False  # everybody may read, nobody may write
    metrics_open: bool = False  # with keys: /metrics is for everybody, not for operators alone
    origins: tuple[str, ...] = ()  # whose pages may use it, beside its own
    host_names: tuple[
        str, ...
    ] = ()  # it goes by, beside addresses and localhost; none: any, if not on loopback

    # WebSocket, per connection unless it says otherwise
    frame_bytes_max: int = 256 * KIB  # of the loro-protocol; larger updates come in fragments
    fragment_bytes: int = 240 * KIB  # of the fragments that we send
    fragment_seconds: float = 10.0
    fragments_bytes_max: int = UPDATE_BYTES_MAX  # unfinished, as announced
    unfinished_bytes_max: int = 4 * UPDATE_BYTES_MAX  # that have come, of the gateway; a token: a quarter
    update_bytes_max: int = UPDATE_BYTES_MAX
    presence_bytes_max: int = AWARENESS_BYTES_MAX
    join_seconds: float = 30.0  # until a document is served
    renew_seconds: float = 30.0  # before the token of a room ends, it is asked to join with a fresh one
    rejoin_seconds: float = 1.0  # at least, between two requests to join a room again
    full_seconds: float = 5.0  # before a member is asked to, when the WAL was full
    rooms_max: int = 64
    connections_max: int = 10_000  # of the gateway, HTTP among them
    unread_bytes_max: int = 8 * MIB  # of a slow reader
    unacked_updates_max: int = 256
    unacked_bytes_max: int = 8 * MIB
    frames_per_second: float = 2_000.0  # of every kind
    stranger_frames_per_second: float = 20.0  # while it has shown no token, where tokens are asked for
    updates_per_second: float = 1_000.0
    bytes_per_second: float = 16.0 * MIB
    burst_seconds: float = 5.0
    backfill_bytes_max: int = 256 * MIB  # being sent to all newcomers of the gateway together
    ping_seconds: float = 30.0  # a WebSocket ping; without an answer in as long again it is closed

    # HTTP
    head_bytes_max: int = 64 * KIB  # of a request
    head_seconds: float = 10.0  # that it may take
    idle_seconds: float = 30.0  # between two requests of a connection
    stall_seconds: float = 30.0  # a reader that takes too little of an answer for so long is cut off
    body_bytes_max: int = UPDATE_BYTES_MAX
    json_bytes_max: int = 8 * MIB  # of a body that is JSON: nothing else runs while it is parsed
    json_values_max: int = 250_000  # in one
    bodies_bytes_max: int = 4 * UPDATE_BYTES_MAX  # all that are in memory together
    reads_max: int = 8  # documents that are read at once; others wait
    call_seconds: float = 30.0
    page_documents_max: int = 1_000
    feed_stall_seconds: float = 30.0  # a reader that takes nothing for so long is ended, and resumes
    feed_comment_seconds: float = 15.0
    feeds_max: int = 100  # of the gateway

    # Of one address (of IPv6: its /64), all its connections together. An office behind one address fits in;
    # this machine itself is not limited unless `limit_loopback` says so
    address_connections_max: int = 2_000
    address_connects_per_second: float = 200.0  # new connections
    address_requests_per_second: float = 1_000.0  # HTTP, and the handshakes of WebSockets
    address_bytes_per_second: float = 64.0 * MIB  # of bodies
    auth_failures_per_minute: float = 60.0  # tokens that were refused; then none is looked at for a while
    auth_block_seconds: float = 60.0
    limit_loopback: bool = False
    limit_keys_max: int = 100_000  # addresses and tokens remembered, for each rate
    trusted_proxies: tuple[str, ...] = ()  # whose X-Forwarded-For or Forwarded is believed: networks

    # Of one token, all its connections together; who has none is counted by address
    token_connections_max: int = 1_000  # WebSockets
    token_documents_max: int = 2_000  # open at once
    token_feeds_max: int = 10
    token_requests_per_second: float = 500.0
    token_bytes_per_second: float = 32.0 * MIB  # of bodies
    token_bodies_bytes_max: int = UPDATE_BYTES_MAX  # in memory, of bodies and large answers
    token_frames_per_second: float = 10_000.0  # of WebSockets
    token_updates_per_second: float = 5_000.0
    token_update_bytes_per_second: float = 64.0 * MIB
    token_joins_per_second: float = 200.0

    # TLS
    tls_cert: Path | None = None  # with the chain, PEM; read again when it changes
    tls_key: Path | None = None
    tls_check_seconds: float = 10.0  # between two looks at the files
    hsts_seconds: float = 0.0  # 0: no Strict-Transport-Security

    # What operators see
    sample_seconds: float = 5.0  # between two looks at servers and stream
    samples_max: int = 720  # kept for the charts: an hour
    top_documents: int = 20
    close_seconds: float = 5.0  # for what is in flight, at the end

    def __post_init__(self) -> None:
        object.__setattr__(self, "origins", tuple(origins.check(one) for one in self.origins))
        object.__setattr__(self, "host_names", tuple(origins.check_name(one) for one in self.host_names))
        object.__setattr__(self, "trusted_proxies", tuple(check_network(one) for one in self.trusted_proxies))
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("a TLS certificate and its key go together: --tls-cert FILE --tls-key FILE")
        if not 0 <= self.hsts_seconds <= 10 * 365 * 86400:
            raise ValueError(f"hsts_seconds must be from 0 to ten years, not {self.hsts_seconds!r}")
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port must be from 0 to 65535, not {self.port}")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _NO_BOUNDS:
                continue
            if not value > 0:
                raise ValueError(f"{field.name} must be above 0, not {value!r}")
        if self.frame_bytes_max > 256 * KIB:
            raise ValueError("frame_bytes_max must be at most 262144, which the loro-protocol allows")
        if self.fragment_bytes > self.frame_bytes_max - 4 * KIB:
            raise ValueError("fragment_bytes must leave 4 KiB of frame_bytes_max for the rest of the frame")
        if self.unfinished_bytes_max < self.update_bytes_max:
            raise ValueError("unfinished_bytes_max must not be below update_bytes_max")
        if self.bodies_bytes_max < self.body_bytes_max:
            raise ValueError("bodies_bytes_max must not be below body_bytes_max")
