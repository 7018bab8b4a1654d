"""An accepted update becomes frames once, however many members of this gateway get it.

The relay tells its members one after another, with the same bytes: remembering the last encoding is enough.
"""

import random
from typing import Final

from lorogo_gateway.frames import Crdt, update_frames

_BATCHES: Final = 1 << 64


class Fanout:
    """The last update that was encoded, and its frames."""

    __slots__ = ("_batch", "_crdt", "_fragment_bytes", "_frames", "_payload", "_room")

    def __init__(self, fragment_bytes: int, rng: random.Random) -> None:
        self._fragment_bytes = fragment_bytes
        self._batch = rng.getrandbits(64)
        self._crdt = Crdt.LORO
        self._room = ""
        self._payload = b""
        self._frames: list[bytes] = []

    def next_batch(self) -> bytes:
        """A batch id that no other of this gateway has."""
        self._batch = (self._batch + 1) % _BATCHES
        return self._batch.to_bytes(8, "big")

    def frames(self, crdt: Crdt, room: str, payload: bytes) -> list[bytes]:
        """The frames of this update: the same objects for every member that asks in turn."""
        if payload is not self._payload or room != self._room or crdt is not self._crdt:
            batch = self.next_batch()
            size = self._fragment_bytes
            self._frames = list(update_frames(crdt, room, payload, batch, fragment_bytes=size))
            self._crdt, self._room, self._payload = crdt, room, payload
        return self._frames
