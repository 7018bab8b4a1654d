"""Readiness of one server, and its subscription to inits, which follows the readiness.

NATS delivers each init to one server, so a server that cannot acquire documents must not subscribe.
"""

import asyncio
from collections.abc import Callable

from lorogo_protocol.messages import subjects
from lorogo_server.journal.disk_journal import DiskJournal
from lorogo_transport.errors import TransportError
from lorogo_transport.ports import Bus, Message, Subscription
from lorogo_transport.rpc.discovery import is_ready, server_stats

_AGAIN_SECONDS = 1.0


class Readiness:
    """Tells whether a server can acquire documents and ACK updates."""

    def __init__(self, bus: Bus, journal: DiskJournal | None) -> None:
        self.stopping = False  # set once the server stops
        self._bus = bus
        self._journal = journal

    @property
    def ready(self) -> bool:
        """True if the server can acquire documents and ACK updates."""
        return not self.hindrances

    @property
    def broken(self) -> bool:
        """True if the journal has stopped; only a restart of the server helps."""
        return self._journal is not None and bool(self._journal.stopped) and not self.stopping

    @property
    def full(self) -> bool:
        """True if the disk of the journal is full; the server resumes by itself once there is space."""
        return self._journal is not None and bool(self._journal.full)

    @property
    def hindrances(self) -> tuple[str, ...]:
        """Codes of the reasons for which the server is not ready; empty if it is ready."""
        found = {
            "stopping": self.stopping,
            "journal-stopped": self.broken,
            "journal-full": self.full and not self.broken,
            "nats-disconnected": not self._bus.connected,
        }
        return tuple(code for code, true in found.items() if true)


class InitSubscription:
    """Subscribes to inits while the server can acquire documents.

    With a full disk it subscribes only if no other server is ready, in order to decline the inits.
    """

    def __init__(
        self, server_id: str, bus: Bus, readiness: Readiness, on_init: Callable[[Message], None]
    ) -> None:
        self._server_id = server_id
        self._bus = bus
        self._readiness = readiness
        self._on_init = on_init
        self._subscription: Subscription | None = None
        self._updating = asyncio.Lock()

    @property
    def active(self) -> bool:
        """True while this server receives inits."""
        return self._subscription is not None

    async def update(self) -> None:
        """Subscribe or unsubscribe, as the readiness of this server requires. Raises TransportError."""
        readiness = self._readiness
        async with self._updating:
            waits = readiness.full and not readiness.broken
            alone = not waits or await self._is_only_ready_server()
            if readiness.stopping or readiness.broken or not alone:
                await self._unsubscribe()
            elif self._subscription is None:
                self._subscription = await self._bus.subscribe(
                    subjects.INIT_ALL, self._on_init, queue=subjects.INIT_QUEUE
                )

    async def close(self) -> None:
        """Unsubscribe, until the next `update()`. Raises TransportError."""
        async with self._updating:
            await self._unsubscribe()

    async def _unsubscribe(self) -> None:
        before, self._subscription = self._subscription, None
        if before is not None:
            await before.close()

    async def follow(self) -> None:
        """Update until the disk has space: other servers start and stop meanwhile. Raises TransportError."""
        await self.update()
        while self._readiness.full and not self._readiness.stopping:
            await asyncio.sleep(_AGAIN_SECONDS)
            await self.update()

    async def _is_only_ready_server(self) -> bool:
        """Return True if no other server reports ready."""
        try:
            found = await server_stats(self._bus, first_seconds=_AGAIN_SECONDS)
        except TransportError:
            return False
        return not any(is_ready(one.stats) for one in found if one.server_id != self._server_id)
