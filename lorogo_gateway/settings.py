"""The gateway's settings: one frozen value, checked when it is made.

Each field is a setting of files and variables, some of flags, too (docs/SETTINGS.md).
"""

from dataclasses import dataclass
from pathlib import Path

from lorogo_gateway.addresses import check_network
from lorogo_gateway.origins import check as check_origin
from lorogo_gateway.origins import check_name
from lorogo_protocol import setting
from lorogo_protocol.limits import AWARENESS_BYTES_MAX, KIB, MIB, UPDATE_BYTES_MAX
from lorogo_protocol.setting import count, file, rate, seconds, size, switch, text, texts

_HSTS_SECONDS_MAX = 10 * 365 * 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Where it listens, how patient it is, and how much it keeps in memory."""

    host: str = text("127.0.0.1", "Where to listen; 0.0.0.0 or :: for every interface.")
    port: int = count(8080, "Its port; 0 takes a free one.", at_least=0, at_most=65535)
    read_only: bool = switch("Nobody may write through it, whatever their token allows.")
    metrics_open: bool = switch("With keys: /metrics asks for no operator's token.")
    origins: tuple[str, ...] = texts(
        "Pages from there may use the gateway, too, as in http://localhost:5173.", check=check_origin
    )
    host_names: tuple[str, ...] = texts(
        "Names that it is reached by, as in docs.example.org. On loopback needed for names other than"
        " localhost; elsewhere any will do if none is given.",
        check=check_name,
    )

    # WebSocket, per connection unless it says otherwise
    frame_bytes_max: int = size(
        256 * KIB, "Of one frame of the loro-protocol; larger updates come in fragments.", at_most=256 * KIB
    )
    fragment_bytes: int = size(240 * KIB, "Of each fragment that is sent.")
    fragment_seconds: float = seconds(10.0, "An update in fragments has so long to become whole.")
    fragments_bytes_max: int = size(UPDATE_BYTES_MAX, "Unfinished fragments, as announced.")
    unfinished_bytes_max: int = size(
        4 * UPDATE_BYTES_MAX, "Fragments that have come, of all connections; one token has a quarter."
    )
    update_bytes_max: int = size(UPDATE_BYTES_MAX, "Limit of one update.")
    presence_bytes_max: int = size(AWARENESS_BYTES_MAX, "Limit of one client's presence.")
    join_seconds: float = seconds(30.0, "A document has so long until it is served.")
    renew_seconds: float = seconds(
        30.0, "So long before the token of a room ends, its client is asked to join with a fresh one."
    )
    rejoin_seconds: float = seconds(1.0, "At least, between two requests to join a room again.")
    full_seconds: float = seconds(5.0, "Before a member is asked to join again, when the WAL was full.")
    rooms_max: int = count(64, "Rooms.")
    connections_max: int = count(10_000, "Connections of the gateway, HTTP among them.")
    unread_bytes_max: int = size(8 * MIB, "What a slow reader may leave unread.")
    unacked_updates_max: int = count(256, "Updates of a room without an ACK, before no more are read.")
    unacked_bytes_max: int = size(8 * MIB, "Their bytes.")
    frames_per_second: float = rate(2_000.0, "Frames of every kind.")
    anonymous_frames_per_second: float = rate(
        20.0, "Frames while it has shown no token, where tokens are asked for."
    )
    updates_per_second: float = rate(1_000.0, "Updates.")
    bytes_per_second: float = size(16.0 * MIB, "Bytes of updates, a second.")
    burst_seconds: float = seconds(5.0, "So much of any rate may come at once.")
    backfill_bytes_max: int = size(256 * MIB, "On its way to all newcomers of the gateway together.")
    ping_seconds: float = seconds(
        30.0, "Between two pings; without an answer in as long again the connection is closed."
    )

    # HTTP
    head_bytes_max: int = size(64 * KIB, "The head of a request.")
    head_seconds: float = seconds(10.0, "It may take so long, and so may a TLS handshake.")
    idle_seconds: float = seconds(30.0, "Between two requests of a connection.")
    stall_seconds: float = seconds(
        30.0, "A reader that takes too little of an answer for so long is cut off."
    )
    body_bytes_max: int = size(UPDATE_BYTES_MAX, "A body.")
    json_bytes_max: int = size(8 * MIB, "A body that is JSON: nothing else runs while it is parsed.")
    json_values_max: int = count(250_000, "Values in it.")
    bodies_bytes_max: int = size(4 * UPDATE_BYTES_MAX, "All bodies that are in memory together.")
    reads_max: int = count(8, "Documents that are read at once; others wait.")
    call_seconds: float = seconds(30.0, "For a body to come, and for a call to a document's owner.")
    page_documents_max: int = count(1_000, "Documents on one page of a list.")
    feed_stall_seconds: float = seconds(
        30.0, "The feed of a reader that takes nothing for so long is ended; it resumes."
    )
    feed_comment_seconds: float = seconds(15.0, "A feed on which nothing happens says so, so often.")
    feeds_max: int = count(100, "Feeds of the gateway.")

    # Of one address (of IPv6: its /64), all its connections together. An office behind one address fits in
    address_connections_max: int = count(2_000, "Connections.")
    address_connects_per_second: float = rate(200.0, "New connections.")
    address_requests_per_second: float = rate(1_000.0, "Requests, and handshakes of WebSockets.")
    address_bytes_per_second: float = size(64.0 * MIB, "Bytes of bodies, a second.")
    auth_failures_per_minute: float = rate(
        60.0, "Tokens that were refused; then none is looked at for a while."
    )
    auth_block_seconds: float = seconds(60.0, "How long that is.")
    limit_loopback: bool = switch("This machine itself is limited, too.")
    limit_keys_max: int = count(100_000, "Addresses and tokens remembered, for each rate.")
    trusted_proxies: tuple[str, ...] = texts(
        "Proxies whose X-Forwarded-For or Forwarded is believed, as in 10.0.0.0/8.", check=check_network
    )

    # Of one token, all its connections together; who has none is counted by address
    token_connections_max: int = count(1_000, "WebSockets.")
    token_documents_max: int = count(2_000, "Documents open at once.")
    token_feeds_max: int = count(10, "Feeds.")
    token_requests_per_second: float = rate(500.0, "Requests.")
    token_bytes_per_second: float = size(32.0 * MIB, "Bytes of bodies, a second.")
    token_bodies_bytes_max: int = size(UPDATE_BYTES_MAX, "Bodies and large answers in memory.")
    token_frames_per_second: float = rate(10_000.0, "Frames of WebSockets.")
    token_updates_per_second: float = rate(5_000.0, "Updates.")
    token_update_bytes_per_second: float = size(64.0 * MIB, "Bytes of updates, a second.")
    token_joins_per_second: float = rate(200.0, "Requests to join a room.")

    # TLS
    tls_cert: Path | None = file(  # noqa: RUF009  # a field, and no value
        "Serve https with this certificate (PEM, with its chain); read again when it changes."
    )
    tls_key: Path | None = file("Its key; readable by its owner only.")  # noqa: RUF009  # the same
    tls_check_seconds: float = seconds(10.0, "Between two looks at these files.")
    hsts_seconds: float = seconds(
        0.0,
        "Tell browsers to use https only, for so long.",
        at_most=_HSTS_SECONDS_MAX,
        meanings={0: "say nothing"},
    )

    # What operators see
    sample_seconds: float = seconds(5.0, "Between two looks at servers and streams.")
    samples_max: int = count(720, "Looks that are kept for the charts.")
    top_documents: int = count(20, "Documents that are listed by the size of their WAL.")
    close_seconds: float = seconds(5.0, "For what is in flight when the gateway stops.")

    def __post_init__(self) -> None:
        for problem in setting.wrong(self):
            raise ValueError(problem)
        object.__setattr__(self, "origins", tuple(check_origin(one) for one in self.origins))
        object.__setattr__(self, "host_names", tuple(check_name(one) for one in self.host_names))
        object.__setattr__(self, "trusted_proxies", tuple(check_network(one) for one in self.trusted_proxies))
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("a certificate and its key go together: tls_cert and tls_key")
        if self.fragment_bytes > self.frame_bytes_max - 4 * KIB:
            raise ValueError("fragment_bytes must leave 4 KiB of frame_bytes_max for the rest of the frame")
        if self.unfinished_bytes_max < self.update_bytes_max:
            raise ValueError("unfinished_bytes_max must not be below update_bytes_max")
        if self.bodies_bytes_max < self.body_bytes_max:
            raise ValueError("bodies_bytes_max must not be below body_bytes_max")
