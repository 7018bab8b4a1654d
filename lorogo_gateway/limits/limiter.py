"""What one address and one token may do, all their connections together. Decides; others act. Pure.

Who has no token is counted by address where a token would be. Somebody on this machine itself, without a
token and not behind a trusted proxy, is not limited (`limit_loopback` says otherwise): a proxy here that
we were not told of would else be one address with everybody's traffic.
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
    """No, and when a try makes sense."""

    why: LimitReason
    seconds: float
    detail: str

    @property
    def retry_after(self) -> str:
        """The header: whole seconds, at least one."""
        return str(max(1, math.ceil(self.seconds)))


class Limiter:
    """The memory of all limits by address and by token. One per gateway."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self.proxies = TrustedProxies(settings.trusted_proxies)
        self.refusals = LimitCounters()
        self._address_connections = UsageTable(settings.address_connections_max)
        self._token_connections = UsageTable(settings.token_connections_max)
        self._token_documents = UsageTable(settings.token_documents_max)
        self._token_bodies = UsageTable(max(settings.token_bodies_bytes_max, settings.body_bytes_max))
        self._token_feeds = UsageTable(settings.token_feeds_max)
        self._documents: dict[tuple[str, str], int] = {}  # (token, document): how many rooms
        self._blocked = DeadlineTable(settings.limit_keys_max)
        self._good = DeadlineTable(settings.limit_keys_max)  # tokens that were verified not long ago
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
        """Whether it is this machine itself."""
        return origin.local and not self._settings.limit_loopback

    # --- connections

    def connect(self, peer: str, *, now: float) -> LimitExceeded | None:
        """A TCP connection came; who gets None gives it back with `disconnect`. Proxies carry everybody."""
        if self._uncounted(peer):
            return None
        key = key_of(peer)
        if seconds := self._connects.take(key, 1, now=now):
            return self._no(
                LimitReason.ADDRESS_CONNECTS, seconds, "new connections come too quickly from there"
            )
        return self.enter_address(peer)

    def disconnect(self, peer: str) -> None:
        """A connection that `connect` let in is gone."""
        if not self._uncounted(peer):
            self.leave_address(peer)

    def enter_address(self, address: str) -> LimitExceeded | None:
        """One connection more of this address; None: give it back with `leave_address`."""
        if self._address_connections.enter(key_of(address)):
            return None
        most = self._settings.address_connections_max
        return self._no(
            LimitReason.ADDRESS_CONNECTIONS, 5.0, f"{most} connections of one address are the most"
        )

    def leave_address(self, address: str) -> None:
        """One less."""
        self._address_connections.leave(key_of(address))

    def enter_token(self, key: str) -> LimitExceeded | None:
        """One WebSocket more of this token; None: give it back with `leave_token`."""
        if self._token_connections.enter(key):
            return None
        most = self._settings.token_connections_max
        return self._no(LimitReason.TOKEN_CONNECTIONS, 5.0, f"{most} connections of one token are the most")

    def leave_token(self, key: str) -> None:
        """One less."""
        self._token_connections.leave(key)

    def _uncounted(self, peer: str) -> bool:
        if self.proxies.trusts(peer):
            return True
        return self.exempt(self.proxies.origin(peer, ()))

    # --- requests

    def request(self, address: str, *, body: bool, now: float) -> LimitExceeded | None:
        """A request of an address. A body that was begun is read to its end: the next request pays for it."""
        key = key_of(address)
        if body and (seconds := self._bytes.wait(key, now=now)):
            return self._no(LimitReason.ADDRESS_BYTES, seconds, "too many bytes come from this address")
        if seconds := self._requests.take(key, 1, now=now):
            return self._no(LimitReason.ADDRESS_REQUESTS, seconds, "too many requests come from this address")
        return None

    def token_request(self, key: str, *, body: bool, now: float) -> LimitExceeded | None:
        """The same request, once it is known whose it is."""
        if body and (seconds := self._token_bytes.wait(key, now=now)):
            return self._no(LimitReason.TOKEN_BYTES, seconds, "too many bytes come with this token")
        if seconds := self._token_requests.take(key, 1, now=now):
            return self._no(LimitReason.TOKEN_REQUESTS, seconds, "too many requests come with this token")
        return None

    def received(self, address: str, key: str, size: int, *, now: float) -> None:
        """So many bytes of a body came; what is empty is not counted."""
        if address:
            self._bytes.charge(key_of(address), size, now=now)
        if key:
            self._token_bytes.charge(key, size, now=now)

    def hold(self, key: str, size: int) -> LimitExceeded | None:
        """So many bytes of bodies and answers of a token more; None: give them back with `release`."""
        if not key or self._token_bodies.enter(key, size):
            return None
        return self._no(LimitReason.TOKEN_BODIES, 1.0, "this token has too many large bodies under way")

    def release(self, key: str, size: int) -> None:
        """They are not in memory any more."""
        if key:
            self._token_bodies.leave(key, size)

    def enter_feed(self, key: str) -> LimitExceeded | None:
        """One feed more of this token; None: give it back with `leave_feed`. An empty key has no limit."""
        if not key or self._token_feeds.enter(key):
            return None
        most = self._settings.token_feeds_max
        return self._no(LimitReason.TOKEN_FEEDS, 5.0, f"{most} feeds of one token are the most")

    def leave_feed(self, key: str) -> None:
        """One less."""
        if key:
            self._token_feeds.leave(key)

    # --- WebSockets

    def frames(self, key: str, count: int, *, now: float) -> LimitExceeded | None:
        """Frames of a token, of whatever kind, on whichever of its connections."""
        if seconds := self._frames.take(key, count, now=now):
            return self._no(LimitReason.TOKEN_FRAMES, seconds, "too many frames come with this token")
        return None

    def update(self, key: str, count: int, size: int, *, now: float) -> LimitExceeded | None:
        """Updates of a token, on whichever of its connections."""
        if seconds := self._update_bytes.wait(key, now=now):
            return self._no(
                LimitReason.TOKEN_UPDATE_BYTES, seconds, "too many bytes of updates come with this token"
            )
        if seconds := self._updates.take(key, count, now=now):
            return self._no(LimitReason.TOKEN_UPDATES, seconds, "too many updates come with this token")
        self._update_bytes.charge(key, size, now=now)
        return None

    def join(self, key: str, *, now: float) -> LimitExceeded | None:
        """A JoinRequest of a token."""
        if seconds := self._joins.take(key, 1, now=now):
            return self._no(LimitReason.TOKEN_JOINS, seconds, "too many joins come with this token")
        return None

    def enter_document(self, key: str, document: str) -> LimitExceeded | None:
        """A token opens a room of a document; two rooms of one document are one. None: `leave_document`."""
        rooms = self._documents.get((key, document), 0)
        if not rooms and not self._token_documents.enter(key):
            most = self._settings.token_documents_max
            return self._no(
                LimitReason.TOKEN_DOCUMENTS, 5.0, f"{most} open documents of one token are the most"
            )
        self._documents[key, document] = rooms + 1
        return None

    def leave_document(self, key: str, document: str) -> None:
        """The room is over."""
        rooms = self._documents.pop((key, document)) - 1
        if rooms:
            self._documents[key, document] = rooms
        else:
            self._token_documents.leave(key)

    # --- tokens that were not good

    def auth_failed(self, address: str, *, now: float) -> None:
        """A token from there was refused; too many, and the address waits."""
        self.auth_failed_by(key_of(address), now=now)

    def auth_failed_by(self, key: str, *, now: float) -> None:
        """The same of somebody whose other token is good: that token waits, and nobody else there."""
        if self._failures.take(key, 1, now=now):
            self._blocked.set(key, now + self._settings.auth_block_seconds)

    def auth_passed(self, user: str, *, now: float) -> None:
        """A token was good: whoever has it is not shut out by others behind the same address."""
        self._good.set(user, now + _GOOD_SECONDS)

    def auth_blocked(self, address: str, user: str, *, now: float) -> LimitExceeded | None:
        """Whether a token from there is not even looked at now; `user` is the one that it would be."""
        if self._good.left(user, now=now):
            return None
        if seconds := self._blocked.left(key_of(address), now=now):
            return self._no(
                LimitReason.AUTH_FAILURES, seconds, "too many tokens from this address were refused"
            )
        return None

    def auth_blocked_by(self, key: str, user: str, *, now: float) -> LimitExceeded | None:
        """The same for somebody whose other token, `key`, is good: what others there guess is not theirs."""
        if self._good.left(user, now=now):
            return None
        if seconds := self._blocked.left(key, now=now):
            return self._no(
                LimitReason.AUTH_FAILURES, seconds, "too many other tokens beside this one were refused"
            )
        return None

    # --- inside

    def _no(self, why: LimitReason, seconds: float, detail: str) -> LimitExceeded:
        self.refusals.count(why)
        return LimitExceeded(why, seconds, detail)
