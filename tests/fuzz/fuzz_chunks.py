"""Headers and bytes of chunks in any order, and the replies to them."""

from collections.abc import Iterable

from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.messages import chunks, replies
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.chunks import Assembled, AssemblyRejected, ChunkAssembler
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason
from tests.fuzz.source import Source
from tests.fuzz.target import Target

_NAMES = (
    h.LOG_ID,
    h.CHUNK_INDEX,
    h.FINAL,
    h.CHUNK_COUNT,
    h.DIGEST,
    h.RESPONSE_INBOX,
    h.AGAIN,
    h.SEQUENCE,
    h.DURABILITY,
    h.LEASE,
    h.REASON,
    h.MESSAGE,
)
_TEXTS = ("a", "b", "true", "0", "1", "2", "999999999", "_INBOX.x.y", "ACK", "stream", "journal", "read-only")
_UPDATE_BYTES_MAX, _UNFINISHED_BYTES_MAX, _UPDATES_MAX = 600, 1200, 4


def _headers(source: Source) -> dict[str, str]:
    return {
        source.pick(_NAMES): source.pick(_TEXTS) if source.byte() % 3 else source.text()
        for _ in range(source.below(10))
    }


def _assembler() -> ChunkAssembler:
    return ChunkAssembler(
        update_bytes_max=_UPDATE_BYTES_MAX,
        unfinished_bytes_max=_UNFINISHED_BYTES_MAX,
        unfinished_updates_max=_UPDATES_MAX,
        unfinished_seconds=20.0,
        grace_seconds=3.0,
        remember_seconds=10.0,
        remember_max=3,
    )


def _consistent(assembler: ChunkAssembler) -> None:
    held = sum(partial.size for partial in assembler._partials.values())
    assert assembler.unfinished_bytes == held
    assert held == sum(len(data) for one in assembler._partials.values() for data in one.chunks.values())
    again = any(partial.again for partial in assembler._partials.values())
    assert again or held <= _UNFINISHED_BYTES_MAX
    assert assembler.unfinished <= _UPDATES_MAX
    assert len(assembler._acked) <= 3


def _assemble(source: Source) -> None:
    assembler, now, sequence = _assembler(), 0.0, 0
    seen: set[int] = set()
    while source.left:
        sequence += 1
        try:
            chunk = _chunk(source)
        except MalformedMessage:
            continue
        seen.add(sequence)
        match assembler.add(chunk, sequence=sequence, now=now):
            case Assembled() as whole:
                assert digest(whole.payload) == whole.digest == chunk.digest or whole.digest
                assert set(whole.sequences) <= seen
                assert whole.sequence == max(whole.sequences)
                assembler.acked(whole.log_id, whole.digest, whole.sequence, now=now)
            case AssemblyRejected() as refused:
                assert set(refused.sequences) <= seen
                replies.encode(replies.Nack(refused.log_id, refused.digest, refused.reason, refused.message))
        _consistent(assembler)
        if source.byte() % 8 == 0:
            now += source.below(12)
            assembler.expire(now)
            due = assembler.next_deadline()
            assert due is None or due > now
            _consistent(assembler)


def _chunk(source: Source) -> chunks.Chunk:
    if source.byte() % 4 == 0:
        return chunks.parse(_headers(source), source.blob())
    data = source.blob()
    known = {h.LOG_ID: source.pick("abcdef"), h.CHUNK_INDEX: str(source.below(5))}
    if source.byte() % 2:
        known |= {h.FINAL: "true", h.CHUNK_COUNT: str(source.below(6)), h.DIGEST: digest(data)}
    if source.byte() % 5 == 0:
        known[h.AGAIN] = "true"
    return chunks.parse(known, data)


def _there_and_back(source: Source) -> None:
    size, reverse = 1 + source.below(200), source.byte() % 2
    payload = source.rest()[:_UPDATE_BYTES_MAX]
    parts = list(chunks.split(payload, "id", chunk_bytes_max=size, inbox="_INBOX.a"))
    assembler, whole = _assembler(), None
    for sequence, part in enumerate(reversed(parts) if reverse else parts, 1):
        parsed = chunks.parse(part.headers(), part.data)
        assert parsed == part
        whole = assembler.add(parsed, sequence=sequence, now=0.0)
    assert isinstance(whole, Assembled), whole
    assert whole.payload == payload
    assert assembler.unfinished_bytes == 0


def _reply(source: Source) -> None:
    body = source.pick((b"ACK", b"NACK", b""))
    reply = replies.decode(body or source.blob(), _headers(source))
    data, headers = replies.encode(reply)
    again = replies.decode(data, headers)
    assert replies.encode(again) == (data, headers)


def run(data: bytes) -> None:
    """The first byte chooses."""
    source = Source(data)
    match source.byte() % 4:
        case 0 | 1:
            _assemble(source)
        case 2:
            _there_and_back(source)
        case _:
            _reply(source)


def seeds() -> Iterable[bytes]:
    yield bytes([0, 1, 3, *b"abc", 0, 0, 1, 1, 1, 1, 1, 3, *b"def", 0, 1, 1, 1, 1, 0, 11])
    yield bytes([0]) + bytes([1, 5, *b"hello", 1, 0, 1, 1, 1, 1]) * 4
    yield bytes([0]) + bytes([0, 3, 0, 1, 0, 1, 1, 3, 2, 1, 2, 4, *b"data", 7]) * 3
    yield bytes([2, 9, 0]) + b"a payload of some length" * 4
    yield bytes([2, 199, 1]) + bytes(500)
    yield bytes([3, 0, 5, 0, 1, 0, 4, 1, 3, 7, 1, 4, 8, 1, 9, 9, 1, 3])
    yield bytes([3, 1, 3, 10, 1, 11, 11, 0, 5, *b"why\n?", 0, 1, 0])
    assert Reason("read-only")


TARGET = Target(run, seeds, (MalformedMessage,))
