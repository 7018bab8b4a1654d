"""The guard at every door: turns a token into a Principal, and says when it has ended."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from starlette.datastructures import Headers

from lorogo_gateway.auth.presented_token import PresentedToken, presented, shaped
from lorogo_gateway.auth.principal import OPEN, NotSignedIn, Principal
from lorogo_protocol.tokens import Token, TokenRefused
from lorogo_transport.clock import Clock, SystemClock
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

Ended = Callable[[TokenRefused], None]

_LOOK_SECONDS_MAX = 60.0  # the wall clock may be set while we wait
_LOOK_SECONDS_MIN = 0.2  # a token that just expired may be good a moment longer


class TokenVerifier(Protocol):
    """Who knows keys and what is revoked (lorogo_transport.auth.authority.Authority)."""

    @property
    def ready(self) -> bool:
        """Whether tokens can be verified now."""

    def verify(self, text: str) -> Token:
        """What it says, if it is good. Raises TokenRefused."""

    def is_valid(self, token: Token) -> bool:
        """Whether it is good now."""

    def watch(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Be called when tokens may have ended; what is returned ends that."""


@dataclass(slots=True)
class _Life:
    """One token in use, and who is told when it ends."""

    principal: Principal
    told: dict[object, Ended] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None


class TokenGuard:
    """Asks for tokens if there are keys; without, everybody is OPEN."""

    def __init__(self, authority: TokenVerifier | None = None, clock: Clock | None = None) -> None:
        self._authority = authority
        self._clock = clock or SystemClock()
        self._lives: dict[str, _Life] = {}  # by the token's user
        self._stop: Callable[[], None] | None = None if authority is None else authority.watch(self._look)

    @property
    def open(self) -> bool:
        """Whether nobody is asked."""
        return self._authority is None

    @property
    def ready(self) -> bool:
        """Whether tokens can be checked now."""
        return self._authority is None or self._authority.ready

    def close(self) -> None:
        """Watch nothing any more."""
        if self._stop is not None:
            self._stop()
        for life in self._lives.values():
            if life.timer is not None:
                life.timer.cancel()
        self._lives.clear()

    # --- who it is

    def known(self, headers: Headers) -> Principal | None:
        """Whose request it is; None if it has no token. Raises NotSignedIn, TokenRefused."""
        if self._authority is None:
            return OPEN
        found = presented(headers)
        return None if found is None else self.verified(found)

    def needed(self, headers: Headers) -> Principal:
        """Whose request it is. Raises NotSignedIn, TokenRefused."""
        if (principal := self.known(headers)) is None:
            raise missing()
        return principal

    def verified(self, found: PresentedToken) -> Principal:
        """Whose token it is. Raises TokenRefused."""
        if self._authority is None:
            return OPEN
        text = shaped(found.text)
        token = self._authority.verify(text)
        return Principal(token.grants, token, text)

    def still(self, principal: Principal) -> bool:
        """Whether the token is good now."""
        return self._authority is None or principal.token is None or self._authority.is_valid(principal.token)

    # --- until when

    def left(self, principal: Principal) -> float:
        """For how many seconds the token is good by what it says; never ends: for ever."""
        return inf if principal.token is None else principal.token.expires - self._clock.wall_ns() / 1e9

    def follow(self, principal: Principal, ended: Ended) -> Callable[[], None]:
        """Call `ended` once, when the token ends: expired, revoked, its key gone. Returns what stops that."""
        if self._authority is None or principal.token is None:
            return lambda: None
        user, handle = principal.token.user, object()
        life = self._lives.get(user)
        if life is None:
            life = self._lives[user] = _Life(principal)
            self._schedule(life)
        life.told[handle] = ended
        return lambda: self._forget(user, handle)

    @property
    def followed(self) -> int:
        """How many tokens are in use."""
        return len(self._lives)

    def _forget(self, user: str, handle: object) -> None:
        life = self._lives.get(user)
        if life is None or life.told.pop(handle, None) is None or life.told:
            return
        del self._lives[user]
        if life.timer is not None:
            life.timer.cancel()

    def _schedule(self, life: _Life) -> None:
        seconds = min(max(self.left(life.principal), _LOOK_SECONDS_MIN), _LOOK_SECONDS_MAX)
        life.timer = asyncio.get_running_loop().call_later(seconds, self._due, life)

    def _due(self, life: _Life) -> None:
        if self.still(life.principal):
            self._schedule(life)
        else:
            self._end(life)

    def _look(self) -> None:
        """Something was revoked, or keys changed."""
        for life in list(self._lives.values()):
            if not self.still(life.principal):
                self._end(life)

    def _end(self, life: _Life) -> None:
        assert life.principal.token is not None
        self._lives.pop(life.principal.token.user, None)
        if life.timer is not None:
            life.timer.cancel()
        why = self._why(life.principal)
        for ended in list(life.told.values()):
            try:
                ended(why)
            except Exception:
                log.exception("the end of a token could not be told")

    def _why(self, principal: Principal) -> TokenRefused:
        assert self._authority is not None
        try:
            self._authority.verify(principal.text)
        except TokenRefused as refused:
            return refused
        return TokenRefused("token-invalid", "the token is not good any more: get a new one")


def missing() -> NotSignedIn:
    """Nothing was presented."""
    return NotSignedIn(
        "token-missing", "this needs a token: Authorization: Bearer ..., or sign in on the page"
    )
