"""How quickly the frames of one connection are heard, whatever is in them."""

import asyncio
from collections.abc import Callable

from lorogo_gateway.limits.limiter import Limiter
from lorogo_gateway.limits.reasons import LimitReason
from lorogo_gateway.limits.request_quota import ConnectionQuota
from lorogo_gateway.limits.token_bucket import TokenBucket
from lorogo_gateway.settings import GatewaySettings

_TURN_FRAMES = 32  # one after another, before other connections are looked at
_PAUSE_SECONDS = 0.25  # not reading: it is how a client is slowed


class FramePace:
    """A rate for the connection and one for its token; and after a few frames it is others' turn.

    Who is above it is not read for a while. Nothing is dropped, and nobody is closed for it.
    """

    __slots__ = ("_bucket", "_clock", "_limiter", "_settings", "_quota", "_turn")

    def __init__(
        self,
        settings: GatewaySettings,
        limiter: Limiter,
        quota: ConnectionQuota,
        *,
        anonymous: bool,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._limiter = limiter
        self._quota = quota
        self._clock = clock
        self._turn = 0
        rate = settings.anonymous_frames_per_second if anonymous else settings.frames_per_second
        self._bucket = TokenBucket(rate, settings.burst_seconds, now=clock())

    def authenticated(self) -> None:
        """It has shown a token: it is no anonymous any more."""
        settings = self._settings
        self._bucket = TokenBucket(settings.frames_per_second, settings.burst_seconds, now=self._clock())

    async def turn(self) -> None:
        """A frame came: return when it may be heard."""
        self._turn += 1
        if self._turn >= _TURN_FRAMES:
            await self._others()
        while not self._bucket.take(1, now=self._clock()):
            self._limiter.refusals.count(LimitReason.FRAMES)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _others(self) -> None:
        await asyncio.sleep(0)
        seconds = self._quota.frames(self._turn)
        while seconds:
            await asyncio.sleep(min(seconds, _PAUSE_SECONDS))
            seconds = self._quota.frames(self._turn)
        self._turn = 0
