"""The token of a client: fresh before the old one ends, and what it lets its holder do (docs/decisions/0016).

What a token grants is asked here before anything is sent: a document that it does not grant fails at
once, in words, and not as silence. NATS and the owner check again; nothing rests on this.
"""

import asyncio
from collections.abc import Awaitable, Callable

from lorogo_client.errors import NotAllowed, TokenExpired
from lorogo_protocol import tokens
from lorogo_protocol.grants import Access
from lorogo_protocol.tokens import Token, TokenRefused
from lorogo_transport.clock import Clock
from lorogo_transport.errors import NotAuthorized, Unreachable
from lorogo_transport.tasks import being_cancelled
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

TokenSource = str | Callable[[], str | Awaitable[str]]

_SHARE = 0.1  # of a token's time is left when a fresh one is asked for
_AHEAD_SECONDS_MAX = 60.0
_SAME_SECONDS = 2.0  # a token that came so lately is not asked for again: many links reconnect at once
_CACHE_MAX = 10_000

_REFUSED = "refuses our credentials"  # NATS does not say why


class TokenProvider:
    """Who has a token, or none: then it may do everything that NATS lets it."""

    def __init__(self, source: TokenSource | None, clock: Clock, *, seconds: float) -> None:
        """`seconds`: how long the source may take. Raises TypeError for a source that is neither."""
        given: object = source
        if given is not None and not isinstance(given, str) and not callable(given):
            kind = type(given).__name__
            raise TypeError(f"a token is text, or a function that returns it, not {kind}: read it first")
        self._source = source
        self._clock = clock
        self._seconds = seconds
        self._asking = asyncio.Lock()
        self._token: Token | None = None
        self._came = 0.0  # when the token came, by the calendar
        self._asked = 0.0  # when it was last asked for
        self._access: dict[str, Access] = {}
        self.text = ""

    @property
    def present(self) -> bool:
        """Whether there is a token at all."""
        return self._source is not None

    @property
    def subject(self) -> str:
        """Whose token it is; "" without one."""
        return "" if self._token is None else self._token.subject

    @property
    def expired(self) -> bool:
        """Whether the token's time is over, by this machine's clock."""
        return self._token is not None and self._wall() >= self._token.expires

    @property
    def renewable(self) -> bool:
        """Whether a fresh token can be asked for."""
        return callable(self._source)

    def seconds_left(self) -> float | None:
        """Until a fresh token is worth asking for; None: never."""
        if self._token is None or not self.renewable:
            return None
        life = self._token.expires - (self._token.issued or self._came)
        ahead = min(_AHEAD_SECONDS_MAX, max(0.0, life * _SHARE))
        return self._token.expires - ahead - self._wall()

    async def fresh(self, *, anew: bool = False) -> str:
        """The token to use for a connection that is made now; `anew`: not the one that came a moment ago.

        Raises TokenRefused for what is no token, and whatever the source raises; TimeoutError.
        A source that was cancelled is Unreachable.
        """
        async with self._asking:
            if self._source is None:
                return ""
            lately = self._token is not None and self._clock.now() - self._asked < _SAME_SECONDS
            if not callable(self._source):
                text = self._source.strip()  # files end with a line end
            elif lately and not anew and not self.expired:
                return self.text
            else:
                text = await self._ask(self._source)
            if self._token is None or text != self.text:
                self._take(text)
            self._asked = self._clock.now()
            return self.text

    async def _ask(self, source: Callable[[], str | Awaitable[str]]) -> str:
        try:
            async with asyncio.timeout(self._seconds):
                given: object = source()
                text: object = await given if isinstance(given, Awaitable) else given
        except asyncio.CancelledError as error:
            if being_cancelled():
                raise
            # a task of the app's ended, not ours: we ask again later
            raise Unreachable("no token could be had: what gives it was cancelled") from error
        if not isinstance(text, str):
            kind = type(text).__name__
            raise TokenRefused("token-invalid", f"the token function returned {kind}, not the token's text")
        return text.strip()

    def access(self, document_id: str) -> Access:
        """What the token grants on this document."""
        if self._token is None:
            return Access.ADMIN
        found = self._access.get(document_id)
        if found is None:
            if len(self._access) >= _CACHE_MAX:
                self._access.clear()
            found = self._access[document_id] = self._token.grants.access(document_id)
        return found

    def denied(self, document_id: str, needed: Access) -> NotAllowed | None:
        """Why the holder may not, None if it may."""
        access = self.access(document_id)
        if access >= needed:
            return None
        given = f"only grants {access.word} on" if access else "does not grant"
        return NotAllowed(
            f"the token of {self.subject!r} {given} {document_id!r}, and {needed.word} is needed",
            document_id=document_id,
        )

    def require(self, document_id: str, needed: Access) -> None:
        """Raises NotAllowed if the token does not grant this."""
        denied = self.denied(document_id, needed)
        if denied is not None:
            raise denied

    def explained(self, problem: NotAuthorized) -> NotAuthorized:
        """The same with what to do about it, or that the token has expired if that is why."""
        if self.expired and not isinstance(problem, TokenExpired):
            return TokenExpired(f"the token of {self.subject!r} has expired: get a new one")
        if self.subject and str(problem).endswith(_REFUSED):
            return NotAuthorized(f"{problem}: if the token of {self.subject!r} was revoked, get a new one")
        return problem

    def by_pattern(self, document_id: str) -> bool:
        """Whether only a pattern grants this document, so that a connection must name it.

        What a connection without names may do is what the token says literally and of all documents.
        """
        if self._token is None:
            return self.present  # not known yet: one that names it has the rights, whatever they are
        grants = self._token.grants
        literal = max(
            (access for pattern, access in grants.table if pattern == document_id), default=Access.NONE
        )
        return max(literal, grants.everywhere) < self.access(document_id)

    def _take(self, text: str) -> None:
        self._token = tokens.peek(text)
        self.text = text
        self._came = self._wall()
        self._access.clear()

    def _wall(self) -> float:
        return self._clock.wall_ns() / 1e9
