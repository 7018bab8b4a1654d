"""Accepted updates, as the owner publishes them on `loro.accepted.{id}`: reassembly and gap detection.

Pure. LORO_PREVIOUS links each update to its predecessor: an update whose predecessor is not the last
applied one proves a gap, which only a sync can fill.
"""

from dataclasses import dataclass

from lorogo_protocol import limits
from lorogo_protocol.messages import chunks, replies
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.chunks import Assembled, ChunkAssembler
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
    payload: bytes | None  # None: announced without its bytes


class AcceptedAssembler:
    """Reassembles accepted updates of one document from messages."""

    def __init__(self) -> None:
        self._assembler = ChunkAssembler(unfinished_bytes_max=_HELD_BYTES_MAX, unfinished_updates_max=64)

    def add(self, headers: Headers, data: bytes, *, own: bool, now: float) -> AcceptedUpdate | None:
        """Return the update that this message completes; None: incomplete. Raises MalformedMessage.

        Of an `own` update only the position is kept, not the bytes.
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
                    return None  # a damaged update shows up as a gap
        return AcceptedUpdate(
            log_id=headers.get(h.LOG_ID, ""),
            sequence=replies.number(headers, h.SEQUENCE),
            previous=replies.number(headers, h.PREVIOUS),
            lease=replies.number(headers, h.LEASE),
            payload=payload,
        )


class AcceptedChain:
    """The position in the owner's chain of updates, and updates that arrived during a sync."""

    def __init__(self) -> None:
        self.head = 0  # the last applied update
        self._held: list[AcceptedUpdate] | None = None
        self._held_bytes = 0
        self._overflowed = False

    @property
    def holding(self) -> bool:
        return self._held is not None

    def hold(self) -> None:
        """Keep arriving updates until `synced`; bounded."""
        self._held, self._held_bytes, self._overflowed = [], 0, False

    def keep(self, arrived: AcceptedUpdate) -> None:
        """Keep one update; beyond the bound all are dropped, and `synced` reports it."""
        assert self._held is not None
        self._held_bytes += len(arrived.payload or b"")
        if self._overflowed or len(self._held) >= _HELD_MAX or self._held_bytes > _HELD_BYTES_MAX:
            self._held, self._overflowed = [], True
        else:
            self._held.append(arrived)

    def synced(self, sequence: int) -> tuple[list[AcceptedUpdate], bool]:
        """Advance to `sequence` after a sync; return the kept updates, and whether some were dropped."""
        held, self._held = self._held or [], None
        self.head = sequence
        return held, self._overflowed

    def sync_failed(self) -> None:
        """Drop the kept updates after a failed sync; another sync follows."""
        self._held = None

    def follows(self, arrived: AcceptedUpdate) -> bool:
        """True if no update is missing before this one."""
        return arrived.previous == self.head

    def took(self, arrived: AcceptedUpdate) -> None:
        self.head = arrived.sequence

    def behind(self, head: int) -> bool:
        """True if the owner's renewal names an update that has not arrived."""
        return head > self.head
