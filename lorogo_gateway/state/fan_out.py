"""Encodes an accepted update to frames once for all members of this gateway.

The relay calls its members one after another with the same bytes, so a cache of one encoding is enough.
"""

import random
from typing import Final

from lorogo_gateway.frames import Crdt, update_frames

_BATCHES: Final = 1 << 64


class Fanout:
    """A cache of the last encoded update."""

    __slots__ = ("_batch", "_crdt", "_fragment_bytes", "_frames", "_payload", "_room")

    def __init__(self, fragment_bytes: int, rng: random.Random) -> None:
        self._fragment_bytes = fragment_bytes
        self._batch = rng.getrandbits(64)
        self._crdt = Crdt.LORO
        self._room = ""
        self._payload = b""
        self._frames: list[bytes] = []

    def next_batch(self) -> bytes:
        """Return a batch id that is unique in this gateway."""
        self._batch = (self._batch + 1) % _BATCHES
        return self._batch.to_bytes(8, "big")

    def frames(self, crdt: Crdt, room: str, payload: bytes) -> list[bytes]:
        """Return the frames of this update; the same objects for consecutive members."""
        if payload is not self._payload or room != self._room or crdt is not self._crdt:
            batch = self.next_batch()
            size = self._fragment_bytes
            self._frames = list(update_frames(crdt, room, payload, batch, fragment_bytes=size))
            self._crdt, self._room, self._payload = crdt, room, payload
        return self._frames
