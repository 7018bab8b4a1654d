"""Updates above the size of a frame: cut for sending, put together again when they come.

The header names a batch, how many fragments there are and how many bytes in all; fragments may come in any
order. What is refused or too late is gone: fragments of it that still come are ignored.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lorogo_gateway.frames.fragment_budget import EVERYBODY, FragmentBudget
from lorogo_gateway.frames.frame import (
    Crdt,
    Fragment,
    FragmentHeader,
    Status,
    room_prefix,
    uleb128,
)
from lorogo_protocol.limits import KIB

_FRAGMENT_BYTES_MIN = KIB  # on average; smaller ones cost more memory than they carry
_FRAGMENTS_SPARE = 64  # so many may be as small as they like
_BATCHES_MAX = 64
NO_ROOM: Final = "too many fragments of all connections wait"


def update_frames(
    crdt: Crdt, room: str, payload: bytes, batch: bytes, *, fragment_bytes: int
) -> Iterator[bytes]:
    """One DocUpdate, or a header and fragments, ready to be sent."""
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
    """A batch of one connection."""

    crdt: Crdt
    room: str
    batch: bytes


class FragmentRefusal(NamedTuple):
    """The batch was dropped; its sender gets this status."""

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

    What was announced counts for the connection, what has come for `pool`, which is everybody's: nobody takes
    room from others with announcements alone.
    """

    __slots__ = ("_bytes_max", "_key", "_pool", "_reserved", "_seconds", "_unfinished", "_update_bytes_max")

    def __init__(
        self,
        *,
        bytes_max: int,
        update_bytes_max: int,
        seconds: float,
        pool: FragmentBudget | None = None,
        key: str = EVERYBODY,
    ) -> None:
        self._pool = pool or FragmentBudget(bytes_max, bytes_max)
        self._key = key
        self._bytes_max = bytes_max
        self._update_bytes_max = update_bytes_max
        self._seconds = seconds
        self._unfinished: dict[BatchKey, _Unfinished] = {}
        self._reserved = 0  # bytes that were announced

    @property
    def deadline(self) -> float | None:
        """When the oldest batch is too late; None if there is none."""
        return next((batch.deadline for batch in self._unfinished.values()), None)

    def knows(self, header: FragmentHeader) -> bool:
        """Whether the batch was announced before, and is not over."""
        return BatchKey(header.crdt, header.room, header.batch) in self._unfinished

    def begin(self, header: FragmentHeader, *, now: float) -> FragmentRefusal | None:
        """A batch was announced. The same header again changes nothing."""
        key = BatchKey(header.crdt, header.room, header.batch)
        if (known := self._unfinished.get(key)) is not None:
            if (known.count, known.total) == (header.count, header.total):
                return None
            return self._refuse(key, Status.INVALID_UPDATE, "a second header says something else")
        if header.total > self._update_bytes_max:
            return FragmentRefusal(key, Status.PAYLOAD_TOO_LARGE, f"it has {header.total} bytes")
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
        """The whole update, if this was its last fragment."""
        key = BatchKey(fragment.crdt, fragment.room, fragment.batch)
        batch = self._unfinished.get(key)
        if batch is None:
            return None
        if fragment.index >= batch.count:
            return self._refuse(key, Status.INVALID_UPDATE, f"{fragment.index} is no fragment of it")
        if (known := batch.parts.get(fragment.index)) is not None:
            if known == fragment.data:
                return None
            return self._refuse(key, Status.INVALID_UPDATE, "a fragment came twice, and differs")
        if not self._pool.take(self._key, len(fragment.data)):
            return self._refuse(key, Status.RATE_LIMITED, NO_ROOM)
        batch.parts[fragment.index] = fragment.data
        batch.received += len(fragment.data)
        whole = len(batch.parts) == batch.count
        if batch.received > batch.total or (whole and batch.received != batch.total):
            return self._refuse(key, Status.INVALID_UPDATE, "the fragments have not the bytes announced")
        if not whole:
            return None
        self._drop(key)
        return b"".join([batch.parts[index] for index in range(batch.count)])

    def expire(self, *, now: float) -> list[FragmentRefusal]:
        """Drop what is too late."""
        late = [key for key, batch in self._unfinished.items() if batch.deadline <= now]
        return [self._refuse(key, Status.FRAGMENT_TIMEOUT, "fragments did not come in time") for key in late]

    def forget(self, crdt: Crdt, room: str) -> None:
        """The room was left, or is joined anew: nothing of it is waited for any more."""
        for key in [key for key in self._unfinished if key.crdt is crdt and key.room == room]:
            self._drop(key)

    def drop(self, header: FragmentHeader) -> None:
        """Wait no more for a batch that was announced."""
        self._drop(BatchKey(header.crdt, header.room, header.batch))

    def close(self) -> None:
        """The connection is over: give everything back."""
        for key in list(self._unfinished):
            self._drop(key)

    def _refuse(self, key: BatchKey, status: Status, problem: str) -> FragmentRefusal:
        self._drop(key)
        return FragmentRefusal(key, status, problem)

    def _drop(self, key: BatchKey) -> None:
        batch = self._unfinished.pop(key)
        self._reserved -= batch.total
        self._pool.give_back(self._key, batch.received)
