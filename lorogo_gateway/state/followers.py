"""Persisted presence: one subscription per document, shared by all rooms of this gateway."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from lorogo_client.session.kept_presence import KeptPresence
from lorogo_transport.ports import Subscription

PresenceListener = Callable[[bytes], None]


@dataclass(slots=True)
class PresenceFollowers:
    """The listeners of one document, and their subscription."""

    listeners: list[PresenceListener] = field(default_factory=list)
    subscription: Subscription | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    def notify(self, data: bytes) -> None:
        """Call every listener."""
        for listener in tuple(self.listeners):
            listener(data)


class PresenceSubscriptions:
    """The followers of every document."""

    def __init__(self, bucket: KeptPresence) -> None:
        self.bucket = bucket
        self._followers: dict[str, PresenceFollowers] = {}

    async def follow(self, name: str, listener: PresenceListener) -> None:
        """Call the listener with every change. Idempotent. Raises TransportError."""
        followers = self._followers.setdefault(name, PresenceFollowers())
        if listener not in followers.listeners:
            followers.listeners.append(listener)
        try:
            async with followers.opening:
                if followers.subscription is None:
                    followers.subscription = await self.bucket.follow(name, followers.notify)
        finally:
            if followers.subscription is None:
                await self.leave(name, listener)

    async def leave(self, name: str, listener: PresenceListener) -> None:
        """Remove the listener; the last one closes the subscription."""
        followers = self._followers.get(name)
        if followers is None or listener not in followers.listeners:
            return
        followers.listeners.remove(listener)
        async with followers.opening:
            if followers.listeners or self._followers.get(name) is not followers:
                return
            del self._followers[name]
            if followers.subscription is not None:
                await followers.subscription.close()
