"""Messages of the log's replication, from any client that reaches the port."""

from collections.abc import Iterable

from lorogo_log.errors import LogError
from lorogo_log.format.batch import Record
from lorogo_log.replication import replica_rules
from lorogo_log.transfer import wire
from lorogo_log.transfer.wire import WireKind
from tests.fuzz.source import Source
from tests.fuzz.target import Target


def _read(data: bytes) -> None:
    header = wire.unpack_header(data[: wire.HEADER_BYTES])
    body = wire.check_body(header, data[wire.HEADER_BYTES :])
    if header.kind is WireKind.FRAMES:
        replica_rules.unpack_pieces(body)
        return
    if header.kind is WireKind.RECORD:
        record = wire.unpack_record(body)
        assert wire.unpack_record(wire.pack_record(record)) == record
        return
    said = wire.unpack(header, body)
    if isinstance(said, wire.RefusedMessage):
        assert str(said.error)
        return  # what is no UTF-8 was replaced
    again = wire.message(said, header.number)
    header_again = wire.unpack_header(again[: wire.HEADER_BYTES])
    assert wire.unpack(header_again, wire.check_body(header_again, again[wire.HEADER_BYTES :])) == said


def run(data: bytes) -> None:
    """The first byte chooses: the bytes as they are, or a body with a header that fits it."""
    source = Source(data)
    if source.byte() % 2 == 0:
        _read(source.rest())
    else:
        kind = source.pick(tuple(WireKind))
        _read(wire.pack(kind, source.rest(), 7))


def _samples() -> Iterable[wire.Message]:
    yield wire.Hello(next(iter(wire.Purpose)), name="replica")
    yield wire.HeadMessage(1, 2, 3)
    yield wire.ReplicaAck(1, 2, 3, caught_up=True)
    yield wire.Lookup(5)
    yield wire.Challenge(bytes(32), bytes(32))
    yield wire.Proof(bytes(32))
    yield wire.Catalog()


def seeds() -> Iterable[bytes]:
    kinds = tuple(WireKind)
    for said in _samples():
        yield b"\0" + wire.message(said, 1)
        yield bytes([1, kinds.index(said.kind)]) + said.pack()
    record = wire.pack_record(Record(1, 2, b"key", b"payload"))
    yield bytes([1, kinds.index(WireKind.RECORD)]) + record
    for kind in kinds:
        yield bytes([1, kinds.index(kind)]) + bytes(range(160))


TARGET = Target(run, seeds, (LogError,), bytes_max=2048)
