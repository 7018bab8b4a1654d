"""An update on its way: split into chunks, and put together again.

`split()` cuts a payload; `ChunkAssembler` takes chunks in any order, interleaved, twice, and says when
one is whole. Both ends use it: client to server on `loro.wal.{id}`, and every long call and reply.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lorogo_protocol import headers as h
from lorogo_protocol import limits
from lorogo_protocol.digest import digest
from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.ids import check_token, is_inbox
from lorogo_protocol.reasons import Reason

CHUNKS_MAX = 16_384  # of one update; at 64 MiB that is 4 KiB a chunk
_NUMBER_MAX = 999_999_999  # a hostile number must not allocate
_SMALL = {str(number): number for number in range(64)}  # nearly all that come


@dataclass(slots=True)
class Chunk:
    """One message of an update; nobody changes it, and frozen it would take twice as long to make."""

    log_id: str
    index: int
    data: bytes
    final: bool = False
    count: int = 0  # final chunk only
    digest: str = ""  # final chunk only
    inbox: str = ""  # final chunk only; empty: nobody waits
    again: bool = False  # it was accepted once: only the wire's own limit counts

    def headers(self) -> dict[str, str]:
        """As they travel."""
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
    """The payload as chunks; an empty payload is one empty final chunk."""
    assert chunk_bytes_max > 0
    count = max(1, -(-len(payload) // chunk_bytes_max))
    last = count - 1
    for index in range(last):
        start = index * chunk_bytes_max
        yield Chunk(log_id, index, payload[start : start + chunk_bytes_max], again=again)
    tail = payload if count == 1 else payload[last * chunk_bytes_max :]
    told = digest(payload)
    yield Chunk(log_id, last, tail, final=True, count=count, digest=told, inbox=inbox, again=again)


def chunk_bytes(max_payload: int, wanted: int = limits.CHUNK_BYTES_MAX) -> int:
    """The chunk payload to use on a server that takes `max_payload` bytes a message."""
    room = max_payload - limits.CHUNK_HEADER_BYTES_RESERVED
    if room <= 0:
        raise ValueError(f"max_payload {max_payload} leaves no room for a chunk")
    return min(wanted, room)


def parse(headers: Mapping[str, str], data: bytes) -> Chunk:
    """A chunk from its message, or MalformedMessage."""
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
    told = get(h.DIGEST, "")
    if told and not (told.isascii() and told.isdigit() and len(told) <= 20):
        raise MalformedMessage(f"{h.DIGEST} is {told[:20]!r}, not a number")
    inbox = get(h.RESPONSE_INBOX, "")
    if inbox and not is_inbox(inbox):
        raise MalformedMessage(f"{h.RESPONSE_INBOX} is {inbox[:40]!r}, where no answer may go")
    return Chunk(log_id, index, data, True, count, told, inbox, again)


def _number(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "")
    if (known := _SMALL.get(text)) is not None:
        return known
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise MalformedMessage(f"{name} is {text[:20]!r}, not a number from 0 to {_NUMBER_MAX}")
    return int(text)


class Assembled(NamedTuple):
    """All chunks are here and the digest is right."""

    log_id: str
    payload: bytes
    digest: str
    inbox: str
    first_sequence: int  # of its earliest chunk
    sequence: int  # of its final chunk
    sequences: tuple[int, ...]  # of every message that belongs to it
    again: bool = False  # it was accepted once


@dataclass(frozen=True, slots=True)
class AssemblyRejected:
    """It can never become whole as it is; the sender must start again."""

    log_id: str
    reason: Reason
    message: str
    digest: str
    inbox: str
    sequences: tuple[int, ...]  # of every message that belongs to it


@dataclass(frozen=True, slots=True)
class Repeated:
    """The final chunk of an update that was ACKed before: ACK it again."""

    log_id: str
    digest: str
    inbox: str
    sequence: int  # where it was accepted


AssemblyOutcome = Assembled | AssemblyRejected | Repeated | None


@dataclass(slots=True)
class _Partial:
    """What has come of one update."""

    opened: float
    seen_before: int  # bytes of all updates, when it was opened
    chunks: dict[int, bytes] = field(default_factory=dict)
    sequences: list[int] = field(default_factory=list)
    size: int = 0
    final: Chunk | None = None
    final_sequence: int = 0
    final_seen: float = 0.0
    again: bool = False  # one of its chunks says that it was accepted once
    refused: str = ""  # why it is too large; its bytes are gone, its final chunk gets the answer


class MemoryBudget:
    """How many bytes of unfinished updates several assemblers may hold together.

    They say what they keep and let go; somebody measures now and then what is really held. So whatever
    ends without a word is forgotten at the next measurement, and no room is lost for good.
    """

    __slots__ = ("_held", "_kept", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._held = 0
        self._kept = 0  # since then

    def measured(self, held: int) -> None:
        """So much is held now."""
        self._held, self._kept = held, 0

    def keep(self, size: int) -> None:
        """So much more is held; or less."""
        self._kept += size

    @property
    def full(self) -> bool:
        return self._held + self._kept > self.bytes_max


class ChunkAssembler:
    """Puts the updates of one document together, in bounded memory.

    A log id names one byte string and one split. An ACKed id is remembered with its digest, so its
    late chunks open no ghost; a rejected or expired id is forgotten and may begin afresh. Chunks
    may come out of order: once the final chunk is here, the others have `grace_seconds`, which is
    less than the sender's patience, so that a lost chunk is answered rather than waited out.
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
        self._seen = 0  # bytes of all chunks that came
        self._acked: OrderedDict[str, tuple[float, str, int]] = OrderedDict()  # oldest first

    @property
    def unfinished_bytes(self) -> int:
        """Held for updates that are not whole yet."""
        return self._bytes

    @property
    def unfinished(self) -> int:
        """How many updates are not whole yet."""
        return len(self._partials)

    def first_unfinished(self) -> int | None:
        """The lowest sequence that an unfinished update still needs."""
        return min((min(partial.sequences) for partial in self._partials.values()), default=None)

    def add(self, chunk: Chunk, *, sequence: int, now: float) -> AssemblyOutcome:
        """Take one chunk; None: not whole yet, or nothing to say."""
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
            # the common case, nothing kept
            return self._whole(chunk, chunk.data, (sequence,), sequence, again=chunk.again)
        return self._collect(chunk, sequence, now)

    def acked(self, log_id: str, digest_: str, sequence: int, *, now: float) -> tuple[int, ...]:
        """Remember an update that was ACKed; what came of it twice meanwhile is forgotten: its sequences."""
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
        """Drop what is not whole: its chunks are no longer where they were."""
        self._partials.clear()
        self._release(self._bytes)

    def set_limit(self, update_bytes_max: int) -> None:
        """From now on, whole updates may have so many bytes."""
        self._update_bytes_max = update_bytes_max

    def share(self, room: MemoryBudget | None) -> None:
        """From now on others count, too; or not."""
        self._room = room

    def next_deadline(self) -> float | None:
        """When `expire()` next has something to do."""
        return min((self._deadline(partial) for partial in self._partials.values()), default=None)

    def expire(self, now: float, *, span_bytes_max: int | None = None) -> list[AssemblyRejected]:
        """Drop what has been unfinished for too long; forget ACKed ids that are old enough.

        `span_bytes_max`: also drop an unfinished update when more bytes than that came since its first
        chunk, its own included. A purge of the WAL ends at the first chunk of the oldest unfinished update.
        """
        while self._acked:
            log_id, (when, _, _) = next(iter(self._acked.items()))
            if now - when < self._remember_seconds:
                break
            del self._acked[log_id]
        late = [log_id for log_id, partial in self._partials.items() if now >= self._deadline(partial)]
        expired = [self._drop(log_id, Reason.CHUNK_MISSING, "not all chunks came in time") for log_id in late]
        if span_bytes_max is None:
            return expired
        why = f"more than {span_bytes_max} bytes came to the document while it was unfinished"
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
                partial.final_seen = now  # only the first: who repeats it does not prolong the grace
            partial.final, partial.final_sequence = chunk, sequence
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
        """Hold the chunk's bytes; False if its place holds other bytes."""
        before = partial.chunks.get(chunk.index)
        if before is not None:
            return before == chunk.data
        partial.chunks[chunk.index] = chunk.data
        partial.size += len(chunk.data)
        self._bytes += len(chunk.data)
        if self._room is not None:
            self._room.keep(len(chunk.data))
        if partial.size > (most := self._limit(again=partial.again)):
            self._forget_bytes(partial, f"it has more than {most} bytes")
        elif chunk.index >= CHUNKS_MAX or len(partial.sequences) > 4 * CHUNKS_MAX:
            self._forget_bytes(partial, f"it has more than {CHUNKS_MAX} chunks")
        return True

    def _limit(self, *, again: bool) -> int:
        """How many bytes a whole update may have; of one that was accepted once, the wire's limit."""
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
        return self._whole(
            final, payload, tuple(partial.sequences), partial.final_sequence, again=partial.again
        )

    def _whole(
        self, final: Chunk, payload: bytes, sequences: tuple[int, ...], sequence: int, *, again: bool
    ) -> AssemblyOutcome:
        if len(payload) > (most := self._limit(again=again)):
            message = f"it has more than {most} bytes"
            return _rejected(final, Reason.TOO_LARGE, message, sequences)
        actual = digest(payload)
        if actual != final.digest:
            return _rejected(final, Reason.DIGEST_MISMATCH, f"the bytes have digest {actual}", sequences)
        return Assembled(
            final.log_id, payload, actual, final.inbox, min(sequences), sequence, sequences, again
        )

    def _reject(self, chunk: Chunk, reason: Reason, message: str, sequence: int) -> AssemblyRejected:
        """Refuse the final chunk and forget what came before it."""
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
        # The oldest whose going is enough; the one that just grew always is, so there is one.
        oldest = next(log_id for log_id, partial in self._partials.items() if partial.size >= excess)
        return self._drop(oldest, Reason.CHUNK_MISSING, "too many unfinished updates; this was the oldest")


def _rejected(chunk: Chunk, reason: Reason, message: str, sequences: tuple[int, ...]) -> AssemblyRejected:
    return AssemblyRejected(chunk.log_id, reason, message, chunk.digest, chunk.inbox, sequences)
