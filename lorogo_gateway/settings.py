"""The gateway's settings: one frozen dataclass, checked when it is created.

Each field is a setting of files and variables; some are also flags (docs/SETTINGS.md).
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
    """The gateway's address, limits and timeouts."""

    host: str = text("127.0.0.1", "Address to listen on; 0.0.0.0 or :: for all interfaces.")
    port: int = count(8080, "Port to listen on; 0: a free one.", at_least=0, at_most=65535)
    read_only: bool = switch("Refuse all writes, whatever the token grants.")
    metrics_open: bool = switch("Serve /metrics without an operator's token.")
    origins: tuple[str, ...] = texts(
        "Other allowed origins, as in http://localhost:5173.", check=check_origin
    )
    host_names: tuple[str, ...] = texts(
        "Accepted host names, as in docs.example.org. Empty: on loopback only localhost, elsewhere all.",
        check=check_name,
    )

    # WebSocket, per connection unless noted otherwise
    frame_bytes_max: int = size(
        256 * KIB, "Size of a frame; larger updates are sent in fragments.", at_most=256 * KIB
    )
    fragment_bytes: int = size(240 * KIB, "Size of a sent fragment.")
    fragment_seconds: float = seconds(10.0, "Time for all fragments of an update to arrive.")
    fragments_bytes_max: int = size(UPDATE_BYTES_MAX, "Announced bytes of incomplete updates.")
    unfinished_bytes_max: int = size(
        4 * UPDATE_BYTES_MAX,
        "Received bytes of incomplete updates, all connections; one token: a quarter.",
    )
    update_bytes_max: int = size(UPDATE_BYTES_MAX, "Size of one update.")
    presence_bytes_max: int = size(AWARENESS_BYTES_MAX, "Size of one client's presence.")
    join_seconds: float = seconds(30.0, "Timeout of a join.")
    renew_seconds: float = seconds(30.0, "Time from a request to rejoin to the end of the token.")
    rejoin_seconds: float = seconds(1.0, "Minimum between two requests to rejoin a room.")
    full_seconds: float = seconds(5.0, "Time until a request to rejoin after the WAL was full.")
    rooms_max: int = count(64, "Rooms.")
    connections_max: int = count(10_000, "Connections of the gateway, with HTTP.")
    unread_bytes_max: int = size(8 * MIB, "Unread bytes before a disconnect.")
    unacked_updates_max: int = count(256, "Un-ACKed updates of a room before reading stops.")
    unacked_bytes_max: int = size(8 * MIB, "Un-ACKed bytes of a room before reading stops.")
    frames_per_second: float = rate(2_000.0, "Frames of all types.")
    anonymous_frames_per_second: float = rate(20.0, "Frames before a token, where tokens are required.")
    updates_per_second: float = rate(1_000.0, "Updates.")
    bytes_per_second: float = size(16.0 * MIB, "Bytes of updates per second.")
    burst_seconds: float = seconds(5.0, "Burst of every rate, in seconds of that rate.")
    backfill_bytes_max: int = size(256 * MIB, "Bytes of backfills being sent, all connections.")
    ping_seconds: float = seconds(30.0, "Interval of pings, and timeout of a pong.")

    # HTTP
    head_bytes_max: int = size(64 * KIB, "Size of a request's head.")
    head_seconds: float = seconds(10.0, "Timeout of a request's head, and of a TLS handshake.")
    idle_seconds: float = seconds(30.0, "Idle time between requests.")
    stall_seconds: float = seconds(30.0, "Timeout of a client that does not read its response.")
    body_bytes_max: int = size(UPDATE_BYTES_MAX, "Size of a body.")
    json_bytes_max: int = size(8 * MIB, "Size of a JSON body.")
    json_values_max: int = count(250_000, "Values in a JSON body.")
    bodies_bytes_max: int = size(4 * UPDATE_BYTES_MAX, "Bytes of all bodies in memory.")
    reads_max: int = count(8, "Concurrent reads of documents; further ones wait.")
    call_seconds: float = seconds(30.0, "Timeout of a body, and of a call to a document's owner.")
    page_documents_max: int = count(1_000, "Documents per page of a list.")
    feed_stall_seconds: float = seconds(
        30.0, "Timeout of a client that does not read its feed; it can resume."
    )
    feed_comment_seconds: float = seconds(15.0, "Interval of comments on an idle feed.")
    feeds_max: int = count(100, "Feeds of the gateway.")

    # Per address (IPv6: per /64), over all its connections; sized for an office behind one address
    address_connections_max: int = count(2_000, "Connections.")
    address_connects_per_second: float = rate(200.0, "New connections.")
    address_requests_per_second: float = rate(1_000.0, "Requests and WebSocket handshakes.")
    address_bytes_per_second: float = size(64.0 * MIB, "Bytes of bodies per second.")
    auth_failures_per_minute: float = rate(60.0, "Refused tokens before a block.")
    auth_block_seconds: float = seconds(60.0, "Duration of that block.")
    limit_loopback: bool = switch("Limit loopback clients, too.")
    limit_keys_max: int = count(100_000, "Addresses and tokens stored per rate.")
    trusted_proxies: tuple[str, ...] = texts(
        "Proxies whose X-Forwarded-For or Forwarded is trusted: 10.0.0.0/8.", check=check_network
    )

    # Per token, over all its connections; a client without a token is counted by address
    token_connections_max: int = count(1_000, "WebSockets.")
    token_documents_max: int = count(2_000, "Documents open at once.")
    token_feeds_max: int = count(10, "Feeds.")
    token_requests_per_second: float = rate(500.0, "Requests.")
    token_bytes_per_second: float = size(32.0 * MIB, "Bytes of bodies per second.")
    token_bodies_bytes_max: int = size(UPDATE_BYTES_MAX, "Bytes of bodies and large responses in memory.")
    token_frames_per_second: float = rate(10_000.0, "WebSocket frames.")
    token_updates_per_second: float = rate(5_000.0, "Updates.")
    token_update_bytes_per_second: float = size(64.0 * MIB, "Bytes of updates per second.")
    token_joins_per_second: float = rate(200.0, "Requests to join a room.")

    # TLS
    tls_cert: Path | None = file(  # noqa: RUF009  # declares a field
        "Certificate for https: PEM, with its chain; reloaded after a change."
    )
    tls_key: Path | None = file("Key of the certificate; readable by its owner only.")  # noqa: RUF009  # declares a field
    tls_check_seconds: float = seconds(10.0, "Interval of checks for changed files.")
    hsts_seconds: float = seconds(
        0.0,
        "HSTS: browsers use https only.",
        at_most=_HSTS_SECONDS_MAX,
        meanings={0: "no HSTS header"},
    )

    # Operator views
    sample_seconds: float = seconds(5.0, "Interval of samples of servers and streams.")
    samples_max: int = count(720, "Samples kept for charts.")
    top_documents: int = count(20, "Documents listed by messages in the WAL.")
    close_seconds: float = seconds(5.0, "Time to finish work at shutdown.")

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
