"""The limits of one request or one WebSocket, by its address and its token.

The middleware creates a `RequestQuota` before any other processing. Code that verifies a token calls
`blocked()` first, then `failed()` if the token is refused or `passed(user)` if it is valid.
"""

import time
from collections.abc import Callable

from starlette.types import Scope

from lorogo_gateway.addresses import RequestOrigin, key_of
from lorogo_gateway.limits.limiter import Limiter, LimitExceeded
from lorogo_protocol.access.tokens import user_of

MonotonicClock = Callable[[], float]
_QUOTA = "lorogo.quota"


class RequestQuota:
    """The limits of one request."""

    __slots__ = ("_clock", "_free", "_limiter", "anonymous", "body", "key", "origin")

    def __init__(
        self, limiter: Limiter, origin: RequestOrigin, clock: MonotonicClock = time.monotonic
    ) -> None:
        self._limiter = limiter
        self._clock = clock
        self._free = limiter.exempt(origin)
        self.origin = origin
        self.body = False  # the request has a body
        self.anonymous = (
            "" if self._free else f"@{key_of(origin.address)}"
        )  # in place of a token; empty: no limit
        self.key = self.anonymous  # of the limits per token

    @property
    def address(self) -> str:
        """The client's address in text form, also behind a trusted proxy."""
        return self.origin.address

    def begin(self) -> LimitExceeded | None:
        """Count the request for its address."""
        if self._free:
            return None
        return self._limiter.request(self.address, body=self.body, now=self._clock())

    def blocked(self, token: str) -> LimitExceeded | None:
        """Return a refusal if tokens from this address are blocked, unless this one was verified recently."""
        if self._free:
            return None
        return self._limiter.auth_blocked(self.address, user_of(token), now=self._clock())

    def passed(self, token_user: str) -> None:
        """Report a verified token."""
        self._limiter.auth_passed(token_user, now=self._clock())

    def failed(self) -> None:
        """Report a refused token."""
        if not self._free:
            self._limiter.auth_failed(self.address, now=self._clock())

    def identify(self, token_user: str | None) -> LimitExceeded | None:
        """Count the request for its token; None or empty: for its address in place of a token."""
        if token_user:
            self.key = token_user
        if not self.key:
            return None
        return self._limiter.token_request(self.key, body=self.body, now=self._clock())

    def received(self, size: int) -> None:
        """Charge received bytes of the body."""
        address = "" if self._free else self.address
        self._limiter.received(address, self.key, size, now=self._clock())

    def for_connection(self) -> "ConnectionQuota":
        """Return the limits of this WebSocket; close them with the connection."""
        return ConnectionQuota(self._limiter, self, self._clock)


class ConnectionQuota:
    """One WebSocket's use of the limits of its address and its token."""

    __slots__ = ("_addressed", "_clock", "_documents", "_entered", "_key", "_limiter", "_request")

    def __init__(self, limiter: Limiter, request: RequestQuota, clock: MonotonicClock) -> None:
        self._limiter = limiter
        self._request = request
        self._clock = clock
        self._key = request.anonymous
        self._entered = ""  # the key under which this connection is counted
        self._addressed = False
        self._documents: list[str] = []

    @property
    def identified(self) -> bool:
        """True once the connection has shown a valid token."""
        return self._key != self._request.anonymous

    @property
    def key(self) -> str:
        """The key of the limits per token; empty: no limit."""
        return self._key

    def open(self, token_user: str | None = None) -> LimitExceeded | None:
        """Count the connection, for its token if that is known. After a refusal `close` is not needed."""
        self._key = token_user or self._request.anonymous
        if token_user:
            self._request.passed(token_user)
        origin = self._request.origin
        if origin.forwarded:  # the limiter did not count the proxy's TCP connection
            if (no := self._limiter.enter_address(origin.address)) is not None:
                return no
            self._addressed = True
        no = self._enter(self._key)
        if no is not None:
            self.close()
        return no

    def identify(self, token_user: str | None) -> LimitExceeded | None:
        """Move the connection and its open documents to the limits of this token."""
        key = token_user or self._request.anonymous
        if key == self._key:
            return None
        if token_user:
            self._request.passed(token_user)
        documents = list(self._documents)
        self._leave_all()
        self._key = key
        if (no := self._enter(key)) is not None:
            return no
        for document in documents:
            if (no := self.enter_document(document)) is not None:
                return no
        return None

    def blocked(self, token: str) -> LimitExceeded | None:
        """Return a refusal if tokens on this connection are blocked.

        Once a connection has shown a valid token, its refused tokens count for that token, not for the
        address that it may share with other clients.
        """
        if not self.identified:
            return self._request.blocked(token)
        return self._limiter.auth_blocked_by(self._key, user_of(token), now=self._clock())

    def passed(self, token_user: str) -> None:
        """Report a verified token, the first of this connection or a later one."""
        self._request.passed(token_user)

    def failed(self) -> None:
        """Report a refused token."""
        if self.identified:
            self._limiter.auth_failed_by(self._key, now=self._clock())
        else:
            self._request.failed()

    def frames(self, count: int) -> float:
        """Count frames; returns the seconds to wait before reading on, or 0.0."""
        if not self._key:
            return 0.0
        no = self._limiter.frames(self._key, count, now=self._clock())
        return 0.0 if no is None else no.seconds

    def update(self, count: int, size: int) -> float:
        """Count updates; 0.0: accepted. Else drop them and retry after that many seconds."""
        if not self._key:
            return 0.0
        no = self._limiter.update(self._key, count, size, now=self._clock())
        return 0.0 if no is None else no.seconds

    def join(self) -> float:
        """Count a JoinRequest; returns the seconds to wait before answering it, or 0.0."""
        if not self._key:
            return 0.0
        no = self._limiter.join(self._key, now=self._clock())
        return 0.0 if no is None else no.seconds

    def enter_document(self, document: str) -> LimitExceeded | None:
        """Count a room of the document; None: accepted, pair with `leave_document`."""
        no = self._limiter.enter_document(self._key, document) if self._key else None
        if no is None:
            self._documents.append(document)
        return no

    def leave_document(self, document: str) -> None:
        """Release a room of the document; no effect if none was entered."""
        if document in self._documents:
            self._documents.remove(document)
            if self._key:
                self._limiter.leave_document(self._key, document)

    def close(self) -> None:
        """Release everything. Idempotent."""
        self._leave_all()
        if self._addressed:
            self._addressed = False
            self._limiter.leave_address(self._request.address)

    def _enter(self, key: str) -> LimitExceeded | None:
        if not key:
            return None
        no = self._limiter.enter_token(key)
        if no is None:
            self._entered = key
        return no

    def _leave_all(self) -> None:
        for document in list(self._documents):
            self.leave_document(document)
        if self._entered:
            self._limiter.leave_token(self._entered)
            self._entered = ""


def attach(scope: Scope, quota: RequestQuota) -> None:
    """Attach the quota to the scope, for `request_quota`."""
    scope[_QUOTA] = quota


def request_quota(scope: Scope, limiter: Limiter) -> RequestQuota:
    """Return the quota that the middleware attached, or a new one for the socket's peer."""
    found = scope.get(_QUOTA)
    if isinstance(found, RequestQuota):
        return found
    peer = (scope.get("client") or ("", 0))[0]
    return RequestQuota(limiter, limiter.proxies.origin(peer, ()))


def unlimited(limiter: Limiter) -> ConnectionQuota:
    """Return the quota of a loopback connection, which is not limited."""
    return RequestQuota(limiter, RequestOrigin("127.0.0.1", local=True)).for_connection()
