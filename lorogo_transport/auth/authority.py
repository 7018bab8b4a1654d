"""Verification of tokens, with keys that are reloaded when they change, and a list of revocations.

async with Authority(KeySource.from_file("keys.jwks"), transport, clock) as authority:
    token = authority.verify(text)          # or TokenRefused
    token.grants.access("minutes-7")
    authority.is_valid(token)               # later: is it still valid?
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Self

from lorogo_protocol.access import tokens
from lorogo_protocol.access.tokens import Keys, Token, TokenRefused
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.auth.revocations import Revocations
from lorogo_transport.clock import Clock
from lorogo_transport.listeners import Listeners
from lorogo_transport.ports import Transport
from lorogo_transport.tasks import cancel
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

REMEMBERED_MAX: Final = 10_000  # verified tokens, some 15 KiB each at most
REFRESH_SECONDS: Final = 5.0


class Authority:
    """Verifies tokens. Plain calls on the loop; `async with` keeps keys and revocations up to date."""

    def __init__(self, keys: KeySource, transport: Transport | None, clock: Clock) -> None:
        """Without a transport there is no list of what is revoked: a token then lasts until it ends."""
        self._source = keys
        self._clock = clock
        self._revocations = None if transport is None else Revocations(transport, clock)
        self._remembered: OrderedDict[bytes, Token] = OrderedDict()
        self._listeners: Listeners[()] = Listeners()
        self._task: asyncio.Task[None] | None = None
        self._unwatch: Callable[[], None] = lambda: None

    @property
    def keys(self) -> Keys:
        """The current keys."""
        return self._source.keys

    @property
    def ready(self) -> bool:
        """True if tokens can be verified: the revocations are known and recent."""
        return self._revocations is None or self._revocations.fresh

    @property
    def known(self) -> bool:
        """True if the revocations were read at least once."""
        return self._revocations is None or self._revocations.known

    def verify(self, text: str) -> Token:
        """Verify a token. Raises TokenRefused."""
        if not self.ready:
            raise TokenRefused("token-unchecked", "tokens cannot be checked now: try again in a moment")
        now = self._now()
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        token = self._remembered.get(digest)
        if token is None:
            token = self._source.keys.verify(text, now=now)
            self._remembered[digest] = token
            if len(self._remembered) > REMEMBERED_MAX:
                self._remembered.popitem(last=False)
        elif token.expired(now):
            del self._remembered[digest]
            raise tokens.expired(token, now)
        else:
            self._remembered.move_to_end(digest)
        if self._revoked(token):
            raise TokenRefused("token-revoked", "the token was revoked: get a new one")
        return token

    def is_valid(self, token: Token) -> bool:
        """Return whether a verified token is still valid: not expired, not revoked, its exact key known.

        Uses the known revocations, however old: while NATS is unreachable, no connected client is closed.
        """
        key = self._source.keys.get(token.key_id)
        return (
            self.known
            and not token.expired(self._now())
            and key is not None
            and key.print == token.key_print
            and not self._revoked(token)
        )

    def watch(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call `listener` when keys or revocations change; returns a function that stops it.

        Check `is_valid` again then. Expiry is not reported: the token has its expiry time.
        """
        return self._listeners.add(listener)

    async def refresh(self) -> None:
        """Reload the key file if it changed."""
        if await asyncio.to_thread(self._source.refresh):
            self._remembered.clear()
            self._listeners.notify()

    async def __aenter__(self) -> Self:
        if self._revocations is not None:
            self._unwatch = self._revocations.watch(self._listeners.notify)
            await self._revocations.__aenter__()
        self._task = asyncio.create_task(self._keep(), name="keys")
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel(self._task)
        self._unwatch()
        if self._revocations is not None:
            await self._revocations.__aexit__()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                await self.refresh()
            except Exception:  # keep the current keys and retry
                log.exception("cannot reload keys")

    def _revoked(self, token: Token) -> bool:
        return self._revocations is not None and self._revocations.refuse(token)

    def _now(self) -> float:
        return self._clock.wall_ns() / 1e9
