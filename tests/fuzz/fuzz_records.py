"""Records of a journal, and of a client's store, as msgpack."""

from collections.abc import Iterable, Sequence

import msgpack

from lorogo_client.store import records as stored
from lorogo_client.store.records import UnreadableRecord
from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import MalformedRecord
from tests.fuzz.source import Source
from tests.fuzz.target import Target

_KINDS = ("u", "b", "d", "r", "e", "s", "x")
_STORED = ("snapshot", "local", "assigned", "remote", "settled", "deleted", "forgotten", "x")


def _field(source: Source) -> object:
    match source.byte() % 6:
        case 0:
            return source.blob()
        case 1:
            return [[source.number() for _ in range(source.below(5))] for _ in range(source.below(4))]
        case 2:
            return [source.number() for _ in range(source.below(70))]
        case 3:
            return "".join(source.pick("ab-_ ") for _ in range(source.below(4)))
        case 4:
            return source.number()
        case _:
            return source.value(("too-large", "read-only"))


def _value(source: Source, first: Sequence[object], second: Sequence[object]) -> object:
    if source.byte() % 2 == 0:
        try:
            return msgpack.unpackb(source.rest(), strict_map_key=False)
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
            return None
    return [source.pick(first), source.pick(second), *(_field(source) for _ in range(source.below(10)))]


def _of_a_store(source: Source) -> None:
    value = _value(source, (1, 1, 1, 2), _STORED)
    record = stored.decode(value)
    assert stored.decode(list(stored.encode(record))) == record
    assert stored.size_of(record) >= 64


def run(data: bytes) -> None:
    """The first byte chooses: a journal's record, or a store's."""
    source = Source(data)
    if source.byte() % 3 == 0:
        _of_a_store(source)
        return
    value = _value(source, _KINDS, (1, 1, 1, 0, 2))
    record = records.decode(value)
    assert records.decode_document(value) in (record, None)
    if record is not None:
        try:
            packed = msgpack.packb(records.encode(record), use_bin_type=True)
        except (OverflowError, UnicodeEncodeError):
            return  # it was no msgpack to begin with: made of Python's numbers and surrogates
        assert records.decode(msgpack.unpackb(packed, strict_map_key=False)) == record


def seeds() -> Iterable[bytes]:
    for record in (
        records.UpdateRecord(1, 2, "log", "3", 4, 5, ((7, 0, 2),), b"bytes"),
        records.BaseRecord(1, 2, 3, 4, "5", b"v", b"f", b"content"),
        records.DeletedRecord("tombstone", (), 1, 2, 3),
        records.TermRecord("restored", (), records.TermKind.RESTORED, ("tombstone",), 1, 2),
        records.ErasedRecord("erasure", (), 2, 3, 1),
        records.AnswersRecord("server", 1, 2, 3, (1, 2), {"too-large": 2}),
    ):
        yield b"\x01\0" + msgpack.packb(records.encode(record), use_bin_type=True)
    outbox = (stored.PendingUpdate(1, 2, "log", b"bytes"),)
    for kept in (
        stored.StoreSnapshot(1, None, b"replica", outbox, 3),
        stored.LocalCommit(1, 2, "", b"bytes"),
        stored.AssignedLogId(1, "log", 2, 3, None),
        stored.RemoteUpdate(1, b"bytes"),
        stored.AckedUpdate(1, "log"),
        stored.DeletionMark(1),
    ):
        yield b"\0\0" + msgpack.packb(stored.encode(kept), use_bin_type=True)
    yield bytes(
        [1, 1, 0, 0, 8, 4, 0, 1, 0, 4, 0, 2, 0, 3, 1, 0, 3, 1, 0, 4, 0, 1, 0, 4, 0, 1, 0, 1, 0, 0, 2, 1, 2]
    )


TARGET = Target(run, seeds, (MalformedRecord, UnreadableRecord))
