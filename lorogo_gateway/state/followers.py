"""One subscription per document for kept presence, whoever of this gateway listens."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from lorogo_client.session.kept_presence import KeptPresence
from lorogo_transport.ports import Subscription

Hear = Callable[[bytes], None]


@dataclass(slots=True)
class PresenceFollowers:
    """Those who listen to one document, and what they listen through."""

    hearers: list[Hear] = field(default_factory=list)
    subscription: Subscription | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    def hear(self, data: bytes) -> None:
        """Tell all."""
        for hear in tuple(self.hearers):
            hear(data)


class PresenceSubscriptions:
    """The followers of every document."""

    def __init__(self, bucket: KeptPresence) -> None:
        self.bucket = bucket
        self._followers: dict[str, PresenceFollowers] = {}

    async def follow(self, name: str, hear: Hear) -> None:
        """From now on `hear` is called; asking twice changes nothing. Raises TransportError."""
        followers = self._followers.setdefault(name, PresenceFollowers())
        if hear not in followers.hearers:
            followers.hearers.append(hear)
        try:
            async with followers.opening:
                if followers.subscription is None:
                    followers.subscription = await self.bucket.follow(name, followers.hear)
        finally:
            if followers.subscription is None:
                await self.leave(name, hear)

    async def leave(self, name: str, hear: Hear) -> None:
        """It is not called any more; the last one closes the subscription."""
        followers = self._followers.get(name)
        if followers is None or hear not in followers.hearers:
            return
        followers.hearers.remove(hear)
        async with followers.opening:
            if followers.hearers or self._followers.get(name) is not followers:
                return
            del self._followers[name]
            if followers.subscription is not None:
                await followers.subscription.close()
