"""What does not fit a frame goes out as its reader takes it.

what a newcomer lacks ──────▶ deliver() ──▶ a frame, writable, a frame, writable ...
a large accepted update ──▶ Queue ──▶ the same; what is accepted after it waits behind it
"""

import asyncio
from collections import deque
from collections.abc import Callable

from lorogo_gateway import frames
from lorogo_gateway.frames import Crdt
from lorogo_gateway.rooms.connection_port import ConnectionPort
from lorogo_protocol.limits import KIB

_BYTES_PER_SECOND_MIN = 100 * KIB  # of a reader, after `join_seconds`
_WAITING_MAX = 1024  # updates behind a large one


async def deliver(port: ConnectionPort, room: str, payload: bytes, wanted: Callable[[], bool]) -> None:
    """Send all of it while it is wanted, with one deadline; a reader that is slower than that is dropped."""
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
    """Accepted updates of one room behind a large one, in order and bounded."""

    __slots__ = ("_bytes", "_over", "_room", "_port", "_waiting", "busy")

    def __init__(self, port: ConnectionPort, room: str) -> None:
        self.busy = False  # something is under way, and what comes must wait
        self._port = port
        self._room = room
        self._over = False
        self._waiting: deque[bytes] = deque()
        self._bytes = 0

    def put(self, payload: bytes) -> bool:
        """Send it after those before it; False: too much is under way, and what waited is dropped."""
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
        """Forget what waits; what is half sent goes on, unless it was stopped."""
        for payload in self._waiting:
            self._port.gateway.large.give_back(payload)
        self._waiting.clear()
        self._bytes = 0

    def stop(self) -> None:
        """The reader left, or must not read any more."""
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
