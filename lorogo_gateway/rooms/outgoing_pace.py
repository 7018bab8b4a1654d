"""Payloads larger than a frame are sent at the client's pace.

backfill of a join ────────▶ deliver() ──▶ a frame, writable, a frame, writable ...
a large accepted update ──▶ Queue ──▶ the same; later updates of the room wait behind it
"""

import asyncio
from collections import deque
from collections.abc import Callable

from lorogo_gateway import frames
from lorogo_gateway.frames import Crdt
from lorogo_gateway.rooms.connection_port import ConnectionPort
from lorogo_protocol.limits import KIB

_BYTES_PER_SECOND_MIN = 100 * KIB  # required of a client, beyond `join_seconds`
_WAITING_MAX = 1024  # updates in the queue


async def deliver(port: ConnectionPort, room: str, payload: bytes, wanted: Callable[[], bool]) -> None:
    """Send the whole payload while `wanted()` is true; a client that misses the deadline is disconnected."""
    gateway, size = port.gateway, port.gateway.settings.fragment_bytes
    batch = gateway.fanout.next_batch()
    seconds = gateway.settings.join_seconds + len(payload) / _BYTES_PER_SECOND_MIN
    try:
        async with asyncio.timeout(seconds):
            for frame in frames.update_frames(Crdt.LORO, room, payload, batch, fragment_bytes=size):
                if not await port.send_paced(frame, wanted):
                    return
    except TimeoutError:
        port.slow()
        return
    gateway.counters.updates_out += 1


class OutgoingQueue:
    """A bounded queue of accepted updates of one room, starting with a large one."""

    __slots__ = ("_bytes", "_over", "_port", "_room", "_waiting", "busy")

    def __init__(self, port: ConnectionPort, room: str) -> None:
        self.busy = False  # an update is being sent, and later ones must wait
        self._port = port
        self._room = room
        self._over = False
        self._waiting: deque[bytes] = deque()
        self._bytes = 0

    def put(self, payload: bytes) -> bool:
        """Queue an update. Returns False if the queue is full; then all queued updates are dropped."""
        gateway = self._port.gateway
        crowded = self._bytes + len(payload) > gateway.settings.update_bytes_max
        if (
            (self._waiting and crowded)
            or len(self._waiting) >= _WAITING_MAX
            or not gateway.large.take(payload)
        ):
            self.drop()
            return False
        self._waiting.append(payload)
        self._bytes += len(payload)
        if not self.busy:
            self.busy = True
            self._port.tasks.spawn(self._run(), name=f"send {self._room}")
        return True

    def drop(self) -> None:
        """Drop the queued updates; the one that is being sent continues."""
        for payload in self._waiting:
            self._port.gateway.large.give_back(payload)
        self._waiting.clear()
        self._bytes = 0

    def stop(self) -> None:
        """Drop everything, also the update that is being sent."""
        self._over = True
        self.drop()

    async def _run(self) -> None:
        try:
            while self._waiting:
                payload = self._waiting.popleft()
                self._bytes -= len(payload)
                try:
                    await deliver(self._port, self._room, payload, lambda: not self._over)
                finally:
                    self._port.gateway.large.give_back(payload)
        finally:
            self.busy = False
