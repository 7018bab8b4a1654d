"""Who verifies tokens: with keys that are read again when they change, and a list of what is revoked.

async with Authority(KeySource.from_file("keys.jwks"), transport, clock) as authority:
    token = authority.verify(text)          # or TokenRefused
    token.grants.access("minutes-7")
    authority.still(token)                  # later: whether it is good yet
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Self

from lorogo_protocol import tokens
from lorogo_protocol.tokens import Keys, Token, TokenRefused
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.auth.revocations import Revocations
from lorogo_transport.clock import Clock
from lorogo_transport.listeners import ConnectionListeners, Listener
from lorogo_transport.ports import Transport
from lorogo_transport.telemetry.logs import get_logger

__all__ = ["Authority", "KeySource"]

log = get_logger(__name__)

REMEMBERED_MAX: Final = 10_000  # verified tokens, some 15 KiB each at most
REFRESH_SECONDS: Final = 5.0


class Authority:
    """Verifies tokens. Plain calls on the loop; `async with` keeps keys and revocations up to date."""

    def __init__(
        self,
        keys: KeySource,
        transport: Transport | None,
        clock: Clock,
        *,
        refresh_seconds: float = REFRESH_SECONDS,
        remembered_max: int = REMEMBERED_MAX,
    ) -> None:
        """Without a transport there is no list of what is revoked: a token then lasts until it ends."""
        self._source = keys
        self._clock = clock
        self._refresh_seconds = refresh_seconds
        self._remembered_max = remembered_max
        self._revocations = None if transport is None else Revocations(transport, clock)
        self._remembered: OrderedDict[bytes, Token] = OrderedDict()
        self._listeners = ConnectionListeners()
        self._task: asyncio.Task[None] | None = None
        self._unwatch: Callable[[], None] = lambda: None

    @property
    def keys(self) -> Keys:
        """As they are now."""
        return self._source.keys

    @property
    def ready(self) -> bool:
        """Whether tokens can be verified: what is revoked is known, and not since too long ago."""
        return self._revocations is None or self._revocations.fresh

    @property
    def known(self) -> bool:
        """Whether it was known once what is revoked."""
        return self._revocations is None or self._revocations.known

    def verify(self, text: str) -> Token:
        """What the token says, if it is good now. Raises TokenRefused."""
        if not self.ready:
            raise TokenRefused("token-unchecked", "tokens cannot be checked now: try again in a moment")
        now = self._now()
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        token = self._remembered.get(digest)
        if token is None:
            token = self._source.keys.verify(text, now=now)
            self._remembered[digest] = token
            if len(self._remembered) > self._remembered_max:
                self._remembered.popitem(last=False)
        elif token.expired(now):
            del self._remembered[digest]
            raise tokens.expired(token, now)
        else:
            self._remembered.move_to_end(digest)
        if self._revoked(token):
            raise TokenRefused("token-revoked", "the token was revoked: get a new one")
        return token

    def still(self, token: Token) -> bool:
        """Whether a token that was good is so yet: not ended, not revoked, its very key still known.

        By what we know of revocations, however old: while NATS is away nobody is thrown out who was let in.
        """
        key = self._source.keys.get(token.key_id)
        return (
            self.known
            and not token.expired(self._now())
            and key is not None
            and key.print == token.key_print
            and not self._revoked(token)
        )

    def watch(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` when keys changed or something was revoked; returns the function that stops it.

        Ask `still` again then. That a token ends by itself is not told: it says itself when.
        """
        return self._listeners.add(listener)

    async def revoke_token(self, token_id: str, expires: float | None = None) -> None:
        """Refuse this token everywhere; see `Revocations.revoke_token`."""
        await self._list().revoke_token(token_id, expires)

    async def revoke_subject(self, subject: str, until: float | None = None) -> None:
        """Refuse every token that this subject has; see `Revocations.revoke_subject`."""
        await self._list().revoke_subject(subject, until)

    async def refresh(self) -> None:
        """Read the key file now, if it changed."""
        if await asyncio.to_thread(self._source.refresh):
            self._remembered.clear()
            self._listeners.tell()

    async def __aenter__(self) -> Self:
        if self._revocations is not None:
            self._unwatch = self._revocations.watch(self._listeners.tell)
            await self._revocations.__aenter__()
        self._task = asyncio.create_task(self._keep(), name="keys")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._unwatch()
        if self._revocations is not None:
            await self._revocations.__aexit__()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._refresh_seconds)
            try:
                await self.refresh()
            except Exception:  # whatever it is: the keys that we have stay, and we look again
                log.exception("keys could not be looked at")

    def _revoked(self, token: Token) -> bool:
        return self._revocations is not None and self._revocations.refuse(token)

    def _list(self) -> Revocations:
        if self._revocations is None:
            raise ValueError("there is no list of revoked tokens here")
        return self._revocations

    def _now(self) -> float:
        return self._clock.wall_ns() / 1e9
