"""Token verification: turns a presented token into a Principal and reports when the token ends."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from starlette.datastructures import Headers

from lorogo_gateway.auth.presented_token import PresentedToken, presented, shaped
from lorogo_gateway.auth.principal import OPEN, NotSignedIn, Principal
from lorogo_protocol.access.tokens import Token, TokenRefused
from lorogo_transport.clock import Clock, SystemClock
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

OnTokenEnd = Callable[[TokenRefused], None]

_CHECK_SECONDS_MAX = 60.0  # the wall clock may be changed while the timer runs
_CHECK_SECONDS_MIN = 0.2  # the tolerance for clock skew keeps a token valid after its expiry


class TokenVerifier(Protocol):
    """Verifies tokens by keys and revocations (lorogo_transport.auth.authority.Authority)."""

    @property
    def ready(self) -> bool:
        """True if tokens can be verified now."""

    def verify(self, text: str) -> Token:
        """Return the claims of a valid token. Raises TokenRefused."""

    def is_valid(self, token: Token) -> bool:
        """Return whether a verified token is still valid."""

    def watch(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener when tokens may have ended; returns a function that stops it."""


@dataclass(slots=True)
class _FollowedToken:
    """One token in use, and the listeners for its end."""

    principal: Principal
    listeners: dict[object, OnTokenEnd] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None


class TokenGuard:
    """Requires tokens if there are keys; without keys every request has the principal OPEN."""

    def __init__(self, authority: TokenVerifier | None = None, clock: Clock | None = None) -> None:
        self._authority = authority
        self._clock = clock or SystemClock()
        self._tokens: dict[str, _FollowedToken] = {}  # by the token's user
        self._stop: Callable[[], None] | None = None if authority is None else authority.watch(self._recheck)

    @property
    def open(self) -> bool:
        """True if no token is required."""
        return self._authority is None

    @property
    def ready(self) -> bool:
        """True if tokens can be verified now."""
        return self._authority is None or self._authority.ready

    def close(self) -> None:
        """Stop following tokens."""
        if self._stop is not None:
            self._stop()
        for followed in self._tokens.values():
            if followed.timer is not None:
                followed.timer.cancel()
        self._tokens.clear()

    # --- principals of requests

    def known(self, headers: Headers) -> Principal | None:
        """Return the principal of the request; None if it has no token. Raises NotSignedIn, TokenRefused."""
        if self._authority is None:
            return OPEN
        found = presented(headers)
        return None if found is None else self.verified(found)

    def needed(self, headers: Headers) -> Principal:
        """Return the principal of the request. Raises NotSignedIn, TokenRefused."""
        if (principal := self.known(headers)) is None:
            raise missing()
        return principal

    def verified(self, found: PresentedToken) -> Principal:
        """Return the principal of the token. Raises TokenRefused."""
        if self._authority is None:
            return OPEN
        text = shaped(found.text)
        token = self._authority.verify(text)
        return Principal(token.grants, token, text)

    def still(self, principal: Principal) -> bool:
        """Return whether the principal's token is still valid."""
        return self._authority is None or principal.token is None or self._authority.is_valid(principal.token)

    # --- the end of tokens

    def left(self, principal: Principal) -> float:
        """Return the seconds until the token expires; inf without a token."""
        return inf if principal.token is None else principal.token.expires - self._clock.wall_ns() / 1e9

    def follow(self, principal: Principal, ended: OnTokenEnd) -> Callable[[], None]:
        """Call `ended` once, when the token expires, is revoked or loses its key.

        Returns a function that removes the listener.
        """
        if self._authority is None or principal.token is None:
            return lambda: None
        user, handle = principal.token.user, object()
        followed = self._tokens.get(user)
        if followed is None:
            followed = self._tokens[user] = _FollowedToken(principal)
            self._schedule(followed)
        followed.listeners[handle] = ended
        return lambda: self._forget(user, handle)

    @property
    def followed(self) -> int:
        """The number of tokens that are followed."""
        return len(self._tokens)

    def _forget(self, user: str, handle: object) -> None:
        followed = self._tokens.get(user)
        if followed is None or followed.listeners.pop(handle, None) is None or followed.listeners:
            return
        del self._tokens[user]
        if followed.timer is not None:
            followed.timer.cancel()

    def _schedule(self, followed: _FollowedToken) -> None:
        seconds = min(max(self.left(followed.principal), _CHECK_SECONDS_MIN), _CHECK_SECONDS_MAX)
        followed.timer = asyncio.get_running_loop().call_later(seconds, self._due, followed)

    def _due(self, followed: _FollowedToken) -> None:
        if self.still(followed.principal):
            self._schedule(followed)
        else:
            self._end(followed)

    def _recheck(self) -> None:
        """Check every followed token after a revocation or a change of keys."""
        for followed in list(self._tokens.values()):
            if not self.still(followed.principal):
                self._end(followed)

    def _end(self, followed: _FollowedToken) -> None:
        assert followed.principal.token is not None
        self._tokens.pop(followed.principal.token.user, None)
        if followed.timer is not None:
            followed.timer.cancel()
        why = self._why(followed.principal)
        for ended in list(followed.listeners.values()):
            try:
                ended(why)
            except Exception:
                log.exception("a listener for the end of a token failed")

    def _why(self, principal: Principal) -> TokenRefused:
        assert self._authority is not None
        try:
            self._authority.verify(principal.text)
        except TokenRefused as refused:
            return refused
        return TokenRefused("token-invalid", "the token is no longer valid: get a new one")


def missing() -> NotSignedIn:
    """Return the error for a request without a token."""
    return NotSignedIn(
        "token-missing", "this needs a token: Authorization: Bearer ..., or sign in on the page"
    )
