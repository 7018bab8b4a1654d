"""What the owner publishes on `loro.accepted.{id}`: put together, and followed without a gap.

Pure. The chain is told by LORO_PREVIOUS: an update whose predecessor is not the last one that we
took means that something was missed, and only a sync can tell what.
"""

from dataclasses import dataclass

from lorogo_protocol import chunks, limits, replies
from lorogo_protocol import headers as h
from lorogo_protocol.chunks import Assembled, ChunkAssembler
from lorogo_transport.ports import Headers

_HELD_MAX = 1024
_HELD_BYTES_MAX = 4 * limits.ACCEPTED_INLINE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class AcceptedUpdate:
    """One accepted update."""

    log_id: str
    sequence: int
    previous: int
    lease: int
    payload: bytes | None  # None: it was only announced


class AcceptedAssembler:
    """Puts the messages of one document together."""

    def __init__(self) -> None:
        self._assembler = ChunkAssembler(unfinished_bytes_max=_HELD_BYTES_MAX, unfinished_updates_max=64)

    def add(self, headers: Headers, data: bytes, *, own: bool, now: float) -> AcceptedUpdate | None:
        """The update that this message completes; None: more is to come. Raises MalformedMessage.

        Of our `own` only the place in the chain is of interest, not the bytes.
        """
        self._assembler.expire(now)
        payload: bytes | None = data
        if own and h.CHUNK_INDEX in headers and h.FINAL not in headers:
            return None
        if own or h.OMITTED in headers:
            payload = None
        elif h.CHUNK_INDEX in headers:
            chunk = chunks.parse(headers, data)
            match self._assembler.add(chunk, sequence=chunk.index + 1, now=now):
                case Assembled(payload=payload):
                    pass
                case _:
                    return None  # a damaged one shows as a gap
        return AcceptedUpdate(
            log_id=headers.get(h.LOG_ID, ""),
            sequence=replies.number(headers, h.SEQUENCE),
            previous=replies.number(headers, h.PREVIOUS),
            lease=replies.number(headers, h.LEASE),
            payload=payload,
        )


class AcceptedChain:
    """Where we stand in the owner's sequence, and what came while a sync was under way."""

    def __init__(self) -> None:
        self.head = 0  # the last update that we took
        self.top = 0  # the highest sequence that we know to be in
        self._whole = 0  # up to here a sync brought everything, also what had waited
        self._held: list[AcceptedUpdate] | None = None
        self._held_bytes = 0
        self._overflowed = False

    @property
    def holding(self) -> bool:
        return self._held is not None

    def hold(self) -> None:
        """Keep what arrives until `synced`; bounded."""
        self._held, self._held_bytes, self._overflowed = [], 0, False

    def keep(self, arrived: AcceptedUpdate) -> None:
        """Hold one update; beyond the bound all are dropped, and `synced` tells of it."""
        assert self._held is not None
        self._held_bytes += len(arrived.payload or b"")
        if self._overflowed or len(self._held) >= _HELD_MAX or self._held_bytes > _HELD_BYTES_MAX:
            self._held, self._overflowed = [], True
        else:
            self._held.append(arrived)

    def synced(self, sequence: int) -> tuple[list[AcceptedUpdate], bool]:
        """The sync brought everything up to `sequence`: what was held, and whether some was dropped."""
        held, self._held = self._held or [], None
        self.head = self.top = self._whole = sequence
        return held, self._overflowed

    def given_up(self) -> None:
        """The sync failed; another will follow."""
        self._held = None

    def follows(self, arrived: AcceptedUpdate) -> bool:
        """Whether nothing is missing before it."""
        return arrived.previous == self.head

    def took(self, arrived: AcceptedUpdate) -> None:
        self.head = arrived.sequence
        self.top = max(self.top, arrived.sequence)

    def behind(self, head: int, tail: int = 0) -> bool:
        """Whether the owner's renewal tells of an update that we have not seen.

        `tail`: of the one that was accepted last, if it had waited for the head.
        """
        return head > self.top or bool(tail and head == self.top > self._whole and tail != self.head)
