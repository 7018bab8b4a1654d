"""The rate limit of one connection's frames, whatever their content."""

import asyncio
from collections.abc import Callable

from lorogo_gateway.limits.limiter import Limiter
from lorogo_gateway.limits.reasons import LimitReason
from lorogo_gateway.limits.request_quota import ConnectionQuota
from lorogo_gateway.limits.token_bucket import TokenBucket
from lorogo_gateway.settings import GatewaySettings

_TURN_FRAMES = 32  # in a row, before other connections get a turn
_PAUSE_SECONDS = 0.25  # without reading, which slows the client down


class FramePace:
    """A rate of the connection and one of its token, and fairness between connections.

    Above a rate the connection is not read for a while. No frame is dropped and no connection closed.
    """

    __slots__ = ("_bucket", "_clock", "_limiter", "_quota", "_settings", "_turn")

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
        """Switch to the rate of connections that have shown a valid token."""
        settings = self._settings
        self._bucket = TokenBucket(settings.frames_per_second, settings.burst_seconds, now=self._clock())

    async def turn(self) -> None:
        """Count a frame; returns when it may be handled."""
        self._turn += 1
        if self._turn >= _TURN_FRAMES:
            await self._yield_turn()
        while not self._bucket.take(1, now=self._clock()):
            self._limiter.refusals.count(LimitReason.FRAMES)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _yield_turn(self) -> None:
        await asyncio.sleep(0)
        seconds = self._quota.frames(self._turn)
        while seconds:
            await asyncio.sleep(min(seconds, _PAUSE_SECONDS))
            seconds = self._quota.frames(self._turn)
        self._turn = 0
