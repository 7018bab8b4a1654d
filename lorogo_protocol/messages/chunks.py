"""Splits an update into chunks, and reassembles it.

`split()` cuts a payload. `ChunkAssembler` accepts chunks out of order, interleaved or repeated, and returns
complete updates. Both ends use this module: clients for `loro.wal.{id}`, and callers and owners for long
calls and replies.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lorogo_protocol import limits
from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.ids import check_token, is_inbox
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason

CHUNKS_MAX = 16_384  # of one update; at 64 MiB that is 4 KiB a chunk
_NUMBER_MAX = 999_999_999  # a hostile number must not allocate
_SMALL = {str(number): number for number in range(64)}  # the common numbers, parsed once


@dataclass(slots=True)
class Chunk:
    """One message of an update. Treat it as immutable: a frozen dataclass takes twice as long to make."""

    log_id: str
    index: int
    data: bytes
    final: bool = False
    count: int = 0  # final chunk only
    digest: str = ""  # final chunk only
    inbox: str = ""  # final chunk only; empty: the sender wants no reply
    again: bool = False  # the update was accepted once: only the protocol's own limit applies

    def headers(self) -> dict[str, str]:
        """Return the NATS headers of the chunk."""
        out = {h.LOG_ID: self.log_id, h.CHUNK_INDEX: str(self.index)}
        if self.again:
            out[h.AGAIN] = "true"
        if self.final:
            out[h.FINAL] = "true"
            out[h.DIGEST] = self.digest
            out[h.CHUNK_COUNT] = str(self.count)
            if self.inbox:
                out[h.RESPONSE_INBOX] = self.inbox
        return out


def split(
    payload: bytes, log_id: str, *, chunk_bytes_max: int, inbox: str = "", again: bool = False
) -> Iterator[Chunk]:
    """Yield the payload as chunks; an empty payload is one empty final chunk."""
    assert chunk_bytes_max > 0
    count = max(1, -(-len(payload) // chunk_bytes_max))
    last = count - 1
    for index in range(last):
        start = index * chunk_bytes_max
        yield Chunk(log_id, index, payload[start : start + chunk_bytes_max], again=again)
    tail = payload if count == 1 else payload[last * chunk_bytes_max :]
    yield Chunk(log_id, last, tail, final=True, count=count, digest=digest(payload), inbox=inbox, again=again)


def chunk_bytes(max_payload: int, wanted: int = limits.CHUNK_BYTES_MAX) -> int:
    """Return the chunk size for a NATS server with this `max_payload`. Raises ValueError."""
    room = max_payload - limits.CHUNK_HEADER_BYTES_RESERVED
    if room <= 0:
        raise ValueError(f"max_payload {max_payload} leaves no room for a chunk")
    return min(wanted, room)


def parse(headers: Mapping[str, str], data: bytes) -> Chunk:
    """Parse a chunk from its message. Raises MalformedMessage."""
    get = headers.get
    log_id = get(h.LOG_ID, "")
    if not log_id:
        raise MalformedMessage(f"no {h.LOG_ID}")
    check_token(log_id, h.LOG_ID)
    index = _number(headers, h.CHUNK_INDEX)
    again = get(h.AGAIN) == "true"
    flag = get(h.FINAL)
    if flag is None:
        return Chunk(log_id, index, data, again=again)
    if flag != "true":
        raise MalformedMessage(f"{h.FINAL} is {flag[:20]!r}, only 'true' is allowed")
    count = _number(headers, h.CHUNK_COUNT) if h.CHUNK_COUNT in headers else index + 1
    expected = get(h.DIGEST, "")
    if expected and not (expected.isascii() and expected.isdigit() and len(expected) <= 20):
        raise MalformedMessage(f"{h.DIGEST} is {expected[:20]!r}, not a number")
    inbox = get(h.RESPONSE_INBOX, "")
    if inbox and not is_inbox(inbox):
        raise MalformedMessage(f"{h.RESPONSE_INBOX} is {inbox[:40]!r}, which is not a valid inbox")
    return Chunk(log_id, index, data, True, count, expected, inbox, again)


def _number(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "")
    if (known := _SMALL.get(text)) is not None:
        return known
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise MalformedMessage(f"{name} is {text[:20]!r}, not a number from 0 to {_NUMBER_MAX}")
    return int(text)


class Assembled(NamedTuple):
    """A complete update with the right digest."""

    log_id: str
    payload: bytes
    digest: str
    inbox: str
    sequence: int  # of the message that completed it: the highest
    sequences: tuple[int, ...]  # of all its messages
    again: bool = False  # it was accepted before


@dataclass(frozen=True, slots=True)
class AssemblyRejected:
    """An update that cannot be completed; the sender must send it again from the start."""

    log_id: str
    reason: Reason
    message: str
    digest: str
    inbox: str
    sequences: tuple[int, ...]  # of all its messages


@dataclass(frozen=True, slots=True)
class Repeated:
    """The final chunk of an update that was ACKed before: ACK it again."""

    log_id: str
    digest: str
    inbox: str
    sequence: int  # of the accepted copy


AssemblyOutcome = Assembled | AssemblyRejected | Repeated | None


@dataclass(slots=True)
class _Partial:
    """The received chunks of one update."""

    opened: float
    seen_before: int  # bytes of all updates received before its first chunk
    chunks: dict[int, bytes] = field(default_factory=dict)
    sequences: list[int] = field(default_factory=list)
    size: int = 0
    final: Chunk | None = None
    final_seen: float = 0.0
    again: bool = False  # a chunk has the mark that the update was accepted before
    refused: str = ""  # why it is too large; its bytes are dropped, the reply goes to the final chunk's inbox


class MemoryBudget:
    """Memory budget for the unfinished updates of several assemblers.

    Assemblers report the bytes that they keep and release, and the owner of the budget measures the real sum
    from time to time. So the bytes of an assembler that ends without a release are freed at the next
    measurement.
    """

    __slots__ = ("_held", "_kept", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._held = 0
        self._kept = 0  # since the last measurement

    def measured(self, held: int) -> None:
        """Set the measured bytes."""
        self._held, self._kept = held, 0

    def keep(self, size: int) -> None:
        """Add bytes; a negative size releases them."""
        self._kept += size

    @property
    def full(self) -> bool:
        return self._held + self._kept > self.bytes_max


class ChunkAssembler:
    """Reassembles the updates of one document in bounded memory.

    A log id names one byte string and one split. The assembler remembers ACKed ids with their digests, so
    that late chunks do not start a new update; it forgets rejected and expired ids, which may be sent again.
    Chunks may arrive out of order: after the final chunk the others have `grace_seconds`, which is shorter
    than the sender's timeout, so that the sender of a lost chunk gets a NACK before it times out.
    """

    def __init__(
        self,
        *,
        update_bytes_max: int = limits.UPDATE_BYTES_MAX,
        unfinished_bytes_max: int = limits.UNFINISHED_BYTES_MAX,
        unfinished_updates_max: int = limits.UNFINISHED_UPDATES_MAX,
        unfinished_seconds: float = limits.UNFINISHED_SECONDS,
        grace_seconds: float = limits.CHUNK_GRACE_SECONDS,
        remember_seconds: float = limits.REMEMBER_ACKED_SECONDS,
        remember_max: int = limits.REMEMBER_ACKED_MAX,
        room: MemoryBudget | None = None,
    ) -> None:
        self._update_bytes_max = update_bytes_max
        self._unfinished_bytes_max = unfinished_bytes_max
        self._unfinished_updates_max = unfinished_updates_max
        self._unfinished_seconds = unfinished_seconds
        self._grace_seconds = grace_seconds
        self._remember_seconds = remember_seconds
        self._remember_max = remember_max
        self._room = room
        self._partials: OrderedDict[str, _Partial] = OrderedDict()  # oldest first
        self._bytes = 0
        self._seen = 0  # bytes of all received chunks
        self._acked: OrderedDict[str, tuple[float, str, int]] = OrderedDict()  # oldest first

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of incomplete updates."""
        return self._bytes

    @property
    def unfinished(self) -> int:
        """Number of incomplete updates."""
        return len(self._partials)

    def first_unfinished(self) -> int | None:
        """Return the lowest sequence of all unfinished updates."""
        return min((min(partial.sequences) for partial in self._partials.values()), default=None)

    def add(self, chunk: Chunk, *, sequence: int, now: float) -> AssemblyOutcome:
        """Add one chunk; return None while its update is incomplete, or if a late chunk needs no reply."""
        self._seen += len(chunk.data)
        known = self._acked.get(chunk.log_id)
        if known is not None and now - known[0] >= self._remember_seconds:
            del self._acked[chunk.log_id]
            known = None
        if known is not None:
            _, known_digest, known_sequence = known
            if not chunk.final:
                return None
            if chunk.digest == known_digest:
                return Repeated(chunk.log_id, chunk.digest, chunk.inbox, known_sequence)
            message = "this log id was ACKed with another digest"
            return _rejected(chunk, Reason.DIGEST_MISMATCH, message, (sequence,))
        if chunk.final and chunk.count != chunk.index + 1:
            message = f"the count is {chunk.count}, the last index {chunk.index}"
            return self._reject(chunk, Reason.CHUNK_MISSING, message, sequence)
        if chunk.final and chunk.index == 0 and chunk.log_id not in self._partials:
            # the common case: an update of one chunk
            return self._whole(chunk, chunk.data, (sequence,), again=chunk.again)
        return self._collect(chunk, sequence, now)

    def acked(self, log_id: str, digest_: str, sequence: int, *, now: float) -> tuple[int, ...]:
        """Remember an ACKed update; drop repeated chunks of it, and return their sequences."""
        forgotten: tuple[int, ...] = ()
        if (partial := self._partials.pop(log_id, None)) is not None:
            self._release(partial.size)
            forgotten = tuple(partial.sequences)
        self._acked[log_id] = (now, digest_, sequence)
        self._acked.move_to_end(log_id)
        while len(self._acked) > self._remember_max:
            self._acked.popitem(last=False)
        return forgotten

    def forget_unfinished(self) -> None:
        """Drop incomplete updates, since the stream lost their chunks."""
        self._partials.clear()
        self._release(self._bytes)

    def set_limit(self, update_bytes_max: int) -> None:
        """Set the size limit of a complete update."""
        self._update_bytes_max = update_bytes_max

    def share(self, room: MemoryBudget | None) -> None:
        """Set or remove the memory budget shared with other assemblers."""
        self._room = room

    def next_deadline(self) -> float | None:
        """Return the time at which `expire()` next has something to do."""
        return min((self._deadline(partial) for partial in self._partials.values()), default=None)

    def expire(self, now: float, *, span_bytes_max: int | None = None) -> list[AssemblyRejected]:
        """Drop updates that were unfinished for too long; forget old ACKed ids.

        `span_bytes_max`: also drop an unfinished update after more bytes than that since its first chunk, its
        own included. A purge of the WAL ends at the first chunk of the oldest unfinished update.
        """
        while self._acked:
            log_id, (when, _, _) = next(iter(self._acked.items()))
            if now - when < self._remember_seconds:
                break
            del self._acked[log_id]
        late = [log_id for log_id, partial in self._partials.items() if now >= self._deadline(partial)]
        expired = [
            self._drop(log_id, Reason.CHUNK_MISSING, "some chunks did not arrive in time") for log_id in late
        ]
        if span_bytes_max is None:
            return expired
        why = f"the document received more than {span_bytes_max} bytes while the update was unfinished"
        before = self._seen - span_bytes_max
        wide = [log_id for log_id, partial in self._partials.items() if partial.seen_before < before]
        return expired + [self._drop(log_id, Reason.CHUNK_MISSING, why) for log_id in wide]

    def _deadline(self, partial: _Partial) -> float:
        if partial.final is not None:
            return partial.final_seen + self._grace_seconds
        return partial.opened + self._unfinished_seconds

    def _collect(self, chunk: Chunk, sequence: int, now: float) -> AssemblyOutcome:
        partial = self._partials.get(chunk.log_id)
        if partial is None:
            partial = self._partials[chunk.log_id] = _Partial(now, self._seen - len(chunk.data))
        partial.sequences.append(sequence)
        partial.again = partial.again or chunk.again
        if chunk.final:
            if partial.final is None:
                partial.final_seen = (
                    now  # the first one only: a repeated final chunk does not extend the grace
                )
            partial.final = chunk
        if not partial.refused and not self._keep(partial, chunk):
            return self._drop(chunk.log_id, Reason.DIGEST_MISMATCH, f"two different chunks {chunk.index}")
        if partial.refused:
            if partial.final is None:
                return None
            return self._drop(chunk.log_id, Reason.TOO_LARGE, partial.refused)
        final = partial.final
        if final is not None:
            if max(partial.chunks) > final.index:
                message = f"a chunk has an index above the last one, {final.index}"
                return self._drop(chunk.log_id, Reason.CHUNK_MISSING, message)
            if len(partial.chunks) == final.count:
                return self._join(chunk.log_id, partial, final)
        return self._bound()

    def _keep(self, partial: _Partial, chunk: Chunk) -> bool:
        """Keep the chunk's bytes; return False if a different chunk has the same index."""
        before = partial.chunks.get(chunk.index)
        if before is not None:
            return before == chunk.data
        partial.chunks[chunk.index] = chunk.data
        partial.size += len(chunk.data)
        self._bytes += len(chunk.data)
        if self._room is not None:
            self._room.keep(len(chunk.data))
        if partial.size > (most := self._limit(again=partial.again)):
            self._forget_bytes(partial, f"the update has more than {most} bytes")
        elif chunk.index >= CHUNKS_MAX or len(partial.sequences) > 4 * CHUNKS_MAX:
            self._forget_bytes(partial, f"the update has more than {CHUNKS_MAX} chunks")
        return True

    def _limit(self, *, again: bool) -> int:
        """Return the size limit: of an update that was accepted before, the protocol's own limit."""
        return max(self._update_bytes_max, limits.UPDATE_BYTES_MAX) if again else self._update_bytes_max

    def _release(self, size: int) -> None:
        self._bytes -= size
        if self._room is not None:
            self._room.keep(-size)

    def _forget_bytes(self, partial: _Partial, why: str) -> None:
        self._release(partial.size)
        partial.chunks, partial.size, partial.refused = {}, 0, why

    def _join(self, log_id: str, partial: _Partial, final: Chunk) -> AssemblyOutcome:
        del self._partials[log_id]
        self._release(partial.size)
        payload = b"".join(partial.chunks[index] for index in range(final.count))
        return self._whole(final, payload, tuple(partial.sequences), again=partial.again)

    def _whole(
        self, final: Chunk, payload: bytes, sequences: tuple[int, ...], *, again: bool
    ) -> AssemblyOutcome:
        if len(payload) > (most := self._limit(again=again)):
            message = f"the update has more than {most} bytes"
            return _rejected(final, Reason.TOO_LARGE, message, sequences)
        actual = digest(payload)
        if actual != final.digest:
            return _rejected(final, Reason.DIGEST_MISMATCH, f"the bytes have digest {actual}", sequences)
        return Assembled(final.log_id, payload, actual, final.inbox, sequences[-1], sequences, again)

    def _reject(self, chunk: Chunk, reason: Reason, message: str, sequence: int) -> AssemblyRejected:
        """Reject the final chunk and drop the chunks before it."""
        if chunk.log_id in self._partials:
            dropped = self._drop(chunk.log_id, reason, message)
            return _rejected(chunk, reason, message, (*dropped.sequences, sequence))
        return _rejected(chunk, reason, message, (sequence,))

    def _drop(self, log_id: str, reason: Reason, message: str) -> AssemblyRejected:
        partial = self._partials.pop(log_id)
        self._release(partial.size)
        final = partial.final or Chunk(log_id, 0, b"")
        return _rejected(final, reason, message, tuple(partial.sequences))

    def _bound(self) -> AssemblyOutcome:
        if self._room is not None and self._room.full and self._bytes:
            largest = max(self._partials, key=lambda log_id: self._partials[log_id].size)
            return self._drop(largest, Reason.CHUNK_MISSING, "too many unfinished updates of all documents")
        excess = self._bytes - self._unfinished_bytes_max
        if excess > 0 and any(partial.again for partial in self._partials.values()):
            excess = self._bytes - max(self._unfinished_bytes_max, limits.UNFINISHED_BYTES_MAX)
        if excess <= 0 and len(self._partials) <= self._unfinished_updates_max:
            return None
        # The oldest one that is large enough; the one that just grew always is, so there is one.
        oldest = next(log_id for log_id, partial in self._partials.items() if partial.size >= excess)
        return self._drop(oldest, Reason.CHUNK_MISSING, "too many unfinished updates; this was the oldest")


def _rejected(chunk: Chunk, reason: Reason, message: str, sequences: tuple[int, ...]) -> AssemblyRejected:
    return AssemblyRejected(chunk.log_id, reason, message, chunk.digest, chunk.inbox, sequences)
