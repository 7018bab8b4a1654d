"""One request or one WebSocket, as the limiter sees it: where it came from, and whose token it has.

A `RequestQuota` is made before anything else is looked at (`middleware`). Whoever verifies tokens asks `blocked()`
before, says `failed()` when one is refused, and `passed(user)` when it is good.
"""

import time
from collections.abc import Callable

from starlette.types import Scope

from lorogo_gateway.addresses import RequestOrigin, key_of
from lorogo_gateway.limits.limiter import Limiter, LimitExceeded
from lorogo_protocol.tokens import user_of

Clock = Callable[[], float]
_QUOTA = "lorogo.quota"


class RequestQuota:
    """Who is here, for as long as the request takes."""

    __slots__ = ("_clock", "_free", "_limiter", "anonymous", "body", "origin", "key")

    def __init__(self, limiter: Limiter, origin: RequestOrigin, clock: Clock = time.monotonic) -> None:
        self._limiter = limiter
        self._clock = clock
        self._free = limiter.exempt(origin)
        self.origin = origin
        self.body = False  # whether one comes with it
        self.anonymous = (
            "" if self._free else f"@{key_of(origin.address)}"
        )  # instead of a token; empty: no limit
        self.key = self.anonymous  # of the limits per token

    @property
    def address(self) -> str:
        """As people write it; the client's own, also behind a proxy that we trust."""
        return self.origin.address

    def begin(self) -> LimitExceeded | None:
        """A request came."""
        if self._free:
            return None
        return self._limiter.request(self.address, body=self.body, now=self._clock())

    def blocked(self, token: str) -> LimitExceeded | None:
        """Whether a token from there is not to be looked at now; one that was good before is."""
        if self._free:
            return None
        return self._limiter.auth_blocked(self.address, user_of(token), now=self._clock())

    def passed(self, token_user: str) -> None:
        """A token was verified."""
        self._limiter.auth_passed(token_user, now=self._clock())

    def failed(self) -> None:
        """A token was refused."""
        if not self._free:
            self._limiter.auth_failed(self.address, now=self._clock())

    def identify(self, token_user: str | None) -> LimitExceeded | None:
        """Whose HTTP request it is; None or empty: nobody's, counted by its address."""
        if token_user:
            self.key = token_user
        if not self.key:
            return None
        return self._limiter.token_request(self.key, body=self.body, now=self._clock())

    def received(self, size: int) -> None:
        """So many bytes of its body came."""
        address = "" if self._free else self.address
        self._limiter.received(address, self.key, size, now=self._clock())

    def for_connection(self) -> "ConnectionQuota":
        """What a WebSocket has of the limits, until it is closed."""
        return ConnectionQuota(self._limiter, self, self._clock)


class ConnectionQuota:
    """One WebSocket's part in what its address and its token may do together."""

    __slots__ = ("_addressed", "_clock", "_documents", "_entered", "_key", "_limiter", "_request")

    def __init__(self, limiter: Limiter, request: RequestQuota, clock: Clock) -> None:
        self._limiter = limiter
        self._request = request
        self._clock = clock
        self._key = request.anonymous
        self._entered = ""  # the key that counts this connection
        self._addressed = False
        self._documents: list[str] = []

    @property
    def identified(self) -> bool:
        """Whether it is known whose it is."""
        return self._key != self._request.anonymous

    @property
    def key(self) -> str:
        """Whose it is in the limits per token; empty: nobody's, without a limit."""
        return self._key

    def open(self, token_user: str | None = None) -> LimitExceeded | None:
        """Count the connection, for its token if that is known. After a refusal there is nothing to close."""
        self._key = token_user or self._request.anonymous
        if token_user:
            self._request.passed(token_user)
        origin = self._request.origin
        if origin.forwarded:  # the proxy's own connection is nobody's
            if (no := self._limiter.enter_address(origin.address)) is not None:
                return no
            self._addressed = True
        no = self._enter(self._key)
        if no is not None:
            self.close()
        return no

    def identify(self, token_user: str | None) -> LimitExceeded | None:
        """Whose it is, as soon as that is known; what it has open moves along."""
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
        """Whether a token from there is not to be looked at now.

        Who has shown a good one is no stranger: their guesses are counted for that one, not for the address
        that they share with others.
        """
        if not self.identified:
            return self._request.blocked(token)
        return self._limiter.auth_blocked_by(self._key, user_of(token), now=self._clock())

    def passed(self, token_user: str) -> None:
        """A token was verified, be it the first of this connection or another."""
        self._request.passed(token_user)

    def failed(self) -> None:
        """A token was refused."""
        if self.identified:
            self._limiter.auth_failed_by(self._key, now=self._clock())
        else:
            self._request.failed()

    def frames(self, count: int) -> float:
        """0.0: so many more may be heard. Else after so many seconds."""
        if not self._key:
            return 0.0
        no = self._limiter.frames(self._key, count, now=self._clock())
        return 0.0 if no is None else no.seconds

    def update(self, count: int, size: int) -> float:
        """0.0: they may pass. Else they are dropped, and a try makes sense after so many seconds."""
        if not self._key:
            return 0.0
        no = self._limiter.update(self._key, count, size, now=self._clock())
        return 0.0 if no is None else no.seconds

    def join(self) -> float:
        """0.0: a JoinRequest may be answered now. Else after so many seconds."""
        if not self._key:
            return 0.0
        no = self._limiter.join(self._key, now=self._clock())
        return 0.0 if no is None else no.seconds

    def enter_document(self, document: str) -> LimitExceeded | None:
        """A room is opened; None: `leave_document` when it is over."""
        no = self._limiter.enter_document(self._key, document) if self._key else None
        if no is None:
            self._documents.append(document)
        return no

    def leave_document(self, document: str) -> None:
        """The room is over. Safe for one that was not entered."""
        if document in self._documents:
            self._documents.remove(document)
            if self._key:
                self._limiter.leave_document(self._key, document)

    def close(self) -> None:
        """Give everything back. Safe twice."""
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
    """Let those behind find it."""
    scope[_QUOTA] = quota


def request_quota(scope: Scope, limiter: Limiter) -> RequestQuota:
    """The quota that the middleware made, or one of the peer as it is."""
    found = scope.get(_QUOTA)
    if isinstance(found, RequestQuota):
        return found
    peer = (scope.get("client") or ("", 0))[0]
    return RequestQuota(limiter, limiter.proxies.origin(peer, ()))


def unlimited(limiter: Limiter) -> ConnectionQuota:
    """That of somebody on this machine, who counts for nothing."""
    return RequestQuota(limiter, RequestOrigin("127.0.0.1", local=True)).for_connection()
