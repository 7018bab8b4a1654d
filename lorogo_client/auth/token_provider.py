"""The token of a client: renewed before it expires, and the access that it grants (docs/decisions/0016).

The client checks the token's grants before it sends anything, so that a missing grant raises an error
at once instead of a timeout. This check is a convenience: NATS and the owner enforce the grants.
"""

import asyncio
from collections.abc import Awaitable, Callable

from lorogo_client.errors import NotAllowed, TokenExpired
from lorogo_protocol.access import tokens
from lorogo_protocol.access.grants import Access
from lorogo_protocol.access.tokens import Token, TokenRefused
from lorogo_transport.clock import Clock
from lorogo_transport.errors import NotAuthorized, Unreachable
from lorogo_transport.tasks import being_cancelled
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

TokenSource = str | Callable[[], str | Awaitable[str]]

_SHARE = 0.1  # of a token's lifetimetime remains when it is renewed
_AHEAD_SECONDS_MAX = 60.0
_SAME_SECONDS = 2.0  # a token this recent is reused: many connections reconnect at once
_CACHE_MAX = 10_000

_REFUSED = "refuses the credentials"  # NATS gives no reason


class TokenProvider:
    """The client's token; without one the client may do everything that NATS permits."""

    def __init__(self, source: TokenSource | None, clock: Clock, *, seconds: float) -> None:
        """`seconds`: the time limit of the source. Raises TypeError for a source of another type."""
        given: object = source
        if given is not None and not isinstance(given, str) and not callable(given):
            kind = type(given).__name__
            raise TypeError(f"a token is text, or a function that returns it, not {kind}: read it first")
        self._source = source
        self._clock = clock
        self._seconds = seconds
        self._asking = asyncio.Lock()
        self._token: Token | None = None
        self._received = 0.0  # when the token arrived, Unix seconds
        self._requested = 0.0  # when the source was last called
        self._access: dict[str, Access] = {}
        self.text = ""

    @property
    def present(self) -> bool:
        """True if the client has a token source."""
        return self._source is not None

    @property
    def subject(self) -> str:
        """The token's subject; "" without a token."""
        return "" if self._token is None else self._token.subject

    @property
    def expired(self) -> bool:
        """True if the token has expired by this machine's clock."""
        return self._token is not None and self._wall() >= self._token.expires

    @property
    def renewable(self) -> bool:
        """True if the source can return a fresh token."""
        return callable(self._source)

    def seconds_left(self) -> float | None:
        """Seconds until the token should be renewed; None: never."""
        if self._token is None or not self.renewable:
            return None
        lifetime = self._token.expires - (self._token.issued or self._received)
        ahead = min(_AHEAD_SECONDS_MAX, max(0.0, lifetime * _SHARE))
        return self._token.expires - ahead - self._wall()

    async def fresh(self, *, renew: bool = False) -> str:
        """Return the token for a new connection; `renew`: do not reuse a recent one.

        Raises TokenRefused if the source returns something else, whatever the source raises, and
        TimeoutError. A cancelled source raises Unreachable.
        """
        async with self._asking:
            if self._source is None:
                return ""
            lately = self._token is not None and self._clock.now() - self._requested < _SAME_SECONDS
            if not callable(self._source):
                text = self._source.strip()  # a file ends with a newline
            elif lately and not renew and not self.expired:
                return self.text
            else:
                text = await self._ask(self._source)
            if self._token is None or text != self.text:
                self._take(text)
            self._requested = self._clock.now()
            return self.text

    async def _ask(self, source: Callable[[], str | Awaitable[str]]) -> str:
        try:
            async with asyncio.timeout(self._seconds):
                given: object = source()
                text: object = await given if isinstance(given, Awaitable) else given
        except asyncio.CancelledError as error:
            if being_cancelled():
                raise
            # a task of the app was cancelled, not this one: retried later
            raise Unreachable("cannot get a token: the token function was cancelled") from error
        if not isinstance(text, str):
            kind = type(text).__name__
            raise TokenRefused("token-invalid", f"the token function returned {kind}, not the token's text")
        return text.strip()

    def access(self, document_id: str) -> Access:
        """Return the access that the token grants on this document."""
        if self._token is None:
            return Access.ADMIN
        found = self._access.get(document_id)
        if found is None:
            if len(self._access) >= _CACHE_MAX:
                self._access.clear()
            found = self._access[document_id] = self._token.grants.access(document_id)
        return found

    def denied(self, document_id: str, needed: Access) -> NotAllowed | None:
        """Return the error if the token does not grant this access; None if it does."""
        access = self.access(document_id)
        if access >= needed:
            return None
        given = f"only grants {access.word} on" if access else "does not grant"
        return NotAllowed(
            f"the token of {self.subject!r} {given} {document_id!r}; {needed.word} is needed",
            document_id=document_id,
        )

    def require(self, document_id: str, needed: Access) -> None:
        """Raise NotAllowed if the token does not grant this access."""
        denied = self.denied(document_id, needed)
        if denied is not None:
            raise denied

    def explained(self, problem: NotAuthorized) -> NotAuthorized:
        """Return the error with a remedy, or TokenExpired if the token has expired."""
        if self.expired and not isinstance(problem, TokenExpired):
            return TokenExpired(f"the token of {self.subject!r} has expired: get a new one")
        if self.subject and str(problem).endswith(_REFUSED):
            return NotAuthorized(f"{problem}: if the token of {self.subject!r} was revoked, get a new one")
        return problem

    def by_pattern(self, document_id: str) -> bool:
        """True if only a pattern grants this document, so that a connection must name it.

        A connection without names has the permissions of literal grants and of a grant for all documents.
        """
        if self._token is None:
            return self.present  # not known yet: a connection that names the document is always sufficient
        grants = self._token.grants
        literal = max(
            (access for pattern, access in grants.table if pattern == document_id), default=Access.NONE
        )
        return max(literal, grants.everywhere) < self.access(document_id)

    def _take(self, text: str) -> None:
        self._token = tokens.peek(text)
        self.text = text
        self._received = self._wall()
        self._access.clear()

    def _wall(self) -> float:
        return self._clock.wall_ns() / 1e9
