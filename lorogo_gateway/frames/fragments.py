"""Fragmentation of updates that are larger than a frame, and reassembly.

The header names the batch, the number of fragments and the total bytes. Fragments may arrive in any order.
Fragments of a batch that was refused or timed out are ignored.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lorogo_gateway.frames.fragment_budget import UNKEYED, FragmentBudget
from lorogo_gateway.frames.frame import (
    Crdt,
    Fragment,
    FragmentHeader,
    Status,
    room_prefix,
    uleb128,
)
from lorogo_protocol.limits import KIB

_FRAGMENT_BYTES_MIN = KIB  # on average; the memory overhead of smaller ones exceeds their data
_FRAGMENTS_SPARE = 64  # exempt from that average
_BATCHES_MAX = 64
NO_ROOM: Final = "the gateway holds too many unfinished fragments"


def update_frames(
    crdt: Crdt, room: str, payload: bytes, batch: bytes, *, fragment_bytes: int
) -> Iterator[bytes]:
    """Yield the encoded frames of an update: one DocUpdate, or a header and its fragments."""
    prefix = room_prefix(crdt, room)
    if len(payload) <= fragment_bytes:
        yield b"%b\x03\x01%b%b%b" % (prefix, uleb128(len(payload)), payload, batch)
        return
    count = -(-len(payload) // fragment_bytes)
    yield b"%b\x04%b%b%b" % (prefix, batch, uleb128(count), uleb128(len(payload)))
    view = memoryview(payload)
    for index in range(count):
        part = view[index * fragment_bytes : (index + 1) * fragment_bytes]
        head = b"%b\x05%b%b%b" % (prefix, batch, uleb128(index), uleb128(len(part)))
        yield b"".join((head, part))


class BatchKey(NamedTuple):
    """The identity of a batch within its connection."""

    crdt: Crdt
    room: str
    batch: bytes


class FragmentRefusal(NamedTuple):
    """A dropped batch, and the status to answer its sender with."""

    key: BatchKey
    status: Status
    problem: str


@dataclass(slots=True)
class _Unfinished:
    count: int
    total: int
    deadline: float
    received: int = 0
    parts: dict[int, bytes] = field(default_factory=dict)


class FragmentAssembler:
    """The unfinished batches of one connection, bounded in bytes, number and time.

    Announced bytes count for the connection, received bytes for the shared `pool`: an announcement alone
    takes no memory from other connections.
    """

    __slots__ = ("_bytes_max", "_key", "_pool", "_reserved", "_seconds", "_unfinished", "_update_bytes_max")

    def __init__(
        self,
        *,
        bytes_max: int,
        update_bytes_max: int,
        seconds: float,
        pool: FragmentBudget | None = None,
        key: str = UNKEYED,
    ) -> None:
        self._pool = pool or FragmentBudget(bytes_max, bytes_max)
        self._key = key
        self._bytes_max = bytes_max
        self._update_bytes_max = update_bytes_max
        self._seconds = seconds
        self._unfinished: dict[BatchKey, _Unfinished] = {}
        self._reserved = 0  # announced bytes

    @property
    def deadline(self) -> float | None:
        """The deadline of the oldest batch; None if there is none."""
        return next((batch.deadline for batch in self._unfinished.values()), None)

    def knows(self, header: FragmentHeader) -> bool:
        """Return whether the batch of this header is already in progress."""
        return BatchKey(header.crdt, header.room, header.batch) in self._unfinished

    def begin(self, header: FragmentHeader, *, now: float) -> FragmentRefusal | None:
        """Begin the announced batch; repeating the same header has no effect."""
        key = BatchKey(header.crdt, header.room, header.batch)
        if (known := self._unfinished.get(key)) is not None:
            if (known.count, known.total) == (header.count, header.total):
                return None
            return self._refuse(key, Status.INVALID_UPDATE, "a second header contradicts the first")
        if header.total > self._update_bytes_max:
            return FragmentRefusal(key, Status.PAYLOAD_TOO_LARGE, f"the update has {header.total} bytes")
        fair = header.total // _FRAGMENT_BYTES_MIN + _FRAGMENTS_SPARE
        if not 1 <= header.count <= min(header.total, fair):
            return FragmentRefusal(
                key, Status.INVALID_UPDATE, f"{header.count} fragments for {header.total} bytes"
            )
        if self._reserved + header.total > self._bytes_max or len(self._unfinished) >= _BATCHES_MAX:
            return FragmentRefusal(key, Status.RATE_LIMITED, "too many unfinished fragments")
        self._reserved += header.total
        self._unfinished[key] = _Unfinished(header.count, header.total, now + self._seconds)
        return None

    def add(self, fragment: Fragment) -> bytes | FragmentRefusal | None:
        """Return the whole update if this was its last missing fragment."""
        key = BatchKey(fragment.crdt, fragment.room, fragment.batch)
        batch = self._unfinished.get(key)
        if batch is None:
            return None
        if fragment.index >= batch.count:
            return self._refuse(key, Status.INVALID_UPDATE, f"index {fragment.index} is out of range")
        if (known := batch.parts.get(fragment.index)) is not None:
            if known == fragment.data:
                return None
            return self._refuse(key, Status.INVALID_UPDATE, "a repeated fragment differs from the first")
        if not self._pool.take(self._key, len(fragment.data)):
            return self._refuse(key, Status.RATE_LIMITED, NO_ROOM)
        batch.parts[fragment.index] = fragment.data
        batch.received += len(fragment.data)
        whole = len(batch.parts) == batch.count
        if batch.received > batch.total or (whole and batch.received != batch.total):
            return self._refuse(
                key, Status.INVALID_UPDATE, "the fragments do not add up to the announced bytes"
            )
        if not whole:
            return None
        self._drop(key)
        return b"".join([batch.parts[index] for index in range(batch.count)])

    def expire(self, *, now: float) -> list[FragmentRefusal]:
        """Drop the batches whose deadline has passed."""
        late = [key for key, batch in self._unfinished.items() if batch.deadline <= now]
        return [
            self._refuse(key, Status.FRAGMENT_TIMEOUT, "fragments did not arrive in time") for key in late
        ]

    def forget(self, crdt: Crdt, room: str) -> None:
        """Drop the batches of a room that was left or joined again."""
        for key in [key for key in self._unfinished if key.crdt is crdt and key.room == room]:
            self._drop(key)

    def drop(self, header: FragmentHeader) -> None:
        """Drop an announced batch."""
        self._drop(BatchKey(header.crdt, header.room, header.batch))

    def close(self) -> None:
        """Drop every batch and return its bytes to the pool."""
        for key in list(self._unfinished):
            self._drop(key)

    def _refuse(self, key: BatchKey, status: Status, problem: str) -> FragmentRefusal:
        self._drop(key)
        return FragmentRefusal(key, status, problem)

    def _drop(self, key: BatchKey) -> None:
        batch = self._unfinished.pop(key)
        self._reserved -= batch.total
        self._pool.give_back(self._key, batch.received)
