"""Decisions on the limits of one address and of one token, over all their connections. Pure.

A client without a token is counted by its address in place of the token. A loopback client without a token
and without a trusted proxy is not limited unless `limit_loopback` is set: a local proxy that is not
configured as trusted would otherwise share one limit among all clients.
"""

import math
from dataclasses import dataclass

from lorogo_gateway.addresses import RequestOrigin, TrustedProxies, key_of
from lorogo_gateway.limits.reasons import LimitCounters, LimitReason
from lorogo_gateway.limits.table import DeadlineTable, RateTable, UsageTable
from lorogo_gateway.settings import GatewaySettings

_MINUTE = 60.0
_GOOD_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class LimitExceeded:
    """A refusal because of a limit, and the seconds until a retry may succeed."""

    why: LimitReason
    seconds: float
    detail: str

    @property
    def retry_after(self) -> str:
        """The value of Retry-After: whole seconds, at least one."""
        return str(max(1, math.ceil(self.seconds)))


class Limiter:
    """The state of all limits by address and by token. One per gateway."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self.proxies = TrustedProxies(settings.trusted_proxies)
        self.refusals = LimitCounters()
        self._address_connections = UsageTable(settings.address_connections_max)
        self._token_connections = UsageTable(settings.token_connections_max)
        self._token_documents = UsageTable(settings.token_documents_max)
        self._token_bodies = UsageTable(max(settings.token_bodies_bytes_max, settings.body_bytes_max))
        self._token_feeds = UsageTable(settings.token_feeds_max)
        self._documents: dict[tuple[str, str], int] = {}  # (token, document): number of rooms
        self._blocked = DeadlineTable(settings.limit_keys_max)
        self._good = DeadlineTable(settings.limit_keys_max)  # recently verified tokens
        self._connects = self._rates(settings.address_connects_per_second)
        self._requests = self._rates(settings.address_requests_per_second)
        self._bytes = self._rates(settings.address_bytes_per_second)
        self._failures = self._rates(settings.auth_failures_per_minute / _MINUTE, _MINUTE)
        self._token_requests = self._rates(settings.token_requests_per_second)
        self._token_bytes = self._rates(settings.token_bytes_per_second)
        self._frames = self._rates(settings.token_frames_per_second)
        self._updates = self._rates(settings.token_updates_per_second)
        self._update_bytes = self._rates(settings.token_update_bytes_per_second)
        self._joins = self._rates(settings.token_joins_per_second)

    def _rates(self, rate: float, burst_seconds: float | None = None) -> RateTable:
        burst = self._settings.burst_seconds if burst_seconds is None else burst_seconds
        return RateTable(rate, burst, keys_max=self._settings.limit_keys_max)

    def exempt(self, origin: RequestOrigin) -> bool:
        """Return whether the request is local and therefore not limited."""
        return origin.local and not self._settings.limit_loopback

    # --- connections

    def connect(self, peer: str, *, now: float) -> LimitExceeded | None:
        """Count a TCP connection, unless of a trusted proxy; None: accepted, pair with `disconnect`."""
        if self._uncounted(peer):
            return None
        key = key_of(peer)
        if seconds := self._connects.take(key, 1, now=now):
            return self._refuse(
                LimitReason.ADDRESS_CONNECTS, seconds, "too many new connections from this address"
            )
        return self.enter_address(peer)

    def disconnect(self, peer: str) -> None:
        """Release a connection that `connect` accepted."""
        if not self._uncounted(peer):
            self.leave_address(peer)

    def enter_address(self, address: str) -> LimitExceeded | None:
        """Count a connection of this address; None: accepted, pair with `leave_address`."""
        if self._address_connections.enter(key_of(address)):
            return None
        most = self._settings.address_connections_max
        return self._refuse(
            LimitReason.ADDRESS_CONNECTIONS, 5.0, f"this address has {most} connections, the limit"
        )

    def leave_address(self, address: str) -> None:
        """Release a connection of this address."""
        self._address_connections.leave(key_of(address))

    def enter_token(self, key: str) -> LimitExceeded | None:
        """Count a WebSocket of this token; None: accepted, pair with `leave_token`."""
        if self._token_connections.enter(key):
            return None
        most = self._settings.token_connections_max
        return self._refuse(
            LimitReason.TOKEN_CONNECTIONS, 5.0, f"this token has {most} connections, the limit"
        )

    def leave_token(self, key: str) -> None:
        """Release a WebSocket of this token."""
        self._token_connections.leave(key)

    def _uncounted(self, peer: str) -> bool:
        if self.proxies.trusts(peer):
            return True
        return self.exempt(self.proxies.origin(peer, ()))

    # --- requests

    def request(self, address: str, *, body: bool, now: float) -> LimitExceeded | None:
        """Count a request of this address.

        A body that has begun is read to its end; if it exceeds the rate, the next request is refused.
        """
        key = key_of(address)
        if body and (seconds := self._bytes.wait(key, now=now)):
            return self._refuse(LimitReason.ADDRESS_BYTES, seconds, "too many bytes from this address")
        if seconds := self._requests.take(key, 1, now=now):
            return self._refuse(LimitReason.ADDRESS_REQUESTS, seconds, "too many requests from this address")
        return None

    def token_request(self, key: str, *, body: bool, now: float) -> LimitExceeded | None:
        """Count the same request for its token."""
        if body and (seconds := self._token_bytes.wait(key, now=now)):
            return self._refuse(LimitReason.TOKEN_BYTES, seconds, "too many bytes with this token")
        if seconds := self._token_requests.take(key, 1, now=now):
            return self._refuse(LimitReason.TOKEN_REQUESTS, seconds, "too many requests with this token")
        return None

    def received(self, address: str, key: str, size: int, *, now: float) -> None:
        """Charge received bytes of a body to the address and the token; an empty key is not charged."""
        if address:
            self._bytes.charge(key_of(address), size, now=now)
        if key:
            self._token_bytes.charge(key, size, now=now)

    def hold(self, key: str, size: int) -> LimitExceeded | None:
        """Count `size` bytes of bodies and responses in memory; None: accepted, pair with `release`."""
        if not key or self._token_bodies.enter(key, size):
            return None
        return self._refuse(LimitReason.TOKEN_BODIES, 1.0, "this token has too many large bodies in progress")

    def release(self, key: str, size: int) -> None:
        """Release bytes that `hold` counted."""
        if key:
            self._token_bodies.leave(key, size)

    def enter_feed(self, key: str) -> LimitExceeded | None:
        """Count a feed of this token; None: accepted, pair with `leave_feed`. An empty key has no limit."""
        if not key or self._token_feeds.enter(key):
            return None
        most = self._settings.token_feeds_max
        return self._refuse(LimitReason.TOKEN_FEEDS, 5.0, f"this token has {most} open feeds, the limit")

    def leave_feed(self, key: str) -> None:
        """Release a feed of this token."""
        if key:
            self._token_feeds.leave(key)

    # --- WebSockets

    def frames(self, key: str, count: int, *, now: float) -> LimitExceeded | None:
        """Count frames of any type of a token, over all its connections."""
        if seconds := self._frames.take(key, count, now=now):
            return self._refuse(LimitReason.TOKEN_FRAMES, seconds, "too many frames with this token")
        return None

    def update(self, key: str, count: int, size: int, *, now: float) -> LimitExceeded | None:
        """Count updates of a token, over all its connections."""
        if seconds := self._update_bytes.wait(key, now=now):
            return self._refuse(
                LimitReason.TOKEN_UPDATE_BYTES, seconds, "too many bytes of updates with this token"
            )
        if seconds := self._updates.take(key, count, now=now):
            return self._refuse(LimitReason.TOKEN_UPDATES, seconds, "too many updates with this token")
        self._update_bytes.charge(key, size, now=now)
        return None

    def join(self, key: str, *, now: float) -> LimitExceeded | None:
        """Count a JoinRequest of a token."""
        if seconds := self._joins.take(key, 1, now=now):
            return self._refuse(LimitReason.TOKEN_JOINS, seconds, "too many joins with this token")
        return None

    def enter_document(self, key: str, document: str) -> LimitExceeded | None:
        """Count an open document of a token; several rooms of one document count once.

        None: accepted, pair with `leave_document`.
        """
        rooms = self._documents.get((key, document), 0)
        if not rooms and not self._token_documents.enter(key):
            most = self._settings.token_documents_max
            return self._refuse(
                LimitReason.TOKEN_DOCUMENTS, 5.0, f"this token has {most} open documents, the limit"
            )
        self._documents[key, document] = rooms + 1
        return None

    def leave_document(self, key: str, document: str) -> None:
        """Release a room of the document."""
        rooms = self._documents.pop((key, document)) - 1
        if rooms:
            self._documents[key, document] = rooms
        else:
            self._token_documents.leave(key)

    # --- refused tokens

    def auth_failed(self, address: str, *, now: float) -> None:
        """Count a refused token; too many block the address."""
        self.auth_failed_by(key_of(address), now=now)

    def auth_failed_by(self, key: str, *, now: float) -> None:
        """Count a refused token on a connection with a valid one; too many block that one alone."""
        if self._failures.take(key, 1, now=now):
            self._blocked.set(key, now + self._settings.auth_block_seconds)

    def auth_passed(self, user: str, *, now: float) -> None:
        """Remember a verified token: it is exempt from blocks of its address."""
        self._good.set(user, now + _GOOD_SECONDS)

    def auth_blocked(self, address: str, user: str, *, now: float) -> LimitExceeded | None:
        """Return a refusal if tokens from this address are blocked, unless `user`'s was verified recently."""
        if self._good.left(user, now=now):
            return None
        if seconds := self._blocked.left(key_of(address), now=now):
            return self._refuse(
                LimitReason.AUTH_FAILURES, seconds, "too many tokens from this address were refused"
            )
        return None

    def auth_blocked_by(self, key: str, user: str, *, now: float) -> LimitExceeded | None:
        """Return a refusal if other tokens on connections of the valid token `key` are blocked."""
        if self._good.left(user, now=now):
            return None
        if seconds := self._blocked.left(key, now=now):
            return self._refuse(
                LimitReason.AUTH_FAILURES, seconds, "too many tokens on connections of this one were refused"
            )
        return None

    # --- internals

    def _refuse(self, why: LimitReason, seconds: float, detail: str) -> LimitExceeded:
        self.refusals.count(why)
        return LimitExceeded(why, seconds, detail)
